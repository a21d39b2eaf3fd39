/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.c: do the arbiter's rules hold, and what do they cost those who wait?
 *
 * The sets of arbsets.h are run through the core in virtual time and compared with the reference
 * model of the same rules. Variants of them, for which there is no reference, must only end: with
 * allocations that can be spilled while their task is rolled back, with clients that die in 1 % of
 * their operations, with a second pool. Options pick one set and variant, to find out what went
 * wrong. A run repeats exactly: its situations come from a seed, its time is virtual.
 */
#include <argp.h>
#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "arbsets.h"
#include "arbsim.h"

#define KILL     0.01
#define MORE_MAX 1.05 /* than the reference */

enum variant {
	PLAIN,
	SPILL,
	DEATHS,
	POOLS,
	N_VARIANTS
};
static const char *const variant_names[N_VARIANTS] = {"plain", "spill", "kill", "pools"};

struct options {
	const char *set, *print; /* a name; NULL = all; NULL = none */
	int variant;             /* -1 = all */
	uint32_t seed, n_situations;
	bool invariants, explain;
};

enum {
	OPTION_SET = 2000,
	OPTION_VARIANT,
	OPTION_SEED,
	OPTION_SITUATIONS,
	OPTION_INVARIANTS,
	OPTION_EXPLAIN,
	OPTION_PRINT
};

static const struct argp_option options[] = {
	{"set", OPTION_SET, "NAME", 0, "only this one: \"D x4\" (all)", 0},
	{"variant", OPTION_VARIANT, "NAME", 0, "only plain, spill, kill or pools (all)", 0},
	{"seed", OPTION_SEED, "N", 0, "of the situations; there is a reference for 1 alone (1)", 0},
	{"situations", OPTION_SITUATIONS, "N", 0,
	 "of each set; there is a reference for 500 alone (500)", 0},
	{"invariants", OPTION_INVARIANTS, NULL, 0,
	 "look at all of the core's after every message: slow", 0},
	{"explain", OPTION_EXPLAIN, NULL, 0, "say on stderr who hangs and what is broken", 0},
	{"print-situations", OPTION_PRINT, "NAME", 0, "print those of this set, do nothing else",
	 0},
	{0},
};

static const struct arbset *find_set(const char *name)
{
	for (size_t i = 0; i < n_arbsets; i++) {
		if (strcmp(arbsets[i].name, name) == 0)
			return &arbsets[i];
	}
	return NULL;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case OPTION_SET:
	case OPTION_PRINT:
		if (!find_set(arg))
			argp_error(state, "no such set: %s", arg);
		*(key == OPTION_SET ? &o->set : &o->print) = arg;
		return 0;
	case OPTION_VARIANT:
		for (o->variant = 0; o->variant < N_VARIANTS; o->variant++) {
			if (strcmp(variant_names[o->variant], arg) == 0)
				return 0;
		}
		argp_error(state, "no such variant: %s", arg);
		return EINVAL;
	case OPTION_SEED:
		o->seed = (uint32_t)strtoul(arg, NULL, 0);
		return 0;
	case OPTION_SITUATIONS:
		o->n_situations = (uint32_t)strtoul(arg, NULL, 0);
		return 0;
	case OPTION_INVARIANTS:
		o->invariants = true;
		return 0;
	case OPTION_EXPLAIN:
		o->explain = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void print_situations(const struct arbset *set, uint32_t seed, uint32_t n_situations,
			     FILE *out)
{
	static struct situation situation;
	struct twister random;

	twister_init(&random, seed);
	for (uint32_t i = 0; i < n_situations; i++) {
		situation_make(&random, &set->rules, &situation);
		situation_print(&situation, out);
	}
}

/* Of the situations as they are printed. */
static uint64_t digest_of(const struct arbset *set)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	uint64_t digest;

	if (!out)
		err(1, "situations");
	print_situations(set, ARBSETS_SEED, ARBSETS_SITUATIONS, out);
	if (fclose(out) != 0)
		err(1, "situations");
	digest = XXH3_64bits(text, size);
	free(text);
	return digest;
}

/* ---- the sets -------------------------------------------------------------------------------- */

static unsigned n_checks, n_failed;

static void check(const struct arbset *set, const char *variant, bool holds, const char *what)
{
	n_checks++;
	if (holds)
		return;
	n_failed++;
	printf("FAILED - %s, %s: %s\n", set->name, variant, what);
}

static void print_result(const char *name, const char *variant, const struct arbsim_result *got)
{
	printf("%s, %s: %" PRIu64 " tasks, splits %" PRIu64 " + %" PRIu64
	       " too big, retries %" PRIu64 ", makespan %.1f s, lost %.1f s; failed %" PRIu64
	       " tasks, %" PRIu64 " situations; hangs %" PRIu64 ", not empty %" PRIu64
	       ", broken %" PRIu64 "%s%s%s; killed %" PRIu64 ", spilled %" PRIu64 "; %" PRIu64
	       " messages\n",
	       name, variant, got->n_tasks, got->work.n_splits, got->work.n_toobig,
	       got->work.n_retries, got->makespan_s, (double)got->work.lost_ns / 1e9,
	       got->n_failed_tasks, got->n_failed_situations, got->n_hangs, got->n_not_empty,
	       got->n_broken, got->first_broken ? " (" : "",
	       got->first_broken ? got->first_broken : "", got->first_broken ? ")" : "",
	       got->n_kills, got->n_spills, got->n_messages);
}

static void check_result(const struct arbset *set, const char *variant,
			 const struct arbsim_result *got)
{
	check(set, variant, got->n_tasks > 0, "tasks were run");
	check(set, variant, got->n_failed_situations == 0, "no situation fails");
	check(set, variant, got->n_hangs == 0, "no situation hangs");
	check(set, variant, got->n_not_empty == 0, "nothing is booked after the end");
	check(set, variant, got->n_broken == 0, "no rule is broken");
	if (got->n_kills > 0) /* a dead client does not count what it was told */
		return;
	check(set, variant, got->core_retries == got->work.n_retries,
	      "the core counts the retries that clients saw");
	check(set, variant, got->core_splits == got->work.n_splits,
	      "the core counts the splits that clients saw");
}

/* With the reference model of the same rules on the same situations. */
static void compare(const struct arbset *set, const struct arbsim_result *got)
{
	check(set, "plain", digest_of(set) == set->digest,
	      "the situations are those of the reference");
	if (set->makespan_s == 0)
		return;
	check(set, "plain", got->work.n_splits + got->work.n_toobig == set->n_splits,
	      "splits as the reference's");
	check(set, "plain", (double)got->work.n_retries <= MORE_MAX * set->n_retries,
	      "retries at most 1.05 of the reference's");
	check(set, "plain", got->makespan_s <= MORE_MAX * set->makespan_s,
	      "makespan at most 1.05 of the reference's");
}

static void run_set(const struct options *o, const struct arbset *set, int variant)
{
	struct arbsim_options sim = {.rules = set->rules,
				     .seed = o->seed,
				     .n_situations = o->n_situations,
				     .pool_bytes = (uint64_t)set->pool_mib << 20,
				     .n_runners = set->n_runners,
				     .check = o->invariants,
				     .explain = o->explain};
	struct arbsim_result got;
	int e;

	sim.spillable = variant == SPILL;
	sim.kill = variant == DEATHS ? KILL : 0;
	sim.second_pool = variant == POOLS ? sim.pool_bytes / 2 : 0;
	e = arbsim_run(&sim, &got);
	if (e < 0)
		errx(1, "%s: %s", set->name, strerror(-e));
	print_result(set->name, variant_names[variant], &got);
	check_result(set, variant_names[variant], &got);
	if (variant == PLAIN && o->seed == ARBSETS_SEED && o->n_situations == ARBSETS_SITUATIONS)
		compare(set, &got);
}

static void run_sets(const struct options *o)
{
	for (int variant = 0; variant < N_VARIANTS; variant++) {
		if (o->variant >= 0 && o->variant != variant)
			continue;
		for (size_t i = 0; i < n_arbsets; i++) {
			if (!o->set || strcmp(o->set, arbsets[i].name) == 0)
				run_set(o, &arbsets[i], variant);
		}
	}
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		options, parse_option, NULL, "The memory arbiter's core, in virtual time",
		NULL,    NULL,         NULL};
	struct options o = {
		.variant = -1, .seed = ARBSETS_SEED, .n_situations = ARBSETS_SITUATIONS};

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	if (o.print) {
		print_situations(find_set(o.print), o.seed, o.n_situations, stdout);
		return 0;
	}
	run_sets(&o);
	printf("%u passed, %u failed\n", n_checks - n_failed, n_failed);
	return n_failed > 0 || n_checks == 0;
}
