/* SPDX-License-Identifier: Apache-2.0 */
/* actorspeers.c: see actorspeers.h: what comes from other daemons, who has how much
 * room, and what is told of it. */
#include "actorspeers.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "config.h"
#include "host.h"

static struct actors *of_service(struct peers_service *s)
{
	return CONTAINER_OF(s, actors, service);
}

void actors_say(const struct actors *a, struct peer *p, enum actors_peers_type type,
		const struct actors_one *k, const struct actors_say *more)
{
	struct actors_say m = more ? *more : (struct actors_say){0};

	m.uid = k->key.uid;
	memcpy(m.name, k->key.name, sizeof(m.name));
	if (a->host->draining) /* what is here is here for the next daemon */
		return;
	if (p) {
		peer_send(p, (uint16_t)type, &(struct iovec){&m, sizeof(m)}, 1);
		return;
	}
	while ((p = peers_next(a->host->peers, p)) != NULL)
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
		actors_one_settle(k);
	}
}

static bool take_free(struct actors *a, const struct peer *p, const char *body, size_t n)
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
		f->next = a->frees;
		a->frees = f;
	}
	f->free = m.free;
	f->until_ms = actors_now_ms() + ACTORS_STALE;
	if (is_new)
		save_again(a, m.uid);
	return true;
}

static void forget_frees(struct actors *a, const struct peer *p, uint64_t now_ms)
{
	struct actors_free **at = &a->frees, *f;

	while ((f = *at) != NULL) {
		if (f->until_ms > now_ms && (!p || strcmp(f->peer, peer_name(p)) != 0)) {
			at = &f->next;
			continue;
		}
		*at = f->next;
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
static void say_room(const struct actors *a, struct peer *to)
{
	const struct actors_guest *g, *other;

	DL_FOREACH(a->guests, g)
	{
		struct actors_say_free m = {.uid = conn_peer(g->conn)->uid};
		bool first = true;

		if (!*g->place || !peer_speaks_for(to, m.uid))
			continue;
		DL_FOREACH(a->guests, other)
		{
			if (!*other->place || conn_peer(other->conn)->uid != m.uid)
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
		forget_frees(a, NULL, now_ms);
		while ((p = peers_next(a->host->peers, p)) != NULL)
			say_room(a, p);
		a->tick_ms = now_ms + ACTORS_TICK;
	}
	return a->tick_ms;
}

/* ---- copies elsewhere ------------------------------------------------------------------------ */

void actors_advert_remove(struct actors_one *k, const char *peer)
{
	struct actors_advert **at = &k->adverts, *v;

	while ((v = *at) != NULL && strcmp(v->peer, peer) != 0)
		at = &v->next;
	if (!v)
		return;
	*at = v->next;
	free(v);
	if (k->copy) { /* what is there now is too little: at the next period it is saved again */
		k->copy->dirty = true;
		k->copy->cast.sent_version = 0;
	}
}

static void take_copy(struct actors_one *k, const struct peer *p, const struct actors_say *m)
{
	struct actors_advert *v = k->adverts;

	while (v && strcmp(v->peer, peer_name(p)) != 0)
		v = v->next;
	if (!v) {
		v = calloc(1, sizeof(*v));
		if (!v)
			return;
		memcpy(v->peer, peer_name(p), strlen(peer_name(p)));
		v->next = k->adverts;
		k->adverts = v;
	}
	if (v->version != m->version)
		v->saved_ms =
			k->copy && k->copy->meta.version == m->version ? k->copy->saved_ms : 0;
	v->version = m->version;
	v->bytes = m->bytes;
}

/* ---- messages -------------------------------------------------------------------------------- */

static void handle(struct actors_one *k, struct peer *p, uint16_t type, const struct actors_say *m)
{
	switch (type) {
	case ACTORS_LIVE:
		actors_far_live(k, p, m->version);
		break;
	case ACTORS_DEAD:
		actors_far_dead(k, p, m->ended != 0);
		break;
	case ACTORS_COPY:
		take_copy(k, p, m);
		break;
	case ACTORS_GONE:
		actors_advert_remove(k, peer_name(p));
		actors_one_refused(k, p);
		if (k->recovering && strcmp(k->asked, peer_name(p)) == 0)
			actors_far_ask(k);
		break;
	case ACTORS_RECOVER:
		if (!actors_keep_recover(k, m->version))
			actors_say(k->of, p, ACTORS_GONE, k, NULL);
		break;
	default:
		break;
	}
}

static bool take_say(struct actors *a, struct peer *p, uint16_t type, const char *body, size_t n)
{
	struct actors_say m;
	struct actors_one *k;

	if (n != sizeof(m))
		return false;
	memcpy(&m, body, sizeof(m));
	if (!memchr(m.name, '\0', sizeof(m.name)) || !actors_is_name(m.name))
		return false;
	if (!peer_speaks_for(p, m.uid))
		return true;
	k = type == ACTORS_LIVE || type == ACTORS_COPY ? actors_one_heard(a, m.uid, m.name)
						       : actors_one_find(a, m.uid, m.name);
	if (!k) {
		if (type == ACTORS_RECOVER)
			peer_send(p, ACTORS_GONE, &(struct iovec){&m, sizeof(m)}, 1);
		return true;
	}
	handle(k, p, type, &m);
	actors_one_settle(k);
	return true;
}

static bool on_message(struct peers_service *s, struct peer *p, uint16_t type, const char *body,
		       size_t n)
{
	struct actors *a = of_service(s);
	bool right;

	if (a->host->draining)
		return true;
	switch (type) {
	case ACTORS_FREE:
		right = take_free(a, p, body, n);
		break;
	case ACTORS_CALL:
		right = actors_far_asked(a, p, body, n);
		break;
	case ACTORS_ANSWER:
		right = actors_far_answered(a, p, body, n);
		break;
	default:
		right = type < ACTORS_STATE && take_say(a, p, type, body, n);
		break;
	}
	actors_flush(a);
	return right;
}

static void on_up(struct peers_service *s, struct peer *p)
{
	struct actors *a = of_service(s);
	struct actors_one *k, *next;

	if (a->host->draining)
		return;
	say_room(a, p);
	HASH_ITER(hh, a->all, k, next)
	{
		if (!peer_speaks_for(p, k->key.uid))
			continue;
		if (k->core)
			actors_say(a, p, ACTORS_LIVE, k,
				   &(struct actors_say){.version = k->version});
		if (k->kept && k->kept->version)
			actors_say(a, p, ACTORS_COPY, k,
				   &(struct actors_say){.version = k->kept->version,
							.bytes = k->kept->bytes});
	}
}

static void on_down(struct peers_service *s, struct peer *p)
{
	struct actors *a = of_service(s);
	struct actors_one *k, *next;

	if (a->host->draining)
		return;
	forget_frees(a, p, 0);
	HASH_ITER(hh, a->all, k, next)
	{
		actors_advert_remove(k, peer_name(p));
		actors_far_down(k, p);
		actors_one_settle(k);
	}
	actors_flush(a);
}

void actors_peers_begin(struct actors *a)
{
	a->service = (struct peers_service){.first = PEERS_ACTORS,
					    .last = ACTORS_TYPES_END - 1,
					    .up = on_up,
					    .down = on_down,
					    .message = on_message,
					    .begin = actors_keep_begin,
					    .arrived = actors_keep_arrived};
	peers_add(a->host->peers, &a->service);
	if (!a->host->peers)
		return;
	a->due_ms = actors_now_ms();
	actors_arm(a);
}

void actors_peers_end(struct actors *a)
{
	struct actors_free *f;

	peers_remove(a->host->peers, &a->service);
	while ((f = a->frees) != NULL) {
		a->frees = f->next;
		free(f);
	}
}

/* ---- for reports ----------------------------------------------------------------------------- */

static const char *state_of(const struct actors_one *k)
{
	static const char *const states[] = {
		[ACTOR_ACTIVE] = "active",          [ACTOR_SUSPENDING] = "suspending",
		[ACTOR_STOPPING] = "stopping",      [ACTOR_SERIALIZING] = "saving",
		[ACTOR_PLACING] = "waits for room", [ACTOR_TRANSFERRING] = "moving",
		[ACTOR_DESERIALIZING] = "loading",  [ACTOR_FORWARDING] = "forwarding",
		[ACTOR_LOCATING] = "locating",      [ACTOR_KILLED] = "ended",
	};

	if (k->core)
		return states[actor_state(k->core)];
	if (k->claims)
		return "settling";
	if (k->recovering || (k->kept && k->kept->loading))
		return "recovering";
	return *k->far ? "elsewhere" : "copy";
}

static uint64_t n_held(const struct actors_one *k)
{
	uint64_t n = 0;

	for (const struct actors_call *l = k->held; l; l = l->next_held)
		n++;
	return n;
}

static void line_of(const struct actors_one *k, struct actors_line *l)
{
	const struct actors_guest *g = k->core ? k->at : k->kept ? k->kept->place : NULL;

	*l = (struct actors_line){
		.uid = k->key.uid,
		.name = k->key.name,
		.parent = k->parent,
		.state = state_of(k),
		.place = g ? g->place : "",
		.daemon = k->far,
		.pid = g ? conn_peer(g->conn)->pid : 0,
		.version = k->core   ? k->version
			   : k->kept ? k->kept->version
				     : k->far_version,
		.bytes = k->kept ? k->kept->bytes : 0,
		.n_queued = k->core ? actor_n_queued(k->core) : n_held(k),
		.n_running = k->core ? actor_n_running(k->core) : 0,
		.movable = k->core && k->said.level > ACTOR_NEVER &&
			   (k->said.flags & WIRE_ACTOR_CAN_SAVE) &&
			   (k->said.flags & WIRE_ACTOR_CAN_LOAD),
		.saved = k->copy ? k->copy->meta.version : 0,
		.unsaved = k->copy && (k->copy->dirty || k->copy->fd >= 0),
		.copied = k->copy && actors_copied(k),
		.restarts = k->restarts,
		.options = actors_options(k),
	};
	for (const struct actors_advert *v = k->adverts;
	     v && l->n_copies < sizeof(l->copies) / sizeof(l->copies[0]); v = v->next)
		l->copies[l->n_copies++] = (struct actors_copy_line){v->peer, v->version, v->bytes};
}

void actors_each(const struct actors *a, void (*fn)(const struct actors_line *line, void *arg),
		 void *arg)
{
	const struct actors_one *k, *next;
	struct actors_line line;

	HASH_ITER(hh, a->all, k, next)
	{
		line_of(k, &line);
		fn(&line, arg);
	}
}
