/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actor.c: the steps of a move, and the requests.
 *
 * A request is in one list from its coming until its answer, in the order of their coming; those
 * that run are marked, so that one that was stopped is where it belongs already. Each step has a
 * number that is never used again: an answer that comes after the step was given up is told
 * apart from that of a later one.
 */
#include "actor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "idtable.h"

#define NEVER UINT64_MAX

struct actor_request {
	uint64_t id;
	bool runs;
	struct actor_request *prev, *next;
	UT_hash_handle hh;
};

int actor_level(int level, bool can_save, bool can_load, bool strict)
{
	if (level == ACTOR_NEVER || (can_save && can_load))
		return level;
	return strict ? -EINVAL : ACTOR_NEVER;
}

struct actor *actor_new(const struct actor_config *config, actor_do *act, void *arg)
{
	struct actor *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->config = *config;
	if (!a->config.at_once)
		a->config.at_once = 1;
	a->config.level = actor_level(config->level, config->can_save, config->can_load, false);
	a->act = act;
	a->arg = arg;
	a->deadline_ms = NEVER;
	return a;
}

static void forget(struct actor *a, struct actor_request *r)
{
	a->n_requests--;
	a->n_running -= r->runs;
	DL_DELETE(a->requests, r);
	HASH_DEL(a->table, r);
	free(r);
}

struct actor *actor_free(struct actor *a)
{
	if (!a)
		return NULL;
	while (a->requests)
		forget(a, a->requests);
	free(a);
	return NULL;
}

static void order(struct actor *a, struct actor_order o)
{
	if (!o.peer)
		o.peer = a->to;
	o.step = a->step;
	a->act(a->arg, &o);
}

/* As many as may run, the oldest first. */
static void run(struct actor *a)
{
	for (struct actor_request *r = a->requests;
	     r && a->state == ACTOR_ACTIVE && a->n_running < a->config.at_once; r = r->next) {
		if (r->runs)
			continue;
		r->runs = true;
		a->n_running++;
		order(a, (struct actor_order){
				 .action = ACTOR_RUN, .request = r->id, .peer = a->where});
	}
}

static struct actor_request *find(const struct actor *a, uint64_t id)
{
	struct actor_request *r;

	HASH_FIND(hh, a->table, &id, sizeof(id), r);
	return r;
}

int actor_request(struct actor *a, uint64_t request)
{
	struct actor_request *r;

	if (a->state == ACTOR_KILLED)
		return -EPIPE;
	if (find(a, request))
		return -EEXIST;
	if (a->n_requests == ACTOR_REQUESTS)
		return -EAGAIN;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->id = request;
	HASH_ADD(hh, a->table, id, sizeof(r->id), r);
	if (!r->hh.tbl) {
		free(r);
		return -ENOMEM;
	}
	DL_APPEND(a->requests, r);
	a->n_requests++;
	run(a);
	return 0;
}

static void enter(struct actor *a, enum actor_state state, enum actor_action action,
		  uint64_t wait_ms, uint64_t now_ms)
{
	a->state = state;
	a->step++;
	a->deadline_ms = !wait_ms || now_ms > NEVER - wait_ms ? NEVER : now_ms + wait_ms;
	order(a, (struct actor_order){.action = action});
}

static void activate(struct actor *a)
{
	a->state = ACTOR_ACTIVE;
	a->step++;
	a->deadline_ms = NEVER;
	a->given = false;
	order(a, (struct actor_order){.action = ACTOR_RESUME, .peer = a->where});
	a->stays = false;
	run(a);
}

/* Back to where it was. */
static void give_up(struct actor *a)
{
	order(a, (struct actor_order){.action = ACTOR_FAILED, .what = a->state});
	if (a->given)
		order(a, (struct actor_order){.action = ACTOR_DISCARD});
	order(a, (struct actor_order){.action = ACTOR_HOME, .peer = a->where});
	activate(a);
}

void actor_kill(struct actor *a)
{
	if (a->state == ACTOR_KILLED)
		return;
	a->state = ACTOR_KILLED;
	a->stays = false;
	a->step++;
	a->deadline_ms = NEVER;
	order(a, (struct actor_order){.action = ACTOR_KILL, .peer = a->where});
	while (a->requests) {
		order(a, (struct actor_order){.action = ACTOR_LOSE,
					      .request = a->requests->id,
					      .peer = a->where});
		forget(a, a->requests);
	}
}

static void serialize(struct actor *a, uint64_t now_ms)
{
	enter(a, ACTOR_SERIALIZING, ACTOR_SERIALIZE, a->config.step_ms, now_ms);
}

static void stop_runs(struct actor *a)
{
	for (struct actor_request *r = a->requests; r; r = r->next)
		if (r->runs)
			order(a, (struct actor_order){
					 .action = ACTOR_STOP, .request = r->id, .peer = a->where});
}

/* Tells all running requests to stop; the next step follows when none runs any more. */
static void stop(struct actor *a, uint64_t now_ms)
{
	a->state = ACTOR_STOPPING;
	a->step++;
	a->deadline_ms = a->config.step_ms && now_ms <= NEVER - a->config.step_ms
				 ? now_ms + a->config.step_ms
				 : NEVER;
	if (!a->stays)
		stop_runs(a);
	if (!a->n_running)
		serialize(a, now_ms);
}

/* One less runs. */
static void ended(struct actor *a, uint64_t now_ms)
{
	if (a->state == ACTOR_STOPPING && !a->n_running)
		serialize(a, now_ms);
	run(a);
}

int actor_answered(struct actor *a, uint64_t request, uint64_t now_ms)
{
	struct actor_request *r = find(a, request);

	if (!r || !r->runs)
		return -ENOENT;
	forget(a, r);
	ended(a, now_ms);
	return 0;
}

int actor_stopped(struct actor *a, uint64_t request, uint64_t now_ms)
{
	struct actor_request *r = find(a, request);

	if (!r || !r->runs)
		return -ENOENT;
	r->runs = false;
	a->n_running--;
	ended(a, now_ms);
	return 0;
}

static bool set_destination(struct actor *a, const char *peer)
{
	size_t n = strlen(peer);

	if (n > CKPT_NAME)
		return false;
	memcpy(a->to, peer, n + 1);
	return true;
}

int actor_preempt(struct actor *a, const char *peer, uint64_t now_ms)
{
	if (a->config.level == ACTOR_NEVER)
		return -EPERM;
	if (a->state != ACTOR_ACTIVE && !a->stays)
		return -EBUSY;
	if (!set_destination(a, peer ? peer : ""))
		return -EINVAL;
	if (a->stays) {
		a->stays = false;
		if (a->state == ACTOR_STOPPING)
			stop_runs(a);
		return 0;
	}
	enter(a, ACTOR_SUSPENDING, ACTOR_SUSPEND, a->config.step_ms, now_ms);
	return 0;
}

int actor_use_copy(struct actor *a, const char *peer, uint64_t now_ms)
{
	if (a->config.level == ACTOR_NEVER)
		return -EPERM;
	if (a->state > ACTOR_SERIALIZING)
		return -EBUSY;
	if (!set_destination(a, peer))
		return -EINVAL;
	a->stays = false;
	a->given = true;
	enter(a, ACTOR_DESERIALIZING, ACTOR_DESERIALIZE, a->config.step_ms, now_ms);
	return 0;
}

int actor_save(struct actor *a, uint64_t now_ms)
{
	if (!a->config.can_save || !a->config.can_load)
		return -EPERM;
	if (a->state != ACTOR_ACTIVE)
		return -EBUSY;
	a->stays = true;
	a->to[0] = '\0';
	enter(a, ACTOR_SUSPENDING, ACTOR_SUSPEND, a->config.step_ms, now_ms);
	return 0;
}

static void transfer(struct actor *a, uint64_t now_ms)
{
	a->given = true;
	enter(a, ACTOR_TRANSFERRING, ACTOR_TRANSFER, a->config.step_ms, now_ms);
}

int actor_placed(struct actor *a, const char *peer, uint64_t now_ms)
{
	if (a->state != ACTOR_PLACING || (peer && (!*peer || !set_destination(a, peer))))
		return -ESTALE;
	if (peer)
		transfer(a, now_ms);
	else
		give_up(a);
	return 0;
}

static void go_on(struct actor *a, uint64_t now_ms)
{
	switch (a->state) {
	case ACTOR_SUSPENDING:
		stop(a, now_ms);
		break;
	case ACTOR_SERIALIZING:
		if (a->stays)
			activate(a);
		else if (*a->to)
			transfer(a, now_ms);
		else
			enter(a, ACTOR_PLACING, ACTOR_PLACE, a->config.suspend_max_ms, now_ms);
		break;
	case ACTOR_TRANSFERRING:
		enter(a, ACTOR_DESERIALIZING, ACTOR_DESERIALIZE, a->config.step_ms, now_ms);
		break;
	case ACTOR_DESERIALIZING:
		enter(a, ACTOR_FORWARDING, ACTOR_FORWARD, a->config.step_ms, now_ms);
		break;
	case ACTOR_FORWARDING:
		enter(a, ACTOR_LOCATING, ACTOR_LOCATE, a->config.step_ms, now_ms);
		break;
	case ACTOR_LOCATING:
		memcpy(a->where, a->to, sizeof(a->where));
		activate(a);
		break;
	case ACTOR_ACTIVE:
	case ACTOR_STOPPING:
	case ACTOR_PLACING:
	case ACTOR_KILLED:
		break;
	}
}

int actor_done(struct actor *a, uint64_t step, bool ok, uint64_t now_ms)
{
	if (step != a->step || a->state == ACTOR_ACTIVE || a->state == ACTOR_PLACING ||
	    a->state == ACTOR_KILLED)
		return -ESTALE;
	/* Each running request reports its own stop; not being able to tell one is a failure. */
	if (ok && a->state == ACTOR_STOPPING)
		return -ESTALE;
	if (ok)
		go_on(a, now_ms);
	else
		give_up(a);
	return 0;
}

void actor_tick(struct actor *a, uint64_t now_ms)
{
	if (now_ms < a->deadline_ms)
		return;
	if (a->state == ACTOR_PLACING && a->config.level == ACTOR_ALWAYS)
		actor_kill(a);
	else
		give_up(a);
}
