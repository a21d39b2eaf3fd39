/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.c: the coordinator: which frame is where between memory and disk.
 *
 * A job is cut into frames. Each takes a slot and room in the arena, and goes
 *   store:  packing (crew, in any order) -> its turn (the frames before it have their
 *           places) -> writing (ring) -> over
 *   load:   reading (ring) -> unpacking (crew) -> over
 * The last frame that gets its place makes the header complete, which is written beside the
 * frames still under way; then comes the fsync, and done. Frames of several jobs are under
 * way at once, so that a thousand objects of 1 MiB keep the disk as busy as one of 1 GiB.
 * All of this is one thread's, the caller's; what it hands to the crew or to the ring is
 * theirs until they give it back.
 *
 * Bounds: slots, the arena's memory, and jobs. A frame starts when there is a slot and memory for
 * its worst case; what it turns out not to need is given back as soon as it is packed. No deadlock:
 * frames start in order, so the one whose turn it is always has its room.
 *
 * An engine without threads packs in the caller's thread while the disk writes. It does without
 * io_uring as long as it moves single objects of one frame, waiting for each: plain calls cost no
 * more there, and io_uring needs queues and their memory.
 *
 * A child of fork() has neither the arena (MADV_DONTFORK), nor the rings, nor the threads: there
 * shms_engine_free() lets descriptors go.
 *
 * Rejected: a thread for each object (frames of one large object would not overlap), mapping
 * the object (tierframe.c says why), splice and sendfile (every byte has to be hashed anyway,
 * so it passes the processor), threads that write for themselves (the place of a frame depends
 * on the size of those before).
 */
#include "engine.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utlist.h>

#include "cleanup.h"
#include "codec.h"
#include "enginejob.h"

#define THREADS_MAX  64u
#define ALONE_UNITS  12u /* of an engine without threads: two frames; more makes it no faster */
#define THREAD_UNITS 16u /* more for each thread: a frame that is packed, and one that is written */
/* jobs of one frame without a wait between them, before io_uring is worth its while */
#define PLAIN_JOBS   3u
#define BACKGROUND   ((unsigned short)((2u << 13) | 7u)) /* I/O priority: best effort, the lowest */

_Static_assert(SHMS_ENGINE_SLOTS + SHMS_ENGINE_RUNS <= SHMS_RING_DEPTH,
	       "every operation has its entry");

/* ---- worker threads -------------------------------------------------------------------------- */

/*
 * Two lists under one lock: what is to be done, and what is done. A condition wakes the
 * threads, an eventfd the caller, so that it can wait for them and for the disk at once. Threads
 * block all signals (they are the host program's) and keep tools of their own.
 *
 * In a child of fork() there are no threads and the lock may be held for ever: only
 * descriptors and memory are let go.
 */

struct shms_crew {
	pthread_mutex_t lock; /* of all but fd, background, n_threads and threads */
	pthread_cond_t work;
	struct shms_crew_task *waiting, *done;
	bool end;
	bool background;
	int fd; /* eventfd: done was empty, and is not */
	unsigned n_threads;
	pthread_t threads[];
};

static struct shms_crew_task *pop(struct shms_crew_task **list)
{
	struct shms_crew_task *task = *list;

	if (task)
		DL_DELETE(*list, task);
	return task;
}

static struct shms_crew_task *wait_for_work(struct shms_crew *c)
{
	SHMS_HELD(&c->lock);
	while (!c->waiting && !c->end)
		pthread_cond_wait(&c->work, &c->lock);
	return pop(&c->waiting);
}

static void hand_back(struct shms_crew *c, struct shms_crew_task *task)
{
	bool wake;

	pthread_mutex_lock(&c->lock);
	wake = !c->done;
	DL_APPEND(c->done, task);
	pthread_mutex_unlock(&c->lock);
	if (wake)
		eventfd_write(c->fd, 1);
}

static void *work(void *arg)
{
	struct shms_crew *c = arg;
	struct shms_tier_tools *tools = shms_tier_tools_new();
	struct shms_crew_task *task;

	if (c->background)
		sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){0});
	while ((task = wait_for_work(c))) {
		task->run(task, tools);
		hand_back(c, task);
	}
	shms_tier_tools_free(tools);
	return NULL;
}

static void start_threads(struct shms_crew *c, unsigned n_threads)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (c->n_threads < n_threads &&
	       pthread_create(&c->threads[c->n_threads], NULL, work, c) == 0)
		c->n_threads++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Waits for its threads, which finish what they are at. NULL is fine. inherited: in a child of
 * fork(), which has no threads. */
static void crew_free(struct shms_crew *c, bool inherited)
{
	if (!c)
		return;
	if (!inherited) {
		pthread_mutex_lock(&c->lock);
		c->end = true;
		pthread_cond_broadcast(&c->work);
		pthread_mutex_unlock(&c->lock);
		for (unsigned i = 0; i < c->n_threads; i++)
			pthread_join(c->threads[i], NULL);
		pthread_cond_destroy(&c->work);
		pthread_mutex_destroy(&c->lock);
	}
	shms_close_fd(c->fd);
	free(c);
}

/* background: at idle priority. Fewer threads than asked for are fine, none is
 * -ENOMEM. 0, -ENOMEM, -EMFILE. */
static int crew_new(unsigned n_threads, bool background, struct shms_crew **ret)
{
	struct shms_crew *c = calloc(1, sizeof(*c) + n_threads * sizeof(c->threads[0]));

	if (!c)
		return -ENOMEM;
	c->background = background;
	c->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->fd < 0) {
		free(c);
		return -EMFILE;
	}
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->work, NULL);
	start_threads(c, n_threads);
	if (!c->n_threads) {
		crew_free(c, false);
		return -ENOMEM;
	}
	*ret = c;
	return 0;
}

void shms_crew_give(struct shms_crew *c, struct shms_crew_task *task)
{
	SHMS_HELD(&c->lock);
	DL_APPEND(c->waiting, task);
	pthread_cond_signal(&c->work);
}

/* Returns a task that is done, or NULL. */
static struct shms_crew_task *crew_take(struct shms_crew *c)
{
	struct shms_crew_task *task;
	eventfd_t n;

	SHMS_HELD(&c->lock);
	task = pop(&c->done);
	/* Nothing left: the next one that is done writes again. */
	if (!task)
		eventfd_read(c->fd, &n);
	return task;
}

/* ---- the engine ------------------------------------------------------------------------------ */

static unsigned arena_units(unsigned n_threads)
{
	unsigned n = ALONE_UNITS + THREAD_UNITS * (n_threads < 4 ? n_threads : 4);

	return n < SHMS_ARENA_UNITS ? n : SHMS_ARENA_UNITS;
}

static int init(struct shms_engine *e, const struct shms_engine_options *o)
{
	const char *said = secure_getenv("SHMSTORE_TIER_IO");
	unsigned n_threads = o->n_threads < THREADS_MAX ? o->n_threads : THREADS_MAX;
	int r;

	e->pid = getpid();
	e->background = o->background;
	e->plain = o->no_ring || (said && strcmp(said, "plain") == 0);
	shms_ring_init(&e->ring);
	for (unsigned i = 0; i < SHMS_ENGINE_SLOTS; i++) {
		e->slots[i].next = e->free;
		e->free = &e->slots[i];
	}
	for (unsigned i = 0; i < SHMS_ENGINE_RUNS; i++) {
		e->run_slots[i].next = e->free_runs;
		e->free_runs = &e->run_slots[i];
	}
	e->tools = shms_tier_tools_new();
	r = e->tools ? shms_arena_init(&e->arena, arena_units(n_threads), n_threads > 0) : -ENOMEM;
	if (r == 0 && n_threads)
		r = crew_new(n_threads, o->background, &e->crew);
	return r;
}

int shms_engine_new(const struct shms_engine_options *o, struct shms_engine **ret)
{
	struct shms_engine *e = calloc(1, sizeof(*e));
	int r;

	if (!e)
		return -ENOMEM;
	r = init(e, o);
	if (r < 0) {
		shms_engine_free(e);
		return r;
	}
	*ret = e;
	return 0;
}

void shms_engine_free(struct shms_engine *e)
{
	bool inherited;

	if (!e)
		return;
	inherited = e->pid != getpid();
	if (!inherited)
		shms_engine_drain(e);
	crew_free(e->crew, inherited);
	shms_ring_deinit(&e->ring, inherited);
	shms_arena_deinit(&e->arena, inherited);
	shms_tier_tools_free(e->tools);
	free(e);
}

static void want_ring(struct shms_engine *e)
{
	char why[sizeof(e->io) - 16];

	if (e->io[0])
		return;
	if (e->plain) {
		snprintf(e->io, sizeof(e->io), "plain: so chosen");
		return;
	}
	shms_ring_begin(&e->ring, why, sizeof(why));
	e->ring.priority = e->background ? BACKGROUND : 0;
	snprintf(e->io, sizeof(e->io), "%s%s", e->ring.on ? "io_uring" : "plain: ", why);
}

const char *shms_engine_io(struct shms_engine *e)
{
	want_ring(e);
	return e->io;
}

/* ---- what moves it all ----------------------------------------------------------------------- */

static bool start_frames(struct shms_engine *e)
{
	struct shms_run *run, *next;
	bool moved = false;

	/* A run that fails at once is gone from the list. */
	LL_FOREACH_SAFE(e->runs, run, next)
	{
		while (!shms_run_started(run)) {
			if (!shms_run_start_frame(e, run))
				return moved;
			moved = true;
		}
	}
	return moved;
}

static bool any_to_start(const struct shms_engine *e)
{
	for (const struct shms_run *run = e->runs; run; run = run->next)
		if (!shms_run_started(run))
			return true;
	return false;
}

/* Everything that can be done without waiting. False: there was nothing. */
static bool move(struct shms_engine *e)
{
	struct shms_crew_task *task;
	struct shms_ring_op *op;
	bool moved = false;

	while (e->crew && (task = crew_take(e->crew))) {
		shms_run_worked(e, task);
		moved = true;
	}
	while ((op = shms_ring_reap(&e->ring))) {
		shms_run_came(e, op);
		moved = true;
	}
	return start_frames(e) || moved;
}

/* Calls done where it is due. It may begin another job on this engine: that one's done is called
 * from here too, not from within. */
static void settle(struct shms_engine *e)
{
	if (e->settling)
		return;
	e->settling = true;
	while (e->over) {
		struct shms_job *job = e->over;

		e->over = job->state;
		job->state = NULL;
		if (job->done)
			job->done(job);
	}
	e->settling = false;
}

static void wait_for_something(struct shms_engine *e)
{
	struct pollfd fds[2] = {{.fd = shms_ring_fd(&e->ring), .events = POLLIN},
				{.fd = e->crew ? e->crew->fd : -1, .events = POLLIN}};

	/* A signal, or what the ring did not take at first: look again. */
	poll(fds, 2, 1000);
}

static void begin(struct shms_engine *e, struct shms_job *job, bool load)
{
	struct shms_run *run;

	while (!e->free_runs)
		if (!move(e))
			wait_for_something(e);
	run = e->free_runs;
	e->free_runs = run->next;
	*run = (struct shms_run){.job = job, .load = load, .offset = job->header->sb->header_size};
	job->error = 0;
	job->reason[0] = '\0';
	LL_APPEND(e->runs, run);
	if (e->crew || job->header->sb->n_frames > 1 || ++e->n_since_drain > PLAIN_JOBS)
		want_ring(e);
	/* Back to the caller when all of it is under way. */
	while (any_to_start(e))
		if (!move(e))
			wait_for_something(e);
	move(e);
	settle(e);
}

void shms_engine_store(struct shms_engine *e, struct shms_job *job)
{
	begin(e, job, false);
}

void shms_engine_load(struct shms_engine *e, struct shms_job *job)
{
	begin(e, job, true);
}

void shms_engine_wait(struct shms_engine *e)
{
	while (e->runs && !e->over) {
		if (!move(e))
			wait_for_something(e);
	}
	settle(e);
}

void shms_engine_drain(struct shms_engine *e)
{
	while (e->runs || (e->over && !e->settling)) {
		if (e->runs && !move(e))
			wait_for_something(e);
		settle(e);
	}
	e->n_since_drain = 0;
}
