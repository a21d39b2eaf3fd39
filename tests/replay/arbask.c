/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbask.c: the commands about bytes. The outcome of a command that may wait is the arbiter's
 * reply, or, where the reply is withheld, the state in which the thread is parked.
 */
#include <stdio.h>
#include <string.h>

#include "arbcommand.h"

/* deadline=MS from now on; 0 = none. */
static uint64_t deadline_of(const struct arbworld *w, const struct arbcommand *c,
			    struct arbanswer *a)
{
	const char *ms = arbcommand_option(c, "deadline");

	return ms ? w->now_ns + arbcommand_bytes(ms, a) * ARBWORLD_MS : 0;
}

/* ---- what may wait --------------------------------------------------------------------------- */

/* Outcome, or the state in which it waits. */
static void ask(struct arbworld *w, struct arbworld_thread *t, const struct arb_message *m,
		char **names, size_t n, struct arbanswer *a)
{
	enum arb_outcome o;

	if (a->wrong)
		return;
	o = arbworld_ask(w, t, m, names, n);
	if (o == ARB_PENDING && !t->waits)
		o = t->last;
	if (o == ARB_PENDING)
		snprintf(a->found, sizeof(a->found), "%s", arb_state_name(arbworld_state(w, t)));
	else
		arbcommand_say(a, o);
}

static void do_alloc(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	struct arbworld_thread *t = arbcommand_thread(w, c->args[0], a);
	struct arb_message m = {.op = ARB_OP_RESERVE, .reservation = arbworld_ids(w, 1)};

	if (a->wrong)
		return;
	m.context = arbworld_context(w, t);
	m.pool = arbcommand_pool(w, c->args[1], a);
	m.bytes = arbcommand_bytes(c->args[2], a);
	m.deadline_ns = deadline_of(w, c, a);
	ask(w, t, &m, c->args + 3, 1, a);
}

/* reserve H ID… POOL=N…: of several pools, all or nothing. */
static void do_reserve(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	struct arbworld_thread *t = arbcommand_thread(w, c->args[0], a);
	struct arb_message m = {.op = ARB_OP_RESERVE};
	uint64_t pools[ARB_LIST_MAX], amounts[ARB_LIST_MAX];

	for (size_t i = 0; i < c->n_options && !a->wrong; i++) {
		const char *option = c->options[i], *value = strchr(option, '=') + 1;
		char name[ARB_NAME_MAX + 1];

		if (!strncmp(option, "deadline=", 9))
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)(value - 1 - option), option);
		pools[m.n_list] = arbcommand_pool(w, name, a);
		amounts[m.n_list++] = arbcommand_bytes(value, a);
		if (m.n_list == ARB_LIST_MAX)
			a->wrong = "too many pools";
	}
	if (m.n_list != c->n_args - 1)
		a->wrong = "not as many pools as reservations";
	if (a->wrong)
		return;
	m.context = arbworld_context(w, t);
	m.reservation = arbworld_ids(w, m.n_list);
	m.list = pools;
	m.amounts = amounts;
	m.deadline_ns = deadline_of(w, c, a);
	ask(w, t, &m, c->args + 1, c->n_args - 1, a);
}

static void reserve_at_once(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a,
			    uint32_t flags)
{
	struct arbworld_thread *t = arbcommand_thread(w, c->args[0], a);
	struct arb_message m = {
		.op = ARB_OP_RESERVE, .reservation = arbworld_ids(w, 1), .flags = flags};
	enum arb_outcome o;

	if (a->wrong)
		return;
	m.context = arbworld_context(w, t);
	m.pool = arbcommand_pool(w, c->args[1], a);
	m.bytes = arbcommand_bytes(c->args[2], a);
	if (a->wrong)
		return;
	o = arbworld_send(w, &m);
	if (o == ARB_OK)
		arbworld_name(w, c->args[3], m.reservation, m.context - 1);
	arbcommand_say(a, o);
}

static void do_try(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	reserve_at_once(w, c, a, ARB_NONBLOCK);
}

static void do_spillalloc(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	reserve_at_once(w, c, a, ARB_SPILL);
}

static void do_ready(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	struct arbworld_thread *t = arbcommand_thread(w, c->args[0], a);
	struct arb_message m = {.op = ARB_OP_READY, .deadline_ns = deadline_of(w, c, a)};

	if (a->wrong)
		return;
	m.context = arbworld_context(w, t);
	ask(w, t, &m, NULL, 0, a);
}

/* resize H ID N */
static void do_resize(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	struct arbworld_thread *t = arbcommand_thread(w, c->args[0], a);
	const struct arbworld_reservation *r = arbcommand_reservation(w, c->args[1], a);
	struct arb_message m = {.op = ARB_OP_RESIZE, .bytes = arbcommand_bytes(c->args[2], a)};

	if (a->wrong)
		return;
	m.context = arbworld_context(w, t);
	m.reservation = r->id;
	m.deadline_ns = deadline_of(w, c, a);
	ask(w, t, &m, NULL, 0, a);
}

/* ---- reservations ---------------------------------------------------------------------------- */

/* A parked thread sends nothing: another thread of its client does. */
static uint64_t sender(const struct arbworld *w, const struct arbworld_thread *t)
{
	return t->waits ? 0 : arbworld_context(w, t);
}

static void do_free(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	const char *by = arbcommand_option(c, "by");
	const struct arbworld_thread *t = by ? arbcommand_thread(w, by, a) : NULL;
	enum arb_outcome o = ARB_OK;

	for (size_t i = 0; i < c->n_args && o == ARB_OK; i++) {
		struct arbworld_reservation *r = arbcommand_reservation(w, c->args[i], a);
		struct arb_message m = {.op = ARB_OP_RELEASE};

		if (a->wrong)
			return;
		m.context = sender(w, t ? t : &w->threads[r->thread]);
		m.reservation = r->id;
		o = arbworld_send(w, &m);
		if (o == ARB_OK)
			r->id = 0;
	}
	arbcommand_say(a, o);
}

/* m is about r: sent, unless the command was wrong. */
static void send_about(struct arbworld *w, const struct arbworld_reservation *r,
		       struct arb_message *m, struct arbanswer *a)
{
	if (a->wrong)
		return;
	m->reservation = r->id;
	arbcommand_say(a, arbworld_send(w, m));
}

static void do_seal(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	const struct arbworld_reservation *r = arbcommand_reservation(w, c->args[0], a);
	struct arb_message m = {.op = ARB_OP_SEAL,
				.bytes = c->n_args > 1 ? arbcommand_bytes(c->args[1], a) : 0};

	send_about(w, r, &m, a);
}

/* spillable ID [on=0]. The owner pins once, so it is said only where something changes. */
static void do_spillable(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	struct arbworld_reservation *r = arbcommand_reservation(w, c->args[0], a);
	bool on = !arbcommand_option(c, "on") || arbcommand_option_integer(c, "on", a) != 0;
	struct arb_message m = {.op = on ? ARB_OP_UNPIN : ARB_OP_PIN};
	struct arbworld_thread *t;

	if (a->wrong)
		return;
	arbcommand_say(a, ARB_OK);
	if (r->unpinned == on)
		return;
	m.reservation = r->id;
	t = &w->threads[r->thread];
	if (!on) {
		m.context = arbworld_context(w, t);
		ask(w, t, &m, NULL, 0, a);
	} else {
		arbcommand_say(a, arbworld_send(w, &m));
	}
	r->unpinned = on;
}

/* pin H ID [task=T], unpin ID [task=T]: of another task than the owner's */
static void do_pin(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	struct arbworld_thread *t = arbcommand_thread(w, c->args[0], a);
	const struct arbworld_reservation *r = arbcommand_reservation(w, c->args[1], a);
	const char *task = arbcommand_option(c, "task");
	struct arb_message m = {.op = ARB_OP_PIN, .task = task ? arbcommand_task(w, task, a) : 0};

	if (a->wrong)
		return;
	m.context = arbworld_context(w, t);
	m.reservation = r->id;
	m.deadline_ns = deadline_of(w, c, a);
	ask(w, t, &m, NULL, 0, a);
}

static void do_unpin(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	const struct arbworld_reservation *r = arbcommand_reservation(w, c->args[0], a);
	const char *task = arbcommand_option(c, "task");
	struct arb_message m = {.op = ARB_OP_UNPIN, .task = task ? arbcommand_task(w, task, a) : 0};

	send_about(w, r, &m, a);
}

static void do_own(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	const struct arbworld_reservation *r = arbcommand_reservation(w, c->args[0], a);
	struct arb_message m = {.op = ARB_OP_OWN, .task = arbcommand_task(w, c->args[1], a)};

	send_about(w, r, &m, a);
}

/* spilled ID N [all=1]: it left the pool by itself, or a part of it did */
static void do_spilled(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	const struct arbworld_reservation *r = arbcommand_reservation(w, c->args[0], a);
	struct arb_message m = {.op = ARB_OP_SPILLED, .bytes = arbcommand_bytes(c->args[1], a)};

	if (arbcommand_option_integer(c, "all", a))
		m.flags = ARB_ALL;
	send_about(w, r, &m, a);
}

/* reclaim hold | release | fail | work */
static void do_reclaim(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	const char *word = c->args[0];

	arbcommand_say(a, ARB_OK);
	if (!strcmp(word, "hold"))
		w->held = true;
	else if (!strcmp(word, "release"))
		arbworld_release(w);
	else if (!strcmp(word, "fail") || !strcmp(word, "work"))
		w->failing = *word == 'f';
	else
		a->wrong = "none of hold, release, fail, work";
}

const struct arbverb arbask_verbs[] = {
	{"alloc", 4, 4, "deadline", NULL, do_alloc},
	{"reserve", 3, ARB_LIST_MAX, "*", NULL, do_reserve},
	{"try", 4, 4, NULL, NULL, do_try},
	{"spillalloc", 4, 4, NULL, NULL, do_spillalloc},
	{"ready", 1, 1, "deadline", NULL, do_ready},
	{"resize", 3, 3, "deadline", NULL, do_resize},
	{"free", 1, 64, "by", "ok", do_free},
	{"seal", 1, 2, NULL, "ok", do_seal},
	{"spillable", 1, 1, "on", "ok", do_spillable},
	{"pin", 2, 2, "task,deadline", NULL, do_pin},
	{"unpin", 1, 1, "task", "ok", do_unpin},
	{"own", 2, 2, NULL, "ok", do_own},
	{"spilled", 2, 2, "all", "ok", do_spilled},
	{"reclaim", 1, 1, NULL, "ok", do_reclaim},
	{0},
};
