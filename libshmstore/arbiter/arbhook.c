/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbhook.c: see arbhook.h.
 *
 * Order: reserved, then taken, then said: for a moment the memory is booked twice, never not at
 * all. Killed in between, the daemon sees the death, and counts what the kernel counts.
 *
 * Before a call that may wait our own recycled files go: their memory may be what is missing, and
 * who waits cannot give it. So where there are any it is asked first without waiting.
 */
#include "arbhook.h"

#include <errno.h>
#include <time.h>

#include "arbitrate.h"
#include "credit.h"
#include "detail.h"
#include "recycle.h"

#define AGAIN_MAX 8
/* before the first other reservation; each time twice that: 1.3 s in all */
#define AGAIN_NS  5000000u

/* The context of a thread whose puts wait; NULL: they do not. */
static struct shmstore_arb_context *waiting(const struct shmstore *s,
					    const struct shms_arb_thread *t)
{
	struct shmstore_arb_context *c = shms_arb_thread_context(t);

	return s->arb->hook && c && shms_context_bound(s, c) ? c : NULL;
}

/* With the daemon gone it is as if there were none. */
static int without(int outcome)
{
	return outcome == SHMSTORE_ARB_DOWN || outcome == -ENOTSUP ? 0 : outcome;
}

static int take_new(struct shmstore *s, struct shmstore_arb_context *c, uint64_t n, int tries,
		    struct shms_hold *ret)
{
	struct shms_arb_ask ask = {.pool = SHMSTORE_ARB_PARTITION,
				   .bytes = n,
				   .how = {.context = c},
				   .no_lease = tries > 0, /* the kernel had not what was leased */
				   .no_attempt = true};
	/* After a rollback ask once: a request that does not wait would pass for an answer. */
	bool first = tries == SHMS_HOLD_NOW || (!c->slow && shms_recycle_any(s));
	int r;

	ask.how.flags = first ? SHMSTORE_ARB_NONBLOCK : 0;
	r = shms_arb_reserve(s, &ask, &ret->own);
	if (tries == SHMS_HOLD_NOW && (r == SHMSTORE_ARB_AGAIN || r == SHMSTORE_ARB_TOOBIG))
		return -ENOSPC; /* the caller may do without, or come again */
	if (first && r == SHMSTORE_ARB_AGAIN) {
		/* Only here: a trim keeps what is deleted next out of the pool, as for
		 * a partition that is full. */
		if (shms_recycle_trim(s))
			shms_hold_freed(s);
		ask.how.flags = 0;
		r = shms_arb_reserve(s, &ask, &ret->own);
	}
	if (r == 0)
		ret->bytes = n;
	return without(r);
}

int shms_hold_take_hooked(struct shmstore *s, uint64_t size, int tries, struct shms_hold *ret)
{
	struct shms_arb_thread *t = shms_arb_thread_find(s);
	uint64_t n = shms_credit_cost(s, size);
	struct shmstore_arb_context *c;
	int r;

	if (!t)
		return 0;
	if (t->spent && t->spent->bytes) {
		/* Reserves what the spent reservation lacks. */
		r = tries == SHMS_HOLD_NOW || t->spent->bytes >= n || !waiting(s, t)
			    ? 0
			    : without(shmstore_arb_resize(s, t->spent, n, NULL));
		if (r != 0)
			return r;
		ret->spent = t->spent;
		ret->bytes = n < t->spent->bytes ? n : t->spent->bytes;
		return 0;
	}
	c = waiting(s, t);
	return !c ? 0 : c->later ? -EBUSY : take_new(s, c, n, tries, ret);
}

void shms_hold_end_hooked(struct shmstore *s, struct shms_hold *hold, bool taken)
{
	struct shmstore_arb_reservation *r = hold->spent ? hold->spent : &hold->own;

	if (taken)
		shms_arb_settle(s, r, hold->bytes);
	else if (!hold->spent)
		shmstore_arb_release(s, r);
	hold->bytes = 0;
}

bool shms_hold_again_hooked(struct shmstore *s, int tries)
{
	if (tries >= AGAIN_MAX || !waiting(s, shms_arb_thread_find(s)))
		return false;
	nanosleep(&(struct timespec){.tv_nsec = (long)AGAIN_NS << tries}, NULL);
	return true;
}

void shms_hold_freed_wanted(struct shmstore *s)
{
	struct wire_arb m = {
		.op = WIRE_ARB_FREED, .flags = WIRE_ARB_QUIET, .pool = WIRE_ARB_PARTITION};

	if (shms_attach_generation(shms_attach_of(s)))
		shms_arb_post(s, &m, 0);
}

int shmstore_arb_spend(struct shmstore *s, struct shmstore_arb_reservation *r)
{
	struct shms_arb_thread *t;

	if (r && (r->pool != SHMSTORE_ARB_PARTITION || r->leased > r->bytes))
		return shms_detail(-EINVAL, NULL,
				   "only a reservation of the partition's pool can be spent");
	t = r ? shms_arb_thread(s) : shms_arb_thread_find(s);
	if (!t)
		return r ? -ENOMEM : 0;
	if (!t->spent != !r)
		r ? atomic_fetch_add_explicit(&s->arb->n_spending, 1, memory_order_relaxed)
		  : atomic_fetch_sub_explicit(&s->arb->n_spending, 1, memory_order_relaxed);
	t->spent = r;
	return 0;
}
