/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actorsfar.c: actors that live under another daemon: where, calls of them, and what becomes of
 * calls while an actor is nowhere; and the messages of other daemons.
 *
 * A call is held while its actor may come: while a keeper was asked to begin it, or while there is
 * a copy that some daemon will begin. Calls are held and sent in the order of their coming. A call
 * that was sent is answered by the daemon that it was sent to; if that daemon is gone, the caller
 * is told that the call is lost. No call is sent twice.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "actors.h"
#include "host.h"
#include "log.h"

#define ASK_MS    UINT64_C(15000) /* for a keeper to begin an actor */
#define CALLS_MAX 65536u          /* of all, when another daemon asks */

bool actors_far_may_come(const struct actors_one *k)
{
	return k->recovering || k->adverts || (k->kept && k->kept->version);
}

/* ---- calls ----------------------------------------------------------------------------------- */

void actors_far_hold(struct actors_one *k, struct actors_call *l)
{
	l->next_held = NULL;
	if (!k->held)
		k->held_end = &k->held;
	*k->held_end = l;
	k->held_end = &l->next_held;
}

static int send_call(const struct actors_one *k, struct actors_call *l)
{
	struct peer *p = peers_find(k->of->host->peers, k->far);
	struct actors_say_call m = {.id = l->id, .uid = k->key.uid, .hops = l->hops + 1};

	if (!p || m.hops > ACTORS_HOPS)
		return -ENOENT;
	memcpy(m.name, k->key.name, sizeof(m.name));
	strcpy(l->via, k->far); /* of one size */
	peer_send(p, ACTORS_CALL, (struct iovec[]){{&m, sizeof(m)}, {l->data, l->n}}, 2);
	return 0;
}

int actors_far_call(struct actors_one *k, struct actors_call *l)
{
	if (*k->far)
		return send_call(k, l);
	if (!actors_far_may_come(k))
		return -ENOENT;
	actors_far_hold(k, l);
	return 0;
}

/* One held call goes on. */
static void release(struct actors_one *k, struct actors_call *l)
{
	int r;

	if (k->core)
		r = actor_request(k->core, l->id);
	else
		r = actors_far_call(k, l);
	if (r < 0)
		actors_call_answer(l, WIRE_ACTOR_LOST, NULL, 0);
}

void actors_far_release(struct actors_one *k)
{
	struct actors_call *l = k->held, *next;

	k->held = NULL;
	for (; l; l = next) {
		next = l->next_held;
		release(k, l);
	}
}

static bool take_call(struct actors *a, struct peer *p, const char *body, size_t n)
{
	struct actors_say_call m;
	struct actors_one *k;
	struct actors_call *l;

	if (n < sizeof(m) || n - sizeof(m) > WIRE_TEXT_MAX)
		return false;
	memcpy(&m, body, sizeof(m));
	if (!memchr(m.name, '\0', sizeof(m.name)))
		return false;
	k = peer_speaks_for(p, m.uid) ? actors_one_find(a, m.uid, m.name) : NULL;
	l = k && a->books.n_calls < CALLS_MAX ? actors_call_new(k, body + sizeof(m), n - sizeof(m))
					      : NULL;
	if (!l) {
		struct actors_say_answer none = {.id = m.id, .how = WIRE_ACTOR_LOST};

		peer_send(p, ACTORS_ANSWER, &(struct iovec){&none, sizeof(none)}, 1);
		return true;
	}
	strcpy(l->asker, peer_name(p)); /* of one size */
	l->asker_id = m.id;
	l->hops = m.hops;
	release(k, l);
	actors_touch(k);
	return true;
}

static bool take_answer(struct actors *a, struct peer *p, const char *body, size_t n)
{
	struct actors_say_answer m;
	struct actors_call *l;

	if (n < sizeof(m) || n - sizeof(m) > WIRE_TEXT_MAX)
		return false;
	memcpy(&m, body, sizeof(m));
	if (m.how != WIRE_ACTOR_OK && m.how != WIRE_ACTOR_FAILED && m.how != WIRE_ACTOR_LOST)
		return false;
	l = actors_call_find(a, m.id);
	if (l && strcmp(l->via, peer_name(p)) == 0)
		actors_call_answer(l, (enum wire_actor_how)m.how, body + sizeof(m), n - sizeof(m));
	return true;
}

static void lose_via(struct actors_one *k, const char *peer)
{
	struct actors_call *l, *next;

	HASH_ITER(hh, k->of->calls, l, next)
	{
		if (l->of == k && strcmp(l->via, peer) == 0)
			actors_call_answer(l, WIRE_ACTOR_LOST, NULL, 0);
	}
}

/* ---- where it is ----------------------------------------------------------------------------- */

/* Does an actor of that version, at that daemon, count before one of ours? */
static bool is_greater(const struct actors_one *k, const struct peer *p, uint64_t version)
{
	uint64_t theirs = version >> ACTORS_LIFE, ours = k->version >> ACTORS_LIFE;

	return theirs != ours ? theirs > ours
			      : strcmp(peer_name(p), peers_own_name(k->of->host->peers)) < 0;
}

static void take_live(struct actors_one *k, struct peer *p, uint64_t version)
{
	if (k->core) {
		if (!is_greater(k, p, version)) {
			actors_say(k, p, ACTORS_LIVE, &(struct actors_say){.version = k->version});
			return;
		}
		log_say(LOG_WARNING, LOG_FIELDS(.object = k->key.name),
			"an actor of user %u lives at daemon %s as well, in a later life: the one "
			"here is dropped",
			k->key.uid, peer_name(p));
		k->died = true;
		actor_kill(k->core);
	}
	if (*k->far && strcmp(k->far, peer_name(p)) != 0 && version < k->far_version)
		return;
	strcpy(k->far, peer_name(p)); /* of one size */
	k->far_version = version;
	k->recovering = false;
	k->asked[0] = '\0';
	if (k->kept)
		k->kept->alone_ms = 0;
	if (!k->core) /* else when it is over */
		actors_far_release(k);
}

/* It lives there no longer. False: it did not. */
static bool forget_far(struct actors_one *k, const struct peer *p)
{
	if (strcmp(k->far, peer_name(p)) != 0)
		return false;
	k->far[0] = '\0';
	k->far_version = 0;
	return true;
}

/* ---- recovery, by the daemon where its process died ------------------------------------------ */

const struct ckpt_copy *actors_far_best(const struct actors_one *k, bool own)
{
	static struct ckpt_peer peers[CKPT_PEERS + 1]; /* the loop's thread only */
	static struct ckptbook book;
	const char *name = peers_own_name(k->of->host->peers);
	size_t n = actors_peers_list(k->of, k->key.uid, peers);

	book.n = 0;
	if (own && k->kept && k->kept->version) {
		peers[n] = (struct ckpt_peer){.free = actors_guest_room(k->kept->place)};
		strcpy(peers[n++].name, name); /* of one size */
		(void)ckptbook_add(&book, name, k->kept->version, k->kept->bytes);
	}
	for (const struct actors_advert *v = k->adverts; v; v = v->next)
		(void)ckptbook_add(&book, v->peer, v->version, v->bytes);
	return ckptbook_recover(&book, peers, n);
}

/* The newest copy elsewhere, if it will do where memory is wanted. fresh_ms: ckpt_stale_use(). */
static const struct actors_advert *actors_far_stale(const struct actors_one *k, uint64_t fresh_ms)
{
	const struct ckpt_copy *best = k->copy && k->adverts && !actors_one_has_family(k)
					       ? actors_far_best(k, false)
					       : NULL;
	const struct actors_advert *v;
	uint64_t age, delay;

	if (!best)
		return NULL;
	v = actors_advert_of(k, best->peer);
	if (!k->copy->dirty && v->version == k->copy->meta.version)
		return v; /* it is no older than the actor */
	age = v->saved_ms ? loop_clock_ms() - v->saved_ms : CKPT_NONE - 1;
	return ckpt_stale_use(&actors_options(k)->stale, age, fresh_ms, &delay) == CKPT_USE_STALE
		       ? v
		       : NULL;
}

bool actors_far_recover(struct actors_one *k)
{
	k->recovering = actors_far_best(k, k->restarts > 0) != NULL;
	k->asked[0] = '\0';
	k->asks_here = false;
	return k->recovering;
}

bool actors_far_begin(struct actors_one *k)
{
	struct peer *p = peers_find(k->of->host->peers, k->to_daemon);
	uint64_t version = k->copy_version ? k->copy_version : k->last_version;

	if (p)
		actors_say(k, p, ACTORS_RECOVER, &(struct actors_say){.version = version});
	return p != NULL;
}

/* The best copy is one of ours. */
static bool begin_here(struct actors_one *k, uint64_t version)
{
	uint32_t left = k->restarts;

	k->restarts -= left != UINT32_MAX;
	k->asks_here = actors_keep_recover(k, version);
	if (!k->asks_here)
		k->restarts = left;
	return k->asks_here;
}

void actors_far_ask(struct actors_one *k)
{
	const struct ckpt_copy *best;
	struct peer *p = NULL;

	if (*k->asked)
		actors_advert_remove(k, k->asked); /* it did not come to anything */
	k->asked[0] = '\0';
	k->asks_here = false;
	best = actors_far_best(k, k->restarts > 0);
	p = best ? peers_find(k->of->host->peers, best->peer) : NULL;
	if (p) {
		strcpy(k->asked, best->peer); /* of one size */
		k->ask_until_ms = loop_clock_ms() + ASK_MS;
		actors_say(k, p, ACTORS_RECOVER, &(struct actors_say){.version = best->version});
	} else if (!best || !begin_here(k, best->version)) {
		k->recovering = false;
		log_say(actors_options(k)->panic_on_missing ? LOG_ERR : LOG_NOTICE,
			LOG_FIELDS(.object = k->key.name),
			"an actor of user %u has died, and no copy of it can be begun: it is lost",
			k->key.uid);
		actors_one_lost(k);
		actors_far_release(k);
	}
}

uint64_t actors_far_tick(struct actors_one *k, uint64_t now_ms)
{
	if (!k->recovering || k->core || k->asks_here) /* its keeper has a time of its own */
		return UINT64_MAX;
	if (!*k->asked || now_ms >= k->ask_until_ms)
		actors_far_ask(k);
	return k->recovering ? k->ask_until_ms : UINT64_MAX;
}

/* ---- an actor leaves ------------------------------------------------------------------------- */

/* For memory's sake: to another daemon, to a place of another partition, or to another process of
 * its own partition. */

const char *actors_destination(const struct actors_one *k, const struct actord_want *want,
			       bool *ret_far)
{
	static struct ckpt_peer peers[CKPT_PEERS]; /* the loop's thread only */
	const struct ckpt_peer *to = NULL;
	uint64_t bytes = k->bytes ? k->bytes : 1; /* as far as it was saved before */

	if (want->memory && k->copy && !actors_one_has_family(k))
		to = ckpt_destination(peers, actors_peers_list(k->of, k->key.uid, peers), bytes);
	*ret_far = to != NULL;
	if (!to && want->memory && !want->daemons)
		to = ckpt_destination(peers, actors_places(k, true, peers), bytes);
	if (!to && !want->daemons && (!want->memory || want->private / 2 >= bytes))
		to = ckpt_destination(peers, actors_places(k, false, peers), bytes);
	return to ? to->name : NULL;
}

bool actors_one_may_leave(const struct actors_one *k, const struct actord_want *want)
{
	bool far;

	return k->core && k->at && (k->core->state == ACTOR_ACTIVE || k->core->stays) &&
	       actors_one_level(k) > ACTOR_NEVER &&
	       (actors_destination(k, want, &far) || actors_far_stale(k, CKPT_NONE));
}

/* The copy goes on in its place, at the daemon that keeps it. */
static void use_copy(struct actors_one *k, const struct actors_advert *copy)
{
	k->stale_ms = UINT64_MAX;
	k->goes_far = true;
	k->copy_version = copy->version;
	strcpy(k->to_daemon, copy->peer); /* of one size */
	if (actor_use_copy(k->core, copy->peer, loop_clock_ms()) < 0)
		k->copy_version = k->goes_far = false;
}

void actors_one_leave(struct actors_one *k, struct actord_want want)
{
	const struct ckpt_stale *s = &actors_options(k)->stale;
	bool far, fresh = actors_destination(k, &want, &far) != NULL;
	const struct actors_advert *copy = actors_far_stale(k, fresh ? 0 : CKPT_NONE);

	k->want = want;
	if (copy) {
		use_copy(k, copy);
	} else if (actor_preempt(k->core, NULL, loop_clock_ms()) == 0 &&
		   s->policy == CKPT_TIMEOUT) {
		k->stale_ms = s->ms < UINT64_MAX / 2 ? loop_clock_ms() + s->ms : UINT64_MAX;
	}
	actors_touch(k);
}

void actors_one_want_copy(struct actors_one *k)
{
	const struct actors_advert *copy = actors_far_stale(k, CKPT_NONE);

	k->stale_ms = UINT64_MAX;
	if (copy && k->core->state <= ACTOR_SERIALIZING)
		use_copy(k, copy);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* That daemon will not begin it. */
static void not_there(struct actors_one *k, const struct peer *p)
{
	actors_advert_remove(k, peer_name(p));
	actors_one_refused(k, p);
	if (k->recovering && strcmp(k->asked, peer_name(p)) == 0)
		actors_far_ask(k);
}

static void handle(struct actors_one *k, struct peer *p, uint16_t type, const struct actors_say *m)
{
	switch (type) {
	case ACTORS_LIVE:
		if (!actors_one_departed(k, p, m->version))
			take_live(k, p, m->version);
		break;
	case ACTORS_DEAD:
		if (forget_far(k, p) && m->ended && !k->core)
			actors_keep_drop(k);
		break;
	case ACTORS_COPY:
		actors_take_copy(k, p, m);
		break;
	case ACTORS_GONE:
		not_there(k, p);
		break;
	case ACTORS_RECOVER:
		if (!actors_keep_recover(k, m->version))
			actors_say(k, p, ACTORS_GONE, NULL);
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
	actors_touch(k);
	return true;
}

static bool on_message(struct peers_service *s, struct peer *p, uint16_t type, const char *body,
		       size_t n)
{
	struct actors *a = CONTAINER_OF(s, actors, service);

	if (a->host->draining)
		return true;
	switch (type) {
	case ACTORS_FREE:
		return actors_take_free(a, p, body, n);
	case ACTORS_CALL:
		return take_call(a, p, body, n);
	case ACTORS_ANSWER:
		return take_answer(a, p, body, n);
	default:
		return type < ACTORS_STATE && take_say(a, p, type, body, n);
	}
}

static void on_up(struct peers_service *s, struct peer *p)
{
	struct actors *a = CONTAINER_OF(s, actors, service);

	if (a->host->draining)
		return;
	actors_say_room(a, p);
	for (struct actors_one *k = a->all; k; k = k->hh.next) {
		if (!peer_speaks_for(p, k->key.uid))
			continue;
		if (k->core)
			actors_say(k, p, ACTORS_LIVE, &(struct actors_say){.version = k->version});
		if (k->kept && k->kept->version)
			actors_say(k, p, ACTORS_COPY,
				   &(struct actors_say){.version = k->kept->version,
							.bytes = k->kept->bytes});
	}
}

static void on_down(struct peers_service *s, struct peer *p)
{
	struct actors *a = CONTAINER_OF(s, actors, service);
	struct actors_one *k, *next;

	if (a->host->draining)
		return;
	actors_forget_frees(a, p, 0);
	HASH_ITER(hh, a->all, k, next)
	{
		(void)forget_far(k, p);
		lose_via(k, peer_name(p));
		not_there(k, p);
		if (k->held && !actors_far_may_come(k))
			actors_far_release(k);
		actors_touch(k);
	}
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
}
