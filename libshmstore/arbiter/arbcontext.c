/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbcontext.c: see arbitrate.h.
 *
 * A thread's own contexts hang in its memory, one for each store that it waited in, and go with the
 * thread: a key's destructor unbinds them. A store that closes does not look for those of other
 * threads; it marks their common state, which they hold a reference to.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <utlist.h>

#include "arbitrate.h"
#include "cleanup.h"
#include "detail.h"

/* of the calling thread, one for each store */
static _Thread_local struct shms_arb_thread *threads;
static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static bool have_key;

/* ---- contexts ---- */

static struct shmstore_arb_context *context_new(struct shms_arb *a, bool of_thread)
{
	struct shmstore_arb_context *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->arb = a;
	c->of_thread = of_thread;
	c->id = shms_arb_next_ids(&a->last_context, 1);
	SHMS_HELD(&a->lock);
	DL_PREPEND(a->contexts, c);
	return c;
}

/* arb->lock is held. */
static void unlink_context(struct shmstore_arb_context *c)
{
	if (!c->prev)
		return;
	DL_DELETE(c->arb->contexts, c);
	c->prev = NULL;
}

static void context_destroy(struct shmstore_arb_context *c)
{
	free(c->tasks);
	free(c->later);
	free(c);
}

static void post_unbind(struct shmstore *s, const struct shmstore_arb_context *c,
			uint64_t generation)
{
	struct wire_arb m = {
		.op = WIRE_ARB_UNBIND, .context = c->id, .flags = WIRE_ARB_ALL | WIRE_ARB_QUIET};

	shms_arb_post(s, &m, generation);
}

void shms_contexts_close(struct shms_arb *a)
{
	struct shmstore_arb_context *c, *next;
	struct shms_arb_thread *t, *next_thread;

	pthread_mutex_lock(&a->lock);
	DL_FOREACH_SAFE(a->contexts, c, next)
	{
		unlink_context(c);
		if (!c->of_thread)
			context_destroy(c);
	}
	pthread_mutex_unlock(&a->lock);
	/* Ours can go now; those of other threads are found by these. */
	LL_FOREACH_SAFE(threads, t, next_thread)
	{
		if (t->arb != a)
			continue;
		LL_DELETE(threads, t);
		if (t->mine)
			context_destroy(t->mine);
		shms_arb_unref(a);
		free(t);
	}
	if (have_key)
		pthread_setspecific(key, threads);
}

/* arb->lock is held. */
static void tasks_drop(struct shmstore_arb_context *c, uint32_t task)
{
	for (size_t i = 0; i < c->n_tasks; i++) {
		if (c->tasks[i] != task)
			continue;
		c->tasks[i--] = c->tasks[--c->n_tasks];
		if (!c->n_tasks)
			atomic_store_explicit(&c->generation, 0, memory_order_relaxed);
	}
}

void shms_contexts_task_ended(struct shms_arb *a, uint32_t task)
{
	SHMS_HELD(&a->lock);
	for (struct shmstore_arb_context *c = a->contexts; c; c = c->next)
		tasks_drop(c, task);
}

int shms_context_told(struct shmstore_arb_context *c, int outcome)
{
	if (outcome < 0)
		return outcome;
	c->slow &= ~SHMS_SLOW_MARKED;
	switch (outcome) {
	case SHMSTORE_ARB_OK:
		c->owed = 0;
		c->slow &= ~SHMS_SLOW_OWED;
		break;
	case SHMSTORE_ARB_RETRY:
	case SHMSTORE_ARB_SPLIT:
		c->owed = outcome;
		c->slow |= SHMS_SLOW_OWED;
		break;
	case SHMSTORE_ARB_REMOVED:
		atomic_store_explicit(&c->generation, 0, memory_order_relaxed);
		break;
	default:
		break;
	}
	return outcome;
}

/* ---- threads ---- */

/* A thread ends, or its store has closed. */
static void thread_free(struct shms_arb_thread *t)
{
	struct shms_arb *a = t->arb;
	struct shmstore_arb_context *c = t->mine;
	uint64_t generation;

	if (t->spent)
		atomic_fetch_sub_explicit(&a->n_spending, 1, memory_order_relaxed);
	if (c) {
		/* The store cannot close while the lock is held. */
		pthread_mutex_lock(&a->lock);
		generation = atomic_load_explicit(&c->generation, memory_order_relaxed);
		if (a->s && generation)
			post_unbind(a->s, c, generation);
		unlink_context(c);
		pthread_mutex_unlock(&a->lock);
		context_destroy(c);
	}
	shms_arb_unref(a);
	free(t);
}

static void thread_ends(void *arg)
{
	struct shms_arb_thread *t;

	(void)arg;
	while ((t = threads) != NULL) {
		threads = t->next;
		thread_free(t);
	}
}

static void make_key(void)
{
	have_key = pthread_key_create(&key, thread_ends) == 0;
}

struct shms_arb_thread *shms_arb_thread_find(const struct shmstore *s)
{
	struct shms_arb_thread *t = threads;

	while (t && t->arb != s->arb)
		t = t->next;
	return t;
}

/* Stores that closed since: what this thread had there. */
static void sweep(void)
{
	struct shms_arb_thread *t, *next;
	bool closed;

	LL_FOREACH_SAFE(threads, t, next)
	{
		pthread_mutex_lock(&t->arb->lock);
		closed = !t->arb->s;
		pthread_mutex_unlock(&t->arb->lock);
		if (closed) {
			LL_DELETE(threads, t);
			thread_free(t);
		}
	}
}

static struct shms_arb_thread *thread_new(struct shmstore *s)
{
	SHMS_NO_CANCEL;
	struct shms_arb_thread *t;

	pthread_once(&key_once, make_key);
	sweep();
	t = calloc(1, sizeof(*t));
	if (!t || !have_key || pthread_setspecific(key, t) != 0) {
		free(t);
		return NULL;
	}
	t->arb = s->arb;
	atomic_fetch_add_explicit(&t->arb->n_ref, 1, memory_order_relaxed);
	LL_PREPEND(threads, t);
	return t;
}

struct shms_arb_thread *shms_arb_thread(struct shmstore *s)
{
	struct shms_arb_thread *t = shms_arb_thread_find(s);

	return t ? t : thread_new(s);
}

/* ---- which one is meant ---- */

int shms_context(struct shmstore *s, struct shmstore_arb_context *given,
		 struct shmstore_arb_context **ret)
{
	struct shms_arb_thread *t;

	if (given) {
		*ret = given;
		return given->arb == s->arb ? 0 : -EINVAL;
	}
	t = shms_arb_thread(s);
	if (!t)
		return -ENOMEM;
	if (!shms_arb_thread_context(t))
		t->mine = context_new(s->arb, true);
	*ret = shms_arb_thread_context(t);
	return *ret ? 0 : -ENOMEM;
}

int shms_context_begin(struct shmstore *s, struct shmstore_arb_context *given,
		       struct shmstore_arb_context **ret, uint64_t *ret_generation)
{
	int r = shms_context(s, given, ret);

	if (r < 0)
		return r;
	if ((*ret)->later)
		return -EBUSY;
	*ret_generation = atomic_load_explicit(&(*ret)->generation, memory_order_relaxed);
	if (*ret_generation && !shms_context_bound(s, *ret))
		return shms_arb_say(SHMSTORE_ARB_DOWN, "the daemon went away after the context was "
						       "bound: begin a task and bind it anew");
	return 0;
}

int shmstore_arb_context_new(struct shmstore *s, struct shmstore_arb_context **ret)
{
	struct shmstore_arb_context *c;

	if (!ret)
		return shms_detail_null("ret");
	c = context_new(s->arb, false);
	if (!c)
		return -ENOMEM;
	*ret = c;
	return 0;
}

struct shmstore_arb_context *shmstore_arb_context_free(struct shmstore_arb_context *c)
{
	SHMS_NO_CANCEL;
	struct shms_arb *a;
	struct shmstore *s;
	uint64_t generation;

	if (!c || c->of_thread)
		return NULL;
	a = c->arb;
	s = a->s;
	generation = atomic_load_explicit(&c->generation, memory_order_relaxed);
	if (s && generation)
		post_unbind(s, c, generation);
	if (s && c->later) {
		shms_arb_forget(s, &a->events, c->later);
		c->later = NULL;
	}
	for (struct shms_arb_thread *t = threads; t; t = t->next) {
		if (t->used == c)
			t->used = NULL;
	}
	pthread_mutex_lock(&a->lock);
	unlink_context(c);
	pthread_mutex_unlock(&a->lock);
	context_destroy(c);
	return NULL;
}

uint32_t shmstore_arb_context_id(const struct shmstore_arb_context *c)
{
	return c->id;
}

int shmstore_arb_use(struct shmstore *s, struct shmstore_arb_context *c)
{
	struct shms_arb_thread *t;

	if (c && (c->arb != s->arb || c->of_thread))
		return shms_detail(-EINVAL, NULL,
				   "the context is of another store, or a thread's own");
	t = c ? shms_arb_thread(s) : shms_arb_thread_find(s);
	if (c && !t)
		return -ENOMEM;
	if (t)
		t->used = c;
	return 0;
}

/* ---- binding ---- */

/* "1,2,3". false: too many for a message. */
static bool list_tasks(const uint32_t *tasks, size_t n, char *ret, size_t size)
{
	size_t at = 0;

	ret[0] = '\0';
	for (size_t i = 0; i < n; i++) {
		int k = snprintf(ret + at, size - at, "%s%u", i ? "," : "", tasks[i]);

		if (k < 0 || (size_t)k >= size - at)
			return false;
		at += (size_t)k;
	}
	return true;
}

/* Room for n more tasks, before the daemon is asked: what it did must be booked. */
static int tasks_room(struct shmstore_arb_context *c, size_t n)
{
	uint32_t *more;

	SHMS_HELD(&c->arb->lock);
	more = realloc(c->tasks, (c->n_tasks + n) * sizeof(*more));
	if (more)
		c->tasks = more;
	return more ? 0 : -ENOMEM;
}

static void tasks_add(struct shmstore_arb_context *c, uint32_t task)
{
	for (size_t i = 0; i < c->n_tasks; i++) {
		if (c->tasks[i] == task)
			return;
	}
	c->tasks[c->n_tasks++] = task;
}

#define BIND_MAX 64u /* tasks of a context: the daemon's bound */

static int bind(struct shmstore *s, struct shmstore_arb_context *c, const uint32_t *tasks, size_t n,
		uint16_t kind)
{
	struct wire_arb m = {.op = WIRE_ARB_BIND, .kind = kind, .context = c->id};
	uint64_t generation = shms_arb_generation(s);
	char list[BIND_MAX * 11 + 1];
	bool bound;
	int r;

	if (!generation)
		return -ENOTSUP;
	for (size_t i = 0; i < n; i++) {
		if (!shms_arb_knows(s->arb, &s->arb->tasks, tasks[i], generation))
			return shms_arb_say(SHMSTORE_ARB_DOWN,
					    "the daemon that knew task %u went away: begin it anew",
					    tasks[i]);
	}
	bound = shms_context_bound(s, c);
	if (bound && c->helper != (kind != SHMS_ARB_KIND_DEDICATED))
		return shms_detail(-EINVAL, NULL,
				   "the context is bound already, as %s; unbind it first",
				   c->helper ? "a helper" : "dedicated");
	r = list_tasks(tasks, n, list, sizeof(list)) ? tasks_room(c, n)
						     : shms_detail(-EINVAL, NULL, "0 is no task");
	if (r < 0)
		return r;
	r = shms_arb_call(s, &m, list, generation, NULL);
	if (r != 0)
		return r;
	SHMS_HELD(&s->arb->lock);
	if (!bound || !c->helper) {
		c->n_tasks = 0; /* a dedicated one moves */
		c->slow = 0;
		c->owed = 0;
	}
	for (size_t i = 0; i < n; i++)
		tasks_add(c, tasks[i]);
	c->helper = kind != SHMS_ARB_KIND_DEDICATED;
	atomic_store_explicit(&c->generation, generation, memory_order_relaxed);
	return 0;
}

int shmstore_arb_bind(struct shmstore *s, struct shmstore_arb_context *c, uint32_t task)
{
	int r = shms_context(s, c, &c);

	if (r < 0)
		return r;
	return !task      ? shms_detail(-EINVAL, NULL, "0 is no task")
	       : c->later ? -EBUSY
			  : bind(s, c, &task, 1, SHMS_ARB_KIND_DEDICATED);
}

int shmstore_arb_bind_helper(struct shmstore *s, struct shmstore_arb_context *c,
			     const uint32_t *tasks, size_t n, bool service)
{
	int r;

	if (!tasks || !n || n > BIND_MAX)
		return !tasks ? shms_detail_null("tasks")
			      : shms_detail(-EINVAL, NULL,
					    "1 to %u tasks can be bound to at once, not %zu",
					    (unsigned)BIND_MAX, n);
	r = shms_context(s, c, &c);
	if (r < 0)
		return r;
	if (c->later)
		return -EBUSY;
	return bind(s, c, tasks, n, service ? SHMS_ARB_KIND_SERVICE : SHMS_ARB_KIND_HELPER);
}

int shmstore_arb_unbind(struct shmstore *s, struct shmstore_arb_context *c, const uint32_t *tasks,
			size_t n)
{
	struct wire_arb m = {.op = WIRE_ARB_UNBIND, .flags = n ? 0 : WIRE_ARB_ALL};
	char list[BIND_MAX * 11 + 1];
	uint64_t generation;
	int r;

	if ((n && !tasks) || n > BIND_MAX || !list_tasks(tasks, n, list, sizeof(list)))
		return n && !tasks
			       ? shms_detail_null("tasks")
			       : shms_detail(-EINVAL, NULL,
					     "the %zu tasks are more than %u, or 0 is among them",
					     n, (unsigned)BIND_MAX);
	r = shms_context(s, c, &c);
	if (r < 0)
		return r;
	generation = atomic_load_explicit(&c->generation, memory_order_relaxed);
	m.context = c->id;
	r = shms_context_bound(s, c) ? shms_arb_call(s, &m, list, generation, NULL) : 0;
	if (r < 0)
		return r;
	SHMS_HELD(&s->arb->lock);
	for (size_t i = 0; i < n; i++)
		tasks_drop(c, tasks[i]);
	if (!n || !c->n_tasks) {
		c->n_tasks = 0;
		atomic_store_explicit(&c->generation, 0, memory_order_relaxed);
	}
	return 0;
}
