/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierwork.c: an eviction is one call of the library for each user in the plan's order, each for so
 * many bytes, until the partition is below its low mark; then one for everybody, since the plan was
 * made of the last survey, which may be old by now.
 *
 * The library's text of a failure belongs to the thread, until its next call: it is copied at once.
 * Of several failures the last is told, but one of the disk goes before all others.
 */
#include "tierwork.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "loop.h"

static void keep_why(struct tierwork *w)
{
	if (w->report.disk_full || w->report.error)
		return; /* the disk has had its say */
	snprintf(w->why, sizeof(w->why), "%s", shmstore_error_detail());
	snprintf(w->path, sizeof(w->path), "%s", shmstore_error_path());
}

/* ---- evicting -------------------------------------------------------------------------------- */

void tierwork_add(struct shmstore_evict_report *sum, const struct shmstore_evict_report *r)
{
	sum->n_objects += r->n_objects;
	sum->freed += r->freed;
	sum->held += r->held;
	sum->original += r->original;
	sum->written += r->written;
	sum->n_clean += r->n_clean;
	sum->n_skipped += r->n_skipped;
	sum->duration_ns += r->duration_ns;
	sum->disk_full |= r->disk_full;
	if (!sum->error)
		sum->error = r->error;
}

static int on_progress(const struct shmstore_evict_report *r, void *arg)
{
	struct tierwork *w = arg;

	atomic_store_explicit(&w->n_objects, w->report.n_objects + r->n_objects,
			      memory_order_relaxed);
	atomic_store_explicit(&w->freed, w->report.freed + r->freed, memory_order_relaxed);
	atomic_store_explicit(&w->written, w->report.written + r->written, memory_order_relaxed);
	return w->stop(w->arg);
}

/* bytes 0: down to the low mark. */
static int evict(struct tierwork *w, uid_t uid, uint64_t bytes, uint64_t *ret_freed)
{
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	struct shmstore_evict_report report = {.size = sizeof(report)};
	int r;

	what.bytes = bytes;
	what.to = bytes ? 0 : w->low ? w->low : 1; /* 0: not asked */
	what.n_threads = w->n_threads;
	what.background = w->background;
	what.progress = on_progress;
	what.arg = w;
	what.uid = uid;
	r = shmstore_partition_evict(w->partition, &what, &report);
	if (r < 0 || report.error)
		keep_why(w);
	tierwork_add(&w->report, &report);
	*ret_freed = report.freed;
	return r;
}

uint64_t tierwork_used(int fd)
{
	struct statvfs fs;

	return fstatvfs(fd, &fs) < 0 ? 0 : (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize;
}

/* An error that ends the eviction; after others the next user's objects may do. */
static bool is_over(const struct tierwork *w, int r)
{
	return r == -ECANCELED || r == -ENOENT || w->report.disk_full;
}

static int evict_all(struct tierwork *w)
{
	uint64_t over, freed;
	int r = 1;

	for (size_t i = 0; i < w->n_steps; i++) {
		struct tierplan_step *s = &w->steps[i];

		if (w->stop(w->arg))
			return -ECANCELED;
		over = tierwork_used(w->fd);
		if (over <= w->low)
			return 1;
		over -= w->low;
		r = evict(w, s->uid, s->bytes < over ? s->bytes : over, &s->freed);
		if (r < 0 && is_over(w, r))
			return r;
	}
	if (tierwork_used(w->fd) <= w->low)
		return 1;
	return evict(w, SHMSTORE_EVICT_ALL, 0, &freed);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void look(struct tierwork *w)
{
	uint64_t began_ns = loop_clock();

	w->info.size = sizeof(w->info);
	w->look_result = shmstore_tier_info(w->partition, &w->info);
	if (w->look_result == 0) {
		/* The pointer is good for as long as the library keeps it; ours is
		 * good for as long as we are. */
		snprintf(w->disk, sizeof(w->disk), "%s", w->info.config.path);
		w->info.config.path = w->disk;
	} else if (w->result >= 0) {
		keep_why(w); /* else what failed first says more */
	}
	w->look_ns = loop_clock() - began_ns;
}

void tierwork_run(struct tierwork *w)
{
	uint64_t began_ns = loop_clock();

	w->result = 0;
	if (w->kind == TIERWORK_SET) {
		w->result = shmstore_tier_set(w->partition, w->config.path ? &w->config : NULL);
		if (w->result < 0)
			keep_why(w);
	} else if (w->kind == TIERWORK_EVICT) {
		w->result = evict_all(w);
		w->report.duration_ns = loop_clock() - began_ns;
	}
	if (w->result != -ECANCELED)
		look(w);
}

void tierwork_deinit(struct tierwork *w)
{
	free((char *)(uintptr_t)w->config.path);
	free(w->steps);
	memset(w, 0, sizeof(*w));
}

/* ---- the plan -------------------------------------------------------------------------------- */

/*
 * A second is long for memory: a partition may fill by a gigabyte in it. So where used has risen so
 * fast that it would pass the high mark before the next second's look, it is looked at LOOKS times
 * as often. A faster rise meets the library, which demotes before it says that a partition is full.
 *
 * Recycled files go first, by the stores themselves, which are asked for them at the same mark:
 * where these alone would do, we wait POOL_NS for them. An idle store gives nothing back before its
 * next call, so it is not waited for longer.
 *
 * Rejected: cutting all users down to one level (the busy ones would lose what they are at work on
 * while others' sleeps in memory).
 */

#define SECOND   UINT64_C(1000000000)
#define POOL_NS  SECOND
#define LOOK_NS  (SECOND / 20)
#define WAIT_MAX 6u /* 2^6 seconds */

static uint64_t part(uint64_t whole, unsigned percent)
{
	return (uint64_t)((__uint128_t)whole * percent / 100);
}

struct tierplan_marks tierplan_marks(uint64_t size, uint64_t hard, unsigned high, unsigned low)
{
	uint64_t whole = hard && (!size || hard < size) ? hard : size;
	struct tierplan_marks m = {.high = part(whole, high), .low = part(whole, low)};

	m.urgent = m.high + (whole - m.high) / 2;
	return m;
}

bool tierplan_due(struct tierplan *p, const struct tierplan_marks *m,
		  const struct tierplan_now *now)
{
	if (!m->high || now->used <= m->high) {
		p->above_since_ns = 0;
		return false;
	}
	if (!p->above_since_ns)
		p->above_since_ns = now->ns;
	if (now->ns < p->not_before_ns)
		return false;
	return now->pool < now->used - m->low || now->ns >= p->above_since_ns + POOL_NS ||
	       now->used >= m->urgent;
}

uint64_t tierplan_next_look(const struct tierplan_marks *m, const struct tierplan_now *before,
			    const struct tierplan_now *now)
{
	uint64_t rise;

	if (!m->high || now->used <= before->used || now->ns <= before->ns)
		return UINT64_MAX;
	rise = (uint64_t)((__uint128_t)(now->used - before->used) * SECOND /
			  (now->ns - before->ns));
	return now->used + rise > m->high ? now->ns + LOOK_NS : UINT64_MAX;
}

void tierplan_succeeded(struct tierplan *p)
{
	p->n_failed = 0;
	p->not_before_ns = 0;
}

uint64_t tierplan_failed(struct tierplan *p, uint64_t now_ns)
{
	uint64_t wait_ns = SECOND << (p->n_failed < WAIT_MAX ? p->n_failed : WAIT_MAX);

	p->n_failed++;
	p->not_before_ns = now_ns + wait_ns;
	return wait_ns;
}

void tierplan_forget(struct tierplan *p)
{
	*p = (struct tierplan){.above_since_ns = p->above_since_ns};
}

/* ---- whose ----------------------------------------------------------------------------------- */

static uint64_t excess(const struct tierplan_user *u)
{
	return u->bytes > u->share ? u->bytes - u->share : 0;
}

static int compare(bool idle_a, bool idle_b, uint64_t a, uint64_t b)
{
	if (idle_a != idle_b)
		return idle_a ? -1 : 1;
	return (a < b) - (a > b);
}

static int by_excess(const void *left, const void *right)
{
	const struct tierplan_user *a = left, *b = right;

	return compare(a->idle, b->idle, excess(a), excess(b));
}

static int by_bytes(const void *left, const void *right)
{
	const struct tierplan_user *a = left, *b = right;

	return compare(a->idle, b->idle, a->bytes, b->bytes);
}

/* Takes of(u) bytes from each user in order while there is need, and subtracts them from u's. */
static size_t take(struct tierplan_user *users, size_t n,
		   uint64_t (*of)(const struct tierplan_user *u), uint64_t *io_need,
		   struct tierplan_step *ret_steps)
{
	size_t n_steps = 0;

	for (size_t i = 0; i < n && *io_need; i++) {
		uint64_t bytes = of(&users[i]);

		if (bytes > *io_need)
			bytes = *io_need;
		if (!bytes)
			continue;
		ret_steps[n_steps++] = (struct tierplan_step){.uid = users[i].uid, .bytes = bytes};
		users[i].bytes -= bytes;
		*io_need -= bytes;
	}
	return n_steps;
}

static uint64_t all(const struct tierplan_user *u)
{
	return u->bytes;
}

size_t tierplan_steps(struct tierplan_user *users, size_t n, uint64_t low, uint64_t need,
		      struct tierplan_step *ret_steps)
{
	size_t n_steps;

	if (!n)
		return 0;
	for (size_t i = 0; i < n; i++) {
		if (!users[i].share)
			users[i].share = low / n;
	}
	qsort(users, n, sizeof(*users), by_excess);
	n_steps = take(users, n, excess, &need, ret_steps);
	qsort(users, n, sizeof(*users), by_bytes);
	return n_steps + take(users, n, all, &need, ret_steps + n_steps);
}
