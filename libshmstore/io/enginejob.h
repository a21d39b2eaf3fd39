/* SPDX-License-Identifier: Apache-2.0 */
/* enginejob.h: jobs and their frames under way, for engine.c: what becomes of a frame when
 * somebody is done with it. */
#ifndef SHMS_ENGINEJOB_H
#define SHMS_ENGINEJOB_H

#include <liburing.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "codec.h"
#include "engine.h"

/* The buffers of an engine: one piece of memory, given out in units of 1
 * MiB. One thread's at a time. */

#define SHMS_ARENA_UNIT  ((size_t)1 << 20) /* bytes */
#define SHMS_ARENA_UNITS 56u               /* at most */

struct shms_arena {
	unsigned char *memory; /* NULL: none */
	size_t size;           /* bytes */
	uint64_t taken;        /* a bit for each unit */
};

/* n_units up to SHMS_ARENA_UNITS. touched: all of it is about to be used, else it should cost
 * nothing before. 0, -ENOMEM. */
int shms_arena_init(struct shms_arena *a, unsigned n_units, bool touched);
/* inherited: in a child of fork(), which does not have the memory. Idempotent. */
void shms_arena_deinit(struct shms_arena *a, bool inherited);

/* Worker threads that take tasks in order and hand them back as they are done. The
 * caller is one thread at a time. */

struct shms_crew;

/* Part of what is to be done; the crew's from give to take. */
struct shms_crew_task {
	void (*run)(struct shms_crew_task *task, struct shms_tier_tools *tools);
	struct shms_crew_task *prev, *next;
};

void shms_crew_give(struct shms_crew *c, struct shms_crew_task *task);

/* Reads, writes and fsyncs that are under way while the caller does something else; plain
 * calls where io_uring is not to be had. */

#define SHMS_RING_DEPTH 64u /* operations under way at most */

enum shms_ring_kind {
	SHMS_RING_READ,
	SHMS_RING_WRITE,
	SHMS_RING_FSYNC
};

/* The caller's, with what it points to, until it has been reaped. */
struct shms_ring_op {
	enum shms_ring_kind kind;
	int fd;
	unsigned char *bytes;
	size_t size;
	uint64_t offset;
	unsigned char *head; /* write: bytes that come before them, at offset; NULL: none */
	size_t head_size;
	/* when reaped */
	int result;  /* 0: all of it; -ENODATA: the file ended before; -errno */
	size_t done; /* bytes, the head's included */
	struct iovec iov[2];
	struct shms_ring_op *prev, *next;
};

struct shms_ring {
	struct io_uring uring;
	bool on;                   /* else plain calls */
	unsigned short priority;   /* of the I/O; 0 = the caller's */
	struct shms_ring_op *over; /* done by plain calls, to be reaped */
};

/* Plain calls. */
void shms_ring_init(struct shms_ring *r);
/* io_uring from now on. why: for people, size bytes, where it is not, else "". */
void shms_ring_begin(struct shms_ring *r, char *ret_why, size_t size);
/* inherited: in a child of fork(): only what it holds is let go. */
void shms_ring_deinit(struct shms_ring *r, bool inherited);
/* Takes the operation. At most SHMS_RING_DEPTH. */
void shms_ring_submit(struct shms_ring *r, struct shms_ring_op *op);
/* Returns an operation that is over, or NULL. */
struct shms_ring_op *shms_ring_reap(struct shms_ring *r);
/* To poll() for POLLIN: then there may be one to reap. -1: nothing is ever waited for. */
int shms_ring_fd(const struct shms_ring *r);

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
	bool plain, background, settling;
	char io[128]; /* shms_engine_io(); "": io_uring was not tried yet */
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
