/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_arbiter.c: how many messages does the arbiter's core take, with 10,000 contexts? What its
 * rules cost those who wait is counted by tests/sim, in virtual time.
 */
#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "arbrate.h"
#include "report.h"

#define CONTEXTS 10000u

/* The pool holds so much of what the contexts together would hold if nobody ever waited. */
static const struct {
	double of_demand;
	const char *name;
} tightness[] = {{1.5, "wide"},
		 {0.98, "just too small"},
		 {0.5, "half of the demand"},
		 {0.1, "a tenth of the demand"}};

#define N_TIGHTNESS (sizeof(tightness) / sizeof(tightness[0]))

static void run_events(struct report *r, const struct report_options *common)
{
	struct arbrate_options o = {
		.n_contexts = CONTEXTS, .n_warm = 200000, .n_messages = 1000000, .seed = 1};
	struct measure_series series[N_TIGHTNESS] = {0};
	struct arbrate_result got[N_TIGHTNESS];

	if (common->quick)
		o.n_messages = 200000;
	for (unsigned round = 0; round < common->rounds; round++) {
		for (unsigned i = 0; i < N_TIGHTNESS; i++) {
			int e;

			o.pool_bytes = (uint64_t)(tightness[i].of_demand *
						  (double)arbrate_demand(CONTEXTS));
			e = arbrate_run(&o, &got[i]);
			if (e < 0)
				errx(1, "messages, pool %s: %s", tightness[i].name, strerror(-e));
			/* of a thousand */
			measure_add(&series[i], got[i].ns * 1000 / got[i].n_messages);
			measure_end_round(&series[i]);
		}
	}
	for (unsigned i = 0; i < N_TIGHTNESS; i++) {
		struct measure_stat s = measure_stat(&series[i]);
		char what[128];

		report_note(r,
			    "%u contexts, pool %s: %.0f parked on average, of %" PRIu64
			    " messages %" PRIu64 " withheld, %" PRIu64 " retries, %" PRIu64
			    " splits",
			    CONTEXTS, tightness[i].name, got[i].parked, got[i].n_messages,
			    got[i].n_withheld, got[i].n_retries, got[i].n_splits);
		report_row(r, "core", "1000 messages", tightness[i].name, 0, &series[i]);
		snprintf(what, sizeof(what), "messages of %u contexts, pool %s", CONTEXTS,
			 tightness[i].name);
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
	struct report_options common;
	struct report *r = report_new(argc, argv, "bench_arbiter",
				      "the memory arbiter's core, flat out", &common);
	int e;

	if (!r)
		err(1, "out of memory");
	measure_pin(common.cpu);
	run_events(r, &common);
	e = report_print(r);
	report_free(r);
	return e;
}
