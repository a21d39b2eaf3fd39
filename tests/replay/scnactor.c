/* SPDX-License-Identifier: Apache-2.0 */
/* scnactor.c: of the domain "ckpt": an actor is preempted, and the world does what it is told, up
 * to the step that shall fail. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "policy.h"
#include "scnckpt.h"
#include "scnnames.h"

#define ORDERS 128u

/* Orders that are given and not done yet: the module must not be called from within its call. */
struct play {
	struct ckpt_state *s;
	const struct scn_actor *a;
	struct actor *actor;
	struct actor_order orders[ORDERS];
	char peers[ORDERS][CKPT_NAME + 1];
	size_t n, at;
};

static void on_order(void *arg, const struct actor_order *o)
{
	struct play *p = arg;

	if (p->n == ORDERS)
		return;
	p->orders[p->n] = *o;
	snprintf(p->peers[p->n], sizeof(p->peers[0]), "%s", o->peer);
	p->n++;
}

static void event(struct ckpt_state *s, const char *what, const char *of)
{
	size_t n = strlen(s->events);

	snprintf(s->events + n, sizeof(s->events) - n, "%s%s%s%s", n ? "," : "", what,
		 *of ? ":" : "", of);
}

/* The events' names, which "fail=" takes too. */
static const char *const steps[] = {
	[ACTOR_SUSPENDING] = "suspend",
	[ACTOR_STOPPING] = "preempt_task",
	[ACTOR_SERIALIZING] = "serialize",
	[ACTOR_PLACING] = "place",
	[ACTOR_TRANSFERRING] = "transfer",
	[ACTOR_DESERIALIZING] = "deserialize",
	[ACTOR_FORWARDING] = "forward_queue",
	[ACTOR_LOCATING] = "location",
	[ACTOR_KILLED] = "",
};

/* A step of the move; one that fails is not told of as done. */
static void do_step(struct play *p, const struct actor_order *o, enum actor_state step,
		    const char *of)
{
	bool ok = strcmp(p->a->fail, steps[step]) != 0;

	if (ok)
		event(p->s, steps[step], of);
	actor_done(p->actor, o->step, ok, 0);
}

static void stop_one(struct play *p, const struct actor_order *o)
{
	if (!strcmp(p->a->fail, steps[ACTOR_STOPPING])) {
		actor_done(p->actor, o->step, false, 0);
		return;
	}
	event(p->s, steps[ACTOR_STOPPING], "");
	actor_stopped(p->actor, o->request, 0);
}

static void play_one(struct play *p)
{
	const struct actor_order *o = &p->orders[p->at];
	const char *peer = p->peers[p->at++];
	char text[48];

	switch (o->action) {
	case ACTOR_SUSPEND:
		do_step(p, o, ACTOR_SUSPENDING, "");
		break;
	case ACTOR_STOP:
		stop_one(p, o);
		break;
	case ACTOR_SERIALIZE:
		do_step(p, o, ACTOR_SERIALIZING, "");
		break;
	case ACTOR_TRANSFER:
		do_step(p, o, ACTOR_TRANSFERRING, peer);
		break;
	case ACTOR_DESERIALIZE:
		do_step(p, o, ACTOR_DESERIALIZING, "");
		break;
	case ACTOR_FORWARD:
		do_step(p, o, ACTOR_FORWARDING, "");
		break;
	case ACTOR_LOCATE:
		do_step(p, o, ACTOR_LOCATING, peer);
		break;
	case ACTOR_PLACE:
		/* Nobody takes it: its time passes. */
		actor_tick(p->actor, UINT64_MAX - 1);
		break;
	case ACTOR_FAILED:
		snprintf(text, sizeof(text), "%s_failed", steps[o->what]);
		event(p->s, text, "");
		break;
	case ACTOR_HOME:
		event(p->s, "location", *peer ? peer : "home");
		break;
	case ACTOR_RESUME:
		event(p->s, "active", "");
		break;
	case ACTOR_KILL:
		event(p->s, "kill", "");
		break;
	case ACTOR_DISCARD:
	case ACTOR_RUN:
	case ACTOR_LOSE:
		break;
	}
}

static void do_preempt(struct ckpt_state *s, struct scn *c)
{
	uint64_t number = scn_names_find(&s->actor_names, scn_need_word(c, 0));
	struct play p = {.s = s};

	if (!number || number > SCN_ACTORS) {
		scn_wrong(c, "no such actor");
		return;
	}
	p.a = &s->actors[number];
	if (p.a->refused) {
		s->events[0] = 0;
		event(s, "error", "");
		return;
	}
	p.actor = actor_new(&p.a->config, on_order, &p);
	for (uint32_t i = 0; p.actor && i < p.a->n_tasks; i++)
		actor_request(p.actor, i + 1);
	p.at = p.n;
	s->events[0] = 0;
	if (!p.actor)
		scn_wrong(c, "out of memory");
	else if (actor_preempt(p.actor, *p.a->dest ? p.a->dest : NULL, 0) == -EPERM)
		event(s, "refused", "");
	while (p.at < p.n)
		play_one(&p);
	actor_free(p.actor);
}

/* As people write it; whether "auto" would be HIGH is not an actor's own matter. */
static int level_of(struct scn *c)
{
	const char *text = scn_text(c, "level", "0");
	enum policylevel level = POLICYLEVEL_NEVER;

	if (!scn_level(text, &level) || level > POLICYLEVEL_ALWAYS)
		scn_wrong(c, "level: no such level: %s", text);
	return (int)level;
}

static void do_actor(struct ckpt_state *s, struct scn *c)
{
	uint64_t number = scn_names_number(&s->actor_names, scn_need_word(c, 0));
	const char *dest = scn_text(c, "dest", "none"), *fail = scn_text(c, "fail", "");
	bool serializer = scn_flag(c, "ser", false);
	struct scn_actor *a;

	if (!number || number > SCN_ACTORS || strlen(dest) > CKPT_NAME ||
	    strlen(fail) >= sizeof(a->fail)) {
		scn_wrong(c, "too many actors, or too long a name");
		return;
	}
	a = &s->actors[number];
	*a = (struct scn_actor){.n_tasks = (uint32_t)scn_number(c, "tasks", 0)};
	a->config = (struct actor_config){
		.level = level_of(c),
		.can_save = serializer,
		.can_load = scn_flag(c, "load", serializer),
		.at_once = a->n_tasks,
		.suspend_max_ms = 1,
	};
	a->refused = scn_flag(c, "strict", false) &&
		     actor_level(a->config.level, a->config.can_save, a->config.can_load, true) < 0;
	if (strcmp(dest, "none") != 0)
		memcpy(a->dest, dest, strlen(dest) + 1);
	memcpy(a->fail, fail, strlen(fail) + 1);
}

bool scn_actor_verb(struct ckpt_state *s, struct scn *c, const char *verb)
{
	if (!strcmp(verb, "actor"))
		do_actor(s, c);
	else if (!strcmp(verb, "preempt"))
		do_preempt(s, c);
	else
		return false;
	return true;
}

void scn_actor_end(struct ckpt_state *s)
{
	scn_names_deinit(&s->actor_names);
}
