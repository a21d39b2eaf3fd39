/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbguest.c: one open store with a connection, as the arbiter has it: which contexts, tasks, pools
 * and reservations it named, and which of its calls are withheld.
 *
 * The core's ids are wide and trusted; a client's are its own word. The tables here are where the
 * one becomes the other: an id that is not in them is not this client's, whatever it says, and they
 * bound what it can make the core remember. State that the core knows better (bytes, owners,
 * bindings) is copied after each step that may have changed it, never reckoned.
 */
#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "arbhost.h"

/* ---- tables ---------------------------------------------------------------------------------- */

struct arbguest *arbguest_find(struct arbhost *h, uint64_t number)
{
	uint32_t key = (uint32_t)number;
	struct arbguest *c;

	HASH_FIND(hh, h->clients, &key, sizeof(key), c);
	return c;
}

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
TABLE(pool, pools, max_pools)

bool arbguest_has_pool(struct arbguest *c, uint32_t pool)
{
	return pool == WIRE_ARB_PARTITION || arbguest_pool(c, pool);
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

void arbguest_drop_pool(struct arbguest *c, struct arbpool *p)
{
	HASH_DEL(c->pools, p);
	free(p);
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

void arbguest_unwant(struct arbguest *c, struct arbreservation *r)
{
	if (!r->wanted)
		return;
	DL_DELETE2(c->wanted, r, wanted_prev, wanted_next);
	r->wanted = false;
}

void arbguest_forget(struct arbguest *c, struct arbreservation *r)
{
	count(c, r, 0, false);
	set_owner(r, NULL);
	arbguest_unwant(c, r);
	if (c->call.reservation == r)
		c->call.reservation = NULL;
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
		arbguest_forget(c, r);
		return;
	}
	r->asked = false;
	count(c, r, i.bytes, i.sealed);
	set_owner(r, i.owner >> 32 == c->number ? arbguest_task(c, (uint32_t)i.owner) : NULL);
}

void arbguest_look(struct arbguest *c, uint32_t id, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct arbreservation *r = arbguest_reservation(c, id + i);

		if (r)
			arbguest_look_reservation(c, r);
	}
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

/* ---- for arbhost_settle() -------------------------------------------------------------------- */

void arbguest_todo(struct arbguest *c)
{
	if (c->todo)
		return;
	c->todo = true;
	DL_APPEND2(c->host->todo, c, todo_prev, todo_next);
}

void arbguest_want(struct arbguest *c, uint32_t reservation, uint64_t bytes)
{
	struct arbreservation *r = arbguest_reservation(c, reservation);

	if (!r)
		return;
	r->wanted_bytes = bytes;
	arbguest_todo(c);
	if (r->wanted)
		return;
	r->wanted = true;
	DL_APPEND2(c->wanted, r, wanted_prev, wanted_next);
}
