/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quota_base.c: what a user or a label uses besides what its live stores say: the files of dead
 * stores, kept ones, ghosts. A survey tells; between surveys it is what stores took with them when
 * they died, less what reaps freed.
 *
 * A survey takes time, and the stores do not wait for it. Of what came into being meanwhile it saw
 * some, and some not; of what was given back as well. So that the sum stays an upper bound, all
 * that came into being since its begin counts on top (the mark knows the totals of then), and only
 * what is given back after its end is subtracted. The next survey corrects any excess.
 */
#include <stdio.h>

#include "quota_core.h"

static void find(struct quota *q, enum wire_limit kind, const char *id, uint64_t bytes,
		 int64_t base)
{
	struct quota_group *g = quota_group_get(q, kind, id);

	if (!g)
		return;
	quota_group_base(g, bytes);
	quota_group_inherit(g, base);
}

void quota_found(struct quota *q, uid_t uid, const char *label, uint64_t bytes,
		 const struct wire_credit *page)
{
	int64_t user = 0, labelled = 0;
	char id[16];

	if (page && page->epoch) {
		uint64_t says = page->fresh - page->last + (page->charged - page->settled);

		if (says > bytes && says <= QUOTA_MAX)
			bytes = says;
		user = page->user_base;
		labelled = page->label_base;
	}
	snprintf(id, sizeof(id), "%u", uid);
	find(q, WIRE_LIMIT_USER, id, bytes, user);
	if (*label)
		find(q, WIRE_LIMIT_LABEL, label, bytes, labelled);
	q->unsure = true;
}

static void lose(struct quota *q, enum wire_limit kind, const char *id, uint64_t bytes)
{
	struct quota_group *g = quota_group_find(q, kind, id);

	if (g)
		quota_group_base(g, 0 - bytes);
}

void quota_freed(struct quota *q, uint64_t books, uid_t uid, const char *label, uint64_t bytes,
		 uint64_t now_ns)
{
	char id[16];

	/* A survey that ended while the reap was at work saw these files, or
	 * did not: another one knows. */
	if (books == q->n_books) {
		snprintf(id, sizeof(id), "%u", uid);
		lose(q, WIRE_LIMIT_USER, id, bytes);
		if (*label)
			lose(q, WIRE_LIMIT_LABEL, label, bytes);
	} else {
		q->unsure = true;
	}
	quota_queue_walk(q, now_ns);
	quota_tell(q);
}

uint64_t quota_books(const struct quota *q)
{
	return q->n_books;
}

void quota_base_leave(struct quota *q, struct quota_store *s)
{
	/* Bytes in flight may have got a name before it died: nobody counted them as fresh. */
	uint64_t flight = s->charged - s->settled;

	if (flight > s->out)
		flight = s->out;
	QUOTA_EACH_LIMIT(g, s, WIRE_LIMIT_USER, WIRE_LIMIT_LABEL) {
		g->fresh_gone += flight;
		quota_group_base(g, s->fresh - s->last + flight);
		q->unsure |= g->hard && (flight || s->fresh != s->last);
	}
}

void quota_mark(struct quota *q)
{
	q->marked = true;
	q->n_marks++;
	q->unsure = q->loose_refused = false;
	quota_credit_read_all(q, q->partition);
	for (struct quota_group *g = q->groups; g; g = g->hh.next)
		g->mark_fresh = g->fresh + g->fresh_gone;
}

void quota_unmark(struct quota *q)
{
	q->unsure |= q->marked;
	q->marked = false;
}

static void rebase(struct quota_group *g, uint64_t bytes)
{
	/* A group that is newer than the mark had nothing then: its mark_fresh is 0. */
	uint64_t came = g->fresh + g->fresh_gone - g->mark_fresh;

	quota_group_base(g, bytes + came - (g->fresh - g->last) - (uint64_t)g->base);
	g->rebased = true;
	g->loose = came != 0;
}

void quota_rebase(struct quota *q, enum wire_limit kind, const char *id, uint64_t bytes)
{
	struct quota_group *g;

	if ((kind != WIRE_LIMIT_USER && kind != WIRE_LIMIT_LABEL) || !*id)
		return;
	g = bytes ? quota_group_get(q, kind, id) : quota_group_find(q, kind, id);
	if (!g || g->rebase_n == q->n_marks)
		return;
	quota_credit_read_all(q, g);
	rebase(g, bytes);
	g->rebase_n = q->n_marks;
}

void quota_rebased(struct quota *q, uint64_t now_ns)
{
	struct quota_group *g, *next;

	q->marked = false;
	q->n_books++;
	HASH_ITER(hh, q->groups, g, next)
	{
		if (g->kind != WIRE_LIMIT_USER && g->kind != WIRE_LIMIT_LABEL)
			continue;
		if (g->rebase_n != q->n_marks) {
			quota_credit_read_all(q, g);
			rebase(g, 0);
		}
		quota_group_drop(q, g);
	}
	quota_queue_walk(q, now_ns);
	quota_tell(q);
}

bool quota_unsure(const struct quota *q)
{
	return q->unsure;
}

bool quota_stale(const struct quota *q)
{
	return q->unsure || q->loose_refused;
}
