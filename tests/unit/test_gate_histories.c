/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_gate_histories.c: random histories of the gate, against a model that remembers every sample
 * and sorts anew each time; and of those who wait at it.
 *
 * The gate, after every sample:
 *     it is as the model says: state, flips, and u
 *     it opens only after hold samples in a row that were known and left u at or below low, so a
 *     flip to open needs hold samples since the last flip quota is 0 if and only if it is closed
 *     (without an estimate), never above rampmax, and with one never more than fits below high an
 *     unknown sample changes neither state nor u
 *
 * Admission, after every message:
 *     each request is answered once: at once, or by gateline_next()
 *     a try never waits; nobody is let in at or after its deadline
 *     progress: if nothing runs then nobody waits
 *     within an interval at most quota go through and do not end in it, progress aside, and none
 *     while the gate is closed who goes through was the first of its level, and no lower level
 *     waited; progress aside, it fits below the cap with those that run books: running and
 *     waiting are what the model counts
 *
 * That it can fail was tried: gate.c with "u > high", with hold counted over unknown samples, with
 * the percentile of one sample less; gate.c that serves the last of a line first, does not
 * lower quota, or lets a deadline pass: each fails within the first histories.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dice.h"
#include "gate.h"

#define HISTORIES 400
#define SAMPLES   400
#define MESSAGES  600
#define TASKS     64

static struct dice dice;

static uint64_t draw(uint64_t below)
{
	return dice_draw(&dice, below);
}

static void begin(unsigned history)
{
	dice.state = history + 1;
	for (int i = 0; i < 8; i++)
		draw(2);
}

static int compare(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

struct model {
	int64_t known[SAMPLES], u; /* all that were known, in their order */
	size_t n;
	bool closed;
	unsigned n_low, n_flips, since_flip;
};

static void model_sample(struct model *m, const struct gate_config *c, struct amount used)
{
	int64_t sorted[SAMPLES];
	size_t n;

	m->since_flip++;
	if (!used.known) {
		m->n_low = 0;
		return;
	}
	m->known[m->n++] = used.bytes < 0 ? 0 : used.bytes;
	n = m->n < c->window ? m->n : c->window;
	memcpy(sorted, m->known + m->n - n, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), compare);
	/* The first element such that at least 95 % are at or below it. */
	for (size_t i = 0; i < n; i++)
		if (100 * (i + 1) >= 95 * n) {
			m->u = sorted[i];
			break;
		}
	if (m->known[m->n - 1] > m->u)
		m->u = m->known[m->n - 1];
	m->n_low = m->closed && m->u <= c->low ? m->n_low + 1 : 0;
	if (m->closed ? m->n_low >= c->hold : m->u >= c->high) {
		if (m->closed)
			cr_assert_geq(m->since_flip, c->hold);
		m->closed = !m->closed;
		m->n_flips++;
		m->n_low = m->since_flip = 0;
	}
}

static struct gate_config draw_config(void)
{
	int64_t high = 1 + (int64_t)draw(1000);

	return (struct gate_config){
		.high = high,
		.low = (int64_t)draw((uint64_t)high),
		.window = 1 + (uint32_t)draw(draw(4) ? 12 : GATE_WINDOW_MAX),
		.hold = 1 + (uint32_t)draw(6),
		.ramp0 = 1 + draw(4),
		.rampmax = 4 + draw(64),
	};
}

static struct amount draw_sample(const struct gate_config *c)
{
	switch (draw(8)) {
	case 0:
		return AMOUNT_UNKNOWN;
	case 1:
		return amount_of(c->high); /* edges */
	case 2:
		return amount_of(c->low);
	case 3:
		return amount_of(INT64_MAX);
	case 4:
		return amount_of(-(int64_t)draw(100));
	default:
		return amount_of((int64_t)draw((uint64_t)c->low + 50));
	}
}

static void check_quota(const struct gate *g, const struct model *m)
{
	uint64_t quota = gate_quota(g, AMOUNT_UNKNOWN);
	int64_t estimate = 1 + (int64_t)draw(draw(2) ? 50 : INT64_MAX);

	cr_assert_eq(quota == 0, m->closed);
	cr_assert_leq(quota, g->config.rampmax);
	quota = gate_quota(g, amount_of(estimate));
	if (m->closed)
		cr_assert_eq(quota, 0);
	else if (m->n && quota)
		cr_assert_leq(quota, (uint64_t)(g->config.high - m->u) / (uint64_t)estimate);
}

Test(gate_histories, gate_is_as_its_model_says)
{
	uint64_t n_flips = 0;

	for (unsigned history = 0; history < HISTORIES; history++) {
		struct gate_config c;
		struct gate g = {0};
		struct model m = {0};

		begin(history);
		c = draw_config();
		cr_assert_eq(gate_set(&g, &c), 0);
		for (int i = 0; i < SAMPLES; i++) {
			struct amount used = draw_sample(&c);

			gate_sample(&g, used);
			model_sample(&m, &c, used);
			cr_assert_eq(g.closed, m.closed, "history %u, sample %d", history, i);
			cr_assert_eq(g.n_flips, m.n_flips, "history %u, sample %d", history, i);
			cr_assert_eq(g.u, m.u, "history %u, sample %d", history, i);
			check_quota(&g, &m);
		}
		n_flips += m.n_flips;
	}
	cr_assert_gt(n_flips, HISTORIES, "the histories say little: %lu flips",
		     (unsigned long)n_flips);
}

/* Doubled by hand: from ramp0, once per open interval, up to rampmax. */
Test(gate_histories, ramp_doubles_up_to_its_most)
{
	struct gate_config c = {
		.high = 800, .low = 700, .window = 1, .hold = 1, .ramp0 = 3, .rampmax = 40};
	const uint64_t expected[] = {3, 6, 12, 24, 40, 40};
	struct gate g = {0};

	cr_assert_eq(gate_set(&g, &c), 0);
	gate_sample(&g, amount_of(800));
	for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
		gate_sample(&g, amount_of(100));
		cr_assert_eq(gate_quota(&g, AMOUNT_UNKNOWN), expected[i]);
	}
	cr_assert_eq(gate_quota(&g, amount_of(100)), 7);
	cr_assert_eq(gate_quota(&g, amount_of(1)), 40, "700 would fit");
	gate_sample(&g, AMOUNT_UNKNOWN);
	cr_assert_eq(gate_quota(&g, AMOUNT_UNKNOWN), 40);
}

Test(gate_histories, thresholds_leave_two_deltas_of_room)
{
	begin(1);
	for (int i = 0; i < 100000; i++) {
		int64_t total = 1 + (int64_t)draw(INT64_MAX),
			rate = (int64_t)draw(draw(2) ? INT64_MAX : UINT64_C(1) << 38);
		int64_t interval = 1 + (int64_t)draw(draw(8) ? 1000 : INT64_MAX);
		struct deltarule r;
		int err = deltarule_compute(total, rate, interval, &r);

		cr_assert(err == 0 || err == -ERANGE);
		/* The longest interval, as reported, is allowed, and one more is not. */
		if (r.max_interval_ms < INT64_MAX) {
			struct deltarule edge;

			if (r.max_interval_ms > 0)
				cr_assert_eq(
					deltarule_compute(total, rate, r.max_interval_ms, &edge),
					0);
			cr_assert_eq(deltarule_compute(total, rate, r.max_interval_ms + 1, &edge),
				     -ERANGE);
		}
		cr_assert_eq(err == 0, interval <= r.max_interval_ms);
		if (err)
			continue;
		cr_assert_leq(r.kill_ppm, DELTARULE_KILL_PPM);
		cr_assert_leq(r.gate_ppm, r.kill_ppm - DELTARULE_GATE_PPM);
		cr_assert_leq(r.kill_ppm + r.delta_ppm, 1000000);
		cr_assert_leq(r.gate_ppm + 2 * r.delta_ppm, 1000000);
		cr_assert_gt(r.gate_ppm, 0);
	}
}

/* Those who ask, as the test knows them. */
struct task {
	struct gateline_task gate;
	bool waits, runs;
	uint64_t order;    /* of arrival */
	uint64_t interval; /* in which it went through */
};

struct crowd {
	struct gateline line;
	struct gate gate;
	struct task tasks[TASKS];
	/* n_in: went through in this interval, and did not end in it */
	uint64_t n_asked, interval, n_in, quota;
	uint64_t now_ms;
	unsigned history;
};

static unsigned count(const struct crowd *c, bool running)
{
	unsigned n = 0;

	for (size_t i = 0; i < TASKS; i++)
		n += running ? c->tasks[i].runs : c->tasks[i].waits;
	return n;
}

/* The sum of the running tasks' estimates. */
static uint64_t expected(const struct crowd *c)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < TASKS; i++)
		sum += c->tasks[i].runs ? c->tasks[i].gate.share.estimate : 0;
	return sum;
}

/* The waiting task that must be let in next. */
static const struct task *first_of(const struct crowd *c)
{
	const struct task *first = NULL;

	for (size_t i = 0; i < TASKS; i++) {
		const struct task *t = &c->tasks[i];

		if (t->waits && (!first || t->gate.level < first->gate.level ||
				 (t->gate.level == first->gate.level && t->order < first->order)))
			first = t;
	}
	return first;
}

static void let_in(struct crowd *c, struct task *t, enum gateline_outcome outcome)
{
	const struct task *first = first_of(c);

	if (t->waits)
		cr_assert_eq(first, t, "history %u: another was first", c->history);
	else
		cr_assert(!first || first->gate.level > t->gate.level);
	cr_assert_eq(outcome == GATELINE_PROGRESS, count(c, true) == 0);
	if (outcome == GATELINE_IN) {
		cr_assert(!c->gate.closed);
		cr_assert_lt(c->n_in, c->quota, "history %u: more than the quota", c->history);
		cr_assert_leq(expected(c) + t->gate.share.estimate, c->line.sums.cap);
	}
	c->n_in++;
	t->interval = c->interval;
	t->runs = true;
	t->waits = false;
}

static void take_answers(struct crowd *c)
{
	enum gateline_outcome outcome;
	struct gateline_task *answered;

	while ((answered = gateline_next(&c->line, c->now_ms, &outcome))) {
		struct task *t = (struct task *)(void *)answered;
		bool late = t->gate.form == GATELINE_UNTIL && t->gate.deadline_ms <= c->now_ms;

		cr_assert(t->waits);
		cr_assert_eq(outcome == GATELINE_TIMED_OUT, late);
		if (outcome == GATELINE_IN || outcome == GATELINE_PROGRESS)
			let_in(c, t, outcome);
		else
			t->waits = false;
	}
	cr_assert_eq(c->line.books.n_running, count(c, true));
	cr_assert_eq(c->line.books.n_waiting, count(c, false));
	cr_assert_eq(c->line.sums.reserved, expected(c));
	cr_assert(count(c, true) || !count(c, false),
		  "history %u: nothing runs, and somebody waits", c->history);
	cr_assert_gt(gateline_deadline(&c->line), c->now_ms);
}

static void ask(struct crowd *c)
{
	struct task *t = &c->tasks[draw(TASKS)];
	struct gateline_task asked = {
		.level = (unsigned)draw(GATELINE_LEVELS),
		.form = (enum gateline_form)draw(3),
		.deadline_ms = c->now_ms + 1 + draw(400),
		.declared = draw(8) ? draw(1000) : 1001,
		.share.estimate = draw(4) ? draw(300) : 0,
	};
	enum gateline_outcome outcome;

	if (t->waits || t->runs)
		return;
	t->gate = asked;
	outcome = gateline_ask(&c->line, &t->gate, c->now_ms);
	cr_assert_eq(outcome == GATELINE_TOO_BIG, asked.declared > 1000);
	t->order = c->n_asked++;
	if (outcome == GATELINE_IN || outcome == GATELINE_PROGRESS) {
		let_in(c, t, outcome);
	} else if (outcome == GATELINE_WAITS) {
		cr_assert_neq(asked.form, GATELINE_TRY);
		t->waits = true;
	} else if (outcome == GATELINE_REFUSED) {
		cr_assert_eq(asked.form, GATELINE_TRY);
	}
}

static void end_one(struct crowd *c, uint64_t id)
{
	struct task *t = &c->tasks[id];

	gateline_end(&c->line, &t->gate);
	c->n_in -= t->runs && t->interval == c->interval;
	t->waits = t->runs = false;
}

static void look(struct crowd *c)
{
	c->now_ms += 100;
	gate_sample(&c->gate, draw_sample(&c->gate.config));
	gateline_interval(&c->line, &c->gate);
	admission_set_cap(&c->line.sums, draw(1000));
	c->quota = gate_quota(&c->gate, AMOUNT_UNKNOWN);
	c->interval++;
	c->n_in = 0;
}

Test(gate_histories, who_waits_is_answered_once_and_in_order)
{
	for (unsigned history = 0; history < HISTORIES; history++) {
		struct crowd c = {.history = history};
		struct gate_config config;

		begin(history);
		config = draw_config();
		cr_assert_eq(gate_set(&c.gate, &config), 0);
		gateline_init(&c.line);
		c.line.cap = 1000;
		look(&c);
		for (int i = 0; i < MESSAGES; i++) {
			switch (draw(6)) {
			case 0:
				look(&c);
				break;
			case 1:
				c.now_ms += draw(60);
				break;
			case 2:
				end_one(&c, draw(TASKS));
				break;
			default:
				ask(&c);
				break;
			}
			take_answers(&c);
		}
		/* All that run end one after the other: then all who wait have gone
		 * through, however closed the gate. */
		for (uint64_t id = 0; id < TASKS; id++) {
			while (c.tasks[id].runs) {
				end_one(&c, id);
				take_answers(&c);
				id = 0;
			}
		}
		cr_assert_eq(count(&c, true) + count(&c, false), 0);
	}
}

/* A gate that is open, and through which so many may go. */
static struct gateline gated(struct gate *g, uint64_t quota)
{
	struct gate_config config = {
		.high = 100, .low = 50, .window = 1, .hold = 1, .ramp0 = quota, .rampmax = quota};
	struct gateline line;

	*g = (struct gate){0};
	cr_assert_eq(gate_set(g, &config), 0);
	gate_sample(g, amount_of(20));
	gateline_init(&line);
	admission_set_cap(&line.sums, 80);
	return line;
}

static enum gateline_outcome try(struct gateline *a, struct gateline_task *t, uint64_t bytes)
{
	*t = (struct gateline_task){.form = GATELINE_TRY, .share.estimate = bytes};
	return gateline_ask(a, t, 0);
}

Test(gate_histories, who_ends_soon_leaves_place_and_room)
{
	struct gateline_task first, second, other;
	struct gate g;
	struct gateline a = gated(&g, 2);

	gateline_interval(&a, &g);
	cr_assert_eq(try(&a, &first, 30), GATELINE_PROGRESS);
	cr_assert_eq(try(&a, &second, 51), GATELINE_REFUSED, "of 80, 30 are taken");
	for (unsigned i = 0; i < 100; i++) {
		cr_assert_not(gateline_is_shut(&a));
		cr_assert_eq(try(&a, &second, 50), GATELINE_IN);
		cr_assert(gateline_is_shut(&a));
		cr_assert_eq(try(&a, &other, 0), GATELINE_REFUSED);
		gateline_end(&a, &second);
	}
	/* One of an interval before gives no place back. */
	gateline_interval(&a, &g);
	gateline_end(&a, &first);
	cr_assert_eq(try(&a, &first, 0), GATELINE_PROGRESS);
	cr_assert_eq(try(&a, &second, 0), GATELINE_IN);
	cr_assert_eq(try(&a, &other, 0), GATELINE_REFUSED);
}

/* As after a daemon's restart: before anything was seen, and however closed. */
Test(gate_histories, what_runs_already_is_counted_and_takes_nothing_of_the_interval)
{
	struct gateline_task earlier = {.declared = 5000}, first, second;
	struct gate g;
	struct gateline a = gated(&g, 1);

	a.cap = 1000;
	cr_assert(gateline_is_shut(&a), "nothing was seen yet");
	gateline_runs(&a, &earlier);
	cr_assert_eq(try(&a, &first, 0), GATELINE_REFUSED,
		     "it runs, so nobody is let in for progress");
	gateline_interval(&a, &g);
	cr_assert_eq(a.books.n_running, 1);
	cr_assert_eq(a.books.n_admitted, 0, "it was let in by somebody else");
	cr_assert_eq(try(&a, &first, 0), GATELINE_IN);
	gateline_end(&a, &earlier);
	cr_assert_eq(try(&a, &second, 0), GATELINE_REFUSED,
		     "its end gives nothing back to the interval");
	gateline_end(&a, &first);
	cr_assert_eq(try(&a, &second, 0), GATELINE_PROGRESS);
	a.cap = 10;
	first = (struct gateline_task){.form = GATELINE_WAIT, .declared = 11};
	cr_assert_eq(gateline_ask(&a, &first, 0), GATELINE_TOO_BIG, "more than the new cap");
	cr_assert_eq(a.books.n_refused, 3);
}
