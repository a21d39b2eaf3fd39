/* SPDX-License-Identifier: Apache-2.0 */
/* running.c: a list of tasks, the newest first, as that ends soonest; and a queue. */
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "cleanup.h"
#include "handle.h"

struct shms_running_task {
	struct shms_running_task *next;
	struct wire_task_runs what;
	size_t n_names;
	char names[];
};

struct shms_running_said {
	struct shms_running_said *prev, *next;
	struct wire_task_preempt what;
};

void shms_running_init(struct shms_running *r)
{
	*r = (struct shms_running){.bell = SHMS_BELL_NULL};
	pthread_mutex_init(&r->lock, NULL);
}

static void forget_all(struct shms_running *r)
{
	struct shms_running_task *task;
	struct shms_running_said *said;

	while ((task = r->tasks)) {
		r->tasks = task->next;
		free(task);
	}
	while ((said = r->said)) {
		r->said = said->next;
		free(said);
	}
	shms_bell_deinit(&r->bell);
}

void shms_running_deinit(struct shms_running *r)
{
	forget_all(r);
	pthread_mutex_destroy(&r->lock);
}

/* They are the parent's. */
void shms_running_fork_child(struct shms_running *r)
{
	forget_all(r);
	shms_running_init(r);
}

/* ---- tasks ----------------------------------------------------------------------------------- */

bool shms_running_add(struct shms_running *r, struct shms_attach *a,
		      const struct wire_task_runs *what, const char *names, size_t n,
		      uint64_t generation)
{
	struct shms_running_task *task = malloc(sizeof(*task) + n);
	uint64_t now;

	if (!task)
		return false;
	task->what = *what;
	task->n_names = n;
	if (n)
		memcpy(task->names, names, n);
	SHMS_HELD(&r->lock);
	LL_PREPEND(r->tasks, task);
	/* A daemon that registers us from here on is told by on_registered(). */
	now = shms_attach_generation(a);
	return now && now != generation;
}

void shms_running_del(struct shms_running *r, uint64_t id)
{
	struct shms_running_task *task;

	SHMS_HELD(&r->lock);
	LL_SEARCH_SCALAR(r->tasks, task, what.task, id);
	if (task)
		LL_DELETE(r->tasks, task);
	free(task);
}

static void on_registered(struct shms_attach *a, void *arg)
{
	struct shms_running *r = arg;

	SHMS_HELD(&r->lock);
	for (const struct shms_running_task *task = r->tasks; task; task = task->next)
		if (shms_attach_tell(a, WIRE_TASK_RUNS, &task->what, task->names, task->n_names) <
		    0)
			break;
}

/* ---- what is said of them -------------------------------------------------------------------- */

/* The first of the queue, out of it; NULL: there is none. The lock is held. */
static struct shms_running_said *take_first(struct shms_running *r)
{
	struct shms_running_said *said = r->said;

	if (said) {
		DL_DELETE(r->said, said);
		r->n_said--;
	}
	return said;
}

static void on_preempted(const struct wire_task_preempt *m, void *arg)
{
	struct shms_running_said *said = calloc(1, sizeof(*said));
	struct shms_running *r = arg;

	if (!said)
		return;
	said->what = *m;
	SHMS_HELD(&r->lock);
	if (r->n_said >= SHMS_RUNNING_SAID_MAX)
		free(take_first(r));
	DL_APPEND(r->said, said);
	r->n_said++;
	shms_bell_ring(&r->bell);
}

struct shms_attach_hooks shms_running_hooks(struct shms_running *r)
{
	return (struct shms_attach_hooks){
		.registered = on_registered, .preempted = on_preempted, .arg = r};
}

bool shms_running_take(struct shms_running *r, struct wire_task_preempt *ret)
{
	struct shms_running_said *said;

	SHMS_HELD(&r->lock);
	said = take_first(r);
	if (!r->said)
		shms_bell_quiet(&r->bell);
	if (!said)
		return false;
	*ret = said->what;
	free(said);
	return true;
}

int shms_running_fd(struct shms_running *r, int connection_fd)
{
	SHMS_HELD(&r->lock);
	return shms_bell_fd(&r->bell, connection_fd, r->said);
}
