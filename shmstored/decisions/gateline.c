/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gateline.c: a queue for each level, and a heap of the deadlines of those that wait with one.
 */
#include "gateline.h"

#include <utlist.h>

#include "macros.h"

void gateline_init(struct gateline *a)
{
	*a = (struct gateline){.cap = UINT64_MAX};
	admission_init(&a->sums, 0);
}

static struct gateline_task *head(const struct gateline *a)
{
	for (unsigned i = 0; i < GATELINE_LEVELS; i++)
		if (a->lines[i])
			return a->lines[i];
	return NULL;
}

bool gateline_is_shut(const struct gateline *a)
{
	return !a->open || !a->quota;
}

void gateline_interval(struct gateline *a, const struct gate *g)
{
	a->interval++;
	a->open = !g->closed;
	a->quota = gate_quota(g, AMOUNT_UNKNOWN);
}

/* Decides on the task at the head of its queue. */
static enum gateline_outcome judge(struct gateline *a, const struct gateline_task *t)
{
	if (t->declared > a->cap)
		return GATELINE_TOO_BIG;
	if (!a->books.n_running)
		return GATELINE_PROGRESS;
	if (!gateline_is_shut(a) && admission_fits(&a->sums, &t->share))
		return GATELINE_IN;
	return GATELINE_WAITS;
}

void gateline_runs(struct gateline *a, struct gateline_task *t)
{
	t->runs = true;
	t->interval = 0;
	admission_start(&a->sums, &t->share);
	a->books.n_running++;
}

static void let_in(struct gateline *a, struct gateline_task *t, enum gateline_outcome outcome)
{
	gateline_runs(a, t);
	t->interval = a->interval;
	t->counts = a->quota > 0;
	a->quota -= t->counts;
	a->books.n_admitted++;
	a->books.n_progress += outcome == GATELINE_PROGRESS;
}

/* Does no task stand before it, in its own queue or in one that is served first? */
static bool would_be_first(const struct gateline *a, unsigned level)
{
	const struct gateline_task *first = head(a);

	return !first || first->level > level;
}

enum gateline_outcome gateline_ask(struct gateline *a, struct gateline_task *t, uint64_t now_ms)
{
	enum gateline_outcome outcome = GATELINE_WAITS;

	t->waits = t->runs = false;
	t->since_ms = now_ms;
	if (would_be_first(a, t->level) || t->declared > a->cap)
		outcome = judge(a, t);
	if (outcome == GATELINE_WAITS && t->form == GATELINE_TRY)
		outcome = GATELINE_REFUSED;
	if (outcome == GATELINE_REFUSED || outcome == GATELINE_TOO_BIG) {
		a->books.n_refused++;
	} else if (outcome == GATELINE_WAITS) {
		t->waits = true;
		DL_APPEND(a->lines[t->level], t);
		a->books.n_waiting++;
		if (t->form == GATELINE_UNTIL)
			deadline_add(&a->due, &t->due, t->deadline_ms);
	} else {
		let_in(a, t, outcome);
	}
	return outcome;
}

static void leave_line(struct gateline *a, struct gateline_task *t)
{
	t->waits = false;
	DL_DELETE(a->lines[t->level], t);
	if (t->form == GATELINE_UNTIL)
		deadline_remove(&a->due, &t->due);
	a->books.n_waiting--;
}

struct gateline_task *gateline_next(struct gateline *a, uint64_t now_ms, enum gateline_outcome *ret)
{
	struct gateline_task *t =
		gateline_deadline(a) <= now_ms ? CONTAINER_OF(a->due, gateline_task, due) : NULL;
	enum gateline_outcome outcome = GATELINE_TIMED_OUT;

	if (!t) {
		t = head(a);
		outcome = t ? judge(a, t) : GATELINE_WAITS;
		if (outcome == GATELINE_WAITS)
			return NULL;
	}
	leave_line(a, t);
	if (outcome == GATELINE_IN || outcome == GATELINE_PROGRESS)
		let_in(a, t, outcome);
	a->books.n_timed_out += outcome == GATELINE_TIMED_OUT;
	a->books.n_refused += outcome == GATELINE_TOO_BIG;
	*ret = outcome;
	return t;
}

uint64_t gateline_deadline(const struct gateline *a)
{
	return a->due ? a->due->at : UINT64_MAX;
}

void gateline_end(struct gateline *a, struct gateline_task *t)
{
	if (t->waits)
		leave_line(a, t);
	if (!t->runs)
		return;
	t->runs = false;
	admission_end(&a->sums, &t->share);
	a->books.n_running--;
	/* Gives back what the task took of this interval. */
	if (t->interval == a->interval)
		a->quota += t->counts;
}

enum gateline_reason gateline_reason(const struct gateline *a, enum gateline_outcome outcome)
{
	if (outcome == GATELINE_IN)
		return GATELINE_FITS;
	if (outcome == GATELINE_PROGRESS)
		return GATELINE_NOTHING_RUNS;
	if (outcome == GATELINE_TOO_BIG)
		return GATELINE_MORE_THAN_ALL;
	return gateline_is_shut(a) ? GATELINE_SHUT : GATELINE_FULL;
}

const char *gateline_reason_name(enum gateline_reason r)
{
	static const char *const names[] = {
		[GATELINE_NOTHING_RUNS] = "progress",
		[GATELINE_FITS] = "fits",
		[GATELINE_SHUT] = "gate",
		[GATELINE_FULL] = "full",
		[GATELINE_MORE_THAN_ALL] = "toobig",
	};

	return names[r];
}

uint64_t gateline_oldest_ms(const struct gateline *a, uint64_t now_ms)
{
	uint64_t oldest = 0;

	for (unsigned i = 0; i < GATELINE_LEVELS; i++)
		if (a->lines[i] && now_ms - a->lines[i]->since_ms > oldest)
			oldest = now_ms - a->lines[i]->since_ms;
	return oldest;
}
