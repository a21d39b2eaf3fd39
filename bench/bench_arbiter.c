/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_arbiter.c: what do the arbiter's rules cost those who wait, and how many messages does its core take?
 *
 * The sets of arbsets.h are run through the core in virtual time; beside each figure stands that of the reference model of the same rules.
 * Variants of them, for which there is no reference, must only end: with allocations that can be spilled while their task is rolled back,
 * with clients that die in 1 % of their operations, with a second pool. Then the core alone, with 10,000 contexts. Options pick one set and
 * variant, to find out what went wrong.
 */
#include <argp.h>
#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arbrate.h"
#include "arbsets.h"
#include "arbsim.h"
#include "report.h"

#define KILL     0.01
#define CONTEXTS 10000u
#define QUICK    50u /* situations */

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
	bool invariants, explain, no_sets, no_events;
};

enum {
	OPTION_SET = 2000,
	OPTION_VARIANT,
	OPTION_SEED,
	OPTION_SITUATIONS,
	OPTION_INVARIANTS,
	OPTION_EXPLAIN,
	OPTION_PRINT,
	OPTION_NO_SETS,
	OPTION_NO_EVENTS
};

static const struct argp_option own_options[] = {
	{"set", OPTION_SET, "NAME", 0, "only this one: \"D x4\" (all)", 0},
	{"variant", OPTION_VARIANT, "NAME", 0, "only plain, spill, kill or pools (all)", 0},
	{"seed", OPTION_SEED, "N", 0, "of the situations; there is a reference for 1 alone (1)", 0},
	{"situations", OPTION_SITUATIONS, "N", 0, "of each set; there is a reference for 500 alone (500)", 0},
	{"invariants", OPTION_INVARIANTS, NULL, 0, "look at all of the core's after every message: slow", 0},
	{"explain", OPTION_EXPLAIN, NULL, 0, "say on stderr who hangs and what is broken", 0},
	{"print-situations", OPTION_PRINT, "NAME", 0, "print those of this set, do nothing else", 0},
	{"no-sets", OPTION_NO_SETS, NULL, 0, "only the core's messages per second", 0},
	{"no-events", OPTION_NO_EVENTS, NULL, 0, "only the sets", 0},
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
	case OPTION_NO_SETS:
		o->no_sets = true;
		return 0;
	case OPTION_NO_EVENTS:
		o->no_events = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void print_situations(const struct options *o)
{
	const struct arbset *set = find_set(o->print);
	static struct situation situation;
	struct twister random;

	twister_init(&random, o->seed);
	for (uint32_t i = 0; i < o->n_situations; i++) {
		situation_make(&random, &set->rules, &situation);
		situation_print(&situation, stdout);
	}
}

/* ---- the sets ------------------------------------------------------------------------------------------------------ */

static void promise(struct report *r, const char *id, const char *unit, double target, double value, const char *what)
{
	report_target(r, &(struct report_target){.id = id,
						 .what = what,
						 .unit = unit,
						 .relation = REPORT_AT_MOST,
						 .target = target,
						 .value = value});
}

/* Failed situations, hangs, bytes left over, broken invariants, counts that differ from the core's. */
static uint64_t n_wrong(const struct arbsim_result *got)
{
	uint64_t n = got->n_failed_situations + got->n_hangs + got->n_not_empty + got->n_broken;

	if (got->n_kills > 0) /* who is dead does not count what it was told */
		return n;
	return n + (got->core_retries != got->work.n_retries) + (got->core_splits != got->work.n_splits);
}

static void print_result(struct report *r, const char *name, const char *variant, const struct arbsim_result *got)
{
	report_note(r,
		    "%s, %s: %" PRIu64 " tasks, splits %" PRIu64 " + %" PRIu64 " too big, retries %" PRIu64
		    ", makespan %.1f s, lost %.1f s; failed %" PRIu64 " tasks, %" PRIu64 " situations; hangs %" PRIu64
		    ", not empty %" PRIu64 ", broken %" PRIu64 "%s%s%s; killed %" PRIu64 ", spilled %" PRIu64
		    "; %" PRIu64 " messages, %.2f s",
		    name, variant, got->n_tasks, got->work.n_splits, got->work.n_toobig, got->work.n_retries,
		    got->makespan_s, (double)got->work.lost_ns / 1e9, got->n_failed_tasks, got->n_failed_situations,
		    got->n_hangs, got->n_not_empty, got->n_broken, got->first_broken ? " (" : "",
		    got->first_broken ? got->first_broken : "", got->first_broken ? ")" : "", got->n_kills,
		    got->n_spills, got->n_messages, got->real_s);
	report_seconds(r, name, "virtual makespan", variant, got->work.n_retries, got->makespan_s);
}

static void compare(struct report *r, const struct arbset *set, const struct arbsim_result *got)
{
	double splits = (double)(got->work.n_splits + got->work.n_toobig) - set->n_splits;
	char what[128];

	if (set->makespan_s == 0)
		return;
	report_note(r, "%s, reference model: splits %u, retries %u, makespan %.1f s, lost %.1f s", set->name,
		    set->n_splits, set->n_retries, set->makespan_s, set->lost_s);
	snprintf(what, sizeof(what), "%s: splits that differ from the reference's %u", set->name, set->n_splits);
	promise(r, "11b", "", 0, splits < 0 ? -splits : splits, what);
	snprintf(what, sizeof(what), "%s: retries against the reference's %u", set->name, set->n_retries);
	promise(r, "11c", "x", 1.05, (double)got->work.n_retries / set->n_retries, what);
	snprintf(what, sizeof(what), "%s: makespan against the reference's %.1f s", set->name, set->makespan_s);
	promise(r, "11d", "x", 1.05, got->makespan_s / set->makespan_s, what);
}

static void run_set(struct report *r, const struct options *o, const struct arbset *set, int variant)
{
	struct arbsim_options sim = {.rules = set->rules,
				     .seed = o->seed,
				     .n_situations = o->n_situations,
				     .pool_bytes = (uint64_t)set->pool_mib << 20,
				     .n_runners = set->n_runners,
				     .check = o->invariants,
				     .explain = o->explain};
	struct arbsim_result got;
	char what[128];
	int e;

	sim.spillable = variant == SPILL;
	sim.kill = variant == DEATHS ? KILL : 0;
	sim.second_pool = variant == POOLS ? sim.pool_bytes / 2 : 0;
	e = arbsim_run(&sim, &got);
	if (e < 0)
		errx(1, "%s: %s", set->name, strerror(-e));
	print_result(r, set->name, variant_names[variant], &got);
	snprintf(what, sizeof(what), "%s, %s: situations failed, hanging or not empty, and broken rules", set->name,
		 variant_names[variant]);
	promise(r, "11a", "", 0, (double)n_wrong(&got), what);
	if (variant == PLAIN && o->seed == ARBSETS_SEED && o->n_situations == ARBSETS_SITUATIONS)
		compare(r, set, &got);
}

static void run_sets(struct report *r, const struct options *o)
{
	for (int variant = 0; variant < N_VARIANTS; variant++) {
		if (o->variant >= 0 && o->variant != variant)
			continue;
		for (size_t i = 0; i < n_arbsets; i++) {
			if (!o->set || strcmp(o->set, arbsets[i].name) == 0)
				run_set(r, o, &arbsets[i], variant);
		}
	}
}

/* ---- messages per second ------------------------------------------------------------------------------------------- */

/* The pool holds so much of what the contexts together would hold if nobody ever waited. */
static const struct {
	double of_demand;
	const char *name;
} tightness[] = {{1.5, "wide"}, {0.98, "just too small"}, {0.5, "half of the demand"}, {0.1, "a tenth of the demand"}};

#define N_TIGHTNESS (sizeof(tightness) / sizeof(tightness[0]))

static void run_events(struct report *r, const struct report_options *common)
{
	struct arbrate_options o = {.n_contexts = CONTEXTS, .n_warm = 200000, .n_messages = 1000000, .seed = 1};
	struct measure_series series[N_TIGHTNESS] = {0};
	struct arbrate_result got[N_TIGHTNESS];

	if (common->quick)
		o.n_messages = 200000;
	for (unsigned round = 0; round < common->rounds; round++) {
		for (unsigned i = 0; i < N_TIGHTNESS; i++) {
			int e;

			o.pool_bytes = (uint64_t)(tightness[i].of_demand * (double)arbrate_demand(CONTEXTS));
			e = arbrate_run(&o, &got[i]);
			if (e < 0)
				errx(1, "messages, pool %s: %s", tightness[i].name, strerror(-e));
			measure_add(&series[i], got[i].ns * 1000 / got[i].n_messages); /* of a thousand */
			measure_end_round(&series[i]);
		}
	}
	for (unsigned i = 0; i < N_TIGHTNESS; i++) {
		struct measure_stat s = measure_stat(&series[i]);
		char what[128];

		report_note(r,
			    "%u contexts, pool %s: %.0f parked on average, of %" PRIu64 " messages %" PRIu64
			    " withheld, %" PRIu64 " retries, %" PRIu64 " splits",
			    CONTEXTS, tightness[i].name, got[i].parked, got[i].n_messages, got[i].n_withheld,
			    got[i].n_retries, got[i].n_splits);
		report_row(r, "core", "1000 messages", tightness[i].name, 0, &series[i]);
		snprintf(what, sizeof(what), "messages of %u contexts, pool %s", CONTEXTS, tightness[i].name);
		report_target(r, &(struct report_target){.id = "11e",
							 .what = what,
							 .unit = "million/s",
							 .relation = REPORT_AT_LEAST,
							 .target = 1,
							 .value = 1e6 / s.median,
							 .min = 1e6 / s.max,
							 .max = 1e6 / s.min});
		measure_deinit(&series[i]);
	}
}

int main(int argc, char **argv)
{
	static const struct argp own = {own_options, parse_option, NULL, NULL, NULL, NULL, NULL};
	struct options o = {.variant = -1, .seed = ARBSETS_SEED};
	const struct report_program program = {"bench_arbiter",
					       "the memory arbiter's core, in virtual time and flat out", &own, &o};
	struct report_options common;
	struct report *r = report_new_own(argc, argv, &program, &common);
	int e;

	if (!r)
		err(1, "out of memory");
	if (o.n_situations == 0)
		o.n_situations = common.quick ? QUICK : ARBSETS_SITUATIONS;
	if (o.print) {
		print_situations(&o);
		report_free(r);
		return 0;
	}
	if (!o.no_sets)
		run_sets(r, &o);
	if (!o.no_events) {
		measure_pin(common.cpu);
		run_events(r, &common);
	}
	e = report_print(r);
	report_free(r);
	return e;
}
