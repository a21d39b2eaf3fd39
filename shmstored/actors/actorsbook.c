/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actorsbook.c: actors by their names, what is known of one, its options, and calls of it. Also
 * messages to other daemons about actors, and what these have said: how much room each user's
 * places have there, and which copies are there. And the places here: how much room each has, and
 * the orders that wait for one until it asks.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "account.h"
#include "actors.h"
#include "config.h"
#include "host.h"
#include "jsonmake.h"
#include "log.h"
#include "member.h"

bool actors_is_name(const char *name)
{
	size_t n = 0;

	for (; name[n]; n++)
		if ((unsigned char)name[n] <= ' ' || (unsigned char)name[n] == 0x7f ||
		    name[n] == '/')
			return false;
	return n > 0 && n <= WIRE_ACTOR_NAME && name[0] != '.';
}

static struct actors_key key_of(uint32_t uid, const char *name)
{
	struct actors_key key;

	memset(&key, 0, sizeof(key));
	key.uid = uid;
	snprintf(key.name, sizeof(key.name), "%s", name);
	return key;
}

struct actors_one *actors_one_find(const struct actors *a, uint32_t uid, const char *name)
{
	struct actors_key key = key_of(uid, name);
	struct actors_one *k;

	HASH_FIND(hh, a->all, &key, sizeof(key), k);
	return k;
}

struct actors_one *actors_one_new(struct actors *a, uint32_t uid, const char *name)
{
	struct actors_one *k = calloc(1, sizeof(*k));

	if (!k)
		return NULL;
	k->of = a;
	k->key = key_of(uid, name);
	k->settle_ms = k->stale_ms = UINT64_MAX;
	HASH_ADD(hh, a->all, key, sizeof(k->key), k);
	if (!k->hh.tbl) {
		free(k);
		return NULL;
	}
	return k;
}

struct actors_one *actors_one_heard(struct actors *a, uint32_t uid, const char *name)
{
	struct actors_one *k = actors_one_find(a, uid, name);

	return k || HASH_COUNT(a->all) >= ACTORS_HEARD ? k : actors_one_new(a, uid, name);
}

void actors_touch(struct actors_one *k)
{
	struct actors *a = k->of;

	if (a->closing || a->host->draining) /* what is here is here for the next daemon */
		return;
	if (!k->touched)
		DL_APPEND2(a->touched, k, tprev, tnext);
	k->touched = true;
	loop_after(a->host->loop, &a->after);
}

int actors_one_level(const struct actors_one *k)
{
	return actor_level((int)k->said.level, (k->said.flags & WIRE_ACTOR_CAN_SAVE) != 0,
			   (k->said.flags & WIRE_ACTOR_CAN_LOAD) != 0, false);
}

bool actors_one_has_family(const struct actors_one *k)
{
	for (const struct actors_one *child = k->of->all; child; child = child->hh.next)
		if (child->core && child->key.uid == k->key.uid &&
		    strcmp(child->parent, k->key.name) == 0)
			return true;
	return *k->parent != '\0';
}

void actors_tell(const struct actors_one *k, enum event what, const char *to, const char *daemon)
{
	struct json_object *o = jsonmake_new();

	jsonmake_text(o, "actor", k->key.name);
	jsonmake_u64(o, "uid", k->key.uid);
	jsonmake_text(o, "from", k->at ? k->at->place : k->home);
	jsonmake_i64(o, "pid", k->at ? k->at->conn->peer.pid : 0);
	jsonmake_text(o, "to", to);
	jsonmake_text(o, "daemon", daemon);
	jsonmake_u64(o, "bytes", k->bytes);
	events_emit(k->of->host->events, what, NULL, o);
}

void actors_one_lost(const struct actors_one *k)
{
	k->of->books.n_died++;
	actors_tell(k, EVENT_ACTOR_LOST, NULL, NULL);
}

/* ---- options --------------------------------------------------------------------------------- */

/*
 * How often it is begun again, and how copies of it are made where its program said so. As text
 * they are what ACTOR_BORN and LOAD have, and what goes to other daemons with its state.
 */
const struct config_copies *actors_options(const struct actors_one *k)
{
	return k->own ? k->own : &k->of->host->config->peers.copies;
}

void actors_options_free(struct actors_one *k)
{
	if (k->own)
		config_copies_clear(k->own);
	free(k->own);
	free(k->words);
	k->own = NULL;
	k->words = NULL;
}

static int set_words(struct actors_one *k, const char *words, char why[CONFIG_WHY])
{
	struct config_copies *own = calloc(1, sizeof(*own));
	char *copy = strdup(words);
	int r = own && copy
			? config_copies_read(words, &k->of->host->config->peers.copies, own, why)
			: -ENOMEM;

	if (r < 0) {
		free(own);
		free(copy);
		return r;
	}
	actors_options_free(k);
	k->own = own;
	k->words = copy;
	return 0;
}

int actors_options_read(struct actors_one *k, const char *text, char why[CONFIG_WHY])
{
	char number[16] = "";
	size_t n = strcspn(text, " ");
	uint64_t restarts = 0;
	int r;

	if (n < sizeof(number))
		memcpy(number, text, n);
	if (*text && (strlen(text) > WIRE_ACTOR_OPTIONS ||
		      configkey_number(number, 10, 0, UINT32_MAX, &restarts) < 0)) {
		snprintf(why, CONFIG_WHY,
			 "options of an actor begin with the number of its restarts, and have %u "
			 "bytes at most",
			 WIRE_ACTOR_OPTIONS);
		return -EINVAL;
	}
	text += n + strspn(text + n, " ");
	if (!*text)
		actors_options_free(k);
	r = *text ? set_words(k, text, why) : 0;
	if (r == 0)
		k->restarts = (uint32_t)restarts;
	return r;
}

int actors_options_write(const struct actors_one *k, char ret[WIRE_ACTOR_OPTIONS + 1])
{
	if (!k->restarts && !k->words)
		ret[0] = '\0';
	else
		snprintf(ret, WIRE_ACTOR_OPTIONS + 1, "%u %s", k->restarts,
			 k->words ? k->words : "");
	return (int)strlen(ret);
}

/* ---- calls: each is one request of actor.h, and has one answer ------------------------------- */

struct actors_call *actors_call_find(const struct actors *a, uint64_t id)
{
	struct actors_call *l;

	HASH_FIND(hh, a->calls, &id, sizeof(id), l);
	return l;
}

void actors_call_orphan(struct actors_call *l)
{
	if (!l->from)
		return;
	DL_DELETE(l->from->calls, l);
	l->from->n_calls--;
	l->from = NULL;
}

void actors_call_free(struct actors_call *l)
{
	struct actors *a = l->of->of;

	actors_call_orphan(l);
	HASH_DEL(a->calls, l);
	a->books.n_calls--;
	free(l);
}

void actors_call_answer(struct actors_call *l, enum wire_actor_how how, const char *data, size_t n)
{
	const struct wire_actor_answer body = {.how = how};
	struct actors *a = l->of->of;
	struct peer *asker = *l->asker ? peers_find(a->host->peers, l->asker) : NULL;
	struct actors_say_answer said = {.id = l->asker_id, .how = how};

	a->books.n_answered += how != WIRE_ACTOR_LOST;
	a->books.n_lost += how == WIRE_ACTOR_LOST;
	/* If another daemon asked, it gets the answer, which its caller waits for. */
	if (asker)
		peer_send(asker, ACTORS_ANSWER,
			  (struct iovec[]){{&said, sizeof(said)}, {(void *)(uintptr_t)data, n}}, 2);
	if (l->from)
		conn_send(l->from->conn, WIRE_ACTOR_ANSWER, l->serial, &body, data, n);
	actors_call_free(l);
}

struct actors_call *actors_call_new(struct actors_one *k, const char *data, size_t n)
{
	struct actors *a = k->of;
	struct actors_call *l = malloc(sizeof(*l) + n);

	if (!l)
		return NULL;
	*l = (struct actors_call){.id = ++a->last_call, .of = k, .n = n};
	memcpy(l->data, data, n);
	HASH_ADD(hh, a->calls, id, sizeof(l->id), l);
	if (!l->hh.tbl) {
		free(l);
		return NULL;
	}
	a->books.n_calls++;
	return l;
}

/* ---- other daemons, and places --------------------------------------------------------------- */

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
	f = a->frees;
	while (f && (f->uid != m.uid || strcmp(f->peer, peer_name(p)) != 0))
		f = f->next;
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
	/* A daemon that may take copies has come: the user's actors are saved anew, also those that
	 * ran nothing since. */
	for (struct actors_one *k = is_new ? a->all : NULL; k; k = k->hh.next)
		if (k->key.uid == m.uid && k->copy) {
			k->copy->dirty = true;
			actors_touch(k);
		}
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
