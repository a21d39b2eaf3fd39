/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simcore.c: what the daemon is for its clients, without the daemon: messages in, replies to whom
 * they concern. All memory but that of spills on their way is the caller's.
 */
#include "simcore.h"

#include <err.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arbcheck.h"

#define TICK_NS        UINT64_C(100000000)
#define SPILL_NS_PER_K 500u /* 2 GB/s */
#define BROKEN_MAX     20u  /* that are said */

struct spill {
	struct simcore *core;
	uint64_t reservation, bytes;
};

void simcore_broken(struct simcore *c, const char *what, const struct arb_message *m)
{
	c->n_broken++;
	if (!c->first_broken)
		c->first_broken = what;
	if (c->explain && c->n_broken <= BROKEN_MAX)
		fprintf(stderr,
			"%.6f s: %s context %" PRIu64 " task %" PRIu64 " reservation %" PRIu64
			" bytes %" PRIu64 ": %s\n",
			(double)vclock_now(c->clock) / 1e9, arb_op_name(m->op), m->context, m->task,
			m->reservation, m->bytes, what);
}

static void end_spill(void *arg)
{
	struct spill *spill = arg;
	struct simcore *c = spill->core;
	struct arb_reservation_info i;

	/* Given back, or its owner dead, meanwhile: nobody asks any more. Pinned again: it
	 * stays. */
	if (arb_reservation(c->arb, spill->reservation, &i)) {
		struct arb_message m = {
			.op = ARB_OP_SPILLED, .flags = ARB_ALL, .reservation = spill->reservation};

		if (i.spilling)
			m.bytes = i.bytes < spill->bytes ? i.bytes : spill->bytes;
		if (simcore_step(c, &m) != ARB_OK)
			simcore_broken(c, "a spill's end was refused", &m);
	}
	free(spill);
}

static void start_spill(struct simcore *c, const struct arb_reply *reply)
{
	struct spill *spill = calloc(1, sizeof(*spill));
	struct arb_reservation_info i = {.bytes = reply->bytes};

	if (!spill)
		err(1, "a spill");
	c->n_spills++;
	arb_reservation(c->arb, reply->reservation, &i);
	/* all of it: an object is not cut in two */
	*spill = (struct spill){c, reply->reservation, i.bytes};
	c->spill_ns += i.bytes / 1024 * SPILL_NS_PER_K;
	vclock_at(c->clock, vclock_now(c->clock) + i.bytes / 1024 * SPILL_NS_PER_K, end_spill,
		  spill);
}

static void tick(void *arg)
{
	struct simcore *c = arg;

	c->ticking = false;
	if (arb_n_parked(c->arb) > 0)
		simcore_step(c, &(struct arb_message){.op = ARB_OP_TICK});
}

static void take_reply(struct simcore *c, const struct arb_reply *reply,
		       const struct arb_message *m)
{
	struct simcore_waiter *w;

	if (reply->kind == ARB_REPLY_SPILL) {
		start_spill(c, reply);
		return;
	}
	w = reply->context >= 1 && reply->context <= c->n_waiters ? &c->waiters[reply->context - 1]
								  : NULL;
	if (!w || !w->waiting) {
		simcore_broken(c, "a reply for a context that waits for none", m);
		return;
	}
	w->waiting = false;
	w->outcome = reply->outcome;
	if (w->parked)
		vclock_wake(c->clock, w->self);
	w->parked = false;
}

enum arb_outcome simcore_step(struct simcore *c, const struct arb_message *m)
{
	const struct arb_reply *replies = NULL;
	const char *broken;
	size_t n = 0;
	int o = arb_step(c->arb, m, c->base_ns + vclock_now(c->clock), &replies, &n);

	c->n_messages++;
	if (o < 0)
		errx(1, "the core: %s", strerror(-o));
	if (o == ARB_PENDING && m->context) {
		c->waiters[m->context - 1].waiting = true;
		c->waiters[m->context - 1].n_calls++;
	}
	for (size_t i = 0; i < n; i++)
		take_reply(c, &replies[i], m);
	if (c->check && (broken = arb_check(c->arb)))
		simcore_broken(c, broken, m);
	if (!c->ticking && arb_n_parked(c->arb) > 0) {
		c->ticking = true;
		vclock_at(c->clock, vclock_now(c->clock) + TICK_NS, tick, c);
	}
	return (enum arb_outcome)o;
}

enum arb_outcome simcore_call(struct simcore *c, const struct arb_message *m)
{
	enum arb_outcome o = simcore_step(c, m);
	struct simcore_waiter *w;

	if (o != ARB_PENDING)
		return o;
	w = &c->waiters[m->context - 1];
	if (w->waiting) {
		w->parked = true;
		vclock_park(c->clock);
	}
	return w->outcome;
}

static bool say_pool(void *arg, const struct arb_pool_info *i)
{
	fprintf(arg,
		"  pool %s used %" PRIu64 " of %" PRIu64 " reclaimable %" PRIu64
		" spilling %" PRIu64 " closed by %" PRIu64 "\n",
		i->name, i->used, i->capacity, i->reclaimable, i->spilling, i->closed_by);
	return true;
}

static bool say_context(void *arg, const struct arb_context_info *i)
{
	fprintf(arg,
		"  context %" PRIu64 " %s task %" PRIu64 " asks %" PRIu64 " holds %" PRIu64
		" needs %" PRIu64 " %s\n",
		i->id, arb_state_name(i->state), i->task, i->bytes, i->held, i->need,
		i->reason ? i->reason : "");
	return true;
}

static bool say_transition(void *arg, const struct arb_transition *t)
{
	fprintf(arg,
		"  %" PRIu64 " %s by %" PRIu64 ": %" PRIu64 " of %" PRIu64 " %s -> %s %s %" PRIu64
		" %s\n",
		t->time_ns, arb_op_name(t->op), t->by, t->context, t->task, arb_state_name(t->from),
		arb_state_name(t->to), arb_outcome_name(t->outcome), t->bytes,
		t->note ? t->note : "");
	return true;
}

void simcore_say(const struct simcore *c)
{
	fputs("  the last transitions: ", stderr);
	say_transition(stderr, NULL);
	arb_log(c->arb, 0, say_transition, stderr);
	arb_each_pool(c->arb, say_pool, stderr);
	arb_each_context(c->arb, say_context, stderr);
}
