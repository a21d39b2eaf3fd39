/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actorsguest.c: the connections of places and of callers: the messages that wait for them, and
 * their end.
 *
 * Messages that a decision makes go into one list, which actors_flush() sends when everything is
 * decided: a send may end a connection, and with that change everything.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "account.h"
#include "actorsbook.h"
#include "host.h"
#include "member.h"

static void on_end(struct conn_end *e, UNUSED struct conn *c)
{
	struct actors_guest *g = CONTAINER_OF(e, actors_guest, end);
	struct actors *a = g->of;

	actors_guest_free(g);
	actors_flush(a);
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

const struct actors_guest *actors_guest_after(const struct actors *a, const struct conn *c)
{
	const struct actors_guest *g = c ? actors_guest_find(c) : NULL;

	return !c ? a->guests : g ? g->next : NULL;
}

static void all_left(struct actors *a, const struct actors_guest *g)
{
	struct actors_one *k, *next;

	HASH_ITER(hh, a->all, k, next)
	{
		actors_one_left(k, g);
	}
}

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

void actors_guest_free(struct actors_guest *g)
{
	struct actors *a = g->of;
	struct actors_mail *m, *next;

	DL_DELETE(a->guests, g);
	conn_off_end(g->conn, &g->end);
	actors_call_orphan(g);
	all_left(a, g);
	a->books.n_places -= *g->place != '\0';
	drop_orders(g);
	DL_FOREACH_SAFE(a->mail, m, next)
	{
		if (m->to != g)
			continue;
		DL_DELETE(a->mail, m);
		free(m);
	}
	free(g);
}

struct actors_guest *actors_guest_place(const struct actors *a, uint32_t uid, const char *name)
{
	struct actors_guest *g;

	DL_FOREACH(a->guests, g)
	{
		if (*g->place && conn_peer(g->conn)->uid == uid && strcmp(g->place, name) == 0)
			return g;
	}
	return NULL;
}

uint64_t actors_guest_room(const struct actors_guest *g)
{
	const struct member *m = conn_member(g->conn);
	const struct account_tick *t = m ? &m->account->tick : NULL;

	if (g->room != WIRE_ACTOR_ROOMY)
		return g->room;
	return t && t->size > t->used ? t->size - t->used : 0;
}

/* ---- what is sent ---------------------------------------------------------------------------- */

static void hang_up(struct actors_guest *g)
{
	conn_drop(g->conn, CONN_E_SLOW,
		  "it does not take what it is told of actors, or memory is out");
}

void actors_guest_send(struct actors_guest *g, uint16_t type, uint64_t serial, const void *body,
		       size_t body_size, const char *tail, size_t n)
{
	struct actors_mail *m = malloc(sizeof(*m) + n);

	if (!m) {
		hang_up(g);
		return;
	}
	*m = (struct actors_mail){.to = g, .serial = serial, .type = type, .n = n};
	memcpy(m->body, body, body_size);
	if (n)
		memcpy(m->tail, tail, n);
	DL_APPEND(g->of->mail, m);
}

void actors_guest_refuse(struct actors_guest *g, uint64_t serial, int error, const char *why)
{
	const struct wire_refused body = {.error = error, .limit = WIRE_LIMIT_NONE};

	actors_guest_send(g, WIRE_REFUSED, serial, &body, sizeof(body), why, strlen(why));
}

/* Sends the first order, as the answer to the place's ACTOR_NEXT. */
static void send_order(struct actors_guest *g, const struct actors_order *o)
{
	const struct actors_call *l = o->call ? actors_call_find(g->of, o->call) : NULL;
	const char *text = l && o->body.what == WIRE_ACTOR_RUN ? l->data : o->text;
	size_t n = l && o->body.what == WIRE_ACTOR_RUN ? l->n : o->n_text;
	char tail[WIRE_TEXT_MAX];

	if (o->call && !l) /* it was answered, or is lost, meanwhile */
		return;
	memcpy(tail, o->name, o->body.name);
	memcpy(tail + o->body.name, text, n);
	actors_guest_send(g, WIRE_ACTOR_ORDER, g->asked, &o->body, sizeof(o->body), tail,
			  o->body.name + n);
	g->asked = 0;
}

static void pump(struct actors_guest *g)
{
	while (g->asked && g->orders) {
		struct actors_order *o = g->orders;

		DL_DELETE(g->orders, o);
		g->n_orders--;
		send_order(g, o);
		free(o);
	}
}

void actors_guest_order(struct actors_guest *g, const struct actors_one *k,
			const struct wire_actor_order *o, const char *text)
{
	char options[WIRE_ACTOR_OPTIONS + 1];
	size_t n = o->what == WIRE_ACTOR_LOAD ? (size_t)actors_options_write(k, options)
		   : text                     ? strlen(text)
					      : 0;
	struct actors_order *order = malloc(sizeof(*order) + n);

	if (!order || g->n_orders == ACTORS_ORDERS) {
		free(order);
		hang_up(g);
		return;
	}
	*order = (struct actors_order){.body = *o, .call = o->request, .n_text = n};
	memcpy(order->name, k->key.name, sizeof(order->name));
	order->orphan = k->orphan && o->what == WIRE_ACTOR_DROP;
	if (order->orphan && !g->orphans_ms)
		g->orphans_ms = actors_now_ms();
	order->body.name = (uint32_t)strlen(order->name);
	order->body.step_ms = k->said.step_ms;
	order->body.suspend_ms = k->said.suspend_ms;
	order->body.at_once = k->said.at_once;
	order->body.level = k->said.level;
	order->body.flags = k->said.flags & (WIRE_ACTOR_CAN_SAVE | WIRE_ACTOR_CAN_LOAD);
	if (n)
		/* n_text says where it ends. NOLINTNEXTLINE(bugprone-not-null-terminated-result) */
		memcpy(order->text, text ? text : options, n);
	DL_APPEND(g->orders, order);
	g->n_orders++;
	pump(g);
}

/* Are there orders to drop children of the dead that it did not take? */
static bool has_orphans(const struct actors_guest *g)
{
	const struct actors_order *o = g->orders;

	while (o && !o->orphan)
		o = o->next;
	return o != NULL;
}

struct conn *actors_stuck(const struct actors *a, uint64_t ms, const struct conn *after)
{
	const struct actors_guest *g = actors_guest_after(a, after);

	while (g && (!g->orphans_ms || g->n_actors || actors_now_ms() - g->orphans_ms < ms))
		g = g->next;
	return g ? g->conn : NULL;
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
	pump(g);
	return 0;
}

static void send_mail(struct actors *a, struct actors_mail *m)
{
	struct actors_guest *g = m->to;
	int r;

	DL_DELETE(a->mail, m);
	r = conn_send(g->conn, m->type, m->serial, m->body, m->n ? m->tail : NULL, m->n);
	free(m);
	if (r != CONN_OK)
		hang_up(g);
}

void actors_flush(struct actors *a)
{
	if (a->host->draining)
		return;
	do {
		actors_sweep(a);
		if (a->mail)
			send_mail(a, a->mail);
	} while (a->mail || a->sweep);
	actors_arm(a);
}
