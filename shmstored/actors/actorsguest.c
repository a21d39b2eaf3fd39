/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actorsguest.c: places: which there are, how much room each has, and the orders that wait for one
 * until it asks.
 */
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "account.h"
#include "actorsbook.h"
#include "member.h"

struct actors_guest *actors_guest_place(const struct actors *a, uint32_t uid, const char *name)
{
	struct actors_guest *g;

	DL_FOREACH(a->guests, g)
	{
		if (*g->place && g->conn->peer.uid == uid && strcmp(g->place, name) == 0)
			return g;
	}
	return NULL;
}

uint64_t actors_guest_room(const struct actors_guest *g)
{
	const struct member *m = g->conn->member;
	const struct account_tick *t = m ? &m->account->tick : NULL;

	if (g->room != WIRE_ACTOR_ROOMY)
		return g->room;
	return t && t->size > t->used ? t->size - t->used : 0;
}

static const struct account *account_of(const struct actors_guest *g)
{
	const struct member *m = g ? g->conn->member : NULL;

	return m ? m->account : NULL;
}

size_t actors_places(const struct actors_one *k, bool other, struct ckpt_peer ret[CKPT_PEERS])
{
	const struct actors_guest *g;
	size_t n = 0;

	DL_FOREACH(k->of->guests, g)
	{
		if (!*g->place || g == k->at || g->conn->peer.uid != k->key.uid || !g->room ||
		    n == CKPT_PEERS || (k->at && g->conn->peer.pid == k->at->conn->peer.pid) ||
		    (other && account_of(g) == account_of(k->at)))
			continue;
		memcpy(ret[n].name, g->place, sizeof(g->place));
		ret[n++].free = actors_guest_room(g);
	}
	return n;
}

/* ---- what is sent ---------------------------------------------------------------------------- */

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
	conn_send(g->conn, WIRE_ACTOR_ORDER, g->asked, &o->body, tail, o->body.name + n);
	g->asked = 0;
}

void actors_guest_pump(struct actors_guest *g)
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
		conn_drop(g->conn, CONN_E_SLOW,
			  "it does not take its orders about actors, or memory is out");
		return;
	}
	*order = (struct actors_order){.body = *o, .call = o->request, .n_text = n};
	memcpy(order->name, k->key.name, sizeof(order->name));
	order->orphan = k->orphan && o->what == WIRE_ACTOR_DROP;
	if (order->orphan && !g->orphans_ms)
		g->orphans_ms = loop_clock_ms();
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
	actors_guest_pump(g);
}

void actors_guest_drop(struct actors_guest *g, const struct actors_one *k, uint64_t version)
{
	actors_guest_order(g, k,
			   &(struct wire_actor_order){.what = WIRE_ACTOR_DROP, .version = version},
			   NULL);
}
