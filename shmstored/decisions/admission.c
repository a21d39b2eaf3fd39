/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admission.c: the tasks that run, and the sums of what they reserve and have.
 *
 * All but HISTOGRAM is decided by sums that are kept up to date. Where somebody asks by HISTOGRAM,
 * the distribution of the running ones is needed: it is kept too, and one more task is one more
 * convolution; it is made anew only after a task ended or changed.
 */
#include "admission.h"

#include <string.h>
#include <sys/param.h>
#include <utlist.h>

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
static size_t count(const struct admissionsum *s, const uint64_t *values, size_t n, uint64_t least,
		    uint64_t most, uint32_t counts[BEYOND + 1])
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

void admissionsum_add(struct admissionsum *s, const uint64_t *values, size_t n, uint64_t least,
		      uint64_t most)
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

void admission_init(struct admission *a, uint64_t cap)
{
	*a = (struct admission){.cap = cap, .stale = true};
}

void admission_set_cap(struct admission *a, uint64_t cap)
{
	a->stale |= cap != a->cap;
	a->cap = cap;
}

static bool by_values(const struct admission_task *t)
{
	return t->strategy == PROFILE_HISTOGRAM && t->n_values;
}

static void add_task(struct admissionsum *sum, const struct admission_task *t)
{
	if (by_values(t))
		admissionsum_add(sum, t->values, t->n_values, t->now, t->most);
	else
		admissionsum_add(sum, &t->reserve, 1, 0, UINT64_MAX);
}

static const struct admissionsum *sum_of(struct admission *a)
{
	if (a->stale) {
		admissionsum_init(&a->sum, a->cap);
		for (const struct admission_task *t = a->tasks; t; t = t->next)
			add_task(&a->sum, t);
		a->stale = false;
	}
	return &a->sum;
}

bool admission_fits(struct admission *a, const struct admission_task *t)
{
	if (t->strategy == PROFILE_HISTOGRAM) {
		const uint64_t *values = t->n_values ? t->values : &t->estimate;
		size_t n = t->n_values ? t->n_values : 1;

		return admissionsum_over(sum_of(a), values, n) <= admissionsum_share(t->eps_ppm);
	}
	return a->reserved <= a->cap && t->estimate <= a->cap - a->reserved;
}

void admission_start(struct admission *a, struct admission_task *t)
{
	t->now = 0;
	t->reserve = t->estimate;
	t->most = UINT64_MAX;
	DL_APPEND(a->tasks, t);
	a->reserved += t->reserve;
	if (!a->stale)
		add_task(&a->sum, t);
}

void admission_note(struct admission *a, struct admission_task *t, uint64_t now, uint64_t remaining)
{
	uint64_t reserve;

	now = MIN(now, PROFILE_MOST);
	reserve = MAX(remaining < t->estimate ? remaining : t->estimate, now);
	a->stale |= by_values(t) ? now != t->now || remaining != t->most : reserve != t->reserve;
	a->used += now - t->now;
	a->reserved += reserve - t->reserve;
	t->now = now;
	t->most = remaining;
	t->reserve = reserve;
}

void admission_end(struct admission *a, struct admission_task *t)
{
	a->used -= t->now;
	a->reserved -= t->reserve;
	a->stale = true;
	DL_DELETE(a->tasks, t);
}

/* A window is ADAPTATION_WINDOW admissions; what is preempted is remembered by the profile
 * itself (profile_preempted()). */
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
