/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_admission.c: random histories of tasks that ask, begin, grow and
 * end. $SHMSTORE_SEED plays one.
 *
 *     what is reserved is the sum of max(estimate or less by its phases, what it has now) of those
 *     that run where one is admitted because it fits, all reservations are within the cap; because
 *     of progress, nothing ran with a closed gate nobody is admitted but by progress; who declared
 *     more than the cap never is HISTOGRAM: P(sum > cap) is that of all combinations
 */
#include <criterion/criterion.h>
#include <math.h>

#include "dice.h"
#include "gate.h"

#define HISTORIES 300u
#define STEPS     300u
#define TASKS     12u

struct task {
	struct gateline_task gate;
	uint64_t reserve, now;
};

struct world {
	struct dice dice;
	struct gateline line;
	struct task tasks[TASKS];
	uint64_t cap;
	bool closed;
};

static uint64_t reserved(const struct world *w, uint64_t *n, uint64_t *used)
{
	uint64_t sum = 0;

	*n = *used = 0;
	for (unsigned i = 0; i < TASKS; i++) {
		sum += w->tasks[i].gate.runs ? w->tasks[i].reserve : 0;
		*used += w->tasks[i].gate.runs ? w->tasks[i].now : 0;
		*n += w->tasks[i].gate.runs;
	}
	return sum;
}

static void ask(struct world *w)
{
	struct task *t = &w->tasks[dice_draw(&w->dice, TASKS)];
	struct gateline_task asked = {
		.share = {.strategy = PROFILE_PEAK, .estimate = dice_draw(&w->dice, 40)}};
	uint64_t n, used, sum = reserved(w, &n, &used);
	enum gateline_reason reason;
	enum gateline_outcome outcome;

	asked.declared = dice_draw(&w->dice, 120);
	if (t->gate.runs)
		return;
	t->gate = asked;
	outcome = gateline_ask(&w->line, &t->gate, 0);
	reason = asked.declared > w->cap                ? GATELINE_MORE_THAN_ALL
		 : !n                                   ? GATELINE_NOTHING_RUNS
		 : w->closed                            ? GATELINE_SHUT
		 : sum + asked.share.estimate <= w->cap ? GATELINE_FITS
							: GATELINE_FULL;
	cr_assert_eq(gateline_reason(&w->line, outcome), reason);
	cr_assert_eq(t->gate.runs, reason == GATELINE_NOTHING_RUNS || reason == GATELINE_FITS);
	if (!t->gate.runs)
		return;
	t->now = 0;
	t->reserve = asked.share.estimate;
	cr_assert(reason == GATELINE_NOTHING_RUNS || w->line.sums.reserved <= w->cap);
}

static void note(struct world *w)
{
	struct task *t = &w->tasks[dice_draw(&w->dice, TASKS)];
	uint64_t now = dice_draw(&w->dice, 50), estimate = t->gate.share.estimate;
	uint64_t remaining = dice_draw(&w->dice, 2) ? UINT64_MAX : dice_draw(&w->dice, 40);

	if (!t->gate.runs)
		return;
	admission_note(&w->line.sums, &t->gate.share, now, remaining);
	t->now = now;
	t->reserve = remaining < estimate ? remaining : estimate;
	if (now > t->reserve)
		t->reserve = now;
}

/* So many may go through in this interval that only the gate's state holds them back. */
static void look(struct world *w)
{
	gateline_interval(&w->line, &(struct gate){.closed = w->closed, .ramp = STEPS});
	w->line.cap = w->cap;
	admission_set_cap(&w->line.sums, w->cap);
}

static void step(struct world *w)
{
	uint64_t n, used;

	switch (dice_draw(&w->dice, 6)) {
	case 0:
	case 1:
		ask(w);
		break;
	case 2:
		note(w);
		break;
	case 3:
	case 4:
		gateline_end(&w->line, &w->tasks[dice_draw(&w->dice, TASKS)].gate);
		break;
	default:
		w->closed = dice_draw(&w->dice, 3) == 0;
		w->cap = 50 + dice_draw(&w->dice, 60);
		look(w);
	}
	cr_assert_eq(w->line.sums.reserved, reserved(w, &n, &used));
	cr_assert_eq(w->line.sums.used, used);
	cr_assert_eq(w->line.books.n_running, n);
}

Test(admission, random_histories_keep_its_promises)
{
	uint64_t first, n = dice_seeds(HISTORIES, &first);

	for (uint64_t seed = first; seed < first + n; seed++) {
		struct world w = {.dice = {seed}, .cap = 100};

		gateline_init(&w.line);
		look(&w);
		for (unsigned i = 0; i < STEPS; i++)
			step(&w);
	}
}

/* P(sum > cap) of all combinations, in quanta. */
static double exact(const uint64_t *const *values, const size_t *n, size_t n_tasks, uint64_t sum,
		    uint64_t quantum, uint64_t cap)
{
	double p = 0;

	if (!n_tasks)
		return sum > cap;
	for (size_t i = 0; i < n[0]; i++)
		p += exact(values + 1, n + 1, n_tasks - 1,
			   sum + (values[0][i] + quantum - 1) / quantum, quantum, cap);
	return p / (double)n[0];
}

Test(admission, a_convolution_is_what_all_combinations_are)
{
	uint64_t first, n_seeds = dice_seeds(300, &first);

	for (uint64_t seed = first; seed < first + n_seeds; seed++) {
		struct dice d = {seed};
		uint64_t cap = dice_draw(&d, 4) ? 1 + dice_draw(&d, 2000)
						: 256 * (1 + dice_draw(&d, 8)),
			 room[5][5];
		const uint64_t *values[5];
		size_t n[5], n_tasks = 1 + dice_draw(&d, 5);
		struct admissionsum s;
		double want, got;

		admissionsum_init(&s, cap);
		/* Quanta are no larger than they must be: larger ones would
		 * count more than there is. */
		cr_assert(s.quantum * ADMISSIONSUM_QUANTA >= cap &&
			  (s.quantum - 1) * ADMISSIONSUM_QUANTA < cap);
		cr_assert_eq(s.cap, cap / s.quantum);
		for (size_t t = 0; t < n_tasks; t++) {
			n[t] = 1 + dice_draw(&d, 5);
			values[t] = room[t];
			for (size_t i = 0; i < n[t]; i++)
				room[t][i] = dice_draw(&d, cap);
		}
		for (size_t t = 0; t + 1 < n_tasks; t++)
			admissionsum_add(&s, values[t], n[t], 0, UINT64_MAX);
		want = exact(values, n, n_tasks, 0, s.quantum, s.cap);
		got = ldexp((double)admissionsum_over(&s, values[n_tasks - 1], n[n_tasks - 1]),
			    -62);
		cr_assert(fabs(got - want) < 1e-12, "seed %lu: %.15f, not %.15f",
			  (unsigned long)seed, got, want);
		admissionsum_add(&s, values[n_tasks - 1], n[n_tasks - 1], 0, UINT64_MAX);
		cr_assert(fabs(ldexp((double)s.over, -62) - want) < 1e-12);
	}
}

/* k of n values are above the cap. With so many such tasks P(sum > cap) is a whole number of
 * millionths: it is not above that, but above one millionth less. */
Test(admission, a_share_is_neither_reached_too_early_nor_too_late)
{
	static const uint32_t ns[] = {2, 4, 5, 10, 20, 25, 50, 100};
	uint64_t values[100];

	for (size_t i = 0; i < sizeof(ns) / sizeof(ns[0]); i++) {
		uint32_t n = ns[i];

		for (uint32_t k = 1; k < n; k++) {
			struct admissionsum s;
			uint64_t all = 1, none = 1;

			for (uint32_t v = 0; v < n; v++)
				values[v] = v < k ? 11 : 0;
			admissionsum_init(&s, 10);
			for (int tasks = 1; tasks <= 3 && 1000000 % (all * n) == 0; tasks++) {
				uint64_t over = admissionsum_over(&s, values, n);
				uint32_t ppm;

				all *= n;
				none *= n - k;
				ppm = (uint32_t)((all - none) * (1000000 / all));
				cr_assert_leq(over, admissionsum_share(ppm), "%u of %u, %d times",
					      k, n, tasks);
				cr_assert_gt(over, admissionsum_share(ppm - 1),
					     "%u of %u, %d times", k, n, tasks);
				admissionsum_add(&s, values, n, 0, UINT64_MAX);
				cr_assert_eq(s.over, over);
			}
		}
	}
}

Test(admission, a_probability_that_is_eps_exactly_is_not_above_it)
{
	uint64_t values[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 5};
	struct admission_task ask = {.strategy = PROFILE_HISTOGRAM,
				     .estimate = 5,
				     .values = values,
				     .n_values = 10,
				     .eps_ppm = 28000};
	struct admission_task one = ask, two = ask;
	struct admission a;

	admission_init(&a, 10);
	admission_start(&a, &one);
	admission_start(&a, &two);
	cr_assert(admission_fits(&a, &ask), "P = 0.028");
	ask.eps_ppm = 27999;
	cr_assert_not(admission_fits(&a, &ask));
	/* One has more than its kind ever had: it is not less likely any more. */
	admission_note(&a, &one, 9, UINT64_MAX);
	ask.eps_ppm = 500000;
	cr_assert_not(admission_fits(&a, &ask));
	admission_end(&a, &one);
	cr_assert(admission_fits(&a, &ask));
}

Test(admission, values_that_a_task_cannot_reach_any_more_do_not_count)
{
	uint64_t values[10] = {1, 1, 1, 1, 1, 9, 9, 9, 9, 9};
	struct admission_task ask = {.strategy = PROFILE_HISTOGRAM,
				     .estimate = 9,
				     .values = values,
				     .n_values = 10,
				     .eps_ppm = 10000};
	struct admission_task one = ask;
	struct admission a;

	admission_init(&a, 10);
	admission_start(&a, &one);
	cr_assert_not(admission_fits(&a, &ask), "P(9 + 9) = 1/4");
	admission_note(&a, &one, 1, 4);
	cr_assert(admission_fits(&a, &ask), "1, and 1 or 9");
	admission_note(&a, &one, 2, 4);
	cr_assert_not(admission_fits(&a, &ask), "what it has counts");
	/* Below all that its kind had: what is said of it. */
	admission_note(&a, &one, 0, 0);
	cr_assert(admission_fits(&a, &ask));
	admission_note(&a, &one, 0, UINT64_MAX);
	cr_assert_not(admission_fits(&a, &ask));
}

Test(admission, estimates_become_bolder_while_memory_is_not_used)
{
	struct adaptation a = {.now = PROFILE_PEAK};

	for (unsigned i = 0; i < ADAPTATION_WINDOW; i++) {
		adaptation_note(&a, 59, 100);
		cr_assert_eq(adaptation_admitted(&a), i == ADAPTATION_WINDOW - 1);
	}
	cr_assert_eq(a.now, PROFILE_P95);
	for (unsigned i = 0; i < ADAPTATION_WINDOW; i++) {
		adaptation_note(&a, i == 3 ? 60 : 1, 100);
		cr_assert_not(adaptation_admitted(&a), "enough was used once");
	}
	for (unsigned i = 0; i < ADAPTATION_WINDOW; i++)
		cr_assert_not(adaptation_admitted(&a), "nobody looked");
	for (unsigned i = 0; i < 4 * ADAPTATION_WINDOW; i++) {
		adaptation_note(&a, 0, 100);
		(void)adaptation_admitted(&a);
	}
	cr_assert_eq(a.now, PROFILE_AVERAGE);
}
