/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random messages to the arbiter's core, followed by a model that believes nothing
 * (support/arbiter/arbmodel.c); after each, all the rules.
 *
 *   SHMSTORE_ARB_GAMES=3000      games, of SHMSTORE_ARB_MESSAGES each; the whole is 3000 of 400
 *   SHMSTORE_SEED=N              game N only
 *   SHMSTORE_ARB_SCENARIO=FILE   the scenario of a game that failed goes
 *                                there and not into the output
 *
 * A game that breaks a rule is made small and said as a scenario, which shmstore-replay plays.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "arbplay.h"
#include "scratch.h"

#define GAMES        300
#define MESSAGES     400
#define GAME_SECONDS 60 /* some ms are enough for one */

/* The messages and outcomes that all games together have met. */
struct met {
	uint64_t ops[ARB_OP_SHUTDOWN + 1][ARB_INVALID + 1], done[ARB_INVALID + 1];
	uint64_t n_messages, n_spills, n_early, n_transitions;
};

/* ---- a game that kills ----------------------------------------------------------------------- */

void __sanitizer_set_death_callback(void (*fn)(void)) __attribute__((weak));

static struct {
	const struct arbplay *p;
	uint64_t seed;
} now;

/* It has died in arb_step(), so stdio is in order, mostly; and there is nothing to lose. */
static void say_death(void)
{
	if (now.p && now.p->n) {
		fprintf(stderr, "died: seed %" PRIu64 ", message %zu; the game so far:\n", now.seed,
			now.p->n);
		arbplay_print(now.p, now.seed, stderr);
	}
	now.p = NULL;
}

static void on_signal(int number)
{
	say_death();
	signal(number, SIG_DFL);
	raise(number);
}

static void watch(const struct arbplay *p)
{
	now.p = p;
	signal(SIGALRM, on_signal);
	if (__sanitizer_set_death_callback) {
		__sanitizer_set_death_callback(say_death);
	} else {
		signal(SIGSEGV, on_signal);
		signal(SIGABRT, on_signal);
	}
}

/* ---- all games ------------------------------------------------------------------------------- */

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *said = getenv(name);

	return said ? strtoull(said, NULL, 10) : otherwise;
}

static void add(struct met *all, const struct arbmodel *m)
{
	for (int op = 0; op <= ARB_OP_SHUTDOWN; op++)
		for (int o = 0; o <= ARB_INVALID; o++)
			all->ops[op][o] += m->n_met[op][o];
	for (int o = 0; o <= ARB_INVALID; o++)
		all->done[o] += m->n_done[o];
	all->n_messages += m->n_messages;
	all->n_spills += m->n_spills;
	all->n_early += m->n_early;
	all->n_transitions += m->log_number;
}

static void say_failure(struct arbplay *p, uint64_t seed)
{
	const char *path = getenv("SHMSTORE_ARB_SCENARIO");
	FILE *to = path ? fopen(path, "w") : stderr;

	fprintf(stderr, "seed %" PRIu64 ", message %zu (%s): %s\n", seed, p->n,
		arb_op_name(p->lines[p->n - 1].msg.op), p->f.m.wrong);
	arbplay_shrink(p);
	fprintf(stderr, "the same with %zu messages:\n", p->n);
	arbplay_print(p, seed, to ? to : stderr);
	if (to && to != stderr)
		fclose(to);
}

static void check_met(const struct met *all)
{
	for (int op = ARB_OP_POOL_CREATE; op <= ARB_OP_SHUTDOWN; op++)
		cr_expect(all->ops[op][ARB_OK], "%s was never answered ok",
			  arb_op_name((enum arb_op)op));
	for (int o = ARB_OK; o <= ARB_INVALID; o++) {
		uint64_t n = all->done[o];

		for (int op = ARB_OP_POOL_CREATE; op <= ARB_OP_SHUTDOWN; op++)
			n += all->ops[op][o];
		cr_expect(n, "nothing ever ended with %s", arb_outcome_name((enum arb_outcome)o));
	}
	for (int o = ARB_RETRY; o <= ARB_REMOVED; o++)
		cr_expect(o == ARB_AGAIN || all->done[o], "no call that waited ever ended with %s",
			  arb_outcome_name((enum arb_outcome)o));
	cr_expect(all->n_spills && all->n_early, "%" PRIu64 " spills, %" PRIu64 " early roll backs",
		  all->n_spills, all->n_early);
}

Test(arbiter_fuzz, random_messages_break_no_rule)
{
	uint64_t only = number("SHMSTORE_SEED", 0),
		 n = number("SHMSTORE_ARB_GAMES", n_rounds(GAMES));
	size_t n_messages = (size_t)number("SHMSTORE_ARB_MESSAGES", MESSAGES), n_failed = 0;
	struct arbplay *p = arbplay_new();
	struct met all = {0};

	cr_assert(p);
	watch(p);
	for (uint64_t seed = only ? only : 1; seed <= (only ? only : n) && n_failed < 3; seed++) {
		now.seed = seed;
		alarm(GAME_SECONDS); /* a step that never ends */
		if (!arbplay_run(p, seed, n_messages)) {
			say_failure(p, seed);
			n_failed++;
		}
		add(&all, &p->f.m);
	}
	alarm(0);
	now.p = NULL;
	arbplay_free(p);
	cr_expect_eq(n_failed, 0, "rules were broken: see above");
	if (!only && n >= GAMES && n_messages >= MESSAGES)
		check_met(&all);
	fprintf(stderr,
		"%" PRIu64 " messages, %" PRIu64 " transitions, %" PRIu64 " RETRY, %" PRIu64
		" SPLIT, %" PRIu64 " spills\n",
		all.n_messages, all.n_transitions, all.done[ARB_RETRY], all.done[ARB_SPLIT],
		all.n_spills);
}
