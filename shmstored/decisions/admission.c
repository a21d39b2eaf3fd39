/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admission.c: the tasks that run, and the sums of what they reserve and have.
 *
 * All but HISTOGRAM is decided by sums that are kept up to date. Where somebody asks by HISTOGRAM, the distribution of the running ones is
 * needed: it is kept too, and one more task is one more convolution; it is made anew only after a task ended or changed.
 */
#include "admission.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "idtable.h"

/* Convolution, one task at a time: as many steps as there are quanta times different values. */
#define ONE     (UINT64_C(1) << 62)
#define MILLION 1000000u
#define BEYOND  (ADMISSIONSUM_QUANTA + 1) /* more than any cap */

void admissionsum_init(struct admissionsum *s, uint64_t cap)
{
	uint64_t quantum = cap / ADMISSIONSUM_QUANTA + (cap % ADMISSIONSUM_QUANTA != 0);

	*s = (struct admissionsum){.quantum = quantum ? quantum : 1};
	s->cap = cap / s->quantum;
	s->p[0] = ONE;
}

static uint64_t times(uint64_t a, uint64_t b)
{
	return (uint64_t)((unsigned __int128)a * b >> 62);
}

static uint64_t quanta(const struct admissionsum *s, uint64_t bytes)
{
	uint64_t n = bytes / s->quantum + (bytes % s->quantum != 0);

	return n > s->cap ? BEYOND : n;
}

/* How many of the values that are not above most are so many quanta. Returns how many these are. */
static size_t count(const struct admissionsum *s, const uint64_t *values, size_t n, uint64_t least, uint64_t most,
		    uint32_t counts[BEYOND + 1])
{
	size_t within = 0;

	memset(counts, 0, (BEYOND + 1) * sizeof(counts[0]));
	for (size_t i = 0; i < n; i++) {
		if (values[i] > most)
			continue;
		counts[quanta(s, values[i] > least ? values[i] : least)]++;
		within++;
	}
	if (within)
		return within;
	counts[quanta(s, most > least ? most : least)] = 1;
	return 1;
}

static uint64_t weight(uint32_t n, size_t of)
{
	return (uint64_t)((unsigned __int128)n * ONE / of);
}

void admissionsum_add(struct admissionsum *s, const uint64_t *values, size_t n, uint64_t least, uint64_t most)
{
	uint64_t p[ADMISSIONSUM_QUANTA + 1] = {0}, over = s->over;
	uint32_t counts[BEYOND + 1];

	n = count(s, values, n, least, most, counts);
	for (uint64_t more = 0; more <= BEYOND; more++) {
		uint64_t w = counts[more] ? weight(counts[more], n) : 0;

		for (uint64_t i = 0; w && i <= s->cap; i++) {
			if (i + more <= s->cap)
				p[i + more] += times(s->p[i], w);
			else
				over += times(s->p[i], w);
		}
	}
	memcpy(s->p, p, sizeof(p));
	s->over = over;
}

uint64_t admissionsum_over(const struct admissionsum *s, const uint64_t *values, size_t n)
{
	uint64_t over = s->over, tail = 0;
	uint32_t counts[BEYOND + 1];

	n = count(s, values, n, 0, UINT64_MAX, counts);
	/* tail: P(the others have so much that this one is too much) */
	for (uint64_t more = 0; more <= BEYOND; more++) {
		if (more && more <= s->cap + 1)
			tail += s->p[s->cap + 1 - more];
		if (counts[more])
			over += times(tail, weight(counts[more], n));
	}
	return over;
}

uint64_t admissionsum_share(uint32_t ppm)
{
	return (uint64_t)((unsigned __int128)ppm * ONE / MILLION);
}

struct task {
	uint64_t id, estimate, now, reserve, most; /* most: of its values, larger ones are out of the question */
	size_t n_values;
	UT_hash_handle hh;
	uint64_t values[];
};

struct admission {
	uint64_t cap, reserved, used;
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

/* A window is ADAPTATION_WINDOW admissions; what is preempted is remembered by the profile itself (profile_preempted()). */
void adaptation_init(struct adaptation *a)
{
	*a = (struct adaptation){.now = PROFILE_PEAK};
}

void adaptation_note(struct adaptation *a, uint64_t used, uint64_t reserved)
{
	if (!reserved)
		return;
	a->looked = true;
	if ((unsigned __int128)used * 100 >= (unsigned __int128)reserved * ADAPTATION_USED)
		a->busy = true;
}

bool adaptation_admitted(struct adaptation *a)
{
	bool idle;

	if (++a->n_admitted < ADAPTATION_WINDOW)
		return false;
	idle = a->looked && !a->busy;
	a->n_admitted = 0;
	a->looked = a->busy = false;
	if (!idle || a->now == PROFILE_AVERAGE)
		return false;
	a->now = a->now + 1;
	return true;
}
