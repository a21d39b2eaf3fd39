/* SPDX-License-Identifier: Apache-2.0 */
/* actors.c: actors by their names, requests of clients about them, and the service's life. */
#include "actors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actorsbook.h"
#include "actorspeers.h"
#include "config.h"
#include "configvalue.h"
#include "host.h"

#define DEPTH 16u /* of children of children */

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

/* ---- places ---------------------------------------------------------------------------------- */

/* An actor that waits for a destination may have one now. */
static void settle_all(struct actors *a)
{
	struct actors_one *k, *next;

	HASH_ITER(hh, a->all, k, next)
	{
		actors_one_settle(k);
	}
}

int actors_place(struct actors *a, struct conn *c, const char *name, uint64_t room)
{
	const struct actors_guest *same = actors_guest_place(a, conn_peer(c)->uid, name);
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
	settle_all(a);
	return 0;
}

int actors_leave(struct conn *c)
{
	struct actors_guest *g = actors_guest_find(c);

	if (!g || !*g->place)
		return -ENOENT;
	g->leaves = true;
	actors_guest_free(g); /* who still waits for an answer of another's actor gets none */
	return 0;
}

/* ---- their begin ----------------------------------------------------------------------------- */

static unsigned depth_of(const struct actors *a, uint32_t uid, const char *parent)
{
	const struct actors_one *k;
	unsigned n = 0;

	for (; *parent && n <= DEPTH; n++) {
		k = actors_one_find(a, uid, parent);
		parent = k ? k->parent : "";
	}
	return n;
}

static int begin_new(struct actors *a, struct actors_guest *g, const struct actors_birth *b,
		     char why[CONFIG_WHY])
{
	uint32_t uid = conn_peer(g->conn)->uid;
	const struct actors_one *above = *b->parent ? actors_one_find(a, uid, b->parent) : NULL;
	bool can_save = (b->said->flags & WIRE_ACTOR_CAN_SAVE) != 0,
	     can_load = (b->said->flags & WIRE_ACTOR_CAN_LOAD) != 0;
	struct actors_one *k;
	int r;

	if (actor_level(b->said->level, can_save, can_load,
			(b->said->flags & WIRE_ACTOR_STRICT) != 0) < 0)
		return -EINVAL;
	if (actors_one_find(a, uid, b->name))
		return -EEXIST;
	if (*b->parent && (!above || !above->core))
		return -ENOENT;
	if (depth_of(a, uid, b->parent) > DEPTH)
		return -EMFILE;
	k = actors_one_new(a, uid, b->name);
	if (!k)
		return -ENOMEM;
	strcpy(k->parent, b->parent); /* as above */
	r = actors_options_read(k, b->options, why);
	if (r == 0 && k->restarts && !(can_save && can_load)) {
		snprintf(why, CONFIG_WHY,
			 "an actor that cannot both save and load its state is not begun again");
		r = -EINVAL;
	}
	if (r == 0)
		r = actors_one_begin(k, g, b->said);
	if (r < 0)
		a->sweep = true;
	else
		actors_one_settle(k);
	return r;
}

/* The place had the actor under an earlier daemon, or on an earlier connection. */
static int begin_again(struct actors *a, struct actors_guest *g, const struct actors_birth *b)
{
	struct actors_one *k = actors_one_find(a, conn_peer(g->conn)->uid, b->name);
	const struct wire_actor_born *w = b->said;
	char why[CONFIG_WHY];
	int r;

	if (k && k->core && !k->at && strcmp(k->home, g->place) == 0 && w->version == k->version) {
		k->at = g; /* its move goes on; if that fails it has a home again */
		g->n_actors++;
		return 0;
	}
	if (k && !k->core && *k->far && k->far_version >> ACTORS_LIFE > w->version >> ACTORS_LIFE) {
		actors_one_drop(k, g, w->version); /* a later life of it is at another daemon */
		return 0;
	}
	if (k && k->core) {
		if (k->at != g && k->to != g)
			actors_one_drop(k, g, w->version);
		return 0;
	}
	k = k ? k : actors_one_new(a, conn_peer(g->conn)->uid, b->name);
	if (!k)
		return -ENOMEM;
	strcpy(k->parent, b->parent); /* as above */
	/* of a later version: without them it goes on, too */
	(void)actors_options_read(k, b->options, why);
	r = actors_one_claim(k, g, w);
	actors_one_settle(k);
	return r;
}

int actors_born(struct actors *a, struct conn *c, const struct actors_birth *b,
		char why[CONFIG_WHY])
{
	struct actors_guest *g = actors_guest_find(c);

	if (!g || !*g->place)
		return -ENOENT;
	if (g->n_actors >= ACTORS_PER_PLACE)
		return -EMFILE;
	return b->said->flags & WIRE_ACTOR_NEW ? begin_new(a, g, b, why) : begin_again(a, g, b);
}

/* ---- what they did --------------------------------------------------------------------------- */

static int request_done(struct actors_one *k, const struct wire_actor_done *w, const char *data,
			size_t n)
{
	struct actors_call *l = actors_call_find(k->of, w->request);
	uint64_t now = actors_now_ms();

	if (!l || l->of != k)
		return -ESTALE;
	l->begun = l->begun && w->how != WIRE_ACTOR_STOPPED;
	if (w->how == WIRE_ACTOR_STOPPED)
		return actor_stopped(k->core, w->request, now) < 0 ? -ESTALE : 0;
	if (actor_answered(k->core, w->request, now) < 0)
		return -ESTALE;
	actors_call_answer(l, (enum wire_actor_how)w->how, data, n);
	return 0;
}

static int step_done(struct actors_one *k, const struct wire_actor_done *w, const char *data,
		     size_t n)
{
	bool saves = actor_state(k->core) == ACTOR_SERIALIZING, ok = w->how == WIRE_ACTOR_OK;

	if (w->step != k->step)
		return -ESTALE;
	if (saves && ok) {
		free(k->ticket);
		k->ticket = n < WIRE_TEXT_MAX - 2 * WIRE_ACTOR_NAME - 1 ? strndup(data, n) : NULL;
		k->bytes = w->bytes;
		ok = k->ticket != NULL;
		if (ok && actor_stays(k->core))
			ok = actors_copy_saved(k, k->ticket);
	}
	return actor_done(k->core, w->step, ok, actors_now_ms());
}

int actors_done(struct actors *a, struct conn *c, const struct wire_actor_done *w, const char *name,
		const char *data, size_t n)
{
	struct actors_one *k = actors_one_find(a, conn_peer(c)->uid, name);
	const struct actors_guest *g = actors_guest_find(c);
	const struct actors_guest *whose;
	int r = 0;

	if (g && k && actors_keep_waits(k, g, w->step)) {
		r = actors_keep_done(k, w);
		actors_one_settle(k);
		return r;
	}
	if (!g || !k || !k->core)
		return -ENOENT;
	whose = w->step && actor_state(k->core) != ACTOR_SERIALIZING ? k->to : k->at;
	if (whose != g)
		return -ENOENT;
	if (w->how == WIRE_ACTOR_ENDED)
		actor_kill(k->core);
	else
		r = w->step ? step_done(k, w, data, n) : request_done(k, w, data, n);
	actors_one_settle(k);
	return r;
}

int actors_move(struct actors *a, struct conn *c, uint64_t serial, const char *name,
		const char *place)
{
	struct actors_one *k = actors_one_find(a, conn_peer(c)->uid, name);
	struct actors_guest *g = actors_guest_get(a, c), *to;
	bool far;
	int r;

	if (!g)
		return -ENOMEM;
	if (!k || !k->core)
		return -ENOENT;
	to = *place ? actors_guest_place(a, k->key.uid, place) : NULL;
	far = *place && !to && peers_find(a->host->peers, place);
	if (far ? actors_one_has_family(k) : *place && (!to || to == k->at))
		return far ? -EPERM : -ESTALE;
	r = actor_preempt(k->core, *place ? place : NULL, actors_now_ms());
	if (r < 0)
		return r;
	k->goes_far = far;
	k->mover = g;
	k->mover_serial = serial;
	actors_one_settle(k);
	return 0;
}

static bool is_of(const struct actors_one *k, pid_t pid)
{
	return k->at && conn_peer(k->at->conn)->pid == pid;
}

void actors_leaving(const struct actors *a, pid_t pid, struct actors_want want,
		    struct actors_leaving *ret)
{
	*ret = (struct actors_leaving){.level = ACTOR_ALWAYS};
	for (const struct actors_one *k = a->all; k; k = k->hh.next) {
		if (!is_of(k, pid))
			continue;
		ret->n++;
		ret->n_movable += actors_one_may_leave(k, &want);
		if (actors_one_level(k) < ret->level)
			ret->level = actors_one_level(k);
	}
}

bool actors_moving(const struct actors *a, pid_t pid)
{
	for (const struct actors_one *k = a->all; k; k = k->hh.next)
		if (is_of(k, pid) && k->core && actor_state(k->core) > ACTOR_ACTIVE &&
		    actor_state(k->core) < ACTOR_KILLED && !actor_stays(k->core))
			return true;
	return false;
}

struct conn *actors_place_next(const struct actors *a, const struct conn *after)
{
	const struct actors_guest *g = actors_guest_after(a, after);

	while (g && !g->n_actors)
		g = g->next;
	return g ? g->conn : NULL;
}

void actors_evacuate(struct actors *a, pid_t pid, struct actors_want want)
{
	struct actors_one *k, *next;

	HASH_ITER(hh, a->all, k, next)
	{
		if (is_of(k, pid) && actors_one_may_leave(k, &want))
			actors_one_leave(k, want);
	}
}

/* ---- time ------------------------------------------------------------------------------------ */

void actors_arm(struct actors *a)
{
	/* One ms later, so that the time has come whatever was rounded down. */
	if (!a->closing && a->due_ms != UINT64_MAX)
		loop_timer_by(a->host->loop, &a->timer, (a->due_ms + 1) * ACTORS_MS);
}

static void on_timer(struct loop_op *op, UNUSED int result, UNUSED unsigned flags)
{
	struct actors *a = CONTAINER_OF(op, actors, timer);
	struct actors_one *k, *next;
	uint64_t now = actors_now_ms();

	a->due_ms = actors_peers_tick(a, now);
	HASH_ITER(hh, a->all, k, next)
	{
		actors_one_tick(k, now);
	}
	actors_flush(a);
}

/* ---- its life -------------------------------------------------------------------------------- */

struct actors *actors_new(struct host *h)
{
	struct actors *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->host = h;
	a->due_ms = UINT64_MAX;
	a->timer.fn = on_timer;
	actors_peers_begin(a);
	return a;
}

struct actors *actors_free(struct actors *a)
{
	struct actors_one *k, *k_next;

	if (!a)
		return NULL;
	a->closing = true;
	HASH_ITER(hh, a->all, k, k_next)
	{
		actors_one_free(k);
	}
	actors_peers_end(a);
	loop_release(a->host->loop, &a->timer, a);
	return NULL;
}

void actors_books(const struct actors *a, struct actors_books *ret)
{
	*ret = a->books;
	for (const struct actors_one *k = a->all; k; k = k->hh.next)
		ret->n_actors += k->core || k->claims;
}

/*
 * An actor's options: how often it is begun again, and how copies of it are made
 * where its program said so. As text they are what ACTOR_BORN and LOAD have, and what goes to other
 * daemons with its state.
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
		      configvalue_number(number, 10, 0, UINT32_MAX, &restarts) < 0)) {
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
