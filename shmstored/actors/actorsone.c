/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actorsone.c: one actor: makes orders for places of what actor.h decides, and steps of actor.h of
 * their answers.
 *
 * actor.h must not be called from within its own callback. So a step that is done at once is noted
 * there, and actors_one_settle() reports it afterwards. Two steps of a move cost nothing here,
 * "take no more requests" and "hand the queue to the destination", because the queue is always the
 * daemon's.
 *
 * The actor's location changes when the destination has answered KEEP. Until then the old place has
 * its state as of the suspension. If anything fails, the actor goes on there, as a new version.
 * Only after KEEP the old place is told to drop the state.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <utlist.h>

#include "actors.h"
#include "host.h"
#include "log.h"

/* g NULL: of all places. */
static void drop_claims(struct actors_one *k, const struct actors_guest *g)
{
	struct actors_claim *claim, *next;

	LL_FOREACH_SAFE(k->claims, claim, next)
	{
		if (g && claim->place != g)
			continue;
		LL_DELETE(k->claims, claim);
		free(claim);
	}
}

/* ---- what is to be done ---------------------------------------------------------------------- */

static void order(const struct actors_one *k, struct actors_guest *g, enum wire_actor_what what,
		  struct wire_actor_order o)
{
	char text[WIRE_TEXT_MAX]; /* of FETCH: its parent, and where its state is */

	o.what = what;
	if (what == WIRE_ACTOR_FETCH)
		snprintf(text, sizeof(text), "%s\n%s", k->parent, k->ticket);
	if (g)
		actors_guest_order(g, k, &o, what == WIRE_ACTOR_FETCH ? text : NULL);
}

static void fail_unless(struct actors_one *k, bool ok)
{
	k->instant.is = !ok;
	k->instant.ok = false;
}

/* Sends an order to the destination. If that is gone, the step fails. */
static void order_there(struct actors_one *k, enum wire_actor_what what, uint64_t version)
{
	fail_unless(k, k->to != NULL);
	order(k, k->to, what, (struct wire_actor_order){.step = k->step, .version = version});
}

static const char *name_of(enum actor_state s)
{
	static const char *const names[] = {
		[ACTOR_ACTIVE] = "",
		[ACTOR_SUSPENDING] = "to be suspended",
		[ACTOR_STOPPING] = "to end what it runs",
		[ACTOR_SERIALIZING] = "to be saved",
		[ACTOR_PLACING] = "for another place that has room",
		[ACTOR_TRANSFERRING] = "for its state to come there",
		[ACTOR_DESERIALIZING] = "to be loaded there",
		[ACTOR_FORWARDING] = "for its calls to come there",
		[ACTOR_LOCATING] = "for the other place to take it",
		[ACTOR_KILLED] = "",
	};

	return names[s];
}

static void answer_mover(struct actors_one *k)
{
	if (k->mover && !k->failed)
		conn_send_done(k->mover->conn, k->mover_serial);
	else if (k->mover)
		conn_refuse(k->mover->conn, k->mover_serial, -ECANCELED,
			    "the actor was not moved: it had %s, and that failed, or took too "
			    "long. It goes on where it was, with all of its calls",
			    name_of(k->failed_in));
	k->mover = NULL;
}

/* Its move is over. */
static void forget_move(struct actors_one *k)
{
	k->failed = k->places = k->goes_far = false;
	k->want = (struct actord_want){0};
	k->copy_version = 0;
	k->stale_ms = UINT64_MAX;
	k->to = NULL;
	actors_copy_revoke(k);
	free(k->ticket);
	k->ticket = NULL;
}

/* The actor runs again, at its old place or at the new one. */
static void resume(struct actors_one *k)
{
	struct actors *a = k->of;

	if (k->core->stays) {
		bool saved = !k->failed;

		k->version = ++k->last_version;
		k->failed = false;
		order(k, k->at, WIRE_ACTOR_KEEP, (struct wire_actor_order){.version = k->version});
		if (saved)
			actors_copy_send(k);
		return;
	}
	if (k->failed) {
		a->books.n_failed++;
		k->version = ++k->last_version;
		order(k, k->at, WIRE_ACTOR_KEEP, (struct wire_actor_order){.version = k->version});
	} else {
		a->books.n_moves++;
		actors_tell(k, EVENT_ACTOR_MOVED, k->to->place, NULL);
		order(k, k->at, WIRE_ACTOR_DROP, (struct wire_actor_order){.version = k->version});
		if (k->at)
			k->at->n_actors--;
		k->version = k->last_version;
		k->at = k->to;
		k->at->n_actors++;
		memcpy(k->home, k->at->place, sizeof(k->home));
	}
	answer_mover(k);
	forget_move(k);
}

/* A call that did not begin is not lost if a copy of the actor will begin. */
static void lose(struct actors_one *k, uint64_t request)
{
	struct actors_call *l = actors_call_find(k->of, request);

	if (l && !l->begun && (k->recovering || *k->far))
		actors_far_hold(k, l);
	else if (l)
		actors_call_answer(l, WIRE_ACTOR_LOST, NULL, 0);
}

static void begin_call(const struct actors_one *k, uint64_t request)
{
	struct actors_call *l = actors_call_find(k->of, request);

	if (l)
		l->begun = true;
	if (k->copy)
		k->copy->dirty = true;
}

/* This has the type actor_do. */
static void act(void *arg, const struct actor_order *o)
{
	struct actors_one *k = arg;

	k->step = o->step;
	switch (o->action) {
	case ACTOR_SUSPEND:
	case ACTOR_FORWARD:
		k->instant.is = k->instant.ok = true;
		break;
	case ACTOR_STOP:
		order(k, k->at, WIRE_ACTOR_STOP, (struct wire_actor_order){.request = o->request});
		break;
	case ACTOR_SERIALIZE:
		order(k, k->at, WIRE_ACTOR_SAVE,
		      (struct wire_actor_order){.step = o->step, .version = ++k->last_version});
		break;
	case ACTOR_PLACE:
		k->places = true;
		break;
	case ACTOR_TRANSFER:
		k->places = false;
		if (k->goes_far) {
			fail_unless(k, actors_copy_depart(k, o->peer));
			break;
		}
		k->to = actors_guest_place(k->of, k->key.uid, o->peer);
		if (k->to)
			actors_keep_left(k, k->to);
		order_there(k, WIRE_ACTOR_FETCH, k->last_version);
		break;
	case ACTOR_DESERIALIZE:
		if (k->goes_far)
			fail_unless(k, actors_far_begin(k));
		else
			order_there(k, WIRE_ACTOR_LOAD, k->last_version);
		break;
	case ACTOR_LOCATE:
		order_there(k, WIRE_ACTOR_KEEP, k->last_version);
		break;
	case ACTOR_DISCARD:
		if (k->goes_far)
			actors_copy_recall(k, o->peer);
		order(k, k->to, WIRE_ACTOR_DROP,
		      (struct wire_actor_order){.version = k->last_version});
		break;
	case ACTOR_FAILED:
		k->failed = true;
		k->failed_in = o->what;
		log_say(LOG_NOTICE, LOG_FIELDS(.object = k->key.name),
			"an actor of user %u was not %s: it had %s, and that failed or took too "
			"long; it goes on%s",
			k->key.uid, k->core->stays ? "saved" : "moved", name_of(o->what),
			k->core->stays ? "" : " where it was");
		break;
	case ACTOR_RESUME:
		resume(k);
		break;
	case ACTOR_RUN:
		begin_call(k, o->request);
		order(k, k->at, WIRE_ACTOR_RUN,
		      (struct wire_actor_order){.request = o->request, .version = k->version});
		break;
	case ACTOR_LOSE:
		lose(k, o->request);
		break;
	case ACTOR_KILL:
		order(k, k->at, WIRE_ACTOR_DROP, (struct wire_actor_order){.version = k->version});
		order(k, k->to, WIRE_ACTOR_DROP,
		      (struct wire_actor_order){.version = k->last_version});
		break;
	case ACTOR_HOME:
	default:
		break;
	}
}

/* ---- going on -------------------------------------------------------------------------------- */

static void end_children(const struct actors_one *parent)
{
	struct actors_one *k, *next;

	HASH_ITER(hh, parent->of->all, k, next)
	{
		if (!k->core || k->key.uid != parent->key.uid ||
		    strcmp(k->parent, parent->key.name) != 0)
			continue;
		k->orphan = parent->died || parent->orphan;
		actor_kill(k->core);
		actors_touch(k);
	}
}

/* It lives here no longer. */
static void core_over(struct actors_one *k)
{
	struct actors_say m = {.ended = !k->died && !*k->far};

	if (k->died && !k->recovering && !k->of->closing)
		actors_one_lost(k);
	if (k->mover)
		conn_refuse(k->mover->conn, k->mover_serial, -ECANCELED, "the actor has ended");
	k->mover = NULL;
	end_children(k);
	if (k->at)
		k->at->n_actors--;
	k->core = actor_free(k->core);
	k->instant.is = false;
	forget_move(k);
	k->at = NULL;
	actors_copy_end(k);
	if (!k->recovering && !*k->far)
		actors_keep_drop(k);
	actors_say(k, NULL, ACTORS_DEAD, &m);
	if (k->recovering)
		actors_far_ask(k);
	else
		actors_far_release(k);
}

void actors_one_free(struct actors_one *k)
{
	struct actors *a = k->of;
	struct actors_advert *v;

	if (k->core)
		core_over(k);
	while ((v = k->adverts) != NULL) {
		LL_DELETE(k->adverts, v);
		free(v);
	}
	k->recovering = false;
	k->far[0] = '\0';
	free(k->kept);
	k->kept = NULL;
	actors_options_free(k);
	actors_far_release(k); /* they are lost */
	if (k->touched)
		DL_DELETE2(a->touched, k, tprev, tnext);
	HASH_DEL(a->all, k);
	drop_claims(k, NULL);
	free(k);
}

static bool is_dead(const struct actors_one *k)
{
	return k->core && k->core->state == ACTOR_KILLED;
}

/* Reports one step to the core. False: there is none to report. */
static bool go_on(struct actors_one *k)
{
	const char *to;

	if (k->instant.is) {
		k->instant.is = false;
		(void)actor_done(k->core, k->step, k->instant.ok, loop_clock_ms());
		return true;
	}
	if (!k->places)
		return false;
	to = actors_destination(k, &k->want, &k->goes_far);
	if (!to && !k->want.memory)
		return false; /* one may come; where memory is short nobody waits */
	return actor_placed(k->core, to, loop_clock_ms()) == 0;
}

/* Another daemon was told to begin it, and says whether it did: no time of ours ends that. */
static bool is_committed(const struct actors_one *k)
{
	return k->goes_far && k->core->state == ACTOR_DESERIALIZING;
}

bool actors_one_departed(struct actors_one *k, const struct peer *p, uint64_t version)
{
	if (!k->core || !is_committed(k) || strcmp(k->to_daemon, peer_name(p)) != 0)
		return false;
	k->of->books.n_moves++;
	actors_tell(k, EVENT_ACTOR_MOVED, NULL, k->to_daemon);
	strcpy(k->far, k->to_daemon); /* of one size */
	k->far_version = version;
	k->failed = k->died = false;
	answer_mover(k);
	actor_kill(k->core); /* what waits is held, and goes there in its order */
	return true;
}

void actors_one_refused(struct actors_one *k, const struct peer *p)
{
	if (k->core && is_committed(k) && strcmp(k->to_daemon, peer_name(p)) == 0)
		(void)actor_done(k->core, k->step, false, loop_clock_ms());
}

void actors_one_settle(struct actors_one *k)
{
	struct actors *a = k->of;
	uint64_t due = UINT64_MAX, now = loop_clock_ms(), keep;

	if (k->core && k->held && !is_dead(k))
		actors_far_release(k); /* calls that came before its place said that it is there */
	if (k->core) {
		due = actors_copy_tick(k, now);
		while (go_on(k))
			;
		/* it came back to a place that is gone */
		if (k->core->state == ACTOR_ACTIVE && !k->at) {
			k->died = true;
			(void)actors_far_recover(k);
			actor_kill(k->core);
		}
		keep = actors_keep_tick(k, now);
		due = MIN(due, MIN(k->stale_ms, keep));
		if (!is_committed(k))
			due = MIN(due, k->core->deadline_ms);
	}
	if (is_dead(k))
		core_over(k);
	if (!k->core) {
		keep = actors_keep_tick(k, now);
		due = actors_far_tick(k, now);
		due = MIN(k->settle_ms, MIN(keep, due));
	}
	a->due_ms = MIN(due, a->due_ms);
	if (!k->core && !k->claims && !*k->far && !k->adverts && !k->recovering &&
	    !(k->kept && (k->kept->version || k->kept->coming.is)))
		actors_one_free(k);
}

/* ---- where it is ----------------------------------------------------------------------------- */

int actors_one_begin(struct actors_one *k, struct actors_guest *g, const struct wire_actor_born *w)
{
	const struct actor_config config = {
		.level = w->level,
		.can_save = (w->flags & WIRE_ACTOR_CAN_SAVE) != 0,
		.can_load = (w->flags & WIRE_ACTOR_CAN_LOAD) != 0,
		.at_once = w->at_once,
		.step_ms = w->step_ms,
		.suspend_max_ms = w->suspend_ms,
	};

	k->core = actor_new(&config, act, k);
	if (!k->core)
		return -ENOMEM;
	k->said = *w;
	k->at = g;
	g->n_actors++;
	memcpy(k->home, g->place, sizeof(k->home));
	k->version = w->version ? w->version : 1;
	k->last_version = k->version;
	k->settle_ms = UINT64_MAX;
	k->died = false;
	if ((k->of->host->peers || k->restarts) && config.can_save && config.can_load &&
	    actors_copy_begin(k) < 0)
		log_say(LOG_WARNING, LOG_FIELDS(.object = k->key.name),
			"no copies of an actor are made: out of memory");
	actors_say(k, NULL, ACTORS_LIVE, &(struct actors_say){.version = k->version});
	return 0;
}

/* Tells the other places that claimed the state to drop it. */
static void drop_others(struct actors_one *k)
{
	for (const struct actors_claim *claim = k->claims; claim; claim = claim->next)
		if (claim->place != k->at)
			actors_guest_drop(claim->place, k, claim->said.version);
	drop_claims(k, NULL);
}

int actors_one_claim(struct actors_one *k, struct actors_guest *g, const struct wire_actor_born *w)
{
	struct actors_claim *claim;

	if (w->flags & WIRE_ACTOR_SURE) {
		int r = actors_one_begin(k, g, w);

		if (r == 0)
			drop_others(k);
		return r;
	}
	claim = malloc(sizeof(*claim));
	if (!claim)
		return -ENOMEM;
	if (!k->claims)
		k->settle_ms = loop_clock_ms() + ACTORS_SETTLE_MS;
	*claim = (struct actors_claim){.next = k->claims, .place = g, .said = *w};
	k->claims = claim;
	return 0;
}

static void decide(struct actors_one *k)
{
	const struct actors_claim *best = k->claims;

	for (const struct actors_claim *claim = best; claim; claim = claim->next)
		if (claim->said.version > best->said.version)
			best = claim;
	if (!best || actors_one_begin(k, best->place, &best->said) < 0) {
		k->settle_ms = loop_clock_ms() + ACTORS_SETTLE_MS; /* memory is out: later */
		return;
	}
	drop_others(k);
	k->version = ++k->last_version;
	order(k, k->at, WIRE_ACTOR_KEEP, (struct wire_actor_order){.version = k->version});
}

void actors_one_tick(struct actors_one *k, uint64_t now_ms)
{
	if (k->core && now_ms >= k->stale_ms)
		actors_one_want_copy(k);
	if (k->core && !is_committed(k))
		actor_tick(k->core, now_ms);
	else if (!k->core && now_ms >= k->settle_ms)
		decide(k);
	actors_touch(k);
}

void actors_one_left(struct actors_one *k, const struct actors_guest *g)
{
	bool was_at = k->at == g, was_to = k->to == g;

	drop_claims(k, g);
	actors_keep_left(k, g);
	if (k->mover == g)
		k->mover = NULL;
	if (was_at)
		k->at = NULL;
	if (was_to)
		k->to = NULL;
	/* From PLACING to LOCATING its state is an object, or with the destination. */
	if (k->core && was_at &&
	    (k->core->state < ACTOR_PLACING || k->core->state > ACTOR_LOCATING)) {
		k->died = !g->leaves;
		if (k->died && !k->of->host->draining)
			(void)actors_far_recover(k);
		actor_kill(k->core);
	} else if (k->core && was_to)
		(void)actor_done(k->core, k->step, false, loop_clock_ms());
	actors_touch(k);
}
