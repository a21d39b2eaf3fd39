/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbline.c: a pool's lines: those who wait in it, and those who rolled
 * back in it, best rank first; whether a request fits, and its pool is open to it; and what a
 * message changed in them, noted: what must be looked at before the step ends, and the transitions
 * of contexts, for the log.
 *
 * A line answers in O(log n): who is the best that fits (least weight below a node), the best that
 * is BLOCKED and fits, an ALLOC that does not fit any more, and who closed the pool (most passed).
 * A grant passes everybody who is better than it: that is one note at the top of each subtree that
 * is wholly better, handed down when a change walks by.
 *
 * Only who can be helped closes a pool: where the attempt alone needs more than the pool has
 * (may_close is false), nothing that others give back is enough, and they pass.
 *
 * A line without such sums was rejected: a free would look at everybody who waits.
 */
#include "arbcore.h"

static struct arb_want *want_of(const struct arbtree_node *n)
{
	return CONTAINER_OF(n, arb_want, node);
}

static struct arb_want *want_or_null(const struct arbtree_node *n)
{
	return n ? want_of(n) : NULL;
}

#define NEVER (INT64_MIN / 2) /* passed: notes are added to it */

static int line_cmp(const struct arbtree_node *x, const struct arbtree_node *y)
{
	return arb_rank_cmp(&want_of(x)->rank, &want_of(y)->rank);
}

static void line_pull(struct arbtree_node *n)
{
	struct arb_want *w = want_of(n);
	const struct arb_want *k;

	w->least = w->weight;
	w->most = w->weight;
	w->sum = w->weight;
	w->least_blocked = w->alloc ? INT64_MAX : w->weight;
	w->most_alloc = w->alloc ? w->weight : INT64_MIN;
	w->most_passed = w->may_close ? w->passed : NEVER;
	for (int side = 0; side < 2; side++) {
		if (!n->kid[side])
			continue;
		k = want_of(n->kid[side]);
		w->least = MIN(w->least, k->least);
		w->least_blocked = MIN(w->least_blocked, k->least_blocked);
		w->most = MAX(w->most, k->most);
		w->sum += k->sum;
		w->most_alloc = MAX(w->most_alloc, k->most_alloc);
		w->most_passed = MAX(w->most_passed, k->most_passed + k->passed_noted);
	}
}

/* passed_noted is for the node itself and all below it; most_passed and
 * passed do not include it. */
static void line_push(struct arbtree_node *n)
{
	struct arb_want *w = want_of(n);

	if (!w->passed_noted)
		return;
	w->passed += w->passed_noted;
	w->most_passed += w->passed_noted;
	for (int side = 0; side < 2; side++)
		if (n->kid[side])
			want_of(n->kid[side])->passed_noted += w->passed_noted;
	w->passed_noted = 0;
}

static const struct arbtree_ops line_ops = {.cmp = line_cmp, .pull = line_pull, .push = line_push};

void arbline_insert(struct arb *a, struct arbtree *line, struct arb_want *w, int64_t weight)
{
	w->rank = w->context->rank;
	w->weight = weight;
	w->passed_noted = 0;
	arbtree_insert(line, &w->node, arbtree_heat(++a->tree_seq), &line_ops);
}

void arbline_remove(struct arbtree *line, struct arb_want *w)
{
	arbtree_remove(line, &w->node, &line_ops);
}

void arbline_weigh(struct arb_want *w, int64_t weight, bool alloc)
{
	if (w->weight == weight && w->alloc == alloc)
		return;
	w->weight = weight;
	w->alloc = alloc;
	arbtree_touch(&w->node, &line_ops);
}

static int64_t least_of(const struct arbtree_node *n, bool blocked)
{
	return blocked ? want_of(n)->least_blocked : want_of(n)->least;
}

/* The first below n, n included, whose weight is at most limit. */
static struct arb_want *first_below(struct arbtree_node *n, int64_t limit, bool blocked)
{
	struct arb_want *w;

	while (n && least_of(n, blocked) <= limit) {
		w = want_of(n);
		if (n->kid[0] && least_of(n->kid[0], blocked) <= limit) {
			n = n->kid[0];
			continue;
		}
		if (w->weight <= limit && !(blocked && w->alloc))
			return w;
		n = n->kid[1];
	}
	return NULL;
}

struct arb_want *arbline_best_fit(const struct arbtree *line, int64_t limit,
				  const struct arb_want *after, bool blocked)
{
	struct arbtree_node *n;
	const struct arbtree_node *from;
	struct arb_want *w;

	if (!after)
		return first_below(line->root, limit, blocked);
	w = first_below(after->node.kid[1], limit, blocked);
	for (n = after->node.up, from = &after->node; !w && n; from = n, n = n->up) {
		if (n->kid[1] == from)
			continue;
		if (want_of(n)->weight <= limit && !(blocked && want_of(n)->alloc))
			return want_of(n);
		w = first_below(n->kid[1], limit, blocked);
	}
	return w;
}

static bool has_over(const struct arbtree_node *n, int64_t limit, bool alloc)
{
	return n && (alloc ? want_of(n)->most_alloc : want_of(n)->most) > limit;
}

struct arb_want *arbline_over(const struct arbtree *line, int64_t limit, bool alloc)
{
	struct arbtree_node *n = line->root;

	while (has_over(n, limit, alloc)) {
		if (want_of(n)->weight > limit && (want_of(n)->alloc || !alloc))
			return want_of(n);
		n = n->kid[has_over(n->kid[1], limit, alloc)];
	}
	return NULL;
}

/* Is one below n, n included, that is ALLOC, or one that is not? */
static bool has_any(const struct arbtree_node *n, bool alloc)
{
	return n &&
	       (alloc ? want_of(n)->most_alloc > INT64_MIN : want_of(n)->least_blocked < INT64_MAX);
}

/* The last of these. */
static struct arb_want *last_of(struct arbtree_node *n, bool alloc)
{
	while (has_any(n, alloc)) {
		if (has_any(n->kid[1], alloc))
			n = n->kid[1];
		else if (want_of(n)->alloc == alloc)
			return want_of(n);
		else
			n = n->kid[0];
	}
	return NULL;
}

struct arb_want *arbline_worst_blocked(const struct arbtree *line)
{
	return last_of(line->root, false);
}

struct arb_want *arbline_worst_alloc(const struct arbtree *line, const struct arb_context *but)
{
	struct arb_want *w = last_of(line->root, true), *before;
	const struct arbtree_node *from;
	struct arbtree_node *n;

	if (!w || w->context != but)
		return w;
	before = last_of(w->node.kid[0], true);
	for (n = w->node.up, from = &w->node; !before && n; from = n, n = n->up) {
		if (n->kid[0] == from)
			continue;
		before = want_of(n)->alloc ? want_of(n) : last_of(n->kid[0], true);
	}
	return before;
}

struct arb_want *arbline_best(const struct arbtree *line)
{
	return want_or_null(arbtree_end(line, 0));
}

int64_t arbline_most(const struct arbtree *line)
{
	return line->root ? want_of(line->root)->most : INT64_MIN;
}

int64_t arbline_above(const struct arbtree *line, const struct arb_rank *rank)
{
	const struct arbtree_node *n = line->root;
	int64_t sum = 0;

	while (n) {
		if (arb_rank_cmp(&want_of(n)->rank, rank) >= 0) {
			n = n->kid[0];
			continue;
		}
		sum += want_of(n)->weight + (n->kid[0] ? want_of(n->kid[0])->sum : 0);
		n = n->kid[1];
	}
	return sum;
}

struct arb_want *arbline_next(const struct arb_want *w)
{
	return want_or_null(arbtree_step(&w->node, 1));
}

/* The same as line_pull() where nothing but passed has changed. */
static void pull_passed(struct arb_want *w)
{
	const struct arb_want *k;

	w->most_passed = w->may_close ? w->passed : NEVER;
	for (int side = 0; side < 2; side++) {
		k = want_or_null(w->node.kid[side]);
		if (k && k->most_passed + k->passed_noted > w->most_passed)
			w->most_passed = k->most_passed + k->passed_noted;
	}
}

/* Everybody above rank was passed once more. false: nobody is. */
static bool arbline_pass(struct arbtree *line, const struct arb_rank *rank)
{
	struct arbtree_node *n = line->root, *last = NULL;
	bool any = false;

	while (n) {
		line_push(n);
		last = n;
		if (arb_rank_cmp(&want_of(n)->rank, rank) >= 0) {
			n = n->kid[0];
			continue;
		}
		any = true;
		want_of(n)->passed++;
		if (n->kid[0])
			want_of(n->kid[0])->passed_noted++;
		n = n->kid[1];
	}
	for (n = any ? last : NULL; n; n = n->up)
		pull_passed(want_of(n));
	return any;
}

int64_t arbline_passed(const struct arb_want *w)
{
	int64_t passed = w->passed;

	if (arbtree_in(&w->node))
		for (const struct arbtree_node *n = &w->node; n; n = n->up)
			passed += want_of(n)->passed_noted;
	return passed;
}

struct arb_want *arbline_closer(const struct arbtree *line, int64_t limit)
{
	struct arbtree_node *n = line->root;
	int64_t noted = 0;
	const struct arb_want *k;

	while (n) {
		noted += want_of(n)->passed_noted;
		if (want_of(n)->most_passed + noted < limit)
			return NULL;
		k = want_or_null(n->kid[0]);
		if (k && k->most_passed + k->passed_noted + noted >= limit) {
			n = n->kid[0];
			continue;
		}
		if (want_of(n)->may_close && want_of(n)->passed + noted >= limit)
			return want_of(n);
		n = n->kid[1];
	}
	return NULL;
}

/* ---- does it fit? ---------------------------------------------------------------------------- */

enum arb_fit arbfit_ask(const struct arb_ask *ask)
{
	enum arb_fit fit = ARB_FIT_FREE;

	ARB_EACH_WANT(w, ask) {
		if ((int64_t)w->bytes <= arbpool_free(w->pool))
			continue;
		if (!w->bytes)
			continue;
		if ((int64_t)w->bytes > arbpool_reach(w->pool))
			return ARB_FIT_NOT;
		fit = ARB_FIT_SPILL;
	}
	return fit;
}

bool arbfit_closed(const struct arb *a, struct arb_pool *p, const struct arb_rank *rank)
{
	if (!p->n_waiting)
		return false;
	if (!p->closer_known) {
		p->closer = arbline_closer(&p->waiting, a->knobs[ARB_KNOB_MAX_BYPASS]);
		p->closer_known = true;
	}
	return p->closer && arb_rank_cmp(&p->closer->rank, rank) < 0;
}

bool arbfit_ask_closed(const struct arb *a, const struct arb_context *c, const struct arb_ask *ask)
{
	if (c == a->past)
		return false;
	ARB_EACH_WANT(w, ask)
		if (w->bytes && arbfit_closed(a, w->pool, &c->rank))
			return true;
	return false;
}

void arbfit_passes(struct arb_pool *p, const struct arb_rank *rank)
{
	if (!p->n_waiting || !arbline_pass(&p->waiting, rank))
		return;
	p->n_bypassed++;
	p->closer_known = false;
}

/* ---- what is noted --------------------------------------------------------------------------- */

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
 * The last transitions, in a ring. A grant at once is no transition and is not here: the log says
 * why somebody waited, and what became of it. Entries are plain copies; notes are static texts.
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
