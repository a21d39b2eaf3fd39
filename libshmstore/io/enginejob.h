/* SPDX-License-Identifier: Apache-2.0 */
/* enginejob.h: jobs and their frames under way, for engine.c: what becomes of a frame when
 * somebody is done with it. */
#ifndef SHMS_ENGINEJOB_H
#define SHMS_ENGINEJOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "arena.h"
#include "crew.h"
#include "engine.h"
#include "ring.h"
#include "tierframe.h"

#define SHMS_ENGINE_SLOTS 32u /* frames under way */
#define SHMS_ENGINE_RUNS  24u /* jobs under way; with the slots not more than the ring's depth */

struct shms_run;
struct shms_slot;

/* Something for the ring. */
struct shms_io {
	struct shms_ring_op op; /* first */
	struct shms_run *run;
	struct shms_slot *slot; /* NULL: the header's, or the fsync */
};

/* A frame under way. */
struct shms_slot {
	struct shms_crew_task task; /* first */
	struct shms_io io;
	struct shms_tier_work work;
	struct shms_run *run;
	uint32_t index; /* of the frame */
	/* taken of the arena: at work.bytes, and as much at work.spare if that is not NULL */
	size_t bytes_size;
	struct shms_slot *next; /* free, or of the same run and waiting for its turn */
};

/* A job under way. */
struct shms_run {
	struct shms_job *job;
	struct shms_run *next;
	bool load;
	bool header;             /* store: its write has been submitted */
	bool synced;             /* store: so has the fsync, if one is asked for */
	uint32_t started;        /* frames */
	uint32_t placed;         /* store: frames that have their place */
	unsigned n_open;         /* slots and operations that it has */
	uint64_t offset;         /* store: where the next frame goes */
	struct shms_slot *ready; /* store: packed, out of turn */
	struct shms_io io;       /* of the header, then of the fsync */
};

struct shms_engine {
	pid_t pid;
	struct shms_arena arena;
	struct shms_ring ring;
	struct shms_crew *crew;        /* NULL: tasks run in the caller's thread */
	struct shms_tier_tools *tools; /* the caller's thread's */
	struct shms_slot slots[SHMS_ENGINE_SLOTS];
	struct shms_slot *free;
	struct shms_run run_slots[SHMS_ENGINE_RUNS];
	struct shms_run *runs, *free_runs; /* under way, in order; not in use */
	struct shms_job *over, *last_over; /* done not yet called; the next one is in state */
	unsigned n_since_drain;            /* jobs */
	bool ring_tried, plain, background, settling;
	char io[128];
};

/* Has it no more frames to start? */
bool shms_run_started(const struct shms_run *run);
/* The next frame of a run that has not started all. False: no slot or no room now. */
bool shms_run_start_frame(struct shms_engine *e, struct shms_run *run);
/* The crew is done with a task, the ring with an operation. A run that is over then is free
 * again, and its job in e->over. */
void shms_run_worked(struct shms_engine *e, struct shms_crew_task *task);
void shms_run_came(struct shms_engine *e, struct shms_ring_op *op);

#endif
