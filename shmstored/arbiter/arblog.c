/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arblog.c: the last transitions, in a ring.
 *
 * A grant at once is no transition and is not here: the log says why somebody waited, and what became of it. Entries are plain copies;
 * notes are static texts.
 */
#include "arbcore.h"

void arblog_note(struct arb *a, const struct arb_context *c, enum arb_state from, enum arb_state to, enum arb_outcome o,
		 const char *note)
{
	struct arb_transition *t = &a->log[a->n_log++ % ARB_LOG_SIZE];
	const struct arb_want *w = c->ask->n ? c->ask->want : c->attempt->n ? c->attempt->want : NULL;

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

void arb_log(const struct arb *a, uint64_t since, bool (*fn)(void *arg, const struct arb_transition *t), void *arg)
{
	uint64_t n = a->n_log > ARB_LOG_SIZE ? a->n_log - ARB_LOG_SIZE : 0;

	for (n = n > since ? n : since; n < a->n_log; n++)
		if (!fn(arg, &a->log[n % ARB_LOG_SIZE]))
			return;
}
