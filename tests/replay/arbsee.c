/* SPDX-License-Identifier: Apache-2.0 */
/* arbsee.c: the commands that look at the arbiter, all by its inspection or
 * by the replies that came. */
#include <stdio.h>
#include <string.h>

#include "arbcommand.h"

/* result H OUT: how its parked call has completed; PENDING = it has not. */
static void see_result(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	const struct arbworld_thread *t = arbworld_thread(w, c->args[0]);

	if (!t) {
		a->wrong = "a thread that has done nothing";
		return;
	}
	snprintf(a->found, sizeof(a->found), "%s",
		 t->waits      ? "PENDING"
		 : t->answered ? arbcommand_outcome(t->last)
			       : "no call");
	snprintf(a->expected, sizeof(a->expected), "%s", c->args[1]);
	a->holds = arbcommand_is_one_of(a->found, c->args[1]);
}

static void see_state(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	const char *state = arb_state_name(arbworld_state(w, arbworld_thread(w, c->args[0])));

	snprintf(a->found, sizeof(a->found), "%s", state);
	snprintf(a->expected, sizeof(a->expected), "%s", c->args[1]);
	a->holds = arbcommand_is_one_of(state, c->args[1]);
}

/* found OP N; unit: what one of N is in what was found. */
static void compare(uint64_t found, const char *op, const char *n, uint64_t unit,
		    struct arbanswer *a)
{
	static const char *const ops[] = {"==", "!=", "<", ">", "<=", ">="};
	uint64_t wanted = arbcommand_bytes(n, a) * unit;
	bool holds[6] = {found == wanted, found != wanted, found<wanted, found> wanted,
			 found <= wanted, found >= wanted};

	for (size_t i = 0; i < 6; i++)
		if (!strcmp(op, ops[i])) {
			a->holds = holds[i];
			snprintf(a->expected, sizeof(a->expected), "%s %s", op, n);
			snprintf(a->found, sizeof(a->found), "%llu",
				 (unsigned long long)(found / unit));
			return;
		}
	a->wrong = "no such comparison";
}

/* Highest use of any partition that it saw at a grant of its own. */
static uint64_t max_used(struct arbworld *w, uint64_t task)
{
	struct arb_pool_info pool;
	struct arb_stats s;
	uint64_t max = 0;

	for (uint64_t id = 1; id <= w->n_pools; id++) {
		if (!arb_pool(w->core, id, &pool) || pool.kind != ARB_PARTITION ||
		    !arb_stats(w->core, task, id, w->now_ns, 0, &s))
			continue;
		max = s.max_used > max ? s.max_used : max;
	}
	return max;
}

/* metric T NAME OP N [pool=P] */
static void see_metric(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	const char *name = c->args[1], *pool = arbcommand_option(c, "pool");
	uint64_t task = arbworld_task(w, c->args[0]);
	uint64_t pool_id = pool ? arbworld_pool(w, pool) : 0;
	struct arb_stats s = {0};
	const struct {
		const char *name;
		const uint64_t *n;
		uint64_t unit;
	} metrics[] = {
		{"retry", &s.n_retries, 1},
		{"split", &s.n_splits, 1},
		{"blocked", &s.blocked_ns, ARBWORLD_MS},
		{"lost", &s.lost_ns, ARBWORLD_MS},
		{"lob", &s.blocked_or_lost_ns, ARBWORLD_MS},
		{"footprint", &s.footprint, 1},
		{"maxmem", &s.max_used, 1},
		{"grants", &s.n_grants, 1},
		{"current", &s.current, 1},
		{"max", &s.max, 1},
		{"need", &s.need, 1},
	};

	if (pool && !pool_id) {
		a->wrong = "no such pool";
		return;
	}
	if (task)
		arb_stats(w->core, task, pool_id, w->now_ns, 0, &s);
	if (task && !pool_id)
		s.max_used = max_used(w, task);
	for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++)
		if (!strcmp(name, metrics[i].name)) {
			compare(*metrics[i].n, c->args[2], c->args[3], metrics[i].unit, a);
			return;
		}
	a->wrong = "no such metric";
}

static bool pool_info(const struct arbworld *w, const struct arbcommand *c,
		      struct arb_pool_info *ret, struct arbanswer *a)
{
	if (!arb_pool(w->core, arbworld_pool(w, c->args[0]), ret))
		a->wrong = "no such pool";
	return !a->wrong;
}

static void see_used(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	struct arb_pool_info i;

	if (pool_info(w, c, &i, a))
		compare(i.used, "==", c->args[1], 1, a);
}

/* in P NAME OP N: a pool's own numbers */
static void see_in(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	struct arb_pool_info i = {0};
	uint64_t waiting = 0;
	const struct {
		const char *name;
		const uint64_t *n;
	} numbers[] = {
		{"used", &i.used},         {"reclaimable", &i.reclaimable},
		{"spilling", &i.spilling}, {"spilled", &i.spilled},
		{"max", &i.max_used},      {"capacity", &i.capacity},
		{"waiting", &waiting},     {"grants", &i.n_grants},
		{"waits", &i.n_waits},     {"retries", &i.n_retries},
		{"splits", &i.n_splits},   {"toobig", &i.n_toobig},
		{"passed", &i.n_bypassed},
	};

	if (!pool_info(w, c, &i, a))
		return;
	waiting = i.n_waiting;
	for (size_t n = 0; n < sizeof(numbers) / sizeof(numbers[0]); n++)
		if (!strcmp(c->args[1], numbers[n].name)) {
			compare(*numbers[n].n, c->args[2], c->args[3], 1, a);
			return;
		}
	a->wrong = "no such number of a pool";
}

/* of H NAME OP N: a thread's */
static void see_of(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	const struct arbworld_thread *t = arbworld_thread(w, c->args[0]);
	struct arb_context_info i = {0};
	uint64_t passed, outcomes, tasks, since;
	const struct {
		const char *name;
		const uint64_t *n;
		uint64_t unit;
	} numbers[] = {
		{"held", &i.held, 1},           {"need", &i.need, 1},       {"bytes", &i.bytes, 1},
		{"passed", &passed, 1},         {"outcomes", &outcomes, 1}, {"tasks", &tasks, 1},
		{"since", &since, ARBWORLD_MS},
	};

	if (!t || !arb_context(w->core, arbworld_context(w, t), &i)) {
		a->wrong = "a thread that is not bound";
		return;
	}
	passed = i.n_passed;
	outcomes = i.n_outcomes;
	tasks = i.n_tasks;
	since = w->now_ns - i.since_ns;
	for (size_t n = 0; n < sizeof(numbers) / sizeof(numbers[0]); n++)
		if (!strcmp(c->args[1], numbers[n].name)) {
			compare(*numbers[n].n, c->args[2], c->args[3], numbers[n].unit, a);
			return;
		}
	a->wrong = "no such number of a thread";
}

/* size ID N: what a reservation has in the pool */
static void see_size(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	const struct arbworld_reservation *r = arbworld_reservation(w, c->args[0]);
	struct arb_reservation_info i;

	if (!r || !arb_reservation(w->core, r->id, &i))
		a->wrong = "a reservation that was not granted, or is freed";
	else
		compare(i.bytes, "==", c->args[1], 1, a);
}

/* spills N: how many are asked for and not done */
static void see_spills(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	compare(w->n_spills, "==", c->args[0], 1, a);
}

const struct arbverb arbsee_verbs[] = {
	{"result", 2, 2, NULL, NULL, see_result},
	{"state", 2, 2, NULL, NULL, see_state},
	{"metric", 4, 4, "pool", NULL, see_metric},
	{"used", 2, 2, NULL, NULL, see_used},
	{"in", 4, 4, NULL, NULL, see_in},
	{"of", 4, 4, NULL, NULL, see_of},
	{"size", 2, 2, NULL, NULL, see_size},
	{"spills", 1, 1, NULL, NULL, see_spills},
	{0},
};
