/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbbytes.c: the requests about pools, bytes, tasks and contexts. The core keeps what a client
 * named in the client's group; ids are of the client by their upper half, whatever it says.
 *
 * In the partition's pool memory that was reserved becomes memory that the kernel counts. In
 * between both count it: so as far as a store's ledger says that what it writes is there already,
 * arbkernel.c leaves it out of what the kernel says. Wherever a reservation ends, the kernel is
 * asked first, as if it had ended: what it says more is booked before what was reserved is free,
 * and nobody is given the same bytes twice.
 */
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>

#include "arbhost.h"
#include "fields.h"

#define POOLS_MAX 16u /* of one RESERVE */

/* The text of a request as a name for the core; NULL: it is empty. */
static const char *name_of(const char *text, char room[ARB_NAME_MAX + 1])
{
	snprintf(room, ARB_NAME_MAX + 1, "%.*s", (int)ARB_NAME_MAX, text);
	return *room ? room : NULL;
}

/* Reads "id,id", with amounts "id:amount,id:amount", of most pairs at most: ids of 32 bits, not 0.
 * How many; 0: the text is not so. */
static uint32_t read_list(const char *text, uint32_t *ids, uint64_t *amounts, uint32_t most)
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

/* Are n more of that sort more than a client may have? */
static bool is_full(const struct arbguest *c, enum arb_sort sort, uint32_t n)
{
	const struct config_arbiter *k = arb_config(c->host);
	const uint64_t most[ARB_SORTS] = {
		[ARB_TASKS] = k->max_tasks,
		[ARB_CONTEXTS] = k->max_contexts,
		[ARB_HOLDS] = k->max_reservations,
		[ARB_POOLS] = k->max_pools,
	};

	return n > most[sort] || c->group.n[sort] > most[sort] - n;
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
		.name = name_of(q->tail, name),
		.group = &c->group,
	};

	if (w->pool <= WIRE_ARB_PARTITION || arbguest_has_pool(c, w->pool))
		return ARB_INVALID;
	return is_full(c, ARB_POOLS, 1) ? -EMFILE : arbstep_do(c->host, &m);
}

int arbbytes_pool(struct arbrequest *q)
{
	struct arbguest *c = q->client;
	const struct wire_arb *w = q->w;
	struct arb_message m = {
		.op = ARB_OP_POOL_RESIZE, .pool = arb_id(c, w->pool), .bytes = w->bytes};

	if (w->op == WIRE_ARB_POOL_CREATE)
		return create_pool(q);
	/* The partition's is not a client's to change. */
	if (w->pool <= WIRE_ARB_PARTITION)
		return ARB_INVALID;
	if (w->op == WIRE_ARB_POOL_RESIZE)
		return arbstep_do(c->host, &m);
	/* With its lease, where nothing of that is spent. */
	if (w->pool <= WIRE_LEASES)
		arbpage_end(c, w->pool - 1);
	m = (struct arb_message){.op = ARB_OP_POOL_REMOVE, .pool = arb_id(c, w->pool)};
	return arbstep_do(c->host, &m);
}

/* ---- calls that may be withheld -------------------------------------------------------------- */

/* Steps m, a call of q's that may be withheld: its end comes with what the answer needs. */
static int call(struct arbrequest *q, struct arb_message *m)
{
	int r;

	m->tag =
		(struct arb_tag){q->serial, q->w->reservation, (q->w->flags & WIRE_ARB_QUIET) != 0};
	r = arbstep_do(q->client->host, m);
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

	if (*q->tail)
		n = read_list(q->tail, pools, amounts, POOLS_MAX);
	if (!n || !w->reservation || w->reservation > UINT32_MAX - n)
		return ARB_INVALID;
	for (uint32_t i = 0; i < n; i++)
		ids[i] = arb_pool_id(c, pools[i]);
	if (*q->tail) {
		m.list = ids;
		m.amounts = amounts;
		m.n_list = n;
	} else {
		m.pool = ids[0];
		m.bytes = amounts[0];
	}
	if (is_full(c, ARB_HOLDS, n))
		return -EMFILE;
	m.group = &c->group;
	look_first(c, pools[0] == WIRE_ARB_PARTITION || n > 1 ? amounts[0] : 0);
	return call(q, &m);
}

/* ---- reservations ---------------------------------------------------------------------------- */

/* Its bytes are the kernel's to count from here on, or free: what the kernel says
 * is booked before they are. */
static int release(struct arbguest *c, const struct arb_reservation_info *i, bool written)
{
	if (i->pool == WIRE_ARB_PARTITION) {
		c->going[i->sealed] = i->bytes;
		if (written)
			arbkernel_refresh(c->host, c);
		else
			arbkernel_glance(c->host, c, 0);
		c->going[i->sealed] = 0;
	}
	return arbstep_about(c->host, ARB_OP_RELEASE, 0, i->id);
}

static int resize(struct arbrequest *q, const struct arb_reservation_info *i)
{
	struct arbguest *c = q->client;
	struct arb_message m = call_of(q, ARB_OP_RESIZE);
	int outcome;

	m.bytes = q->w->bytes;
	if (i->pool == WIRE_ARB_PARTITION)
		look_first(c, m.bytes > i->bytes ? m.bytes - i->bytes : 0);
	outcome = call(q, &m);
	if (outcome == ARB_TOOBIG)
		q->bytes = arbstep_capacity(c->host, i->pool);
	return outcome;
}

int arbbytes_change(struct arbrequest *q)
{
	struct arbguest *c = q->client;
	const struct wire_arb *w = q->w;
	struct arb_message m = {.reservation = arb_id(c, w->reservation), .bytes = w->bytes};
	struct arb_hold *r = arb_hold(c->host->core, m.reservation);
	struct arb_reservation_info i;
	struct arb_task_info t;

	if (!r || !arb_reservation(c->host->core, m.reservation, &i))
		return ARB_INVALID;
	switch (w->op) {
	case WIRE_ARB_RELEASE:
		return release(c, &i, i.sealed);
	case WIRE_ARB_RESIZE:
		return resize(q, &i);
	case WIRE_ARB_SEAL:
		if (w->flags & WIRE_ARB_DROP)
			return release(c, &i, true);
		m.op = ARB_OP_SEAL;
		return arbstep_do(c->host, &m);
	case WIRE_ARB_PIN:
		m = call_of(q, ARB_OP_PIN);
		m.task = arb_id(c, w->task);
		if (m.task && !arb_task(c->host->core, m.task, &t))
			return ARB_INVALID;
		r->unpinned = r->offered = false;
		return call(q, &m);
	case WIRE_ARB_UNPIN:
		if (w->task)
			/* only what its owner pins: others' pins are the core's own */
			return ARB_INVALID;
		r->unpinned = true;
		return arbcall_offer(c, r);
	default:
		m.op = ARB_OP_SPILLED;
		m.flags = w->flags & ARB_ALL;
		return arbstep_do(c->host, &m);
	}
}

/* ---- tasks and contexts ---------------------------------------------------------------------- */

static bool has_task(const struct arbguest *c, uint32_t task)
{
	struct arb_task_info i;

	return arb_task(c->host->core, arb_id(c, task), &i);
}

int arbscope_begin(struct arbrequest *q)
{
	struct arbguest *c = q->client;
	const struct wire_arb *w = q->w;
	char name[ARB_NAME_MAX + 1];
	struct arb_message m = {
		.op = ARB_OP_TASK_BEGIN,
		.task = arb_id(c, w->task),
		.other = arb_id(c, w->other),
		.value = w->value,
		.name = name_of(q->tail, name),
		.group = &c->group,
	};

	if (!w->task || (w->other && !has_task(c, w->other)))
		return ARB_INVALID;
	return is_full(c, ARB_TASKS, !has_task(c, w->task)) ? -EMFILE : arbstep_do(c->host, &m);
}

int arbscope_end(struct arbrequest *q)
{
	struct arbguest *c = q->client;
	struct arb_message m = {
		.op = ARB_OP_TASK_END,
		.flags = q->w->flags & (ARB_RELEASE | ARB_ALL),
		.task = arb_id(c, q->w->task),
	};

	/* The kernel's figures come first: else its taken bytes would be free for a moment. */
	if (m.flags & ARB_RELEASE)
		arb_owned(c->host->core, m.task, c->going);
	if (!(m.flags & ARB_ALL))
		c->going[1] = 0;
	arbkernel_refresh(c->host, c);
	memset(c->going, 0, sizeof(c->going));
	return arbstep_do(c->host, &m);
}

int arbscope_bind(struct arbrequest *q)
{
	struct arbguest *c = q->client;
	const struct wire_arb *w = q->w;
	uint64_t list[ARB_LIST_MAX];
	uint32_t ids[ARB_LIST_MAX], n = read_list(q->tail, ids, NULL, ARB_LIST_MAX), fresh = 0;
	struct arb_message m = {.op = ARB_OP_BIND,
				.kind = w->kind,
				.context = arb_id(c, w->context),
				.list = list,
				.n_list = n,
				.group = &c->group};
	struct arb_context_info i;

	if (!w->context || !n)
		return ARB_INVALID;
	for (uint32_t k = 0; k < n; k++) {
		list[k] = arb_id(c, ids[k]);
		fresh += !has_task(c, ids[k]);
	}
	if (is_full(c, ARB_TASKS, fresh) ||
	    is_full(c, ARB_CONTEXTS, !arb_context(c->host->core, m.context, &i)))
		return -EMFILE;
	return arbstep_do(c->host, &m);
}

int arbscope_unbind(struct arbrequest *q)
{
	struct arbguest *c = q->client;
	const struct wire_arb *w = q->w;
	uint64_t list[ARB_LIST_MAX];
	uint32_t ids[ARB_LIST_MAX];
	struct arb_message m = {
		.op = ARB_OP_UNBIND, .context = arb_id(c, w->context), .list = list};

	if (*q->tail)
		m.n_list = read_list(q->tail, ids, NULL, ARB_LIST_MAX);
	if (!w->context || (*q->tail && !m.n_list))
		return ARB_INVALID;
	for (uint32_t i = 0; i < m.n_list; i++)
		list[i] = arb_id(c, ids[i]);
	m.flags = m.n_list ? 0 : ARB_ALL;
	return arbstep_do(c->host, &m);
}

int arbscope_plain(struct arbrequest *q)
{
#define PLAIN(op) [WIRE_ARB_##op] = ARB_OP_##op
	static const enum arb_op ops[WIRE_ARB_OP_END] = {
		PLAIN(READY),     PLAIN(RETRY_BEGIN), PLAIN(RETRY_END),
		PLAIN(WAIT_ON),   PLAIN(WAIT_OFF),    PLAIN(SPILL_BEGIN),
		PLAIN(SPILL_END), PLAIN(CANCEL),      PLAIN(INJECT)};
	struct arbguest *c = q->client;
	const struct wire_arb *w = q->w;
	struct arb_message m = {.op = ops[w->op], .context = arb_id(c, w->context)};

	/* Of a task only where no context is named. */
	if (m.op == ARB_OP_CANCEL || m.op == ARB_OP_INJECT) {
		m.task = w->context ? 0 : arb_id(c, w->task);
	} else if (!w->context) {
		return ARB_INVALID;
	}
	if (m.op == ARB_OP_INJECT) {
		m.kind = w->kind;
		m.value = w->value;
		m.extra = w->extra_kib;
		m.pool = w->pool ? arb_pool_id(c, w->pool) : 0;
	}
	if (m.op == ARB_OP_RETRY_END)
		m.value = w->value;
	if (m.op == ARB_OP_WAIT_ON) {
		m.kind = w->kind;
		m.other = arb_id(c, w->other);
	}
	if (m.op != ARB_OP_READY)
		return arbstep_do(c->host, &m);
	arbkernel_refresh(c->host, c);
	m.deadline_ns = arbstep_deadline(c->host, w->timeout_ms);
	return call(q, &m);
}

/* STATE and STATS: a client asks about its own contexts, tasks and pools. One JSON
 * object each, as wire.h has it. */
#define MS UINT64_C(1000000)

static int say(struct arbrequest *q, struct json_object *o)
{
	o = jsonmake_end(o);
	q->text = o ? strdup(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN)) : NULL;
	json_object_put(o);
	return q->text ? ARB_OK : -ENOMEM;
}

static int say_state(struct arbrequest *q, struct json_object *o)
{
	struct arbguest *c = q->client;
	struct arb_context_info i = {.state = ARB_UNKNOWN};

	(void)arb_context(c->host->core, arb_id(c, q->w->context), &i);
	jsonmake_text(o, "state", arb_state_name(i.state));
	jsonmake_u64(o, "since_ms", i.since_ns ? (arb_now(c->host) - i.since_ns) / MS : 0);
	fields_of(o, &i, SAME(held), SAME(need));
	return say(q, o);
}

int arbstate_make(struct arbrequest *q)
{
	struct arbguest *c = q->client;
	const struct wire_arb *w = q->w;
	uint64_t pool = w->pool ? arb_pool_id(c, w->pool) : 0;
	struct arb_pool_info i;
	struct json_object *o;
	struct arb_stats s;

	if (w->pool && !arbguest_has_pool(c, w->pool))
		return ARB_INVALID;
	/* Its numbers as they are now. */
	arbkernel_refresh(c->host, c);
	jsonmake_begin();
	if (w->op == WIRE_ARB_STATE)
		return w->context ? say_state(q, jsonmake_new()) : ARB_INVALID;
	if (w->task ? !arb_stats(c->host->core, arb_id(c, w->task), pool, arb_now(c->host),
				 w->flags & ARB_RESET, &s)
		    : !arb_pool(c->host->core, pool, &i))
		return ARB_INVALID;
	o = jsonmake_new();
	if (w->task) {
		fields_of(o, &s, NUMBER(retries), NUMBER(splits), NUMBER(grants), SAME(blocked_ns),
			  SAME(lost_ns), SAME(blocked_or_lost_ns), SAME(current), SAME(max),
			  SAME(footprint), SAME(need));
	} else {
		fields_of(o, &i, SAME(capacity), SAME(used), SAME(reclaimable), SAME(spilled),
			  SAME(max_used), NUMBER(waiting));
		jsonmake_u64(o, "level", arbhost_level(c->host, &i));
	}
	return say(q, o);
}
