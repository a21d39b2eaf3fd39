/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quota_group.c: a group is what one limit covers: the partition, a user's stores, a label's, or
 * one store; with the sums of what its stores hold. A group lives while a store is in it, a limit
 * is set for it, or something is booked on it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "quota_core.h"

static int make_key(char key[QUOTA_ID_MAX + 2], enum wire_limit kind, const char *id)
{
	size_t n = strlen(id);

	if (n > QUOTA_ID_MAX)
		return -EINVAL;
	key[0] = (char)('0' + kind);
	memcpy(key + 1, id, n + 1);
	return 0;
}

struct quota_group *quota_group_find(struct quota *q, enum wire_limit kind, const char *id)
{
	char key[QUOTA_ID_MAX + 2];
	struct quota_group *g;

	if (make_key(key, kind, id) < 0)
		return NULL;
	HASH_FIND_STR(q->groups, key, g);
	return g;
}

static void set_effective(struct quota *q, struct quota_group *g)
{
	const struct quota_limits *d = &q->defaults[g->kind];

	g->hard = g->own.hard == QUOTA_DEFAULT ? d->hard : g->own.hard;
	g->soft = g->own.soft == QUOTA_DEFAULT ? d->soft : g->own.soft;
	g->low = g->own.soft == QUOTA_DEFAULT ? d->low : g->own.low;
	if (g->hard && g->soft > g->hard)
		g->soft = g->hard;
	if (g->low == 0 || g->low > g->soft)
		g->low = g->soft - g->soft / 16;
}

struct quota_group *quota_group_get(struct quota *q, enum wire_limit kind, const char *id)
{
	struct quota_group *g = quota_group_find(q, kind, id);
	size_t n = strlen(id);

	if (g || n > QUOTA_ID_MAX)
		return g;
	g = calloc(1, sizeof(*g) + n + 2);
	if (!g)
		return NULL;
	g->kind = kind;
	g->own = (struct quota_limits){QUOTA_DEFAULT, QUOTA_DEFAULT, 0};
	make_key(g->key, kind, id);
	set_effective(q, g);
	HASH_ADD_KEYPTR(hh, q->groups, g->key, n + 1, g);
	if (!g->hh.tbl) {
		free(g);
		return NULL;
	}
	return g;
}

void quota_group_drop(struct quota *q, struct quota_group *g)
{
	if (g == q->partition || g->stores || g->base || g->level || g->level_told || q->marked ||
	    g->own.hard != QUOTA_DEFAULT || g->own.soft != QUOTA_DEFAULT)
		return;
	HASH_DEL(q->groups, g);
	free(g);
}

void quota_group_limit(struct quota *q, struct quota_group *g, uint64_t now_ns)
{
	uint64_t before = g->hard;

	set_effective(q, g);
	/* Without a limit nobody counted what was given back (WIRE_CREDIT_LAST), nor granted
	 * what came: a survey knows. */
	if (!before && g->hard && (g->kind == WIRE_LIMIT_USER || g->kind == WIRE_LIMIT_LABEL))
		q->unsure = true;
	QUOTA_EACH(s, g) {
		quota_credit_update(q, s);
		if (!before)
			s->active_ns = now_ns;
	}
	quota_queue_restore(q, g);
}

void quota_group_enter(struct quota_group *g, struct quota_store *s)
{
	s->groups[g->kind] = g;
	DL_PREPEND2(g->stores, s, links[g->kind].prev, links[g->kind].next);
	g->n_stores++;
	g->n_active += s->active;
	g->fresh += s->fresh;
	g->last += s->last;
	g->out += s->out;
	g->fresh_gone -= s->fresh;
}

void quota_group_leave(struct quota_group *g, struct quota_store *s)
{
	DL_DELETE2(g->stores, s, links[g->kind].prev, links[g->kind].next);
	s->groups[g->kind] = NULL;
	g->n_stores--;
	g->n_active -= s->active;
	g->fresh -= s->fresh;
	g->last -= s->last;
	g->out -= s->out;
	g->fresh_gone += s->fresh;
}

/* Bytes used under the limit; a user's or a label's may be too much: nobody is asked. */
static uint64_t sum_of(struct quota *q, const struct quota_group *g)
{
	int64_t used;

	if (g->kind == WIRE_LIMIT_PARTITION)
		return q->ops.used(q->ops.arg);
	if (g->kind == WIRE_LIMIT_STORE) {
		struct quota_share share = {0};

		if (g->stores)
			q->ops.share(q->ops.arg, g->stores, &share);
		return share.linked + share.pool + share.reserved;
	}
	used = (int64_t)((uint64_t)g->base + g->fresh - g->last);
	return used > 0 ? (uint64_t)used : 0;
}

uint64_t quota_group_used(struct quota *q, const struct quota_group *g)
{
	uint64_t sum = sum_of(q, g), most;

	if (!sum || !q->ops.most || (g->kind != WIRE_LIMIT_USER && g->kind != WIRE_LIMIT_LABEL))
		return sum;
	most = q->ops.most(q->ops.arg);
	return sum < most ? sum : most;
}

uint64_t quota_group_over(struct quota *q, const struct quota_group *g, uint64_t n)
{
	uint64_t sum;

	if (!g->hard)
		return 0;
	sum = sum_of(q, g) + g->out + n;
	if (sum > g->hard && (g->kind == WIRE_LIMIT_USER || g->kind == WIRE_LIMIT_LABEL))
		sum = quota_group_used(q, g) + g->out + n;
	return sum > g->hard ? sum - g->hard : 0;
}

/* Modulo 2^64: it contains stores' own totals. */
static void quota_group_base(struct quota_group *g, uint64_t change)
{
	if (!change)
		return;
	g->base = (int64_t)((uint64_t)g->base + change);
	QUOTA_EACH(s, g)
		quota_credit_publish(s);
}

void quota_group_inherit(struct quota_group *g, int64_t base)
{
	if (!g || g->rebased || base <= g->inherited || base > (int64_t)QUOTA_MAX)
		return;
	quota_group_base(g, (uint64_t)(base - g->inherited));
	g->inherited = base;
}

void quota_group_level(struct quota *q, struct quota_group *g, int level)
{
	if (g->level == level)
		return;
	g->level = level;
	q->tell_levels = true;
}

/* Bytes in flight that the kernel counts already are shown once, as outstanding. */
static uint64_t used_settled(struct quota *q, const struct quota_group *g)
{
	uint64_t used = quota_group_used(q, g), flight = 0, over;

	if (!g->hard || used + g->out <= g->hard || !q->ops.most ||
	    q->ops.most(q->ops.arg) > g->hard)
		return used;
	QUOTA_EACH(s, g)
		flight += s->charged - s->settled;
	over = used + g->out - g->hard;
	if (flight > over)
		flight = over;
	return flight < used ? used - flight : 0;
}

void quota_group_line(struct quota *q, const struct quota_group *g, struct quota_line *ret)
{
	*ret = (struct quota_line){
		.kind = g->kind,
		.id = quota_group_id(g),
		.hard = g->hard,
		.soft = g->soft,
		.used = used_settled(q, g),
		.outstanding = g->out,
		.n_stores = g->n_stores,
		.n_waiting = g->n_waiting,
		.n_refused = g->n_refused,
		.level = g->level,
	};
}

/* ---- the base -------------------------------------------------------------------------------- */

/*
 * Bytes that a user or a label uses besides its live stores' own: the files of dead stores, kept
 * ones, ghosts. A survey tells; between surveys it is what stores took with them when they died,
 * less what reaps freed.
 *
 * A survey takes time, and the stores do not wait for it. Of what came into being meanwhile it saw
 * some, and some not; of what was given back as well. So that the sum stays an upper bound, all
 * that came into being since its begin counts on top (the mark knows the totals of then), and only
 * what is given back after its end is subtracted. The next survey corrects any excess.
 */

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
