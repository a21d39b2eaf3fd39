/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scanner.c: worker threads with a queue each, and one queue of finished jobs that
 * an eventfd tells the loop of.
 *
 * Five threads, by who waits for the answer. Reaps: memory is to come free at once, and a survey
 * may take seconds. Jobs that somebody asked for: a little behind the loop, so that a request does
 * not feel it. Jobs that nobody asked for: SCHED_IDLE, which the loop preempts whatever it does,
 * and which may starve on a busy host; nothing but the next such job waits for it, and it must hold
 * no lock that others want. The disk tier's: as long as a disk takes, or hangs. It holds locks that
 * stores want for moments, so it is preempted like any program; the bulk of its work is done by
 * threads that the library starts, at the rank that it is asked for.
 *
 * The lock is held for the moving of list entries only. A kill -9 leaves
 * nothing: jobs live in memory.
 *
 * Rejected: io_uring's own workers (no directory reading, no priorities), a thread per job (a start
 * costs more than most reaps).
 */
#include "scanner.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utlist.h>

#include "log.h"
#include "loop.h"

#define NICE_ASKED      5
#define IOPRIO_IDLE     (3 << 13) /* IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0) */
#define IOPRIO_WHO_TASK 1
#define STACK_SIZE      ((size_t)256 * 1024)

struct worker {
	struct scanner *scanner;
	pthread_t thread;
	pthread_cond_t wake;
	struct scanner_job *todo; /* a list */
	enum scanner_worker kind;
	uint64_t busy_ns; /* ever */
	_Atomic pid_t tid;
	bool started;
};

struct scanner {
	struct loop *loop;
	struct loop_op op; /* the eventfd's */
	int event_fd;
	_Atomic bool stopping;
	pthread_mutex_t lock;         /* over all queues */
	struct scanner_job *finished; /* a list */
	struct worker workers[SCANNER_WORKERS];
};

static struct scanner_job *take(struct scanner_job **queue)
{
	struct scanner_job *job = *queue;

	if (job)
		DL_DELETE(*queue, job);
	return job;
}

/* ---- in the workers -------------------------------------------------------------------------- */

/* A refusal changes nothing but how much the loop feels of it. */
static void take_rank(enum scanner_worker kind)
{
	static const struct sched_param none = {0};
	pid_t self = (pid_t)syscall(SYS_gettid);

	if (kind == SCANNER_ASKED) {
		setpriority(PRIO_PROCESS, (id_t)self, NICE_ASKED);
		sched_setscheduler(self, SCHED_BATCH, &none);
	} else if (kind == SCANNER_IDLE || kind == SCANNER_SCRUB) {
		setpriority(PRIO_PROCESS, (id_t)self, 19);
		sched_setscheduler(self, SCHED_IDLE, &none);
		syscall(SYS_ioprio_set, IOPRIO_WHO_TASK, self, IOPRIO_IDLE);
	}
}

/* How long this thread was ready and had no processor, ever. 0 where the
 * kernel does not count it. */
static uint64_t waited(void)
{
	unsigned long long ns = 0;
	char text[128];
	ssize_t n;
	int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	if (sscanf(text, "%*u %20llu", &ns) != 1)
		return 0;
	return ns;
}

/* Runs the job; tells what it took but for such waits. */
static uint64_t run(struct scanner_job *job)
{
	uint64_t waited_ns = waited(), took_ns = loop_clock();

	job->run(job);
	took_ns = loop_clock() - took_ns;
	waited_ns = waited() - waited_ns;
	return took_ns > waited_ns ? took_ns - waited_ns : 0;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct scanner *s = w->scanner;
	struct scanner_job *job;
	uint64_t busy_ns;

	atomic_store_explicit(&w->tid, (pid_t)syscall(SYS_gettid), memory_order_relaxed);
	take_rank(w->kind);
	pthread_mutex_lock(&s->lock);
	for (;;) {
		while (!w->todo && !scanner_stopping(s))
			pthread_cond_wait(&w->wake, &s->lock);
		if (scanner_stopping(s))
			break;
		job = take(&w->todo);
		pthread_mutex_unlock(&s->lock);
		busy_ns = 0;
		if (w->kind == SCANNER_ASKED || w->kind == SCANNER_IDLE)
			busy_ns = run(job);
		else
			job->run(job);
		pthread_mutex_lock(&s->lock);
		w->busy_ns += busy_ns;
		job->busy_ns = w->busy_ns - job->busy_ns;
		DL_APPEND(s->finished, job);
		(void)eventfd_write(s->event_fd, 1); /* it never blocks */
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* ---- in the loop's thread -------------------------------------------------------------------- */

static void finish_all(struct scanner *s)
{
	struct scanner_job *job;

	for (;;) {
		pthread_mutex_lock(&s->lock);
		job = take(&s->finished);
		pthread_mutex_unlock(&s->lock);
		if (!job)
			return;
		job->done(job);
	}
}

static void on_event(struct loop_op *op, UNUSED int result, unsigned flags)
{
	struct scanner *s = CONTAINER_OF(op, scanner, op);
	uint64_t n;

	if (read(s->event_fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
		assert(errno == EINTR);
	finish_all(s);
	if (!(flags & LOOP_MORE))
		loop_poll(s->loop, &s->op, s->event_fd, POLLIN, false);
}

static int start_worker(struct scanner *s, enum scanner_worker kind)
{
	struct worker *w = &s->workers[kind];
	sigset_t all, before;
	pthread_attr_t attr;
	int r;

	w->scanner = s;
	w->kind = kind;
	/* Signals are the loop's thread's. */
	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGSEGV);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_SIZE);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&w->thread, &attr, work, w);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	w->started = r == 0;
	if (r)
		log_say(LOG_ERR, LOG_FIELDS(.error = r),
			"a thread cannot be started: pthread_create(), by clone3(), failed");
	return -r;
}

int scanner_new(struct loop *l, struct scanner **ret)
{
	struct scanner *s = calloc(1, sizeof(*s));
	int r = 0;

	if (!s)
		return -ENOMEM;
	s->loop = l;
	s->op.fn = on_event;
	pthread_mutex_init(&s->lock, NULL);
	for (int i = 0; i < SCANNER_WORKERS; i++)
		pthread_cond_init(&s->workers[i].wake, NULL);
	s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->event_fd < 0)
		r = -errno;
	for (int i = 0; r == 0 && i < SCANNER_WORKERS; i++)
		r = start_worker(s, (enum scanner_worker)i);
	if (r == 0)
		r = loop_poll(l, &s->op, s->event_fd, POLLIN, false);
	if (r < 0) {
		scanner_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

struct scanner *scanner_free(struct scanner *s)
{
	struct scanner_job *job;
	int event_fd;

	if (!s)
		return NULL;
	pthread_mutex_lock(&s->lock);
	/* Release: pairs with the acquire of scanner_stopping(). */
	atomic_store_explicit(&s->stopping, true, memory_order_release);
	for (int i = 0; i < SCANNER_WORKERS; i++)
		pthread_cond_signal(&s->workers[i].wake);
	pthread_mutex_unlock(&s->lock);
	for (int i = 0; i < SCANNER_WORKERS; i++) {
		pid_t tid = atomic_load_explicit(&s->workers[i].tid, memory_order_relaxed);

		if (!s->workers[i].started)
			continue;
		/* The loop waits for its end now: at the rank of what nobody waits for its last
		 * steps would take seconds on a busy host. */
		if (tid) {
			sched_setscheduler(tid, SCHED_OTHER, &(struct sched_param){0});
			setpriority(PRIO_PROCESS, (id_t)tid, 0);
		}
		pthread_join(s->workers[i].thread, NULL);
		while ((job = take(&s->workers[i].todo)) != NULL)
			DL_APPEND(s->finished, job);
	}
	finish_all(s);
	for (int i = 0; i < SCANNER_WORKERS; i++)
		pthread_cond_destroy(&s->workers[i].wake);
	pthread_mutex_destroy(&s->lock);
	event_fd = s->event_fd;
	loop_release(s->loop, &s->op, s);
	if (event_fd >= 0)
		close(event_fd);
	return NULL;
}

void scanner_submit(struct scanner *s, struct scanner_job *job)
{
	struct worker *w = &s->workers[job->worker];

	pthread_mutex_lock(&s->lock);
	if (scanner_stopping(s)) {
		DL_APPEND(s->finished, job);
	} else {
		job->busy_ns = w->busy_ns;
		DL_APPEND(w->todo, job);
		pthread_cond_signal(&w->wake);
	}
	pthread_mutex_unlock(&s->lock);
}

bool scanner_stopping(const struct scanner *s)
{
	/* Acquire: pairs with the release of scanner_free(). */
	return atomic_load_explicit(&s->stopping, memory_order_acquire);
}
