/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbnote.c: what a message changed, noted: pools that arbiter.c must look at before the step ends,
 * and transitions of contexts for the log.
 */
#include "arbcore.h"

void arbnote_dirty(struct arb *a, struct arb_pool *p)
{
	if (p->dirty)
		return;
	p->dirty = true;
	p->dirty_next = a->dirty;
	a->dirty = p;
}

/* A newly BLOCKED request was looked at and helps nobody, but may make others hopeless. */
void arbnote_newcomer(struct arb *a, const struct arb_want *w)
{
	if (w->alloc || a->knobs[ARB_KNOB_MAX_BYPASS] == 0) /* it closes the pool */
		arbnote_dirty(a, w->pool);
	else
		w->pool->look = w->pool->n_waiting > 1;
}

/* Somebody left, ended, or is idle: rolled-back contexts may go on, or be tried solo once more. */
void arbnote_progress(struct arb *a)
{
	a->progress = true;
	a->look = true;
	a->epoch++;
	a->era++;
	a->totals.n_progress++;
}

/*
 * The last transitions, in a ring.
 *
 * A grant at once is no transition and is not here: the log says why somebody waited, and what
 * became of it. Entries are plain copies; notes are static texts.
 */
void arbnote_transition(struct arb *a, const struct arb_context *c, enum arb_state from,
			enum arb_state to, enum arb_outcome o, const char *note)
{
	struct arb_transition *t = &a->log[a->n_log++ % ARB_LOG_SIZE];
	const struct arb_want *w = arbcontext_about(c);

	*t = (struct arb_transition){
		.number = a->n_log,
		.time_ns = a->now_ns,
		.op = a->message ? a->message->op : ARB_OP_TICK,
		.by = a->message ? a->message->context : 0,
		.context = c->id,
		.task = c->bindings ? c->bindings->task->id : 0,
		.from = from,
		.to = to,
		.outcome = o,
		.pool = w ? w->pool->id : 0,
		.bytes = w ? w->bytes : 0,
		.note = note,
	};
}
