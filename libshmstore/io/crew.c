/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crew.c: two lists under one lock: what is to be done, and what is done. A condition wakes the
 * threads, an eventfd the caller, so that it can wait for them and for the disk at once. Threads
 * block all signals (they are the host program's) and keep tools of their own.
 *
 * In a child of fork() there are no threads and the lock may be held for ever: only
 * descriptors and memory are let go.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <utlist.h>

#include "cleanup.h"
#include "codec.h"
#include "enginejob.h"

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

int shms_crew_new(unsigned n_threads, bool background, struct shms_crew **ret)
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
		shms_crew_free(c, false);
		return -ENOMEM;
	}
	*ret = c;
	return 0;
}

void shms_crew_free(struct shms_crew *c, bool inherited)
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

void shms_crew_give(struct shms_crew *c, struct shms_crew_task *task)
{
	SHMS_HELD(&c->lock);
	DL_APPEND(c->waiting, task);
	pthread_cond_signal(&c->work);
}

struct shms_crew_task *shms_crew_take(struct shms_crew *c)
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

int shms_crew_fd(const struct shms_crew *c)
{
	return c->fd;
}
