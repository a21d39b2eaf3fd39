/* SPDX-License-Identifier: Apache-2.0 */
/*
 * taskwork.c: a task is a row of pieces, at first one. A piece is run in attempts: RETRY gives back
 * all that it holds, waits until it is ready and begins anew; SPLIT gives back all and puts two
 * pieces in its place, with half the bytes of each allocation and all of its work (so does the test
 * whose figures ours stand beside). Pieces belong to the row; nothing here is shared.
 */
#include "taskwork.h"

#include <err.h>
#include <stdlib.h>

#define SMALLEST 256u /* bytes that are not halved any more */

struct piece {
	struct piece *next;
	uint64_t bytes[SITUATION_SLOTS_MAX]; /* of each slot */
};

struct worker {
	const struct situation_task *task;
	const struct work_calls *calls;
	void *arg;
	struct work_counts *counts;
	uint64_t handles[SITUATION_SLOTS_MAX];
	bool held[SITUATION_SLOTS_MAX], unpinned; /* unpinned: slot 0 */
};

static struct piece *new_piece(struct piece *next)
{
	struct piece *p = calloc(1, sizeof(*p));

	if (!p)
		err(1, "a piece of work");
	p->next = next;
	return p;
}

static struct piece *drop_first(struct piece *p)
{
	struct piece *next = p->next;

	free(p);
	return next;
}

static struct piece *split(struct piece *whole)
{
	struct piece *second = new_piece(whole->next), *first = new_piece(second);

	for (unsigned i = 0; i < SITUATION_SLOTS_MAX; i++) {
		uint64_t bytes = whole->bytes[i];

		first->bytes[i] = bytes < SMALLEST ? bytes : bytes / 2;
		second->bytes[i] = bytes < SMALLEST ? bytes : bytes - bytes / 2;
	}
	free(whole);
	return first;
}

/* Gives back what it holds; keep: all but slot 0, which is unpinned instead. */
static enum work_outcome give_back(struct worker *w, bool keep)
{
	enum work_outcome o = WORK_OK;

	for (uint32_t i = 0; i < w->task->n_slots && o == WORK_OK; i++) {
		if (!w->held[i] || (i == 0 && keep && w->unpinned))
			continue;
		if (i == 0 && keep) {
			o = w->calls->unpin(w->arg, w->handles[0]);
			w->unpinned = true;
			continue;
		}
		o = w->calls->release(w->arg, w->handles[i]);
		w->held[i] = false;
	}
	if (!w->held[0])
		w->unpinned = false;
	return o;
}

static enum work_outcome take(struct worker *w, const struct piece *p,
			      const struct situation_op *op)
{
	enum work_outcome o;

	if (w->held[op->slot]) {
		o = w->calls->pin(w->arg, w->handles[op->slot]);
		if (o == WORK_OK)
			w->unpinned = false;
	} else {
		o = w->calls->reserve(w->arg, op->slot, p->bytes[op->slot], &w->handles[op->slot]);
		w->held[op->slot] = o == WORK_OK;
	}
	if (o != WORK_OK || op->work_ns == 0)
		return o;
	return w->calls->work(w->arg, op->work_ns);
}

static enum work_outcome attempt(struct worker *w, const struct piece *p)
{
	enum work_outcome o = w->calls->attempt_begin(w->arg);
	uint64_t began_ns = w->calls->now(w->arg);

	for (uint32_t i = 0; i < w->task->n_ops && o == WORK_OK; i++) {
		const struct situation_op *op = &w->task->ops[i];

		if (op->bytes) {
			o = take(w, p, op);
			continue;
		}
		o = w->calls->release(w->arg, w->handles[op->slot]);
		w->held[op->slot] = false;
	}
	if (o == WORK_DEAD)
		return o;
	if (o != WORK_OK)
		w->counts->lost_ns += w->calls->now(w->arg) - began_ns;
	return w->calls->attempt_end(w->arg, o == WORK_OK) == WORK_DEAD ? WORK_DEAD : o;
}

/* OK, SPLIT, TOOBIG, FAILED, DEAD: attempts until something other than RETRY comes of one. */
static enum work_outcome run_piece(struct worker *w, const struct piece *p)
{
	enum work_outcome o = attempt(w, p);

	while (o == WORK_RETRY) {
		w->counts->n_retries++;
		if (give_back(w, w->calls->keep_first) == WORK_DEAD)
			return WORK_DEAD;
		o = w->calls->ready(w->arg);
		if (o == WORK_OK)
			o = attempt(w, p);
	}
	if (o != WORK_DEAD && give_back(w, false) == WORK_DEAD)
		return WORK_DEAD;
	return o;
}

enum work_outcome work_run(const struct situation_task *task, const struct work_calls *calls,
			   void *arg, struct work_counts *counts)
{
	struct worker w = {.task = task, .calls = calls, .arg = arg, .counts = counts};
	struct piece *pieces = new_piece(NULL);
	enum work_outcome o = WORK_OK;

	for (uint32_t i = 0; i < task->n_ops; i++) {
		if (task->ops[i].bytes)
			pieces->bytes[task->ops[i].slot] = task->ops[i].bytes;
	}
	while (pieces && o == WORK_OK) {
		o = run_piece(&w, pieces);
		if (o == WORK_SPLIT || o == WORK_TOOBIG) {
			counts->n_splits += o == WORK_SPLIT;
			counts->n_toobig += o == WORK_TOOBIG;
			pieces = split(pieces);
			o = calls->ready(arg);
		} else {
			pieces = drop_first(pieces);
		}
	}
	while (pieces)
		pieces = drop_first(pieces);
	return o;
}
