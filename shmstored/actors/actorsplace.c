/* SPDX-License-Identifier: Apache-2.0 */
/* actorsplace.c: connections become places and callers, ask for orders, and end. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "actorsbook.h"
#include "host.h"

static void drop_orders(struct actors_guest *g)
{
	struct actors_order *o, *next;

	DL_FOREACH_SAFE(g->orders, o, next)
	{
		DL_DELETE(g->orders, o);
		free(o);
	}
	g->n_orders = 0;
}

static void all_left(struct actors *a, const struct actors_guest *g)
{
	struct actors_one *k, *next;

	HASH_ITER(hh, a->all, k, next)
	{
		actors_one_left(k, g);
	}
}

static void end_guest(struct actors_guest *g)
{
	struct actors *a = g->of;

	DL_DELETE(a->guests, g);
	conn_off_end(g->conn, &g->end);
	while (g->calls)
		actors_call_orphan(g->calls);
	all_left(a, g);
	a->books.n_places -= *g->place != '\0';
	drop_orders(g);
	free(g);
}

static void on_end(struct conn_end *e, UNUSED struct conn *c)
{
	end_guest(CONTAINER_OF(e, actors_guest, end));
}

struct actors_guest *actors_guest_find(const struct conn *c)
{
	struct conn_end *e = conn_find_end(c, on_end);

	return e ? CONTAINER_OF(e, actors_guest, end) : NULL;
}

struct actors_guest *actors_guest_get(struct actors *a, struct conn *c)
{
	struct actors_guest *g = actors_guest_find(c);

	if (g)
		return g;
	g = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	g->of = a;
	g->conn = c;
	g->end.fn = on_end;
	conn_on_end(c, &g->end);
	DL_APPEND(a->guests, g);
	return g;
}

static const struct actors_guest *guest_after(const struct actors *a, const struct conn *c)
{
	const struct actors_guest *g = c ? actors_guest_find(c) : NULL;

	return !c ? a->guests : g ? g->next : NULL;
}

/* An actor that waits for a destination may have one now. */
static void touch_all(struct actors *a)
{
	struct actors_one *k, *next;

	HASH_ITER(hh, a->all, k, next)
	{
		actors_touch(k);
	}
}

int actors_place(struct actors *a, struct conn *c, const char *name, uint64_t room)
{
	const struct actors_guest *same = actors_guest_place(a, c->peer.uid, name);
	struct actors_guest *g = actors_guest_get(a, c);

	if (!g)
		return -ENOMEM;
	if (same && same != g)
		return -EEXIST;
	if (*g->place && same != g)
		return -EBUSY;
	a->books.n_places += same != g;
	strcpy(g->place, name); /* it has at most WIRE_ACTOR_NAME bytes */
	g->room = room;
	touch_all(a);
	return 0;
}

int actors_leave(struct conn *c)
{
	struct actors_guest *g = actors_guest_find(c);

	if (!g || !*g->place)
		return -ENOENT;
	g->leaves = true;
	end_guest(g); /* who still waits for an answer of another's actor gets none */
	return 0;
}

/* Are there orders to drop children of the dead that it did not take? */
static bool has_orphans(const struct actors_guest *g)
{
	const struct actors_order *o = g->orders;

	while (o && !o->orphan)
		o = o->next;
	return o != NULL;
}

int actors_next(struct conn *c, uint64_t serial)
{
	struct actors_guest *g = actors_guest_find(c);

	if (!g || !*g->place)
		return -ENOENT;
	if (g->asked)
		return -EBUSY;
	/* It has carried out what it was sent before. */
	if (!has_orphans(g))
		g->orphans_ms = 0;
	g->asked = serial;
	actors_guest_pump(g);
	return 0;
}

struct conn *actors_stuck(const struct host *h, uint64_t ms, const struct conn *after)
{
	const struct actors_guest *g = guest_after(h->actors, after);

	while (g && (!g->orphans_ms || g->n_actors || loop_clock_ms() - g->orphans_ms < ms))
		g = g->next;
	return g ? g->conn : NULL;
}

struct conn *actors_place_next(const struct host *h, const struct conn *after)
{
	const struct actors_guest *g = guest_after(h->actors, after);

	while (g && !g->n_actors)
		g = g->next;
	return g ? g->conn : NULL;
}
