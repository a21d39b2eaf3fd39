/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbguest.c: one open store with a connection, as the arbiter has it: which contexts, tasks, pools
 * and reservations it named, and which of its calls are withheld.
 *
 * The core's ids are wide and trusted; a client's are its own word. The tables here are where the
 * one becomes the other: an id that is not in them is not this client's, whatever it says, and they
 * bound what it can make the core remember. State that the core knows better (bytes, owners,
 * bindings) is copied after each step that may have changed it, never reckoned.
 *
 * It ends with its connection, or its store: tasks end with all that they hold, contexts are
 * unbound, what nobody owned is released, pools go.
 */
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "arbhost.h"
#include "events.h"
#include "fields.h"
#include "jsonmake.h"

/* ---- tables ---------------------------------------------------------------------------------- */

/*
 * A table of the client's: finds an entry by its id, which stands behind its handle; or makes it,
 * within the bound that the configuration sets.
 */
#define TABLE(name, entries, most)                                                       \
	struct arb##name *arbguest_##name(struct arbguest *c, uint32_t id)               \
	{                                                                                \
		struct arb##name *e;                                                     \
                                                                                         \
		HASH_FIND(hh, c->entries, &id, sizeof(id), e);                           \
		return e;                                                                \
	}                                                                                \
                                                                                         \
	int arbguest_add_##name(struct arbguest *c, uint32_t id, struct arb##name **ret) \
	{                                                                                \
		struct arb##name *e = arbguest_##name(c, id);                            \
                                                                                         \
		if (!e) {                                                                \
			if (HASH_COUNT(c->entries) >= arb_config(c->host)->most)         \
				return -EMFILE;                                          \
			e = calloc(1, sizeof(*e));                                       \
			if (!e)                                                          \
				return -ENOMEM;                                          \
			e->id = id;                                                      \
			HASH_ADD(hh, c->entries, id, sizeof(e->id), e);                  \
			if (!e->hh.tbl) {                                                \
				free(e);                                                 \
				return -ENOMEM;                                          \
			}                                                                \
		}                                                                        \
		*ret = e;                                                                \
		return 0;                                                                \
	}

TABLE(context, contexts, max_contexts)
TABLE(task, tasks, max_tasks)
TABLE(reservation, reservations, max_reservations)

bool arbguest_has_pool(const struct arbguest *c, uint32_t pool)
{
	if (pool == WIRE_ARB_PARTITION)
		return true;
	for (uint32_t i = 0; i < c->n_pools; i++) {
		if (c->pools[i] == pool)
			return true;
	}
	return false;
}

void arbguest_look_context(struct arbguest *c, struct arbcontext *x)
{
	struct arb_context_info i;

	if (arb_context(c->host->core, arb_id(c, x->id), arb_now(c->host), &i) &&
	    i.state != ARB_UNKNOWN)
		return;
	HASH_DEL(c->contexts, x);
	free(x);
}

void arbguest_forget_unbound(struct arbguest *c)
{
	struct arbcontext *x, *next;

	HASH_ITER(hh, c->contexts, x, next)
	{
		arbguest_look_context(c, x);
	}
}

int arbguest_add_pool(struct arbguest *c, uint32_t pool)
{
	uint32_t *list;

	if (c->n_pools >= arb_config(c->host)->max_pools)
		return -EMFILE;
	list = reallocarray(c->pools, c->n_pools + 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	c->pools = list;
	list[c->n_pools++] = pool;
	return 0;
}

void arbguest_drop_pool(struct arbguest *c, uint32_t pool)
{
	for (uint32_t i = 0; i < c->n_pools; i++) {
		if (c->pools[i] == pool) {
			c->pools[i] = c->pools[--c->n_pools];
			return;
		}
	}
}

/* ---- as the core has them -------------------------------------------------------------------- */

static void set_owner(struct arbreservation *r, struct arbtask *t)
{
	if (r->owner == t)
		return;
	if (r->owner)
		DL_DELETE(r->owner->holding, r);
	r->owner = t;
	if (t)
		DL_APPEND(t->holding, r);
}

/* Its part of the client's sums becomes what is given. */
static void count(struct arbguest *c, struct arbreservation *r, uint64_t bytes, bool sealed)
{
	if (r->pool == WIRE_ARB_PARTITION) {
		*(r->sealed ? &c->sealed : &c->unsealed) -= r->bytes;
		*(sealed ? &c->sealed : &c->unsealed) += bytes;
	}
	r->bytes = bytes;
	r->sealed = sealed;
}

static void forget(struct arbguest *c, struct arbreservation *r)
{
	count(c, r, 0, false);
	set_owner(r, NULL);
	arbcall_forget(c, r);
	if (c->cursor == r)
		c->cursor = r->hh.next;
	HASH_DEL(c->reservations, r);
	free(r);
}

void arbguest_discount_task(struct arbguest *c, struct arbtask *t, bool all)
{
	for (struct arbreservation *r = t->holding; r; r = r->next)
		if (all || !r->sealed)
			count(c, r, 0, r->sealed);
}

void arbguest_look_reservation(struct arbguest *c, struct arbreservation *r)
{
	struct arb_reservation_info i;

	if (!arb_reservation(c->host->core, arb_id(c, r->id), &i)) {
		forget(c, r);
		return;
	}
	r->asked = false;
	count(c, r, i.bytes, i.sealed);
	set_owner(r, i.owner >> 32 == c->number ? arbguest_task(c, (uint32_t)i.owner) : NULL);
}

void arbguest_look_task(struct arbguest *c, struct arbtask *t)
{
	struct arbreservation *r, *next;
	struct arb_task_info i;

	DL_FOREACH_SAFE(t->holding, r, next)
	{
		arbguest_look_reservation(c, r);
	}
	if (arb_task(c->host->core, arb_id(c, t->id), &i))
		return;
	while (t->holding)
		set_owner(t->holding, NULL);
	HASH_DEL(c->tasks, t);
	free(t);
}

/* ---- what it is told ------------------------------------------------------------------------- */

static void arbguest_send(struct arbguest *c, uint16_t type, uint64_t serial, const void *body,
			  const char *text)
{
	struct conn *conn = c->member->conn;
	size_t n = text ? strlen(text) : 0;

	if (conn && conn_send(conn, type, serial, body, text,
			      n < WIRE_TEXT_MAX ? n : WIRE_TEXT_MAX) != CONN_OK)
		conn_drop(conn, CONN_E_SLOW, "it does not read what it asked for");
}

static bool event_of(int outcome, enum event *ret)
{
	switch (outcome) {
	case ARB_RETRY:
		*ret = EVENT_ARB_RETRY;
		return true;
	case ARB_SPLIT:
		*ret = EVENT_ARB_SPLIT;
		return true;
	case ARB_NOMEM:
		*ret = EVENT_ARB_NOMEM;
		return true;
	case ARB_TIMEDOUT:
		*ret = EVENT_ARB_TIMEOUT;
		return true;
	default:
		return false;
	}
}

void arbguest_tell(struct arbguest *c, uint32_t context, int outcome, uint64_t pool, uint64_t bytes,
		   const char *why)
{
	const struct member *m = c->member;
	struct arb_context_info i = {0};
	struct json_object *o;
	enum event e;
	bool bound;

	if (!event_of(outcome, &e))
		return;
	if ((outcome == ARB_RETRY || outcome == ARB_SPLIT) && pool == WIRE_ARB_PARTITION)
		arbhost_pressed(c->host);
	bound = arb_context(c->host->core, arb_id(c, context), arb_now(c->host), &i);
	o = jsonmake_new();
	jsonmake_text(o, "partition", m->account->path);
	fields_of(o, m, FIELD(path, "store"), SAME(pid), SAME(uid));
	jsonmake_u64(o, "context", bound ? context : 0);
	jsonmake_null(o, "task");
	if (bound && i.kind == ARB_DEDICATED)
		jsonmake_u64(o, "task", (uint32_t)i.task);
	jsonmake_text(o, "pool",
		      pool == WIRE_ARB_PARTITION ? "partition"
		      : pool                     ? "private"
						 : NULL);
	jsonmake_u64(o, "bytes", bytes);
	jsonmake_text(o, "why", why);
	events_emit(m->account->host->events, e, m->path, o);
}

/* Outcomes that the core does not report: for events, and to answer timeouts. */
static const char *why_of(struct arbhost *h, const struct arb_reply *r)
{
	if (r->outcome == ARB_RETRY)
		return "everybody who could give memory back waits, and of them this one comes "
		       "last";
	if (r->outcome == ARB_TIMEDOUT)
		return arb_holders(
			h->core, r->pool,
			"it waited as long as it may (its own deadline, or arbiter.wait) for",
			r->bytes);
	return r->why;
}

void arbguest_done(struct arbhost *h, const struct arb_reply *r)
{
	struct arbguest *c = arbhost_client(h, r->context >> 32);
	struct arbcontext *x = c ? arbguest_context(c, (uint32_t)r->context) : NULL;
	struct wire_arbed body = {.outcome = (int32_t)r->outcome};
	const char *why;
	uint64_t serial;

	if (!x || !x->serial)
		return;
	serial = x->serial;
	x->serial = 0;
	body.context = x->id;
	body.reservation = x->reservation;
	body.bytes = r->bytes;
	if (r->outcome == ARB_TOOBIG)
		body.bytes = arbbytes_capacity(h, r->pool);
	arbbytes_done(c, x, (int)r->outcome);
	why = why_of(h, r);
	arbguest_tell(c, x->id, (int)r->outcome, r->pool, r->bytes, why);
	if (!x->quiet || r->outcome != ARB_OK)
		arbguest_send(c, WIRE_ARBED, serial, &body,
			      r->outcome == ARB_TIMEDOUT ? why : r->why);
}

/* ---- its life -------------------------------------------------------------------------------- */

struct arbguest *arbguest_get(struct arbhost *h, struct member *m)
{
	struct arbguest *c = m->arb;

	if (c)
		return c;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->number = ++h->last_number;
	c->host = h;
	c->member = m;
	HASH_ADD(hh, h->clients, number, sizeof(c->number), c);
	if (!c->hh.tbl) {
		free(c);
		return NULL;
	}
	m->arb = c;
	arbpage_begin(c);
	return c;
}

static void end_tasks(struct arbguest *c)
{
	while (c->tasks) {
		struct arbtask *t = c->tasks;
		struct arb_message m = {.op = ARB_OP_TASK_END,
					.flags = ARB_RELEASE | ARB_ALL,
					.task = arb_id(c, t->id)};

		/* Without memory a dead client's task stays in the core until the daemon ends;
		 * nothing else can be done. */
		if (arbhost_step(c->host, &m) < 0)
			break;
		arbguest_look_task(c, t);
		if (c->tasks == t)
			break;
	}
}

static void end_rest(struct arbguest *c)
{
	struct arbcontext *x, *x_next;
	struct arbreservation *r, *r_next;

	HASH_ITER(hh, c->contexts, x, x_next)
	{
		struct arb_message m = {
			.op = ARB_OP_UNBIND, .flags = ARB_ALL, .context = arb_id(c, x->id)};

		arbhost_step(c->host, &m);
		HASH_DEL(c->contexts, x);
		free(x);
	}
	HASH_ITER(hh, c->reservations, r, r_next)
	{
		if (!r->asked)
			arbhost_about(c->host, ARB_OP_RELEASE, 0, arb_id(c, r->id));
		arbcall_forget(c, r);
		HASH_DEL(c->reservations, r);
		free(r);
	}
	for (uint32_t i = 0; i < c->n_pools; i++) {
		struct arb_message m = {.op = ARB_OP_POOL_REMOVE, .pool = arb_id(c, c->pools[i])};

		arbhost_step(c->host, &m);
	}
}

void arbguest_end(struct arbguest *c)
{
	struct arbhost *h = c->host;
	struct arbcontext *x;

	c->member->arb = NULL;
	arbcall_end(c);
	/* REMOVED is sent to nobody. */
	for (x = c->contexts; x; x = x->hh.next)
		x->serial = 0;
	for (unsigned slot = 0; slot < WIRE_LEASES; slot++)
		arbpage_end(c, slot);
	if (c->core_ghosts)
		arbhost_about(h, ARB_OP_RELEASE, 0, arb_ours(c, ARB_GHOSTS));
	end_tasks(c);
	end_rest(c);
	if (c->todo)
		DL_DELETE2(h->todo, c, todo_prev, todo_next);
	HASH_DEL(h->clients, c);
	free(c->pools);
	while (c->tasks) {
		struct arbtask *t = c->tasks;

		HASH_DEL(c->tasks, t);
		free(t);
	}
	free(c);
}
