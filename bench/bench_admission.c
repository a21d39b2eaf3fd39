/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_admission.c: how many tasks a second are admitted by their profiles? One admission is all
 * that the core does for a task: the key is found by its name, its use estimated, it is asked for,
 * begins, and an older one ends. RUNNING of them run at any time, of KEYS kinds.
 */
#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gate.h"
#include "profile.h"
#include "report.h"

#define RUNNING 1000u
#define KEYS    100u
#define MIB     (UINT64_C(1) << 20)
#define BATCH   1000u

struct setting {
	struct profile *profile;
	struct admission admission;
	struct task {
		struct admission_task share;
		uint64_t values[PROFILE_RING];
	} * tasks; /* RUNNING, of which the oldest is next % most */
	char names[KEYS][16];
	uint64_t next, n_running, n_admitted;
};

static void fill(struct setting *s)
{
	s->profile = profile_new(KEYS);
	/* Half of the tasks run; HISTOGRAM is asked whether one more fits. */
	admission_init(&s->admission, RUNNING * 16 * MIB);
	s->tasks = calloc(RUNNING, sizeof(*s->tasks));
	if (!s->profile || !s->tasks)
		err(1, "out of memory");
	for (unsigned k = 0; k < KEYS; k++) {
		snprintf(s->names[k], sizeof(s->names[k]), "function%u", k);
		for (uint64_t i = 0; i < PROFILE_RING; i++) {
			struct profile_task t = {.used = {(1 + (i * 7 + k) % 16) * MIB},
						 .has = {true}};

			if (profile_feed(s->profile, &(struct profile_name){"c", s->names[k], ""},
					 &t))
				err(1, "out of memory");
		}
	}
}

static void one(struct setting *s, enum profile_strategy strategy, uint64_t most)
{
	struct profile_name name = {"c", s->names[s->next % KEYS], ""};
	const struct profile_key *k = profile_find(s->profile, &name);
	struct task *t = &s->tasks[s->next++ % most];

	if (s->n_running == most)
		admission_end(&s->admission, &t->share);
	else
		s->n_running++;
	t->share = (struct admission_task){
		.strategy = strategy,
		.eps_ppm = PROFILE_EPS_PPM,
		.values = t->values,
		.estimate = profile_estimate(k, PROFILE_PRIVATE, strategy, 0, MIB)};
	if (strategy == PROFILE_HISTOGRAM)
		t->share.n_values = profile_values(k, PROFILE_PRIVATE, t->values);
	s->n_admitted += !s->admission.tasks || admission_fits(&s->admission, &t->share);
	admission_start(&s->admission, &t->share);
}

static void run(struct report *r, const struct report_options *common,
		enum profile_strategy strategy)
{
	/* A distribution is made anew when a task ended: as many convolutions as tasks run. */
	const uint64_t most = strategy == PROFILE_HISTOGRAM ? 64 : RUNNING;
	const unsigned batches = strategy == PROFILE_HISTOGRAM ? 1 : common->quick ? 50 : 500;
	const unsigned batch = strategy == PROFILE_HISTOGRAM ? 20 : BATCH;
	struct setting s = {.next = 1};
	struct measure_series series = {0};
	struct measure_stat stat;
	char what[128];

	fill(&s);
	for (uint64_t i = 0; i < most; i++)
		one(&s, strategy, most);
	for (unsigned round = 0; round < common->rounds; round++) {
		for (unsigned b = 0; b < batches; b++) {
			uint64_t begin = measure_now_ns();

			for (unsigned i = 0; i < batch; i++)
				one(&s, strategy, most);
			measure_add(&series, (measure_now_ns() - begin) * (BATCH / batch));
		}
		measure_end_round(&series);
	}
	stat = measure_stat(&series);
	report_note(r,
		    "%s: %" PRIu64 " running, of %" PRIu64 " that asked %" PRIu64
		    " would be admitted",
		    profile_strategy_name(strategy), most, s.next - 1, s.n_admitted);
	report_row(r, "core", "1000 admissions", profile_strategy_name(strategy), 0, &series);
	snprintf(what, sizeof(what), "admissions by %s, %" PRIu64 " running",
		 profile_strategy_name(strategy), most);
	if (strategy != PROFILE_HISTOGRAM)
		report_target(r, &(struct report_target){.id = "16d",
							 .what = what,
							 .unit = "million/s",
							 .relation = REPORT_AT_LEAST,
							 .target = 1,
							 .value = 1e6 / stat.median,
							 .min = 1e6 / stat.max,
							 .max = 1e6 / stat.min});
	measure_deinit(&series);
	free(s.tasks);
	profile_free(s.profile);
}

int main(int argc, char **argv)
{
	struct report_options common;
	struct report *r = report_new(argc, argv, "bench_admission",
				      "admissions by profiles, flat out", &common);
	int e;

	if (!r)
		err(1, "out of memory");
	measure_pin(common.cpu);
	run(r, &common, PROFILE_PEAK);
	run(r, &common, PROFILE_P95);
	run(r, &common, PROFILE_AVERAGE);
	run(r, &common, PROFILE_HISTOGRAM);
	e = report_print(r);
	report_free(r);
	return e;
}
