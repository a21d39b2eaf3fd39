/* SPDX-License-Identifier: Apache-2.0 */
/* actors.c: requests of clients about actors, their connections, and the service's life. */
#include "actors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "host.h"
#include "log.h"

/* ---- connections ----------------------------------------------------------------------------- */

static void end_guest(struct actors_guest *g)
{
	struct actors *a = g->of;
	struct actors_one *k, *k_next;
	struct actors_order *o, *o_next;

	DL_DELETE(a->guests, g);
	conn_off_end(g->conn, &g->end);
	while (g->calls)
		actors_call_orphan(g->calls);
	HASH_ITER(hh, a->all, k, k_next)
	{
		actors_one_left(k, g);
	}
	a->books.n_places -= *g->place != '\0';
	LL_FOREACH_SAFE(g->orders, o, o_next)
	{
		free(o);
	}
	free(g);
}

static void on_end(struct conn_end *e, UNUSED struct conn *c)
{
	end_guest(CONTAINER_OF(e, actors_guest, end));
}

/* NULL: the connection has none. */
static struct actors_guest *actors_guest_find(const struct conn *c)
{
	struct conn_end *e = conn_find_end(c, on_end);

	return e ? CONTAINER_OF(e, actors_guest, end) : NULL;
}

/* NULL: out of memory. */
static struct actors_guest *actors_guest_get(struct actors *a, struct conn *c)
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
	/* An actor that waits for a destination may have one now. */
	for (struct actors_one *k = a->all; k; k = k->hh.next)
		actors_touch(k);
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

int actors_next(struct conn *c, uint64_t serial)
{
	struct actors_guest *g = actors_guest_find(c);
	const struct actors_order *o;

	if (!g || !*g->place)
		return -ENOENT;
	if (g->asked)
		return -EBUSY;
	/* It has carried out what it was sent before. */
	for (o = g->orders; o && !o->orphan; o = o->next)
		;
	if (!o) /* so it has taken all orders to drop children of the dead */
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

#define DEPTH 16u /* of children of children */

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
	uint32_t uid = g->conn->peer.uid;
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
	actors_touch(k);
	return r;
}

/* The place had the actor under an earlier daemon, or on an earlier connection. */
static int begin_again(struct actors *a, struct actors_guest *g, const struct actors_birth *b)
{
	struct actors_one *k = actors_one_find(a, g->conn->peer.uid, b->name);
	const struct wire_actor_born *w = b->said;
	char why[CONFIG_WHY];
	int r;

	if (k && k->core && !k->at && strcmp(k->home, g->place) == 0 && w->version == k->version) {
		k->at = g; /* its move goes on; if that fails it has a home again */
		g->n_actors++;
		return 0;
	}
	if (k && !k->core && *k->far && k->far_version >> ACTORS_LIFE > w->version >> ACTORS_LIFE) {
		actors_guest_drop(g, k, w->version); /* a later life of it is at another daemon */
		return 0;
	}
	if (k && k->core) {
		if (k->at != g && k->to != g)
			actors_guest_drop(g, k, w->version);
		return 0;
	}
	k = k ? k : actors_one_new(a, g->conn->peer.uid, b->name);
	if (!k)
		return -ENOMEM;
	strcpy(k->parent, b->parent); /* as above */
	/* of a later version: without them it goes on, too */
	(void)actors_options_read(k, b->options, why);
	r = actors_one_claim(k, g, w);
	actors_touch(k);
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
	uint64_t now = loop_clock_ms();

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
	bool saves = k->core->state == ACTOR_SERIALIZING, ok = w->how == WIRE_ACTOR_OK;

	if (w->step != k->step)
		return -ESTALE;
	if (saves && ok) {
		free(k->ticket);
		k->ticket = n < WIRE_TEXT_MAX - 2 * WIRE_ACTOR_NAME - 1 ? strndup(data, n) : NULL;
		k->bytes = w->bytes;
		ok = k->ticket != NULL;
		if (ok && k->core->stays)
			ok = actors_copy_saved(k, k->ticket);
	}
	return actor_done(k->core, w->step, ok, loop_clock_ms());
}

/* The place has made the actor of the copy. */
static void loaded(struct actors_one *k)
{
	struct actors_guest *g = k->kept->place;
	struct wire_actor_born said = k->kept->meta.said;
	uint64_t had = k->kept->version;

	said.version = ((had >> ACTORS_LIFE) + 1) << ACTORS_LIFE;
	if (!*k->far) { /* else it was moved here */
		k->of->books.n_restarts++;
		actors_tell(k, EVENT_ACTOR_RESTARTED, g->place, NULL);
	}
	if (actors_one_begin(k, g, &said) < 0) {
		actors_keep_drop(k);
		return;
	}
	k->recovering = false;
	k->asked[0] = '\0';
	log_say(LOG_NOTICE, LOG_FIELDS(.object = k->key.name),
		"an actor of user %u was recovered from a copy of version %llu, at place %s",
		k->key.uid, (unsigned long long)had, g->place);
	actors_keep_forget(k); /* LIVE was said before */
	actors_guest_order(
		g, k, &(struct wire_actor_order){.what = WIRE_ACTOR_KEEP, .version = k->version},
		NULL);
	actors_far_release(k);
}

int actors_done(struct actors *a, struct conn *c, const struct wire_actor_done *w, const char *name,
		const char *data, size_t n)
{
	struct actors_one *k = actors_one_find(a, c->peer.uid, name);
	const struct actors_guest *g = actors_guest_find(c);
	const struct actors_guest *whose;
	int r = 0;

	if (g && k && k->kept && k->kept->place == g &&
	    (!k->core || w->step >= ACTORS_KEEP_STEPS)) { /* of a copy */
		r = actors_keep_done(k, w);
		if (r == ACTORS_LOADED)
			loaded(k);
		actors_touch(k);
		return r < 0 ? r : 0;
	}
	if (!g || !k || !k->core)
		return -ENOENT;
	whose = w->step && k->core->state != ACTOR_SERIALIZING ? k->to : k->at;
	if (whose != g)
		return -ENOENT;
	if (w->how == WIRE_ACTOR_ENDED)
		actor_kill(k->core);
	else
		r = w->step ? step_done(k, w, data, n) : request_done(k, w, data, n);
	actors_touch(k);
	return r;
}

int actors_move(struct actors *a, struct conn *c, uint64_t serial, const char *name,
		const char *place)
{
	struct actors_one *k = actors_one_find(a, c->peer.uid, name);
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
	r = actor_preempt(k->core, *place ? place : NULL, loop_clock_ms());
	if (r < 0)
		return r;
	k->goes_far = far;
	k->mover = g;
	k->mover_serial = serial;
	actors_touch(k);
	return 0;
}

int actors_call(struct actors *a, struct conn *c, uint64_t serial, const char *name,
		const char *data, size_t n)
{
	struct actors_one *k = actors_one_find(a, c->peer.uid, name);
	struct actors_guest *g;
	struct actors_call *l;
	int r;

	if (!k || (!k->core && !*k->far && !actors_far_may_come(k)))
		return -ENOENT;
	g = actors_guest_get(a, c);
	if (!g)
		return -ENOMEM;
	if (g->n_calls == ACTORS_CALLS)
		return -EMFILE;
	l = actors_call_new(k, data, n);
	if (!l)
		return -ENOMEM;
	l->serial = serial;
	l->from = g;
	DL_APPEND(g->calls, l);
	g->n_calls++;
	r = k->core ? actor_request(k->core, l->id) : actors_far_call(k, l);
	if (r < 0)
		actors_call_free(l);
	else
		actors_touch(k);
	return r == -EAGAIN ? -EMFILE : r == -EPIPE ? -ENOENT : r;
}

bool actors_cancel(struct conn *c, uint64_t serial)
{
	struct actors *a = c->host->actors;
	struct actors_guest *g = actors_guest_find(c);

	if (!g)
		return false;
	for (struct actors_call *l = g->calls; l; l = l->next) {
		if (l->serial != serial)
			continue;
		actors_call_orphan(l);
		return true;
	}
	for (struct actors_one *k = a->all; k; k = k->hh.next) {
		if (k->mover != g || k->mover_serial != serial)
			continue;
		k->mover = NULL;
		return true;
	}
	return false;
}

static bool is_of(const struct actors_one *k, pid_t pid)
{
	return k->at && k->at->conn->peer.pid == pid;
}

void actors_leaving(const struct host *h, pid_t pid, struct actord_want want,
		    struct actord_leaving *ret)
{
	*ret = (struct actord_leaving){.level = ACTOR_ALWAYS};
	for (const struct actors_one *k = h->actors->all; k; k = k->hh.next) {
		if (!is_of(k, pid))
			continue;
		ret->n++;
		ret->moving |= k->core && k->core->state > ACTOR_ACTIVE &&
			       k->core->state < ACTOR_KILLED && !k->core->stays;
		ret->n_movable += actors_one_may_leave(k, &want);
		if (actors_one_level(k) < ret->level)
			ret->level = actors_one_level(k);
	}
}

void actors_evacuate(const struct host *h, pid_t pid, struct actord_want want)
{
	struct actors_one *k, *next;

	HASH_ITER(hh, h->actors->all, k, next)
	{
		if (is_of(k, pid) && actors_one_may_leave(k, &want))
			actors_one_leave(k, want);
	}
}

/* ---- time ------------------------------------------------------------------------------------ */

static void on_timer(struct loop_op *op, UNUSED int result, UNUSED unsigned flags)
{
	struct actors *a = CONTAINER_OF(op, actors, timer);
	struct actors_one *k, *next;
	uint64_t now = loop_clock_ms();

	a->due_ms = actors_peers_tick(a, now);
	HASH_ITER(hh, a->all, k, next)
	{
		actors_one_tick(k, now);
	}
	loop_after(a->host->loop, &a->after);
}

/* Actors that were touched go on, and those that they touch; then the timer is set. */
static void on_after(struct loop_later *later)
{
	struct actors *a = CONTAINER_OF(later, actors, after);
	struct actors_one *k;

	while ((k = a->touched) != NULL) {
		DL_DELETE2(a->touched, k, tprev, tnext);
		k->touched = false;
		actors_one_settle(k);
	}
	/* One ms later, so that the time has come whatever was rounded down. */
	if (!a->closing && a->due_ms != UINT64_MAX)
		loop_timer_by(a->host->loop, &a->timer, (a->due_ms + 1) * ACTORS_MS);
}

/* ---- its life -------------------------------------------------------------------------------- */

struct actors *actors_new(struct host *h)
{
	struct actors *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->host = h;
	a->due_ms = h->peers ? loop_clock_ms() : UINT64_MAX;
	a->timer.fn = on_timer;
	a->after.fn = on_after;
	actors_peers_begin(a);
	loop_after(h->loop, &a->after);
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
	peers_remove(a->host->peers, &a->service);
	actors_forget_frees(a, NULL, UINT64_MAX);
	loop_after_none(a->host->loop, &a->after);
	loop_release(a->host->loop, &a->timer, a);
	return NULL;
}

void actors_books(const struct actors *a, struct actors_books *ret)
{
	*ret = a->books;
	for (const struct actors_one *k = a->all; k; k = k->hh.next)
		ret->n_actors += k->core || k->claims;
}
