/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actorsroom.c: what is said to other daemons of actors, and what is known of them by what they
 * said: how much room each user's places have there, and which copies are there. And the places
 * here: how much room each has, and the orders that wait for one until it asks.
 */
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "account.h"
#include "actorsbook.h"
#include "host.h"
#include "member.h"

void actors_say(const struct actors_one *k, struct peer *p, enum actors_peers_type type,
		const struct actors_say *more)
{
	const struct host *h = k->of->host;
	struct actors_say m = more ? *more : (struct actors_say){0};

	m.uid = k->key.uid;
	memcpy(m.name, k->key.name, sizeof(m.name));
	if (h->draining) /* what is here is here for the next daemon */
		return;
	if (p) {
		peer_send(p, (uint16_t)type, &(struct iovec){&m, sizeof(m)}, 1);
		return;
	}
	while ((p = peers_next(h->peers, p)) != NULL)
		if (peer_speaks_for(p, m.uid))
			peer_send(p, (uint16_t)type, &(struct iovec){&m, sizeof(m)}, 1);
}

/* ---- room ------------------------------------------------------------------------------------ */

static struct actors_free *find_free(const struct actors *a, const char *peer, uint32_t uid)
{
	struct actors_free *f = a->frees;

	while (f && (f->uid != uid || strcmp(f->peer, peer) != 0))
		f = f->next;
	return f;
}

/* A daemon has come that may take copies: the user's actors are saved anew, also
 * those that ran nothing since. */
static void save_again(struct actors *a, uint32_t uid)
{
	struct actors_one *k, *next;

	HASH_ITER(hh, a->all, k, next)
	{
		if (k->key.uid != uid || !k->copy)
			continue;
		k->copy->dirty = true;
		actors_touch(k);
	}
}

bool actors_take_free(struct actors *a, const struct peer *p, const char *body, size_t n)
{
	struct actors_say_free m;
	struct actors_free *f;
	bool is_new;

	if (n != sizeof(m))
		return false;
	memcpy(&m, body, sizeof(m));
	if (!peer_speaks_for(p, m.uid))
		return true;
	f = find_free(a, peer_name(p), m.uid);
	is_new = !f;
	if (!f) {
		f = calloc(1, sizeof(*f));
		if (!f)
			return true;
		memcpy(f->peer, peer_name(p), strlen(peer_name(p)));
		f->uid = m.uid;
		LL_PREPEND(a->frees, f);
	}
	f->free = m.free;
	f->until_ms = loop_clock_ms() + ACTORS_STALE;
	if (is_new)
		save_again(a, m.uid);
	return true;
}

void actors_forget_frees(struct actors *a, const struct peer *p, uint64_t now_ms)
{
	struct actors_free *f, *next;

	LL_FOREACH_SAFE(a->frees, f, next)
	{
		if (f->until_ms > now_ms && (!p || strcmp(f->peer, peer_name(p)) != 0))
			continue;
		LL_DELETE(a->frees, f);
		free(f);
	}
}

size_t actors_peers_list(const struct actors *a, uint32_t uid, struct ckpt_peer ret[CKPT_PEERS])
{
	size_t n = 0;

	for (const struct actors_free *f = a->frees; f && n < CKPT_PEERS; f = f->next) {
		if (f->uid != uid || !peers_find(a->host->peers, f->peer))
			continue;
		ret[n] = (struct ckpt_peer){.free = f->free};
		memcpy(ret[n].name, f->peer, sizeof(f->peer));
		n++;
	}
	return n;
}

/* The room of the user's places, said once for each user. */
void actors_say_room(const struct actors *a, struct peer *to)
{
	const struct actors_guest *g, *other;

	DL_FOREACH(a->guests, g)
	{
		struct actors_say_free m = {.uid = g->conn->peer.uid};
		bool first = true;

		if (!*g->place || !peer_speaks_for(to, m.uid))
			continue;
		DL_FOREACH(a->guests, other)
		{
			if (!*other->place || other->conn->peer.uid != m.uid)
				continue;
			first &= other >= g;
			if (actors_guest_room(other) > m.free)
				m.free = actors_guest_room(other);
		}
		if (first)
			peer_send(to, ACTORS_FREE, &(struct iovec){&m, sizeof(m)}, 1);
	}
}

uint64_t actors_peers_tick(struct actors *a, uint64_t now_ms)
{
	struct peer *p = NULL;

	if (!a->host->peers)
		return UINT64_MAX;
	if (now_ms >= a->tick_ms) {
		actors_forget_frees(a, NULL, now_ms);
		while ((p = peers_next(a->host->peers, p)) != NULL)
			actors_say_room(a, p);
		a->tick_ms = now_ms + ACTORS_TICK;
	}
	return a->tick_ms;
}

/* ---- copies elsewhere ------------------------------------------------------------------------ */

struct actors_advert *actors_advert_of(const struct actors_one *k, const char *peer)
{
	struct actors_advert *v = k->adverts;

	while (v && strcmp(v->peer, peer) != 0)
		v = v->next;
	return v;
}

void actors_advert_remove(struct actors_one *k, const char *peer)
{
	struct actors_advert *v = actors_advert_of(k, peer);

	if (!v)
		return;
	LL_DELETE(k->adverts, v);
	free(v);
	if (k->copy) { /* what is there now is too little: at the next period it is saved again */
		k->copy->dirty = true;
		k->copy->cast.sent_version = 0;
	}
}

void actors_take_copy(struct actors_one *k, const struct peer *p, const struct actors_say *m)
{
	struct actors_advert *v = actors_advert_of(k, peer_name(p));

	if (!v) {
		v = calloc(1, sizeof(*v));
		if (!v)
			return;
		memcpy(v->peer, peer_name(p), strlen(peer_name(p)));
		LL_PREPEND(k->adverts, v);
	}
	if (v->version != m->version)
		v->saved_ms =
			k->copy && k->copy->meta.version == m->version ? k->copy->saved_ms : 0;
	v->version = m->version;
	v->bytes = m->bytes;
}

/* ---- places ---------------------------------------------------------------------------------- */

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
