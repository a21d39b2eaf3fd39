/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fleet.h: situations (situation.h) in real time: client processes that share one partition
 * under one daemon, and one that hands out the tasks, starts a new client where one was
 * killed, and looks at the clock.
 */
#ifndef BENCH_FLEET_H
#define BENCH_FLEET_H

#include <stdbool.h>
#include <stdint.h>

#include "situation.h"
#include "taskwork.h"

struct fleet_options {
	const char *partition; /* the daemon is found by $SHMSTORE_SOCKET */
	struct situation_rules rules;
	uint32_t seed, n_situations;
	unsigned n_clients;
	double kill;     /* share of operations in which the client is killed */
	double pace;     /* seconds that a second of work takes */
	unsigned shrink; /* bytes >> this */
	bool objects;    /* puts and deletes objects; else reserves and releases only */
};

struct fleet_result {
	struct work_counts work;
	uint64_t capacity; /* of the pool, as clients see it */
	double makespan_s; /* by the work's clock: real time / pace */
	uint64_t n_tasks, n_kills, n_failed_tasks, n_failed_situations, n_hangs;
	uint64_t n_refused; /* calls that failed in a way that the arbiter should have prevented */
	uint64_t n_broken;  /* clients that ended unasked */
	char refused[96];   /* the last such call */
};

/* 0 or -errno. No thread and no store of the caller may be open: it forks. */
int fleet_run(const struct fleet_options *o, struct fleet_result *ret);

#endif
