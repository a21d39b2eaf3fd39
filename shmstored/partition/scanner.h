/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scanner.h: the worker threads for what may block: surveys, reaps, gc, the disk tier. A job
 * is filled by the loop's thread, run by a worker, and handed back to the loop's thread:
 * never touched by both at once.
 */
#ifndef SCANNER_H
#define SCANNER_H

#include <stdbool.h>
#include <stdint.h>

struct loop;
struct scanner;

/* Each has a thread of its own, so that none of them waits for another kind's. */
enum scanner_worker {
	SCANNER_ASKED, /* what somebody asked for and waits for */
	SCANNER_REAP,  /* what frees memory, or a client, at once */
	SCANNER_IDLE,  /* nobody waits for it: only when the processors have nothing else to do */
	SCANNER_TIER,  /* what reads or writes a disk: for minutes, maybe */
	SCANNER_SCRUB, /* what reads a whole disk, slowly: for hours. As SCANNER_IDLE */
	SCANNER_WORKERS,
};

struct scanner_job {
	struct scanner_job *next, *prev; /* in a queue */
	enum scanner_worker worker;
	void (*run)(struct scanner_job *job);  /* in the worker */
	void (*done)(struct scanner_job *job); /* in the loop's thread; owns the job again */
	/* For done(): what the worker did since the job was submitted, other jobs of its queue
	 * included, without what it waited for a processor. Of the jobs that walk:
	 * SCANNER_ASKED and SCANNER_IDLE. */
	uint64_t busy_ns;
};

int scanner_new(struct loop *l, struct scanner **ret);
/* Waits for the jobs that run; done is called for every job, also for those that
 * never ran. Before loop_free(). */
struct scanner *scanner_free(struct scanner *s);
void scanner_submit(struct scanner *s, struct scanner_job *job);
/* True when the daemon ends: a long run() gives up. Any thread. */
bool scanner_stopping(const struct scanner *s);

#endif
