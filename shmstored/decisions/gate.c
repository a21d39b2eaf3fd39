/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate.c: hysteresis over a window.
 *
 * The percentile is by nearest rank: of a window of up to 19 samples it is the largest. After the
 * last high sample, the gate therefore stays closed for the length of the window, so that it does
 * not open between bursts that follow each other. Rejected: a mean, which a quiet phase pulls below
 * low while the bursts go on.
 */
#include "gate.h"

#include <errno.h>
#include <string.h>
#include <sys/param.h>
#include <utlist.h>

#include "macros.h"

/* Delta is rounded up and the interval down, so that rounding leaves more room and adds no risk. */
typedef unsigned __int128 wide;

int deltarule_compute(int64_t total, int64_t rate, int64_t interval_ms, struct deltarule *ret)
{
	struct deltarule r = {0};
	wide delta, longest;

	if (total <= 0 || interval_ms <= 0 || rate < 0)
		return -EINVAL;
	/* In millionths: rate * interval_ms / 1000 / total * 1000000. */
	delta = (wide)(uint64_t)rate * (uint64_t)interval_ms;
	/* A product over 2^116 is over any total's quarter by far. */
	delta = delta >> 116 ? (wide)1 << 100
			     : (delta * 1000 + (uint64_t)total - 1) / (uint64_t)total;
	r.max_interval_ms = INT64_MAX;
	if (rate) {
		longest = (wide)(uint64_t)total * 1000 * DELTARULE_MOST_PPM / 1000000 /
			  (uint64_t)rate;
		r.max_interval_ms = longest > INT64_MAX ? INT64_MAX : (int64_t)longest;
	}
	if (delta > DELTARULE_MOST_PPM) {
		*ret = (struct deltarule){.max_interval_ms = r.max_interval_ms};
		return -ERANGE;
	}
	r.delta_ppm = (int64_t)delta;
	r.kill_ppm = MIN(DELTARULE_KILL_PPM, 1000000 - r.delta_ppm);
	r.gate_ppm = MIN(r.kill_ppm - DELTARULE_GATE_PPM, 1000000 - 2 * r.delta_ppm);
	*ret = r;
	return 0;
}

struct gate_config gate_defaults(int64_t total, int64_t high)
{
	int64_t low = high - (total > 0 ? total / 10 : 0);

	return (struct gate_config){.high = high,
				    .low = low > 0 ? low : 0,
				    .window = 10,
				    .hold = 3,
				    .ramp0 = 1,
				    .rampmax = 64};
}

static bool is_valid(const struct gate_config *c)
{
	return c->low >= 0 && c->low < c->high && c->window >= 1 && c->window <= GATE_WINDOW_MAX &&
	       c->hold >= 1 && c->ramp0 >= 1 && c->ramp0 <= c->rampmax;
}

int gate_init(struct gate *g, const struct gate_config *config)
{
	if (!is_valid(config))
		return -EINVAL;
	*g = (struct gate){.config = *config, .ramp = config->rampmax};
	return 0;
}

int gate_set(struct gate *g, const struct gate_config *config)
{
	if (!is_valid(config))
		return -EINVAL;
	if (config->window != g->config.window)
		g->n_samples = g->next = 0;
	g->config = *config;
	g->ramp = MIN(g->ramp, config->rampmax);
	return 0;
}

static void keep(struct gate *g, int64_t used)
{
	g->samples[g->next] = used;
	g->next = (g->next + 1) % g->config.window;
	if (g->n_samples < g->config.window)
		g->n_samples++;
}

/* The window's 95th percentile: the smallest sample that 95 of 100 are not above. */
static int64_t percentile(const struct gate *g)
{
	uint32_t rank = (95 * g->n_samples + 99) / 100;
	int64_t sorted[GATE_WINDOW_MAX];
	uint32_t n = 0;

	for (uint32_t i = 0; i < g->n_samples; i++) {
		uint32_t at = n++;

		while (at && sorted[at - 1] > g->samples[i])
			at--;
		memmove(sorted + at + 1, sorted + at, (n - 1 - at) * sizeof(*sorted));
		sorted[at] = g->samples[i];
	}
	return sorted[rank - 1];
}

static void flip(struct gate *g, bool closed)
{
	g->closed = closed;
	g->n_flips++;
	g->n_low = 0;
	g->ramp = g->config.ramp0;
}

void gate_sample(struct gate *g, struct amount used)
{
	int64_t last, p95;

	if (!used.known) {
		g->n_unknown++;
		g->n_low = 0;
		return;
	}
	last = used.bytes > 0 ? used.bytes : 0;
	keep(g, last);
	p95 = percentile(g);
	g->u = last > p95 ? last : p95;
	if (!g->closed) {
		if (g->u >= g->config.high)
			flip(g, true);
		else
			g->ramp = g->ramp > g->config.rampmax / 2 ? g->config.rampmax : 2 * g->ramp;
		return;
	}
	g->n_low = g->u <= g->config.low ? g->n_low + 1 : 0;
	if (g->n_low >= g->config.hold)
		flip(g, false);
}

uint64_t gate_quota(const struct gate *g, struct amount estimate)
{
	uint64_t fitting;

	if (g->closed)
		return 0;
	if (!estimate.known || estimate.bytes <= 0)
		return g->ramp;
	/* There is no sample yet: perhaps there is no room at all. */
	if (!g->n_samples)
		return g->config.ramp0;
	fitting = g->u < g->config.high
			  ? (uint64_t)(g->config.high - g->u) / (uint64_t)estimate.bytes
			  : 0;
	return fitting < g->ramp ? fitting : g->ramp;
}

/* ---- the line at it -------------------------------------------------------------------------- */

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
