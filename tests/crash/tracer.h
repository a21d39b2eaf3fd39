/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracer.h: stops a child at each of its system calls between two marks and kills it
 * there, or makes a call fail.
 *
 * The child is forked by the test itself (no exec: an iteration costs a millisecond), calls
 * tracer_child() first, prepares what it likes at full speed, and puts the calls to be counted
 * between tracer_begin() and tracer_end(). The parent runs tracer_run(), which returns when the
 * child is gone and reaped. Outside a traced child the marks do nothing.
 *
 * A child that executes another program sets no marks: others do, by tracer_mark(), once to begin
 * and once to end. Of its threads the first is followed.
 */
#ifndef TRACER_H
#define TRACER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define TRACER_CALLS_MAX 4096u

enum tracer_mode {
	TRACER_COUNT,       /* only look */
	TRACER_KILL_BEFORE, /* SIGKILL at the entry of call n: it is not executed */
	/* SIGKILL at the return of call n: it was executed, its caller has not seen it */
	TRACER_KILL_AFTER,
	TRACER_FAIL, /* call n is not executed and returns -error */
	/* call n and all later ones of the same number are not executed and return -error */
	TRACER_FAIL_ALL,
	TRACER_FAIL_DONE, /* call n is executed and returns -error: what close(2) does on Linux */
	TRACER_SHORT, /* call n (pwrite64) is cut to half its size; other calls: as TRACER_COUNT */
};

struct tracer_plan {
	enum tracer_mode mode;
	unsigned n; /* from 1 */
	int error;  /* errno, positive */
	bool only;  /* where call n does not have the number nr, leave it alone */
	uint64_t nr;
	bool outside;  /* the marks come from outside */
	unsigned turn; /* with an aim: call n is the turn-th of the number nr; else 0 */
};

struct tracer_call {
	uint64_t nr;
	uint64_t args[6];
	int64_t result;
	/* a hash of who called whom up to here; 0: not by TRACER_COUNT, or of
	 * another program than ours */
	uint64_t place;
};

struct tracer_result {
	unsigned n_calls; /* between the marks, as far as followed */
	bool reached;     /* call n came */
	bool ended;       /* the end mark came: the scenario ran through */
	int status;       /* as of waitpid() */
	struct tracer_call calls[TRACER_CALLS_MAX];
};

/* In the child: asks to be traced by this plan (NULL: one without an aim), which stays; dies with
 * its parent. Returns 0 or -errno. */
int tracer_child(const struct tracer_plan *plan);
void tracer_begin(void);
void tracer_end(void);
/*
 * Aims at call n, by the calls of an undisturbed run: sets nr and turn. Only calls of that number
 * stop the child then. It does not aim where the child starts threads or children, where call n did
 * not come, or where the kernel has no filters: each call stops the child.
 */
void tracer_aim(struct tracer_plan *plan, const struct tracer_call *calls, unsigned n_calls);
/* Whether a run that was aimed did not meet its call, having made fewer of that number. It is to be
 * played again, which then is not aimed. */
bool tracer_missed(struct tracer_plan *plan, const struct tracer_result *result);
/* How many of the calls are in result->calls. */
unsigned tracer_recorded(const struct tracer_result *result);
/*
 * Whether call n of an undisturbed run is one more turn of a loop: neither the first, nor
 * the second, nor the last of the calls from its place. The first two turns and the last
 * bear the same as those between.
 */
bool tracer_is_one_more_turn(const struct tracer_call *calls, unsigned n_calls, unsigned n);
/* By another process than the child: begins, or with plan.outside, where it has begun, ends. */
void tracer_mark(pid_t pid);

/* In the parent: follows the child pid to its end. 0 or -errno (-ETIMEDOUT: the child was killed
 * for taking over timeout_ms). */
int tracer_run(pid_t pid, const struct tracer_plan *plan, unsigned timeout_ms,
	       struct tracer_result *ret);

/* 0 where this kernel and machine can do it, else -errno. */
int tracer_supported(void);

/* "openat", "linkat" ... as far as known, else "syscall-<nr>" (static buffer). */
const char *tracer_call_name(uint64_t nr);

#endif
