/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbsim.h: a set of situations, run through the arbiter's core in virtual time. One context per
 * runner, one task per task; a barrier ends each situation.
 */
#ifndef SIM_ARBSIM_H
#define SIM_ARBSIM_H

#include <stdbool.h>
#include <stdint.h>

#include "situation.h"
#include "taskwork.h"

struct arbsim_options {
	struct situation_rules rules;
	uint32_t seed, n_situations;
	uint64_t pool_bytes;
	unsigned n_runners;
	bool spillable; /* the first allocation of a task can be spilled while it is rolled back */
	double kill;    /* share of operations in which the client dies */
	uint64_t second_pool; /* bytes; 20 % of the allocations go there; 0 = none */
	bool check;           /* arb_check() after every message: slow */
	bool explain;         /* says on stderr what went wrong, as it does */
};

struct arbsim_result {
	struct work_counts work;
	double makespan_s;
	uint64_t n_tasks, n_messages, n_spills, n_kills;
	uint64_t n_failed_tasks, n_failed_situations, n_hangs;
	uint64_t n_not_empty; /* situations after which something was still booked */
	/* messages after which an invariant did not hold, or whose outcome must not be */
	uint64_t n_broken;
	const char *first_broken;           /* static; NULL = none */
	uint64_t core_retries, core_splits; /* as the core counts */
};

/* 0 or -errno. */
int arbsim_run(const struct arbsim_options *o, struct arbsim_result *ret);

#endif
