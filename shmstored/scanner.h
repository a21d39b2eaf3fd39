/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scanner.h: the worker threads for what may block: surveys, reaps, gc. A job is filled by the loop's thread, run by a worker,
 * and handed back to the loop's thread: never touched by both at once.
 */
#ifndef SCANNER_H
#define SCANNER_H

#include <stdbool.h>
#include <stdint.h>

struct loop;
struct scanner;

struct scanner_job {
	struct scanner_job *next;
	bool urgent; /* on the reaps' thread, which waits for no survey */
	bool idle;   /* nobody waits for it: only when the processors have nothing else to do */
	void (*run)(struct scanner_job *job);  /* in the worker */
	void (*done)(struct scanner_job *job); /* in the loop's thread; owns the job again */
};

int scanner_new(struct loop *l, struct scanner **ret);
/* Waits for the jobs that run; done is called for every job, also for those that never ran. Before loop_free(). */
struct scanner *scanner_free(struct scanner *s);
void scanner_submit(struct scanner *s, struct scanner_job *job);
/* True when the daemon ends: a long run() gives up. Any thread. */
bool scanner_stopping(const struct scanner *s);

#endif
