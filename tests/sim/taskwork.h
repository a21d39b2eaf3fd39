/* SPDX-License-Identifier: Apache-2.0 */
/*
 * taskwork.h: what a client of an arbiter does with a task of a situation: its attempts,
 * its roll backs, its splits. The calls are given from outside: the core in virtual time,
 * or the library and a daemon.
 */
#ifndef SIM_TASKWORK_H
#define SIM_TASKWORK_H

#include <stdbool.h>
#include <stdint.h>

#include "situation.h"

enum work_outcome {
	WORK_OK = 0,
	WORK_RETRY,
	WORK_SPLIT,
	WORK_TOOBIG, /* larger than the pool: handled as SPLIT, counted apart */
	WORK_FAILED, /* not to be had: the task fails */
	WORK_DEAD,   /* its client is dead: nothing more is called */
};

/* All may wait, as long as they like. */
struct work_calls {
	enum work_outcome (*reserve)(void *arg, uint32_t slot, uint64_t bytes,
				     uint64_t *ret_handle);
	enum work_outcome (*release)(void *arg, uint64_t handle);
	enum work_outcome (*pin)(void *arg, uint64_t handle);
	enum work_outcome (*unpin)(void *arg, uint64_t handle);
	enum work_outcome (*ready)(void *arg);
	enum work_outcome (*attempt_begin)(void *arg);
	enum work_outcome (*attempt_end)(void *arg, bool succeeded);
	enum work_outcome (*work)(void *arg, uint64_t ns);
	uint64_t (*now)(void *arg); /* ns, on the clock by which it works */
	/* Its first allocation stays, unpinned, while it is rolled back. */
	bool keep_first;
};

struct work_counts {
	uint64_t n_retries, n_splits, n_toobig;
	/* from the begin of each attempt that did not succeed to its end, waiting included */
	uint64_t lost_ns;
};

/* OK, FAILED or DEAD. Adds to *counts. Unless DEAD, all that it took has been given back.
 * Exits where our memory ends. */
enum work_outcome work_run(const struct situation_task *task, const struct work_calls *calls,
			   void *arg, struct work_counts *counts);

#endif
