/* SPDX-License-Identifier: Apache-2.0 */
/* arbcase.c: see arbcase.h. */
#include "arbcase.h"

#include "scratch.h"

uint64_t arbcase_pack_max;

static bool is_available(void *arg)
{
	return shmstore_arb_available(arg) == 0;
}

struct shmstore *arbcase_store(struct shmstore_partition *p, const char *name, unsigned flags)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s;

	o.flags = flags;
	o.pack_max = arbcase_pack_max;
	ENSURE(shmstore_open(p, name, &o, &s) == 0);
	/* On a machine that is busy the greeting may take longer than open() waits. */
	ENSURE(wait_until(is_available, s, 10000));
	return s;
}

uint32_t arbcase_task(struct shmstore *s, int64_t priority)
{
	struct shmstore_arb_task_options o = SHMSTORE_ARB_TASK_OPTIONS_INIT;
	uint32_t task;

	o.priority = priority;
	o.label = "a task";
	ENSURE(shmstore_arb_task_begin(s, &o, &task) == 0);
	return task;
}

struct arbcase arbcase_begin(uint64_t capacity, uint64_t lease, unsigned flags)
{
	struct arbcase c = {.p = scratch_partition()};

	c.a = fakearb_start(c.p, capacity, lease);
	c.s = arbcase_store(c.p, "a", flags);
	c.task = arbcase_task(c.s, 100);
	ENSURE(shmstore_arb_bind(c.s, NULL, c.task) == 0);
	return c;
}

void arbcase_end(struct arbcase *c)
{
	ENSURE(shmstore_close(c->s) == 0);
	ENSURE(fakearb_settled(c->a, false));
	fakearb_stop(c->a);
	shmstore_partition_unref(c->p);
}

static void *wait_for_room(void *arg)
{
	struct arbwaiter *w = arg;
	struct shmstore_arb_how how = {.timeout_ms = w->timeout_ms};

	ENSURE(shmstore_arb_bind(w->s, NULL, w->task) == 0);
	w->outcome = shmstore_arb_reserve(w->s, SHMSTORE_ARB_PARTITION, w->bytes, &how, &w->r);
	return NULL;
}

void arbwaiter_start(struct arbwaiter *w, struct shmstore *s, uint32_t task, uint64_t bytes,
		     uint64_t timeout_ms)
{
	*w = (struct arbwaiter){
		.s = s, .task = task, .bytes = bytes, .timeout_ms = timeout_ms, .outcome = -1};
	ENSURE(pthread_create(&w->thread, NULL, wait_for_room, w) == 0);
}

int arbwaiter_end(struct arbwaiter *w, bool release)
{
	ENSURE(pthread_join(w->thread, NULL) == 0);
	if (release && w->outcome == 0)
		ENSURE(shmstore_arb_release(w->s, &w->r) == 0);
	return w->outcome;
}
