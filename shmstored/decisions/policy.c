/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policy.c: candidates are put in an order, and a prefix of it is taken.
 *
 * The order is total: ids are the last key, so the same workers always give the same victims,
 * whatever order they came in. Rejected: a heap of candidates kept up to date with each sample;
 * waves are rare, samples are not.
 */
#include "policy.h"

#include <stddef.h>
#include <stdlib.h>

static const char *const level_names[] = {"NEVER", "LOW", "MED", "HIGH", "ALWAYS", "AUTO"};

const char *policylevel_name(enum policylevel level)
{
	return (size_t)level < sizeof(level_names) / sizeof(level_names[0]) ? level_names[level]
									    : "UNSAID";
}

enum policylevel policylevel_resolve(const struct policylevel_wish *w)
{
	enum policylevel level = w->instance != POLICYLEVEL_UNSAID ? w->instance : w->class;

	if (level == POLICYLEVEL_UNSAID)
		level = w->automatic ? POLICYLEVEL_AUTO : POLICYLEVEL_NEVER;
	if (level == POLICYLEVEL_AUTO)
		level = w->retriable && !w->n_children ? POLICYLEVEL_HIGH : POLICYLEVEL_NEVER;
	return level;
}

static const char *const names[] = {"lifo", "fifo", "group", "time", "shm"};

const char *policy_name(enum policy_kind kind)
{
	return names[kind];
}

const char *policy_why(enum policy_why why)
{
	static const char *const texts[] = {
		[POLICY_WHY_IDLE] = "it is idle",
		[POLICY_WHY_ALWAYS] = "its level is ALWAYS",
		[POLICY_WHY_LEVEL] = "no other has a higher level",
		[POLICY_WHY_RETRIABLE] = "it can be tried again",
		[POLICY_WHY_LAST] = "nothing that can be tried again was left",
	};

	return texts[why];
}

bool policy_is_retriable(const struct policy_worker *w)
{
	return (w->work == POLICY_TASK || w->work == POLICY_ACTOR) && w->retries != 0;
}

static bool is_idle(const struct policy_worker *w)
{
	return w->work == POLICY_IDLE || w->work == POLICY_COLD;
}

static int64_t bytes_of(struct amount a)
{
	return a.known && a.bytes > 0 ? a.bytes : 0;
}

int64_t policy_need(const struct policy *p, struct amount used)
{
	if (!used.known || !p->kill.known)
		return 0;
	if (p->kind == POLICY_SHM && used.bytes <= p->kill.bytes)
		return p->gate.known ? amount_subtract(used, p->gate).bytes : 0;
	return amount_sum(amount_subtract(used, p->kill).bytes, p->buffer);
}

static bool is_candidate(const struct policy *p, const struct policy_worker *w,
			 enum policylevel least)
{
	if (w->life != POLICY_ALIVE || w->work == POLICY_IO)
		return false;
	if (is_idle(w)) {
		if (p->kind == POLICY_LIFO || p->kind == POLICY_FIFO)
			return false;
		if (w->work == POLICY_IDLE && p->kind != POLICY_GROUP)
			return true;
		return bytes_of(w->private) > p->idle;
	}
	return p->kind != POLICY_SHM || w->level >= least;
}

/* ---- the order ------------------------------------------------------------------------------- */

/* Below 0: x goes first; 0: by this neither does. */
typedef int rule(const struct policy_victim *x, const struct policy_victim *y);

static int by_id(const struct policy_victim *x, const struct policy_victim *y)
{
	return (x->worker->id > y->worker->id) - (x->worker->id < y->worker->id);
}

static int oldest_first(const struct policy_victim *x, const struct policy_victim *y)
{
	return (x->worker->start > y->worker->start) - (x->worker->start < y->worker->start);
}

static int newest_first(const struct policy_victim *x, const struct policy_victim *y)
{
	return oldest_first(y, x);
}

static int retriable_first(const struct policy_victim *x, const struct policy_victim *y)
{
	return (int)policy_is_retriable(y->worker) - (int)policy_is_retriable(x->worker);
}

/* Both idle: the larger first. 0: neither is; else one is. */
static int idle_first(const struct policy_victim *x, const struct policy_victim *y)
{
	if (!is_idle(x->worker) || !is_idle(y->worker))
		return (int)is_idle(y->worker) - (int)is_idle(x->worker);
	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return by_id(x, y);
}

static int by_level(const struct policy_victim *x, const struct policy_victim *y)
{
	return (x->worker->level < y->worker->level) - (x->worker->level > y->worker->level);
}

/* A process that can be tried again is in its caller's group, every other in one. */
static int by_group(const struct policy_victim *x, const struct policy_victim *y)
{
	if (!policy_is_retriable(x->worker) || !policy_is_retriable(y->worker))
		return retriable_first(x, y);
	return (x->worker->owner > y->worker->owner) - (x->worker->owner < y->worker->owner);
}

static rule *const rules[][5] = {
	[POLICY_LIFO] = {retriable_first, newest_first},
	[POLICY_FIFO] = {retriable_first, oldest_first},
	/* members of a group follow each other, its latest first */
	[POLICY_GROUP] = {idle_first, by_group, newest_first},
	[POLICY_TIME] = {idle_first, retriable_first, newest_first},
	[POLICY_SHM] = {idle_first, by_level, retriable_first, newest_first},
};

static int compare(const void *a, const void *b, void *arg)
{
	rule *const *by = rules[*(const enum policy_kind *)arg];
	int first = 0;

	while (!first && *by)
		first = (*by++)(a, b);
	return first ? first : by_id(a, b);
}

/* A group of n members, sorted, goes before another: its members can be tried again, it is larger,
 * its earliest began later. */
static bool is_before(const struct policy_victim *g, size_t n, const struct policy_victim *other,
		      size_t n_other)
{
	int order = retriable_first(g, other);

	if (order)
		return order < 0;
	if (n != n_other)
		return n > n_other;
	order = newest_first(&g[n - 1], &other[n_other - 1]);
	return order ? order < 0 : by_id(g, other) < 0;
}

/* Of the sorted ones: moves the victim to the front. */
static void choose_of_groups(struct policy_victim *c, size_t n)
{
	size_t best = 0, n_best = 0;

	if (!is_idle(c[0].worker)) {
		for (size_t i = 0, end; i < n; i = end) {
			for (end = i + 1; end < n && !by_group(&c[i], &c[end]); end++)
				;
			if (!n_best || is_before(&c[i], end - i, &c[best], n_best)) {
				best = i;
				n_best = end - i;
			}
		}
	}
	/* The last of its caller: trying again for ever would hide that it does not fit. */
	c[best].retry = policy_is_retriable(c[best].worker) && n_best > 1;
	c[0] = c[best];
}

static enum policy_why reason(const struct policy *p, const struct policy_worker *w)
{
	if (is_idle(w))
		return POLICY_WHY_IDLE;
	if (p->kind == POLICY_SHM)
		return w->level == POLICYLEVEL_ALWAYS ? POLICY_WHY_ALWAYS : POLICY_WHY_LEVEL;
	return policy_is_retriable(w) ? POLICY_WHY_RETRIABLE : POLICY_WHY_LAST;
}

static size_t collect(const struct policy *p, enum policylevel least, struct policy_worker *workers,
		      size_t n, struct policy_victim *ret)
{
	size_t n_candidates = 0;

	for (size_t i = 0; i < n; i++) {
		struct policy_worker *w = &workers[i];

		if (w->life == POLICY_TAKEN)
			return 0;
		if (is_candidate(p, w, least))
			ret[n_candidates++] = (struct policy_victim){
				.worker = w,
				/* Its end also frees its sole objects in the store; Ray's
				 * policies ignore them. */
				.bytes = amount_sum(bytes_of(w->private),
						    p->kind == POLICY_SHM ? bytes_of(w->sole) : 0),
				.retry = p->kind == POLICY_LIFO || p->kind == POLICY_FIFO ||
					 policy_is_retriable(w),
				.why = reason(p, w),
			};
	}
	return n_candidates;
}

size_t policy_select(const struct policy *p, struct amount used, struct policy_worker *workers,
		     size_t n, struct policy_victim *ret)
{
	enum policy_kind kind = p->kind;
	bool by_need = kind == POLICY_TIME || kind == POLICY_SHM;
	bool over = used.known && p->kill.known && used.bytes > p->kill.bytes;
	int64_t need = policy_need(p, used);
	size_t n_candidates, n_victims = 0;

	if (by_need && need <= 0)
		return 0;
	n_candidates = collect(p, over ? POLICYLEVEL_LOW : POLICYLEVEL_ALWAYS, workers, n, ret);
	if (!n_candidates)
		return 0;
	qsort_r(ret, n_candidates, sizeof(*ret), compare, &kind);
	if (kind == POLICY_GROUP)
		choose_of_groups(ret, n_candidates);
	do {
		ret[n_victims].worker->life = POLICY_TAKEN;
		need = amount_subtract(amount_of(need), amount_of(ret[n_victims].bytes)).bytes;
		n_victims++;
	} while (by_need && need > 0 && n_victims < n_candidates);
	return n_victims;
}
