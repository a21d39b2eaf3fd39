/* SPDX-License-Identifier: Apache-2.0 */
/* storm_run.h: what the files of a storm share. */
#ifndef STORM_RUN_H
#define STORM_RUN_H

#include "owndaemon.h"
#include "storm.h"

#define SETTLE_MS  30000u
#define SAME_TRIES 100u /* the daemon, or the kernel, may be at work */
#define LATE_NS    20000000

struct run {
	struct storm st;
	const struct storm_options *options;
	pid_t pids[STORM_WORKERS];
	uint64_t stopped_until_ms[STORM_WORKERS]; /* 0 = it runs */
	unsigned lives[STORM_WORKERS];
	struct own_daemon daemon;
	unsigned n_kills, n_stops, n_reconciled, n_rests;
	uint64_t random;
	char partition[256], run_directory[64], config[128], socket[128];
};

/* Survives the sandbox. */
struct outcome {
	struct storm_result result;
	int64_t drift;
	uint64_t n_late; /* stand-stills whose books closed at a later look only */
};

extern struct outcome *storm_outcome;
extern unsigned storm_as; /* the worker that a step in a child does its work as */

/* Starts worker i. Its process is killed after that time; 0: it is not. */
void storm_start(struct run *r, unsigned i, uint64_t killed_after_ns);
unsigned storm_pick(struct run *r, unsigned n);
/* Does a step in a child. Returns what it returned. */
int storm_in_child(struct run *r, int (*step)(struct run *r));
/* Sends it to all of this sandbox but ourselves; workers' children and the daemon too. Returns
 * how many are not stopped. */
unsigned storm_signal_all(int signal);
void storm_stand_still(struct run *r);
/* Killed ones have been started again, stopped ones go on: all come to rest. */
void storm_rest_and_compare(struct run *r);
/* Instead of a storm of some time: all workers but two, one that keeps its store and one that does
 * not, are killed over and over. */
void storm_kill_many(struct run *r);

/* Steps: each in a child. 0; else the storm has failed. All stand still: the books must close over
 * live views, writers and pools. */
int storm_reconcile_step(struct run *r);
/* All rest between two calls. */
int storm_ledger_step(struct run *r);
/* In the end. */
int storm_drop_kept(struct run *r);
int storm_gc_step(struct run *r);
int storm_settle_step(struct run *r);

#endif
