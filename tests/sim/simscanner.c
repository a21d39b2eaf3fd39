/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simscanner.c: the daemon's worker threads (scanner.h), without threads: a job takes virtual time
 * that the seed decides, and runs, whole, at a moment in it. The jobs are the daemon's own.
 */
#include "simscanner.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <utlist.h>

#include "loop.h"
#include "macros.h"
#include "scanner.h"
#include "simclock.h"
#include "simtrace.h"
#include "twister.h"

#define MS UINT64_C(1000000)

struct worker {
	struct scanner *scanner;
	struct loop_op op;
	struct scanner_job *todo; /* a list; the first one is at work */
	bool began, ran;          /* the first one */
	uint64_t due_ns, took_ns; /* of the first one: its end; what it takes */
	uint64_t busy_ns;         /* ever */
};

struct scanner {
	struct loop *loop;
	bool stopping;
	struct worker workers[SCANNER_WORKERS];
};

static struct twister *random_of_run;

void simscanner_begin(struct twister *random)
{
	random_of_run = random;
}

static uint64_t below(uint64_t n)
{
	return twister_below(random_of_run, n);
}

static uint64_t duration(enum scanner_worker kind)
{
	uint64_t dice = below(100);

	if (dice == 0)
		return below(3000 * MS); /* a busy host */
	return dice < 80 ? below(5 * MS) : below((kind == SCANNER_REAP ? 50 : 400) * MS);
}

static void begin(struct worker *w)
{
	if (!w->todo || w->op.busy || w->scanner->stopping)
		return;
	w->began = true;
	w->ran = false;
	w->took_ns = duration(w->todo->worker);
	w->due_ns = simclock_now() + w->took_ns;
	/* A timer that is refused: the job is done when the next one comes, or at the end. */
	(void)loop_timer(w->scanner->loop, &w->op, simclock_now() + below(w->took_ns + 1), 0);
}

static void run(struct worker *w)
{
	w->todo->run(w->todo);
	w->ran = true;
	w->busy_ns += w->took_ns;
}

static void finish(struct worker *w)
{
	struct scanner_job *job = w->todo;

	LL_DELETE(w->todo, job);
	w->began = false;
	job->busy_ns = w->busy_ns - job->busy_ns;
	job->done(job);
}

static void on_timer(struct loop_op *op, int result, UNUSED unsigned flags)
{
	struct worker *w = CONTAINER_OF(op, worker, op);

	if (result < 0 || w->scanner->stopping)
		return;
	if (!w->ran) {
		run(w);
		if (w->due_ns > simclock_now() &&
		    loop_timer(w->scanner->loop, &w->op, w->due_ns, 0) == 0)
			return;
	}
	finish(w);
	begin(w);
}

int scanner_new(struct loop *l, struct scanner **ret)
{
	struct scanner *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->loop = l;
	for (int i = 0; i < SCANNER_WORKERS; i++) {
		s->workers[i].scanner = s;
		s->workers[i].op.fn = on_timer;
	}
	*ret = s;
	return 0;
}

/* A worker finishes the job that it has begun; of the other jobs only done() is called. */
struct scanner *scanner_free(struct scanner *s)
{
	struct loop_op *ops[SCANNER_WORKERS];

	if (!s)
		return NULL;
	s->stopping = true;
	for (int i = 0; i < SCANNER_WORKERS; i++) {
		struct worker *w = &s->workers[i];

		if (w->began && !w->ran)
			run(w);
		while (w->todo)
			finish(w);
		ops[i] = &w->op;
	}
	loop_release_all(s->loop, ops, SCANNER_WORKERS, free, s);
	return NULL;
}

void scanner_submit(struct scanner *s, struct scanner_job *job)
{
	struct worker *w = &s->workers[job->worker];

	job->busy_ns = w->busy_ns;
	job->next = NULL;
	LL_APPEND(w->todo, job);
	begin(w);
}

bool scanner_stopping(const struct scanner *s)
{
	return s->stopping;
}
