/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actorsroom.c: what is said to other daemons of actors, and what is known of them by what they
 * said: how much room each user's places have there, and which copies are there.
 */
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "actorspeers.h"
#include "host.h"

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
