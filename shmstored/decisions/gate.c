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

static bool is_valid(const struct gate_config *c)
{
	return c->low >= 0 && c->low < c->high && c->window >= 1 && c->window <= GATE_WINDOW_MAX &&
	       c->hold >= 1 && c->ramp0 >= 1 && c->ramp0 <= c->rampmax;
}

int gate_set(struct gate *g, const struct gate_config *config)
{
	if (!is_valid(config))
		return -EINVAL;
	if (config->window != g->config.window)
		g->n_samples = g->next = 0;
	g->ramp = g->config.rampmax ? MIN(g->ramp, config->rampmax) : config->rampmax;
	g->config = *config;
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

/* ---- what running tasks have reserved -------------------------------------------------------- */

/*
 * All but HISTOGRAM is decided by sums that are kept up to date. Where somebody asks by HISTOGRAM,
 * the distribution of the running ones is needed: it is kept too, and one more task is one more
 * convolution; it is made anew only after a task ended or changed.
 */

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

enum gateline_outcome gateline_ask(struct gateline *a, struct gateline_task *t, uint64_t now_ms)
{
	enum gateline_outcome outcome = GATELINE_WAITS;
	const struct gateline_task *first = head(a);

	t->waits = t->runs = false;
	t->since_ms = now_ms;
	/* No task stands before it, in its own queue or in one that is served first. */
	if (!first || first->level > t->level || t->declared > a->cap)
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
