/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admission.c: the tasks that run, and the sums of what they reserve and have.
 *
 * All but HISTOGRAM is decided by sums that are kept up to date. Where somebody asks by HISTOGRAM, the distribution of the running ones is
 * needed (admissionsum.c): it is kept too, and one more task is one more convolution; it is made anew only after a task ended or changed.
 */
#include "admission.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "admissionsum.h"
#include "idtable.h"

struct task {
	uint64_t id, estimate, now, reserve, most; /* most: of its values, larger ones are out of the question */
	size_t n_values;
	UT_hash_handle hh;
	uint64_t values[];
};

struct admission {
	uint64_t cap, reserved, used;
	bool closed;
	struct task *tasks;
	bool stale; /* sum is not that of the tasks */
	struct admissionsum sum;
};

struct admission *admission_new(uint64_t cap)
{
	struct admission *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->cap = cap;
	a->stale = true;
	return a;
}

struct admission *admission_free(struct admission *a)
{
	struct task *t, *next;

	if (!a)
		return NULL;
	HASH_ITER(hh, a->tasks, t, next)
	{
		HASH_DEL(a->tasks, t);
		free(t);
	}
	free(a);
	return NULL;
}

void admission_set_cap(struct admission *a, uint64_t cap)
{
	a->stale |= cap != a->cap;
	a->cap = cap;
}

void admission_set_gate(struct admission *a, bool open)
{
	a->closed = !open;
}

static uint64_t bounded(uint64_t bytes)
{
	return bytes < PROFILE_MOST ? bytes : PROFILE_MOST;
}

static void add_task(struct admissionsum *sum, const struct task *t)
{
	if (t->n_values)
		admissionsum_add(sum, t->values, t->n_values, t->now, t->most);
	else
		admissionsum_add(sum, &t->reserve, 1, 0, UINT64_MAX);
}

static const struct admissionsum *sum_of(struct admission *a)
{
	if (a->stale) {
		admissionsum_init(&a->sum, a->cap);
		for (const struct task *t = a->tasks; t; t = t->hh.next)
			add_task(&a->sum, t);
		a->stale = false;
	}
	return &a->sum;
}

static bool fits(struct admission *a, const struct admission_ask *ask, uint64_t estimate)
{
	if (ask->strategy == PROFILE_HISTOGRAM) {
		const uint64_t *values = ask->n_values ? ask->values : &estimate;
		size_t n = ask->n_values ? ask->n_values : 1;

		return admissionsum_over(sum_of(a), values, n) <= admissionsum_share(ask->eps_ppm);
	}
	return a->reserved <= a->cap && estimate <= a->cap - a->reserved;
}

struct admission_answer admission_try(struct admission *a, const struct admission_ask *ask)
{
	struct admission_answer answer = {.reserve = bounded(ask->estimate)};

	if (ask->declared > a->cap)
		answer.reason = ADMISSION_TOOBIG;
	else if (!a->tasks)
		answer.reason = ADMISSION_PROGRESS;
	else if (a->closed)
		answer.reason = ADMISSION_GATE;
	else
		answer.reason = fits(a, ask, answer.reserve) ? ADMISSION_FITS : ADMISSION_FULL;
	answer.admit = answer.reason == ADMISSION_PROGRESS || answer.reason == ADMISSION_FITS;
	return answer;
}

static struct task *find(const struct admission *a, uint64_t id)
{
	struct task *t;

	HASH_FIND(hh, a->tasks, &id, sizeof(id), t);
	return t;
}

int admission_start(struct admission *a, uint64_t task, const struct admission_ask *ask)
{
	size_t n = ask->strategy == PROFILE_HISTOGRAM ? ask->n_values : 0;
	struct task *t;

	if (find(a, task))
		return -EEXIST;
	if (HASH_COUNT(a->tasks) >= ADMISSION_TASKS)
		return -EAGAIN;
	if (n > PROFILE_RING)
		n = PROFILE_RING;
	t = malloc(sizeof(*t) + n * sizeof(t->values[0]));
	if (!t)
		return -ENOMEM;
	*t = (struct task){.id = task, .n_values = n, .most = UINT64_MAX};
	t->estimate = t->reserve = bounded(ask->estimate);
	if (n)
		memcpy(t->values, ask->values, n * sizeof(t->values[0]));
	HASH_ADD(hh, a->tasks, id, sizeof(t->id), t);
	if (!t->hh.tbl) {
		free(t);
		return -ENOMEM;
	}
	a->reserved += t->reserve;
	if (!a->stale)
		add_task(&a->sum, t);
	return 0;
}

int admission_note(struct admission *a, uint64_t task, uint64_t now, uint64_t remaining)
{
	struct task *t = find(a, task);
	uint64_t reserve;

	if (!t)
		return -ENOENT;
	now = bounded(now);
	reserve = profile_larger(remaining < t->estimate ? remaining : t->estimate, now);
	a->stale |= t->n_values ? now != t->now || remaining != t->most : reserve != t->reserve;
	a->used += now - t->now;
	a->reserved += reserve - t->reserve;
	t->now = now;
	t->most = remaining;
	t->reserve = reserve;
	return 0;
}

int admission_end(struct admission *a, uint64_t task)
{
	struct task *t = find(a, task);

	if (!t)
		return -ENOENT;
	a->used -= t->now;
	a->reserved -= t->reserve;
	a->stale = true;
	HASH_DEL(a->tasks, t);
	free(t);
	return 0;
}

uint64_t admission_reserved(const struct admission *a)
{
	return a->reserved;
}

uint64_t admission_used(const struct admission *a)
{
	return a->used;
}

const char *admission_reason_name(enum admission_reason r)
{
	static const char *const names[] = {
		[ADMISSION_PROGRESS] = "progress", [ADMISSION_FITS] = "fits",     [ADMISSION_GATE] = "gate",
		[ADMISSION_FULL] = "full",         [ADMISSION_TOOBIG] = "toobig",
	};

	return (unsigned)r < sizeof(names) / sizeof(names[0]) ? names[r] : "?";
}
