/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gateline.c: a queue for each level, and a table of all tasks that wait or run.
 *
 * A task is in the table from its request until it ends, so that memory is taken when a task asks,
 * and never to answer. Tasks that wait with a deadline are in a heap as well, with the first
 * deadline on top; the heap grows when a task asks.
 */
#include "gateline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Ids are often consecutive, and uthash takes the lowest bits. */
static unsigned hash_id(const void *key)
{
	uint64_t id;

	memcpy(&id, key, sizeof(id));
	id *= UINT64_C(0x9e3779b97f4a7c15);
	return (unsigned)((id ^ (id >> 29)) >> 16);
}

#define HASH_NONFATAL_OOM            1
#define HASH_FUNCTION(key, size, to) ((to) = hash_id(key))
#include <uthash.h>

struct entry {
	struct gateline_request request;
	int64_t since_ms;
	bool runs;
	uint64_t interval;         /* in which it went through, and what it took of that: */
	bool counts;               /* one of its quota */
	int64_t bytes;             /* of its room */
	size_t place;              /* in the heap; of those who wait with a deadline */
	struct entry *prev, *next; /* of its level's line */
	UT_hash_handle hh;
};

struct line {
	struct entry *first, *last;
};

struct gateline {
	int64_t cap;
	struct line lines[GATELINE_LEVELS];
	struct entry *all;
	bool open;
	uint64_t interval; /* of which this is: */
	uint64_t quota;    /* what is left of it */
	int64_t room;      /* and of the bytes below the gate's threshold */
	bool (*fits)(const struct gateline_request *r, void *arg);
	void *fits_arg;
	struct entry **heap;
	size_t n_heap, heap_room;
	struct gateline_books books;
};

struct gateline *gateline_new(int64_t cap)
{
	struct gateline *a = calloc(1, sizeof(*a));

	if (a)
		a->cap = cap;
	return a;
}

static struct entry *find(const struct gateline *a, uint64_t id)
{
	struct entry *e;

	HASH_FIND(hh, a->all, &id, sizeof(id), e);
	return e;
}

/* False: no memory. */
static bool remember(struct gateline *a, struct entry *e)
{
	HASH_ADD(hh, a->all, request.id, sizeof(e->request.id), e);
	return e->hh.tbl != NULL;
}

static void forget(struct gateline *a, struct entry *e)
{
	HASH_DEL(a->all, e);
	free(e);
}

struct gateline *gateline_free(struct gateline *a)
{
	if (!a)
		return NULL;
	while (a->all)
		forget(a, a->all);
	free(a->heap);
	free(a);
	return NULL;
}

static void put_at(struct gateline *a, size_t place, struct entry *e)
{
	a->heap[place] = e;
	e->place = place;
}

/* Puts e into the heap, at its place above or below the free place. */
static void settle(struct gateline *a, size_t place, struct entry *e)
{
	int64_t deadline = e->request.deadline_ms;
	size_t child;

	for (; place && a->heap[(place - 1) / 2]->request.deadline_ms > deadline; place = (place - 1) / 2)
		put_at(a, place, a->heap[(place - 1) / 2]);
	while ((child = 2 * place + 1) < a->n_heap) {
		if (child + 1 < a->n_heap &&
		    a->heap[child + 1]->request.deadline_ms < a->heap[child]->request.deadline_ms)
			child++;
		if (a->heap[child]->request.deadline_ms >= deadline)
			break;
		put_at(a, place, a->heap[child]);
		place = child;
	}
	put_at(a, place, e);
}

static void heap_add(struct gateline *a, struct entry *e)
{
	a->n_heap++;
	settle(a, a->n_heap - 1, e);
}

static void heap_remove(struct gateline *a, struct entry *e)
{
	struct entry *last = a->heap[--a->n_heap];

	if (last != e)
		settle(a, e->place, last);
}

static int heap_grow(struct gateline *a)
{
	size_t room = a->heap_room ? 2 * a->heap_room : 64;
	struct entry **heap;

	if (a->n_heap < a->heap_room)
		return 0;
	heap = reallocarray(a->heap, room, sizeof(struct entry *));
	if (!heap)
		return -ENOMEM;
	a->heap = heap;
	a->heap_room = room;
	return 0;
}

static void append(struct line *l, struct entry *e)
{
	e->prev = l->last;
	e->next = NULL;
	*(l->last ? &l->last->next : &l->first) = e;
	l->last = e;
}

static void unlink_entry(struct line *l, struct entry *e)
{
	*(e->prev ? &e->prev->next : &l->first) = e->next;
	*(e->next ? &e->next->prev : &l->last) = e->prev;
}

static struct entry *head(const struct gateline *a)
{
	for (unsigned i = 0; i < GATELINE_LEVELS; i++)
		if (a->lines[i].first)
			return a->lines[i].first;
	return NULL;
}

void gateline_set_cap(struct gateline *a, int64_t cap)
{
	a->cap = cap;
}

void gateline_fits_by(struct gateline *a, bool (*fits)(const struct gateline_request *r, void *arg), void *arg)
{
	a->fits = fits;
	a->fits_arg = arg;
}

bool gateline_is_shut(const struct gateline *a)
{
	return !a->open || !a->quota;
}

void gateline_interval(struct gateline *a, const struct gate *g)
{
	a->interval++;
	a->open = !g->closed;
	a->quota = gate_quota(g, AMOUNT_UNKNOWN);
	a->room = g->u < g->config.high ? g->config.high - g->u : 0;
}

static int64_t expected_of(const struct gateline_request *r)
{
	int64_t estimate = r->estimate.known ? r->estimate.bytes : 0;

	return estimate > r->declared ? estimate : r->declared;
}

static bool fits(const struct gateline *a, const struct gateline_request *r)
{
	return a->fits ? a->fits(r, a->fits_arg) : expected_of(r) <= a->room;
}

/* Decides on the task at the head of its queue. */
static enum gateline_outcome judge(const struct gateline *a, const struct gateline_request *r)
{
	if (r->declared > a->cap)
		return GATELINE_TOO_BIG;
	if (!a->books.n_running)
		return GATELINE_PROGRESS;
	if (!gateline_is_shut(a) && fits(a, r))
		return GATELINE_IN;
	return GATELINE_WAITS;
}

static void let_in(struct gateline *a, struct entry *e, enum gateline_outcome outcome)
{
	int64_t bytes = expected_of(&e->request);

	e->runs = true;
	e->interval = a->interval;
	e->counts = a->quota > 0;
	e->bytes = a->room > bytes ? bytes : a->room;
	a->quota -= e->counts;
	a->room -= e->bytes;
	a->books.n_running++;
	a->books.n_admitted++;
	a->books.n_progress += outcome == GATELINE_PROGRESS;
}

/* Does no task stand before it, in its own queue or in one that is served first? */
static bool would_be_first(const struct gateline *a, unsigned level)
{
	const struct entry *first = head(a);

	return !first || first->request.level > level;
}

/* 0, -EINVAL, -EEXIST. */
static int check(const struct gateline *a, const struct gateline_request *r)
{
	if (r->level >= GATELINE_LEVELS || r->declared < 0 || (r->estimate.known && r->estimate.bytes < 0))
		return -EINVAL;
	return find(a, r->id) ? -EEXIST : 0;
}

/* Makes an entry, and puts it into the table. NULL: out of memory. */
static struct entry *new_entry(struct gateline *a, const struct gateline_request *r, int64_t now_ms)
{
	struct entry *e = heap_grow(a) < 0 ? NULL : calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->request = *r;
	e->since_ms = now_ms;
	if (remember(a, e))
		return e;
	free(e);
	return NULL;
}

int gateline_runs(struct gateline *a, const struct gateline_request *r)
{
	int error = check(a, r);
	struct entry *e;

	if (error < 0)
		return error;
	e = new_entry(a, r, 0);
	if (!e)
		return -ENOMEM;
	e->runs = true;
	a->books.n_running++;
	return 0;
}

int gateline_ask(struct gateline *a, const struct gateline_request *r, int64_t now_ms, enum gateline_outcome *ret)
{
	enum gateline_outcome outcome = GATELINE_WAITS;
	int error = check(a, r);
	struct entry *e;

	if (error < 0)
		return error;
	if (would_be_first(a, r->level) || r->declared > a->cap)
		outcome = judge(a, r);
	if (outcome == GATELINE_WAITS && r->form == GATELINE_TRY)
		outcome = GATELINE_REFUSED;
	if (outcome == GATELINE_REFUSED || outcome == GATELINE_TOO_BIG) {
		a->books.n_refused++;
		*ret = outcome;
		return 0;
	}
	e = new_entry(a, r, now_ms);
	if (!e)
		return -ENOMEM;
	if (outcome == GATELINE_WAITS) {
		append(&a->lines[r->level], e);
		a->books.n_waiting++;
		if (r->form == GATELINE_UNTIL)
			heap_add(a, e);
	} else {
		let_in(a, e, outcome);
	}
	*ret = outcome;
	return 0;
}

static void leave_line(struct gateline *a, struct entry *e)
{
	unlink_entry(&a->lines[e->request.level], e);
	if (e->request.form == GATELINE_UNTIL)
		heap_remove(a, e);
	a->books.n_waiting--;
}

bool gateline_next(struct gateline *a, int64_t now_ms, struct gateline_answer *ret)
{
	struct entry *e = gateline_deadline(a) <= now_ms ? a->heap[0] : NULL;
	enum gateline_outcome outcome = GATELINE_TIMED_OUT;

	if (!e) {
		e = head(a);
		outcome = e ? judge(a, &e->request) : GATELINE_WAITS;
		if (outcome == GATELINE_WAITS)
			return false;
	}
	leave_line(a, e);
	*ret = (struct gateline_answer){.id = e->request.id, .outcome = outcome, .waited_ms = now_ms - e->since_ms};
	if (outcome == GATELINE_IN || outcome == GATELINE_PROGRESS) {
		let_in(a, e, outcome);
		return true;
	}
	a->books.n_timed_out += outcome == GATELINE_TIMED_OUT;
	a->books.n_refused += outcome == GATELINE_TOO_BIG;
	forget(a, e);
	return true;
}

int64_t gateline_deadline(const struct gateline *a)
{
	return a->n_heap ? a->heap[0]->request.deadline_ms : INT64_MAX;
}

/* Gives back what the task took of this interval. */
static void end_running(struct gateline *a, const struct entry *e)
{
	a->books.n_running--;
	if (e->interval != a->interval)
		return;
	a->quota += e->counts;
	a->room = amount_sum(a->room, e->bytes);
}

int gateline_end(struct gateline *a, uint64_t id)
{
	struct entry *e = find(a, id);

	if (!e)
		return -ENOENT;
	if (e->runs)
		end_running(a, e);
	else
		leave_line(a, e);
	forget(a, e);
	return 0;
}

void gateline_books(const struct gateline *a, struct gateline_books *ret)
{
	*ret = a->books;
}

int64_t gateline_oldest_ms(const struct gateline *a, int64_t now_ms)
{
	int64_t oldest = 0;

	for (unsigned i = 0; i < GATELINE_LEVELS; i++)
		if (a->lines[i].first && now_ms - a->lines[i].first->since_ms > oldest)
			oldest = now_ms - a->lines[i].first->since_ms;
	return oldest;
}
