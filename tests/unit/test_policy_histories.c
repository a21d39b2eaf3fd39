/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_policy_histories.c: random workers come, change, die and go, and each policy chooses
 * among them, again and again.
 *
 * After every choice:
 *     one wave at a time: nobody is chosen while a victim of an earlier wave lives
 *     victims were alive, are now TAKEN, each once; nobody else's life changed
 *     never a victim: NEVER (shm), below ALWAYS between gate and kill (shm), I/O workers, cold
 *     ones within their bounds time, shm: the sum of the victims' bytes covers the need, or all
 *     candidates are victims; without the last it does not cover it time, shm: nobody where used
 *     or kill is unknown, or nothing is needed lifo, fifo, group: exactly one if there is a
 *     candidate no candidate that remains should have gone before a victim, by a comparison
 *     written anew (group: by a count of every group) the same workers in another order give the
 *     same victims, in the same order
 *
 * That it can fail was tried; each of these in policy.c fails within the first histories: level 0
 * taken, one victim less or more than needed, no look for TAKEN, ids left out of the order, groups
 * by fewest members, sole not counted.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "dice.h"
#include "policy.h"

#define HISTORIES 600
#define STEPS     60
#define WORKERS   24

static struct dice dice;

static uint64_t draw(uint64_t below)
{
	return dice_draw(&dice, below);
}

static struct amount draw_bytes(void)
{
	return draw(8)    ? amount_of((int64_t)draw(draw(2) ? 5 : 600))
	       : draw(40) ? AMOUNT_UNKNOWN
			  : amount_of(INT64_MAX);
}

static void draw_worker(struct policy_worker *w, uint64_t id)
{
	*w = (struct policy_worker){
		.id = id,
		.owner = draw(4),
		.start = (int64_t)draw(6),
		.retries = (int64_t)draw(4) - 1,
		.private = draw_bytes(),
		.sole = draw_bytes(),
		.work = (enum policy_work)draw(POLICY_IO + 1),
		.level = (enum policylevel)draw(POLICYLEVEL_ALWAYS + 1),
	};
}

static int64_t bytes_of(struct amount a)
{
	return a.known ? a.bytes : 0;
}

static bool idle(const struct policy_worker *w)
{
	return w->work == POLICY_IDLE || w->work == POLICY_COLD;
}

static bool in_gate_zone(const struct policy *p, struct amount used)
{
	return used.bytes <= p->kill.bytes;
}

/* May this one be a victim at all? */
static bool eligible(const struct policy *p, struct amount used, const struct policy_worker *w)
{
	if (w->life != POLICY_ALIVE || w->work == POLICY_IO)
		return false;
	switch (p->kind) {
	case POLICY_LIFO:
	case POLICY_FIFO:
		return !idle(w);
	case POLICY_GROUP:
		return !idle(w) || bytes_of(w->private) > p->idle;
	case POLICY_TIME:
	case POLICY_SHM:
	default:
		if (w->work == POLICY_COLD)
			return bytes_of(w->private) > p->idle;
		if (w->work == POLICY_IDLE || p->kind == POLICY_TIME)
			return true;
		return w->level == POLICYLEVEL_ALWAYS ||
		       (w->level != POLICYLEVEL_NEVER && !in_gate_zone(p, used));
	}
}

static int64_t brings(const struct policy *p, const struct policy_worker *w)
{
	return amount_sum(bytes_of(w->private), p->kind == POLICY_SHM ? bytes_of(w->sole) : 0);
}

#define KEYS 6

/* The keys of the order, the most important first; the smaller goes first. Not of groups. */
static void keys_of(const struct policy *p, const struct policy_worker *w, int64_t ret[KEYS])
{
	memset(ret, 0, KEYS * sizeof(*ret));
	ret[5] = (int64_t)w->id;
	ret[0] = !idle(w);
	if (idle(w)) {
		ret[1] = -brings(p, w);
		return;
	}
	ret[2] = p->kind == POLICY_SHM ? -(int64_t)w->level : 0;
	ret[3] = !policy_is_retriable(w);
	ret[4] = p->kind == POLICY_FIFO ? w->start : -w->start;
}

static bool goes_before(const struct policy *p, const struct policy_worker *a,
			const struct policy_worker *b)
{
	int64_t x[KEYS], y[KEYS];

	keys_of(p, a, x);
	keys_of(p, b, y);
	for (int i = 0; i < KEYS; i++)
		if (x[i] != y[i])
			return x[i] < y[i];
	return false;
}

/* A group's size, when its first began, and whether w is its last. */
struct group {
	unsigned n;
	int64_t first;
	bool newest;
};

static struct group group_of(const struct policy *p, struct amount used,
			     const struct policy_worker *workers, size_t n,
			     const struct policy_worker *w)
{
	struct group g = {.first = INT64_MAX, .newest = true};

	for (size_t i = 0; i < n; i++) {
		const struct policy_worker *o = &workers[i];

		if (!eligible(p, used, o) || idle(o) ||
		    policy_is_retriable(o) != policy_is_retriable(w) ||
		    (policy_is_retriable(w) && o->owner != w->owner))
			continue;
		g.n++;
		if (o->start < g.first)
			g.first = o->start;
		if (o->start > w->start || (o->start == w->start && o->id < w->id))
			g.newest = false;
	}
	return g;
}

static void check_group(const struct policy *p, struct amount used,
			const struct policy_worker *before, size_t n, const struct policy_worker *w,
			bool retry)
{
	struct group g = group_of(p, used, before, n, w);

	for (size_t i = 0; i < n; i++) {
		struct group other;

		if (!eligible(p, used, &before[i]) || before[i].id == w->id)
			continue;
		if (idle(w) || idle(&before[i])) {
			cr_assert(goes_before(p, w, &before[i]));
			continue;
		}
		other = group_of(p, used, before, n, &before[i]);
		cr_assert_geq((int)policy_is_retriable(w), (int)policy_is_retriable(&before[i]));
		if (policy_is_retriable(w) != policy_is_retriable(&before[i]))
			continue;
		cr_assert_geq(g.n, other.n);
		if (g.n == other.n)
			cr_assert_geq(g.first, other.first);
	}
	if (!idle(w))
		cr_assert(g.newest);
	cr_assert_eq(retry, !idle(w) && policy_is_retriable(w) && g.n > 1);
}

static void check_amount(const struct policy *p, struct amount used, const struct policy_victim *v,
			 size_t n_victims, size_t n_eligible)
{
	int64_t need = policy_need(p, used), sum = 0, without_last = 0;

	if (p->kind != POLICY_TIME && p->kind != POLICY_SHM) {
		cr_assert_eq(n_victims, n_eligible > 0);
		return;
	}
	if (need <= 0) {
		cr_assert_eq(n_victims, 0);
		return;
	}
	for (size_t i = 0; i < n_victims; i++) {
		without_last = sum;
		sum = amount_sum(sum, v[i].bytes);
	}
	cr_assert(sum >= need || n_victims == n_eligible, "too few");
	if (n_victims)
		cr_assert_lt(without_last, need, "one too many");
}

/* before: the workers as they were. */
static void check_choice(const struct policy *p, struct amount used,
			 const struct policy_worker *before, const struct policy_worker *after,
			 size_t n, const struct policy_victim *v, size_t n_victims)
{
	bool chosen[WORKERS] = {false}, wave = false;
	size_t n_eligible = 0;

	for (size_t i = 0; i < n_victims; i++) {
		size_t at = (size_t)(v[i].worker - after);

		cr_assert(at < n && !chosen[at] && eligible(p, used, &before[at]));
		cr_assert_eq(v[i].bytes, brings(p, &before[at]));
		chosen[at] = true;
		if (i && p->kind != POLICY_GROUP)
			cr_assert(goes_before(p, v[i - 1].worker, v[i].worker));
	}
	for (size_t i = 0; i < n; i++) {
		struct policy_worker same;

		memcpy(&same, &after[i], sizeof(same));
		wave |= before[i].life == POLICY_TAKEN;
		n_eligible += eligible(p, used, &before[i]);
		cr_assert_eq(after[i].life, chosen[i] ? POLICY_TAKEN : before[i].life);
		same.life = before[i].life;
		cr_assert_eq(memcmp(&same, &before[i], sizeof(same)), 0);
		if (n_victims && !chosen[i] && p->kind != POLICY_GROUP &&
		    eligible(p, used, &before[i]))
			cr_assert(goes_before(p, v[n_victims - 1].worker, &before[i]));
	}
	if (wave) {
		cr_assert_eq(n_victims, 0, "a second wave");
		return;
	}
	check_amount(p, used, v, n_victims, n_eligible);
	if (p->kind == POLICY_GROUP && n_victims)
		check_group(p, used, before, n, v[0].worker, v[0].retry);
}

static void check_order_of_input(const struct policy *p, struct amount used,
				 const struct policy_worker *before, size_t n,
				 const struct policy_victim *v, size_t n_victims)
{
	struct policy_worker shuffled[WORKERS];
	struct policy_victim again[WORKERS];

	memcpy(shuffled, before, n * sizeof(*shuffled));
	for (size_t i = n; i > 1; i--) {
		size_t j = draw(i);
		struct policy_worker w = shuffled[i - 1];

		shuffled[i - 1] = shuffled[j];
		shuffled[j] = w;
	}
	cr_assert_eq(policy_select(p, used, shuffled, n, again), n_victims);
	for (size_t i = 0; i < n_victims; i++) {
		cr_assert_eq(again[i].worker->id, v[i].worker->id);
		cr_assert_eq(again[i].retry, v[i].retry);
	}
}

static void choose(const struct policy *p, struct policy_worker *workers, size_t n)
{
	struct policy_worker before[WORKERS];
	struct policy_victim v[WORKERS];
	struct amount used = amount_of((int64_t)draw(3000));
	size_t n_victims;

	switch (draw(10)) {
	case 0:
		used = AMOUNT_UNKNOWN;
		break;
	case 1:
		used = amount_of(INT64_MAX);
		break;
	case 2:
	case 3:
	case 4: /* little is needed */
		used.bytes = p->kill.bytes - p->buffer % 1000 + (int64_t)draw(8);
		break;
	default:
		break;
	}
	memcpy(before, workers, n * sizeof(*before));
	n_victims = policy_select(p, used, workers, n, v);
	check_choice(p, used, before, workers, n, v, n_victims);
	check_order_of_input(p, used, before, n, v, n_victims);
}

Test(policy_histories, invariants_hold_whatever_happens)
{
	for (unsigned history = 0; history < HISTORIES; history++) {
		struct policy_worker workers[WORKERS];
		struct policy p;
		size_t n = 0;
		uint64_t next_id = 0;

		memset(workers, 0, sizeof(workers));
		dice.state = history + 1;
		p = (struct policy){
			.kind = (enum policy_kind)(history % (POLICY_SHM + 1)),
			.kill = draw(10) ? amount_of(900 + (int64_t)draw(200)) : AMOUNT_UNKNOWN,
			.gate = draw(3) ? amount_of(500 + (int64_t)draw(400)) : AMOUNT_UNKNOWN,
			.buffer = (int64_t)draw(draw(20) ? draw(2) ? 8 : 200 : INT64_MAX),
			.idle = (int64_t)draw(600),
		};
		for (int i = 0; i < STEPS; i++) {
			uint64_t what = draw(8);

			if (what < 3 && n < WORKERS) {
				draw_worker(&workers[n++], next_id++);
			} else if (what == 3 && n) {
				draw_worker(&workers[draw(n)], next_id++);
			} else if (what == 4 && n) {
				workers[draw(n)].life = POLICY_DEAD;
			} else if (what == 5 && n) {
				n--;
				workers[draw(n + 1)] = workers[n];
			} else {
				choose(&p, workers, n);
			}
			/* The wave ends at times, all together. */
			for (size_t j = 0; what == 6 && j < n; j++)
				if (workers[j].life == POLICY_TAKEN)
					workers[j].life = POLICY_DEAD;
		}
	}
}
