/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arblog.c: the last transitions, in a ring.
 *
 * A grant at once is no transition and is not here: the log says why somebody waited, and what became of it. Entries are plain copies;
 * notes are static texts.
 */
#include <inttypes.h>
#include <stdio.h>

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

int arb_log_csv(char *buf, size_t n, const struct arb_transition *t)
{
	if (!t)
		return snprintf(buf, n, "time,op,by,context,task,from,to,outcome,pool,bytes,note");
	return snprintf(
		buf, n, "%" PRIu64 ".%09u,%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%s,%s,%s,%" PRIu64 ",%" PRIu64 ",%s",
		t->time_ns / 1000000000u, (unsigned)(t->time_ns % 1000000000u), arb_op_name(t->op), t->by, t->context,
		t->task, arb_state_name(t->from), arb_state_name(t->to),
		t->outcome == ARB_OK ? "" : arb_outcome_name(t->outcome), t->pool, t->bytes, t->note ? t->note : "");
}
