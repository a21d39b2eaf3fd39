/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbdo.c: the commands that tell the arbiter something and never wait: pools, tasks, threads,
 * marks, time. Each is a translation into one message (task: of several); the rules are the
 * arbiter's. The outcome is what they found.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arbcommand.h"

/* "t1,t2": ids into list of ARB_LIST_MAX. */
static uint32_t tasks_of(struct arbworld *w, const char *names, uint64_t *list, struct arbanswer *a)
{
	uint32_t n = 0;
	char *copy = strdup(names), *rest = copy, *name;

	while (copy && (name = strsep(&rest, ",")) != NULL) {
		if (n == ARB_LIST_MAX) {
			a->wrong = "too many tasks";
			break;
		}
		list[n++] = arbcommand_task(w, name, a);
	}
	if (!copy)
		a->wrong = "out of memory";
	free(copy);
	return n;
}

/* ---- pools and knobs ------------------------------------------------------------------------- */

static void do_pool(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	const char *reserve = arbcommand_option(c, "reserve");
	struct arb_message m = {.op = ARB_OP_POOL_CREATE,
				.pool = arbworld_pool_new(w, c->args[0]),
				.kind = strcmp(c->args[0], "cpu") != 0 ? ARB_PARTITION
								       : ARB_PRIVATE,
				.bytes = arbcommand_bytes(c->args[1], a),
				.extra = reserve ? arbcommand_bytes(reserve, a) : w->spill_reserve,
				.name = c->args[0]};

	if (!a->wrong)
		arbcommand_say(a, arbworld_send(w, &m));
}

static void do_capacity(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	struct arb_message m = {.op = ARB_OP_POOL_RESIZE,
				.pool = arbcommand_pool(w, c->args[0], a),
				.bytes = arbcommand_bytes(c->args[1], a)};

	if (!a->wrong)
		arbcommand_say(a, arbworld_send(w, &m));
}

static void do_drop(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	struct arb_message m = {.op = ARB_OP_POOL_REMOVE,
				.pool = arbcommand_pool(w, c->args[0], a)};

	if (!a->wrong)
		arbcommand_say(a, arbworld_send(w, &m));
}

static void do_config(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	struct arb_message m = {.op = ARB_OP_KNOB};

	if (!script_integer(c->args[1], &m.value)) {
		a->wrong = "not a number";
		return;
	}
	arbcommand_say(a, ARB_OK);
	if (!strcmp(c->args[0], "spill_reserve_bytes")) {
		w->spill_reserve = (uint64_t)m.value;
		return;
	}
	if (!strcmp(c->args[0], "tick_ms"))
		return; /* ticks come when the script says so */
	for (int k = ARB_KNOB_MAX_BYPASS; k <= ARB_KNOB_OS_PROBE; k++)
		if (!strcmp(c->args[0], arb_knob_name((enum arb_knob)k)))
			m.kind = k;
	if (!m.kind)
		a->wrong = "no such knob";
	else
		arbcommand_say(a, arbworld_send(w, &m));
}

/* ---- tasks and threads ----------------------------------------------------------------------- */

static void do_task(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	const char *from = arbcommand_option(c, "from");
	struct arb_message m = {.op = ARB_OP_TASK_BEGIN, .value = ARB_PRIORITY_DEFAULT};
	enum arb_outcome o = ARB_OK;

	if (arbcommand_option(c, "prio"))
		m.value = arbcommand_option_integer(c, "prio", a);
	if (from)
		m.other = arbcommand_task(w, from, a);
	for (size_t i = 0; i < c->n_args && !a->wrong && o == ARB_OK; i++) {
		m.task = arbcommand_task(w, c->args[i], a);
		m.name = c->args[i];
		o = arbworld_send(w, &m);
	}
	arbcommand_say(a, o);
}

static void do_thread(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	const char *task = arbcommand_option(c, "task"), *tasks = arbcommand_option(c, "tasks");
	struct arbworld_thread *t = arbcommand_thread(w, c->args[0], a);
	struct arb_message m = {.op = ARB_OP_BIND, .kind = ARB_DEDICATED};
	uint64_t list[ARB_LIST_MAX];

	if (c->n_args == 2)
		m.kind = !strcmp(c->args[1], "pool")      ? ARB_HELPER
			 : !strcmp(c->args[1], "shuffle") ? ARB_SERVICE
							  : 0;
	if (!m.kind || !task == !tasks)
		a->wrong = m.kind ? "task= or tasks= is missing" : "neither pool nor shuffle";
	if (a->wrong)
		return;
	m.context = arbworld_context(w, t);
	m.n_list = tasks_of(w, task ? task : tasks, list, a);
	m.list = list;
	if (!a->wrong)
		arbcommand_say(a, arbworld_send(w, &m));
}

/* finish H tasks=…, remove H [task=T] */
static void do_remove(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	const char *task = arbcommand_option(c, "task"), *tasks = arbcommand_option(c, "tasks");
	struct arbworld_thread *t = arbcommand_thread(w, c->args[0], a);
	struct arb_message m = {.op = ARB_OP_UNBIND};
	uint64_t list[ARB_LIST_MAX];

	if (a->wrong)
		return;
	m.context = arbworld_context(w, t);
	if (task || tasks) {
		m.n_list = tasks_of(w, task ? task : tasks, list, a);
		m.list = list;
	} else {
		m.flags = ARB_ALL;
	}
	if (!a->wrong)
		arbcommand_say(a, arbworld_send(w, &m));
}

static void end_task(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a,
		     uint32_t flags)
{
	struct arb_message m = {
		.op = ARB_OP_TASK_END, .task = arbcommand_task(w, c->args[0], a), .flags = flags};

	if (!a->wrong)
		arbcommand_say(a, arbworld_send(w, &m));
}

static void do_done(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	end_task(w, c, a, 0);
}

static void do_kill(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	end_task(w, c, a, ARB_RELEASE | ARB_ALL);
}

/* A task that ends as programs end theirs: what is not sealed goes with it. */
static void do_end(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	end_task(w, c, a, ARB_RELEASE);
}

static void do_shutdown(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	(void)c;
	arbcommand_say(a, arbworld_send(w, &(struct arb_message){.op = ARB_OP_SHUTDOWN}));
}

/* ---- threads: marks, brackets, cancel -------------------------------------------------------- */

static bool is_on(const struct arbcommand *c, struct arbanswer *a)
{
	if (strcmp(c->args[1], "on") != 0 && strcmp(c->args[1], "off") != 0)
		a->wrong = "neither on nor off";
	return !strcmp(c->args[1], "on");
}

/* A message of a thread that never waits. */
static void tell(struct arbworld *w, const struct arbcommand *c, struct arb_message m,
		 struct arbanswer *a)
{
	const struct arbworld_thread *t = arbcommand_thread(w, c->args[0], a);

	if (a->wrong)
		return;
	m.context = arbworld_context(w, t);
	arbcommand_say(a, arbworld_send(w, &m));
}

/* wait H on|off [kind=pool|task|external] [for=T] */
static void do_wait(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	static const char *const kinds[] = {"pool", "task", "external"};
	const char *kind = arbcommand_option(c, "kind"), *other = arbcommand_option(c, "for");
	struct arb_message m = {.op = is_on(c, a) ? ARB_OP_WAIT_ON : ARB_OP_WAIT_OFF};

	if (m.op == ARB_OP_WAIT_ON) {
		for (int i = 0; i < 3; i++)
			if (!strcmp(kind ? kind : kinds[0], kinds[i]))
				m.kind = i + 1;
		if (!m.kind)
			a->wrong = "no such kind of wait";
		m.other = other ? arbcommand_task(w, other, a) : 0;
	}
	tell(w, c, m, a);
}

static void do_osblock(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	tell(w, c, (struct arb_message){.op = ARB_OP_OSBLOCK, .value = is_on(c, a)}, a);
}

static void do_spillrange(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	tell(w, c, (struct arb_message){.op = is_on(c, a) ? ARB_OP_SPILL_BEGIN : ARB_OP_SPILL_END},
	     a);
}

static void do_retry_begin(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	tell(w, c, (struct arb_message){.op = ARB_OP_RETRY_BEGIN}, a);
}

static void do_retry_end(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	bool ok = !arbcommand_option(c, "ok") || arbcommand_option_integer(c, "ok", a) != 0;

	tell(w, c, (struct arb_message){.op = ARB_OP_RETRY_END, .value = ok}, a);
}

/* cancel H, cancel task=T [kind=timedout] */
static void do_cancel(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	const char *task = arbcommand_option(c, "task"), *kind = arbcommand_option(c, "kind");
	struct arb_message m = {.op = ARB_OP_CANCEL};

	if (kind && strcmp(kind, "timedout") != 0)
		a->wrong = "no such kind of cancel";
	m.kind = kind ? ARB_TIMEDOUT : 0;
	if (!task == !c->n_args)
		a->wrong = "a thread or task= is needed";
	if (a->wrong)
		return;
	if (c->n_args) {
		tell(w, c, m, a);
		return;
	}
	m.task = arbcommand_task(w, task, a);
	if (!a->wrong)
		arbcommand_say(a, arbworld_send(w, &m));
}

/* inject H retry|split|error|toobig|timedout COUNT [skip=N] [pool=P]; inject task=T … */
static void do_inject(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	static const char *const kinds[] = {"retry", "split", "error", "toobig", "timedout"};
	const char *task = arbcommand_option(c, "task"), *pool = arbcommand_option(c, "pool");
	struct arb_message m = {.op = ARB_OP_INJECT,
				.extra = (uint64_t)arbcommand_option_integer(c, "skip", a)};
	size_t at = task ? 0 : 1;

	if (c->n_args != at + 2) {
		a->wrong = "a thread or task=, a kind and a count are needed";
		return;
	}
	for (int i = 0; i < 5; i++)
		if (!strcmp(c->args[at], kinds[i]))
			m.kind = i + 1;
	if (!m.kind)
		a->wrong = "no such kind of injection";
	m.value = (int64_t)arbcommand_bytes(c->args[at + 1], a);
	m.pool = pool ? arbcommand_pool(w, pool, a) : 0;
	if (!task) {
		tell(w, c, m, a);
		return;
	}
	m.task = arbcommand_task(w, task, a);
	if (!a->wrong)
		arbcommand_say(a, arbworld_send(w, &m));
}

/* ---- time ------------------------------------------------------------------------------------ */

static void do_tick(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	uint64_t n = c->n_args ? arbcommand_bytes(c->args[0], a) : 1;

	arbcommand_say(a, ARB_OK);
	while (!a->wrong && n-- && !w->fault)
		arbworld_tick(w);
}

static void do_advance(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	uint64_t ms = arbcommand_bytes(c->args[0], a);

	arbcommand_say(a, ARB_OK);
	if (!a->wrong)
		arbworld_advance(w, ms * ARBWORLD_MS);
}

const struct arbverb arbdo_verbs[] = {
	{"pool", 2, 2, "reserve", "ok", do_pool},
	{"capacity", 2, 2, NULL, "ok", do_capacity},
	{"drop", 1, 1, NULL, "ok", do_drop},
	{"config", 2, 2, NULL, "ok", do_config},
	{"task", 1, ARB_LIST_MAX, "prio,from", "ok", do_task},
	{"thread", 1, 2, "task,tasks", "ok", do_thread},
	{"finish", 1, 1, "tasks", NULL, do_remove},
	{"remove", 1, 1, "task,tasks", NULL, do_remove},
	{"done", 1, 1, NULL, NULL, do_done},
	{"kill", 1, 1, NULL, NULL, do_kill},
	{"end", 1, 1, NULL, NULL, do_end},
	{"shutdown", 0, 0, NULL, "ok", do_shutdown},
	{"wait", 2, 2, "kind,for", "ok", do_wait},
	{"osblock", 2, 2, NULL, "ok", do_osblock},
	{"spillrange", 2, 2, NULL, "ok", do_spillrange},
	{"retry_begin", 1, 1, NULL, "ok", do_retry_begin},
	{"retry_end", 1, 1, "ok", "ok", do_retry_end},
	{"cancel", 0, 1, "task,kind", "ok", do_cancel},
	{"inject", 2, 3, "skip,pool,task", "ok", do_inject},
	{"tick", 0, 1, NULL, "ok", do_tick},
	{"advance", 1, 1, NULL, "ok", do_advance},
	{0},
};
