/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbbytes.c: the requests about pools and bytes.
 *
 * In the partition's pool memory that was reserved becomes memory that the kernel counts. In
 * between both count it: so as far as a store's ledger says that what it writes is there already,
 * arbkernel.c leaves it out of what the kernel says. Wherever a reservation ends, the kernel is
 * asked first, as if it had ended: what it says more is booked before what was reserved is free,
 * and nobody is given the same bytes twice.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "arbhost.h"

#define POOLS_MAX 16u /* of one RESERVE */

const char *arbbytes_name(const char *text, char room[ARB_NAME_MAX + 1])
{
	snprintf(room, ARB_NAME_MAX + 1, "%.*s", (int)ARB_NAME_MAX, text);
	return *room ? room : NULL;
}

uint32_t arbbytes_list(const char *text, uint32_t *ids, uint64_t *amounts, uint32_t most)
{
	for (uint32_t n = 0; n < most; text++) {
		unsigned long long id;
		char *end;

		if (*text < '1' || *text > '9')
			return 0;
		errno = 0;
		id = strtoull(text, &end, 10);
		if (amounts) {
			if (*end != ':' || end[1] < '0' || end[1] > '9')
				return 0;
			amounts[n] = strtoull(end + 1, &end, 10);
		}
		if (errno || id > UINT32_MAX || (*end && *end != ','))
			return 0;
		ids[n++] = (uint32_t)id;
		if (!*end)
			return n;
		text = end;
	}
	return 0;
}

/* ---- pools ----------------------------------------------------------------------------------- */

static int create_pool(struct arbrequest *q)
{
	struct arbguest *c = q->client;
	const struct wire_arb *w = q->w;
	char name[ARB_NAME_MAX + 1];
	struct arb_message m = {
		.op = ARB_OP_POOL_CREATE,
		.kind = ARB_PRIVATE,
		.pool = arb_id(c, w->pool),
		.bytes = w->bytes,
		.extra = (uint64_t)w->extra_kib << 10,
		.name = arbbytes_name(q->tail, name),
	};
	struct arbpool *p;
	int r;

	if (w->pool <= WIRE_ARB_PARTITION || arbguest_has_pool(c, w->pool))
		return ARB_INVALID;
	r = arbguest_add_pool(c, w->pool, &p);
	if (r < 0)
		return r;
	r = arbstep_do(c->host, &m);
	if (r != ARB_OK)
		arbguest_drop_pool(c, p);
	return r;
}

int arbbytes_pool(struct arbrequest *q)
{
	struct arbguest *c = q->client;
	const struct wire_arb *w = q->w;
	struct arb_message m = {
		.op = ARB_OP_POOL_RESIZE, .pool = arb_id(c, w->pool), .bytes = w->bytes};
	int r;

	if (w->op == WIRE_ARB_POOL_CREATE)
		return create_pool(q);
	/* The partition's is not a client's to change. */
	if (w->pool <= WIRE_ARB_PARTITION || !arbguest_has_pool(c, w->pool))
		return ARB_INVALID;
	if (w->op == WIRE_ARB_POOL_RESIZE)
		return arbstep_do(c->host, &m);
	/* With its lease, where nothing of that is spent. */
	if (w->pool <= WIRE_LEASES)
		arbpage_end(c, w->pool - 1);
	m = (struct arb_message){.op = ARB_OP_POOL_REMOVE, .pool = arb_id(c, w->pool)};
	r = arbstep_do(c->host, &m);
	if (r == ARB_OK)
		arbguest_drop_pool(c, arbguest_pool(c, w->pool));
	return r;
}

/* ---- calls that may be withheld -------------------------------------------------------------- */

int arbbytes_call(struct arbrequest *q, const struct arb_message *m, uint32_t n)
{
	struct arbcontext *x = q->w->context ? arbguest_context(q->client, q->w->context) : NULL;
	bool free = x && !x->serial;
	int r;

	/* Before the step: its end may be among the replies. A waiting context keeps its call. */
	if (free) {
		x->serial = q->serial;
		x->op = q->w->op;
		x->quiet = q->w->flags & WIRE_ARB_QUIET;
		x->reservation = q->w->reservation;
		x->n_reservations = n;
	}
	r = arbstep_do(q->client->host, m);
	/* The core withholds no call of unbound contexts, so a PENDING one has its x. */
	if (r == ARB_PENDING)
		return r;
	if (free)
		x->serial = 0;
	if (r == ARB_TOOBIG)
		q->bytes = arbstep_capacity(q->client->host, m->pool);
	return r;
}

/* A call for more bytes, as the request says. */
static struct arb_message call_of(const struct arbrequest *q, enum arb_op op)
{
	const struct wire_arb *w = q->w;

	return (struct arb_message){
		.op = op,
		.flags = w->flags & (ARB_NONBLOCK | ARB_SPILL),
		.context = arb_id(q->client, w->context),
		.reservation = arb_id(q->client, w->reservation),
		.deadline_ns = arbstep_deadline(q->client->host, w->timeout_ms),
	};
}

/* Entries for n reservations, none of which is there. 0, -errno. */
static int add_entries(struct arbguest *c, uint32_t id, const uint32_t *pools, uint32_t n)
{
	struct arbreservation *made;

	for (uint32_t i = 0; i < n; i++) {
		int r = arbguest_add_reservation(c, id + i, &made);

		if (r < 0) {
			arbguest_look(c, id, i);
			return r;
		}
		made->pool = pools[i];
		made->asked = true;
	}
	return 0;
}

static bool any_taken(struct arbguest *c, uint32_t id, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (arbguest_reservation(c, id + i))
			return true;
	}
	return false;
}

/*
 * Looks at the kernel before a grant. A client whose granted bytes the kernel refused must not be
 * granted them again; and nobody waits for bytes that others settled or gave back untold.
 */
static void look_first(struct arbguest *c, uint64_t bytes)
{
	arbkernel_glance(c->host, c, bytes);
	if (!arbkernel_fits(c->host, bytes))
		arbkernel_refresh(c->host, NULL);
}

int arbbytes_reserve(struct arbrequest *q)
{
	struct arbguest *c = q->client;
	const struct wire_arb *w = q->w;
	uint32_t pools[POOLS_MAX] = {w->pool}, n = 1;
	uint64_t ids[POOLS_MAX], amounts[POOLS_MAX] = {w->bytes};
	struct arb_message m = call_of(q, ARB_OP_RESERVE);
	int r;

	if (*q->tail)
		n = arbbytes_list(q->tail, pools, amounts, POOLS_MAX);
	if (!n || !w->reservation || w->reservation > UINT32_MAX - n ||
	    any_taken(c, w->reservation, n))
		return ARB_INVALID;
	for (uint32_t i = 0; i < n; i++) {
		if (!arbguest_has_pool(c, pools[i]))
			return ARB_INVALID;
		ids[i] = arb_pool_id(c, pools[i]);
	}
	if (*q->tail) {
		m.list = ids;
		m.amounts = amounts;
		m.n_list = n;
	} else {
		m.pool = ids[0];
		m.bytes = amounts[0];
	}
	r = add_entries(c, w->reservation, pools, n);
	if (r < 0)
		return r;
	look_first(c, pools[0] == WIRE_ARB_PARTITION || n > 1 ? amounts[0] : 0);
	r = arbbytes_call(q, &m, n);
	if (r != ARB_PENDING)
		arbguest_look(c, w->reservation, n);
	return r;
}

/* ---- reservations ---------------------------------------------------------------------------- */

/* Its bytes are the kernel's to count from here on, or free: what the kernel says
 * is booked before they are. */
static int release(struct arbguest *c, struct arbreservation *r, bool written)
{
	int outcome;

	if (r->pool == WIRE_ARB_PARTITION) {
		*(r->sealed ? &c->sealed : &c->unsealed) -= r->bytes;
		r->bytes = 0;
		if (written)
			arbkernel_refresh(c->host, c);
		else
			arbkernel_glance(c->host, c, 0);
	}
	outcome = arbstep_about(c->host, ARB_OP_RELEASE, 0, arb_id(c, r->id));
	arbguest_look_reservation(c, r);
	return outcome;
}

static int resize(struct arbrequest *q, struct arbreservation *r)
{
	struct arbguest *c = q->client;
	struct arb_message m = call_of(q, ARB_OP_RESIZE);
	int outcome;

	m.bytes = q->w->bytes;
	if (r->pool == WIRE_ARB_PARTITION)
		look_first(c, m.bytes > r->bytes ? m.bytes - r->bytes : 0);
	outcome = arbbytes_call(q, &m, 0);
	if (outcome == ARB_TOOBIG)
		q->bytes = arbstep_capacity(c->host, arb_pool_id(c, r->pool));
	if (outcome != ARB_PENDING)
		arbguest_look_reservation(c, r);
	return outcome;
}

static int seal(struct arbrequest *q, struct arbreservation *r)
{
	struct arbguest *c = q->client;
	struct arb_message m = {
		.op = ARB_OP_SEAL, .reservation = arb_id(c, r->id), .bytes = q->w->bytes};
	int outcome;

	if (q->w->flags & WIRE_ARB_DROP)
		return release(c, r, true);
	outcome = arbstep_do(c->host, &m);
	arbguest_look_reservation(c, r);
	return outcome;
}

static int pin(struct arbrequest *q, struct arbreservation *r)
{
	struct arbguest *c = q->client;
	struct arb_message m = call_of(q, ARB_OP_PIN);
	int outcome;

	if (q->w->task && !arbguest_task(c, q->w->task))
		return ARB_INVALID;
	m.task = arb_id(c, q->w->task);
	r->unpinned = r->offered = false;
	outcome = arbbytes_call(q, &m, 0);
	if (outcome != ARB_PENDING)
		arbguest_look_reservation(c, r);
	return outcome;
}

static int spilled(struct arbrequest *q, struct arbreservation *r)
{
	struct arbguest *c = q->client;
	struct arb_message m = {
		.op = ARB_OP_SPILLED,
		.flags = q->w->flags & ARB_ALL,
		.reservation = arb_id(c, r->id),
		.bytes = q->w->bytes,
	};
	int outcome = arbstep_do(c->host, &m);

	arbguest_look_reservation(c, r);
	return outcome;
}

int arbbytes_change(struct arbrequest *q)
{
	struct arbguest *c = q->client;
	struct arbreservation *r = arbguest_reservation(c, q->w->reservation);

	if (!r || r->asked)
		return ARB_INVALID;
	switch (q->w->op) {
	case WIRE_ARB_RELEASE:
		return release(c, r, r->sealed);
	case WIRE_ARB_RESIZE:
		return resize(q, r);
	case WIRE_ARB_SEAL:
		return seal(q, r);
	case WIRE_ARB_PIN:
		return pin(q, r);
	case WIRE_ARB_UNPIN:
		if (q->w->task)
			/* only what its owner pins: others' pins are the core's own */
			return ARB_INVALID;
		r->unpinned = true;
		return arbcall_offer(c, r);
	default:
		return spilled(q, r);
	}
}
