/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbattempt.c: see arbitrate.h. Attempts are run, rolled back, and their items split.
 *
 * A stack of items, ours and pieces of ours; the next of the caller's is begun when it is empty. An
 * attempt runs between retry_begin and retry_end; what it reserved and left is released before
 * ready() is called, outside of that bracket: whoever waits there holds nothing of it.
 *
 * An error may hide a RETRY or SPLIT, by a layer between that knows errno only. The context's own
 * unanswered one (shmstore_arb_context.owed) counts, whatever the attempt returns.
 */

#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "alloc.h"
#include "arbitrate.h"
#include "cleanup.h"
#include "detail.h"

static void begin(struct shms_attempt *t, struct shmstore_arb_context *c)
{
	struct shms_arb *a = c->arb;

	*t = (struct shms_attempt){.context = c, .outer = c->attempt, .serial = ++c->last_serial};
	c->attempt = t;
	SHMS_HELD(&a->lock);
	DL_PREPEND(a->attempts, t);
}

int shms_attempt_room(struct shmstore_arb_context *c, size_t n)
{
	int r = 0;

	if (!c->attempt)
		return 0;
	SHMS_HELD(&c->arb->lock);
	/* All that is around it too: what this one leaves will be theirs. */
	for (struct shms_attempt *t = c->attempt; t && r == 0; t = t->outer) {
		r = SHMS_GROW(t->ids, t->room, t->n_ids, n);
		n += t->n_ids;
	}
	return r;
}

void shms_attempt_note(struct shmstore_arb_context *c, struct shmstore_arb_reservation *r)
{
	struct shms_attempt *t = c->attempt;

	r->context = c->id;
	r->attempt = t ? t->serial : 0;
	if (!t)
		return;
	if (r->leased)
		atomic_fetch_add_explicit(&t->leased[r->pool - 1], r->leased, memory_order_relaxed);
	if (!r->id)
		return;
	SHMS_HELD(&c->arb->lock);
	t->ids[t->n_ids++] = r->id;
}

/* The attempt that r is of, among those of the calling thread's context. */
static struct shms_attempt *find_own(const struct shmstore *s,
				     const struct shmstore_arb_reservation *r)
{
	struct shmstore_arb_context *c = shms_arb_thread_context(shms_arb_thread_find(s));
	struct shms_attempt *t = c && c->id == r->context ? c->attempt : NULL;

	while (t && t->serial > r->attempt)
		t = t->outer;
	return t;
}

/* Among those of all threads. arb->lock is held. */
static struct shms_attempt *find(struct shms_arb *a, const struct shmstore_arb_reservation *r)
{
	struct shms_attempt *best = NULL;

	for (struct shms_attempt *t = a->attempts; t; t = t->next) {
		if (t->context->id == r->context && t->serial <= r->attempt &&
		    (!best || t->serial > best->serial))
			best = t;
	}
	return best;
}

static void drop_id(struct shms_attempt *t, uint32_t id)
{
	for (size_t i = 0; i < t->n_ids; i++) {
		if (t->ids[i] == id) {
			t->ids[i] = t->ids[--t->n_ids];
			return;
		}
	}
}

void shms_attempt_change(struct shmstore *s, const struct shmstore_arb_reservation *r,
			 uint64_t leased, bool id)
{
	struct shms_attempt *t;

	if (!r->attempt || (!leased && !id))
		return;
	t = find_own(s, r);
	if (t && !id) {
		atomic_fetch_add_explicit(&t->leased[r->pool - 1], leased, memory_order_relaxed);
		return;
	}
	/* Under the lock none ends. */
	SHMS_HELD(&s->arb->lock);
	t = t ? t : find(s->arb, r);
	if (t && leased)
		atomic_fetch_add_explicit(&t->leased[r->pool - 1], leased, memory_order_relaxed);
	if (t && id)
		drop_id(t, r->id);
}

/* It failed: releases all. */
static void undo(struct shmstore *s, struct shms_attempt *t)
{
	struct wire_arb m = {.op = WIRE_ARB_RELEASE, .flags = WIRE_ARB_QUIET};

	for (uint32_t i = 0; i < WIRE_LEASES; i++) {
		uint64_t bytes = atomic_exchange_explicit(&t->leased[i], 0, memory_order_relaxed);

		if (bytes)
			shms_lease_give(s, i + 1, bytes);
	}
	/* Ours alone: who releases one of these in another thread now would do so twice. */
	for (size_t i = 0; i < t->n_ids; i++) {
		m.reservation = t->ids[i];
		shms_arb_post(s, &m, 0);
	}
	t->n_ids = 0;
}

/* After undo(), or it succeeded. */
static void end(struct shms_attempt *t)
{
	struct shmstore_arb_context *c = t->context;
	struct shms_attempt *outer = t->outer;

	SHMS_HELD(&c->arb->lock);
	for (uint32_t i = 0; outer && i < WIRE_LEASES; i++)
		atomic_fetch_add_explicit(&outer->leased[i],
					  atomic_load_explicit(&t->leased[i], memory_order_relaxed),
					  memory_order_relaxed);
	for (size_t i = 0; outer && i < t->n_ids; i++)
		outer->ids[outer->n_ids++] = t->ids[i];
	DL_DELETE(c->arb->attempts, t);
	c->attempt = outer;
	free(t->ids);
	t->ids = NULL;
}

/* ---- attempts of a caller's items ------------------------------------------------------------ */

struct run {
	struct shmstore *s;
	struct shmstore_arb_work *work;
	struct shmstore_arb_context *c;
	struct shmstore_arb_how how;
	void **stack; /* pieces; the last one is next */
	size_t n, room;
	size_t at, n_items; /* of the caller's: how many were begun */
};

static void item_done(const struct run *run, void *item, int result)
{
	if (run->work->done)
		run->work->done(run->work->ctx, item, result);
}

/* RETRY or SPLIT, where that is what result comes of. */
static int told(const struct run *run, int result)
{
	if (result == SHMSTORE_ARB_RETRY || result == SHMSTORE_ARB_SPLIT)
		return result;
	return result < 0 && run->c->owed ? run->c->owed : result;
}

/* One attempt, with all that it left given back where it failed. */
static int attempt(struct run *run, void *item)
{
	struct shmstore_arb_work *w = run->work;
	struct shms_attempt t;
	int r;

	run->c->owed = 0;
	begin(&t, run->c);
	shmstore_arb_retry_begin(run->s, run->c);
	w->n_attempts++;
	r = told(run, w->attempt(w->ctx, item));
	if (r != 0)
		undo(run->s, &t);
	shmstore_arb_retry_end(run->s, run->c, r == 0);
	end(&t);
	if (w->restore && (r == SHMSTORE_ARB_RETRY || r == SHMSTORE_ARB_SPLIT))
		w->restore(w->ctx, item);
	return r;
}

/* Puts smaller items in item's place. 0; SPLIT: it cannot be split; -errno or an outcome: of the
 * split, and the item is the caller's still. */
static int split(struct run *run, void *item)
{
	struct shmstore_arb_work *w = run->work;
	void *pieces[SHMSTORE_ARB_SPLIT_MAX];
	int n, r = SHMS_GROW(run->stack, run->room, run->n, SHMSTORE_ARB_SPLIT_MAX);

	if (r < 0)
		return r;
	run->c->owed = 0;
	n = w->split ? w->split(w->ctx, item, pieces, SHMSTORE_ARB_SPLIT_MAX) : 0;
	if (n < 0)
		return told(run, n);
	if (n > (int)SHMSTORE_ARB_SPLIT_MAX)
		return shms_detail(-EINVAL, NULL, "split() gave %d items of %u", n,
				   SHMSTORE_ARB_SPLIT_MAX);
	if (n == 0)
		return shms_arb_say(SHMSTORE_ARB_SPLIT,
				    "item %zu of %zu, or a piece of it, does not fit as it is, and "
				    "%s: reserve less at a time, or give the pool more room",
				    run->at, run->n_items,
				    w->split ? "is as small as it can be" : "nothing can split it");
	w->n_splits++;
	for (int i = n; i-- > 0;)
		run->stack[run->n++] = pieces[i];
	return 0;
}

/* The item until it is done, or (*ret_split) is no more. 0, or what it could not deal with. */
static int run_item(struct run *run, void *item, bool *ret_split)
{
	struct shmstore_arb_work *w = run->work;
	int r;

	if (w->save)
		w->save(w->ctx, item);
	for (;;) {
		r = attempt(run, item);
		if (r == SHMSTORE_ARB_RETRY)
			r = shmstore_arb_ready(run->s, &run->how);
		else if (r != SHMSTORE_ARB_SPLIT)
			return r;
		if (r == 0)
			continue;
		if (r != SHMSTORE_ARB_SPLIT)
			return r;
		r = split(run, item);
		if (r != 0)
			return r;
		*ret_split = true;
		/* a context that was told SPLIT runs: at once */
		return shmstore_arb_ready(run->s, &run->how);
	}
}

static int run_all(struct run *run, void *const *items, size_t n)
{
	void *item;
	int r = 0;

	run->n_items = n;
	while (r == 0 && (run->n || run->at < n)) {
		bool was_split = false;

		item = run->n ? run->stack[--run->n] : items[run->at++];
		r = run_item(run, item, &was_split);
		if (!was_split)
			item_done(run, item, r);
	}
	while (run->n)
		item_done(run, run->stack[--run->n], r);
	return r;
}

int shmstore_arb_with_retry(struct shmstore *s, void *const *items, size_t n,
			    struct shmstore_arb_work *work)
{
	struct run run = {.s = s, .work = work};
	struct shms_arb_thread *thread;
	struct shmstore_arb_context *used;
	int r;

	if (!work ||
	    work->size < offsetof(struct shmstore_arb_work, n_splits) + sizeof(work->n_splits) ||
	    !work->attempt || (n && !items) || (work->how.flags & SHMSTORE_ARB_ASYNC))
		return shms_detail(-EINVAL, NULL, "%s",
				   !work            ? "work is NULL"
				   : !work->attempt ? "work.attempt is NULL"
				   : n && !items    ? "items is NULL"
						    : "work.size or work.how.flags is wrong");
	work->n_attempts = work->n_splits = 0;
	thread = shms_arb_thread(s);
	if (!thread)
		return -ENOMEM;
	r = shms_context(s, work->how.context, &run.c);
	if (r < 0)
		return r;
	run.how = work->how;
	run.how.context = run.c;
	run.how.flags = 0;
	used = thread->used;
	if (!run.c->of_thread)
		thread->used = run.c;
	r = run_all(&run, items, n);
	thread->used = used;
	free(run.stack);
	return r;
}

uint64_t shmstore_arb_smaller(uint64_t target, uint64_t min, uint64_t data)
{
	uint64_t next = data && data <= target / 2 ? data / 2 : target / 2;

	return next < min ? 0 : next;
}
