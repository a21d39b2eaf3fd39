/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vclock.c: a heap of what is to happen, and a stack of its own for each runner (ucontext). Threads
 * were rejected: which of them goes first at one point of time is the kernel's choice, and a run
 * could not be repeated. Events of the same time happen in the order in which they were asked for.
 */
#include "vclock.h"

#include <err.h>
#include <stdlib.h>
#include <ucontext.h>

#define STACK_SIZE (64u << 10)

struct event {
	uint64_t time_ns, number;
	void (*fn)(void *arg);
	void *arg;
};

struct vrunner {
	struct vclock *clock;
	struct vrunner *next; /* of the clock's */
	ucontext_t context;
	void (*fn)(void *arg);
	void *arg;
	char *stack; /* NULL = has ended */
};

struct vclock {
	uint64_t now_ns, n_events; /* the latter: asked for so far */
	struct event *heap;
	size_t n, size;
	struct vrunner *runners, *running;
	unsigned n_runners; /* that have not ended */
	ucontext_t main;
};

struct vclock *vclock_new(void)
{
	return calloc(1, sizeof(struct vclock));
}

struct vclock *vclock_free(struct vclock *c)
{
	struct vrunner *next;

	if (!c)
		return NULL;
	for (struct vrunner *r = c->runners; r; r = next) {
		next = r->next;
		free(r->stack);
		free(r);
	}
	free(c->heap);
	free(c);
	return NULL;
}

uint64_t vclock_now(const struct vclock *c)
{
	return c->now_ns;
}

static bool earlier(const struct event *a, const struct event *b)
{
	return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->number < b->number;
}

void vclock_at(struct vclock *c, uint64_t time_ns, void (*fn)(void *arg), void *arg)
{
	struct event e = {time_ns < c->now_ns ? c->now_ns : time_ns, c->n_events++, fn, arg};
	size_t at = c->n;

	if (c->n == c->size) {
		c->size = c->size ? 2 * c->size : 64;
		c->heap = reallocarray(c->heap, c->size, sizeof(*c->heap));
		if (!c->heap)
			err(1, "virtual time");
	}
	c->n++;
	while (at > 0 && earlier(&e, &c->heap[(at - 1) / 2])) {
		c->heap[at] = c->heap[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	c->heap[at] = e;
}

static struct event take_first(struct vclock *c)
{
	struct event first = c->heap[0], last = c->heap[--c->n];
	size_t at = 0, child;

	while ((child = 2 * at + 1) < c->n) {
		if (child + 1 < c->n && earlier(&c->heap[child + 1], &c->heap[child]))
			child++;
		if (!earlier(&c->heap[child], &last))
			break;
		c->heap[at] = c->heap[child];
		at = child;
	}
	c->heap[at] = last;
	return first;
}

static void resume(void *arg)
{
	struct vrunner *r = arg;

	r->clock->running = r;
	swapcontext(&r->clock->main, &r->context);
	r->clock->running = NULL;
	if (!r->fn) { /* it has ended: its stack is not in use any more */
		free(r->stack);
		r->stack = NULL;
		r->clock->n_runners--;
	}
}

/* A pointer comes in two ints: that is what makecontext() hands on. */
static void body(unsigned high, unsigned low)
{
	struct vrunner *r = (struct vrunner *)((uintptr_t)high << 32 | low);

	r->fn(r->arg);
	r->fn = NULL;
	setcontext(&r->clock->main);
}

struct vrunner *vclock_start(struct vclock *c, void (*fn)(void *arg), void *arg)
{
	struct vrunner *r = calloc(1, sizeof(*r));
	uintptr_t p = (uintptr_t)r;

	if (!r || !(r->stack = malloc(STACK_SIZE)) || getcontext(&r->context) < 0)
		err(1, "a runner");
	r->clock = c;
	r->fn = fn;
	r->arg = arg;
	r->context.uc_stack.ss_sp = r->stack;
	r->context.uc_stack.ss_size = STACK_SIZE;
	makecontext(&r->context, (void (*)(void))body, 2, (unsigned)(p >> 32), (unsigned)p);
	r->next = c->runners;
	c->runners = r;
	c->n_runners++;
	vclock_at(c, c->now_ns, resume, r);
	return r;
}

void vclock_park(struct vclock *c)
{
	struct vrunner *r = c->running;

	swapcontext(&r->context, &c->main);
}

void vclock_wake(struct vclock *c, struct vrunner *r)
{
	vclock_at(c, c->now_ns, resume, r);
}

void vclock_sleep(struct vclock *c, uint64_t ns)
{
	vclock_at(c, c->now_ns + ns, resume, c->running);
	vclock_park(c);
}

static void run_first(struct vclock *c)
{
	struct event e = take_first(c);

	c->now_ns = e.time_ns;
	e.fn(e.arg);
}

enum vclock_end vclock_run(struct vclock *c, uint64_t limit_ns, uint64_t n_max)
{
	while (c->n_runners > 0) {
		if (c->n == 0)
			return VCLOCK_STUCK;
		if (c->heap[0].time_ns > limit_ns || n_max-- == 0)
			return VCLOCK_LATE;
		run_first(c);
	}
	return VCLOCK_DONE;
}

void vclock_drain(struct vclock *c)
{
	while (c->n > 0)
		run_first(c);
}
