/* SPDX-License-Identifier: Apache-2.0 */
/* arbattempt.c: see arbattempt.h. */
#include "arbattempt.h"

#include <errno.h>
#include <stdlib.h>

#include "leased.h"

void shms_attempt_begin(struct shms_attempt *t, struct shmstore_arb_context *c)
{
	struct shms_arb *a = c->arb;

	*t = (struct shms_attempt){.context = c, .outer = c->attempt, .serial = ++c->last_serial};
	pthread_mutex_lock(&a->lock);
	t->next = a->attempts;
	t->prev = &a->attempts;
	if (t->next)
		t->next->prev = &t->next;
	a->attempts = t;
	pthread_mutex_unlock(&a->lock);
	c->attempt = t;
}

/* Room for n more. arb->lock is held. */
static int grow(struct shms_attempt *t, size_t n)
{
	size_t room = t->room ? t->room : 8;
	uint32_t *more;

	while (room < t->n_ids + n)
		room *= 2;
	if (room == t->room)
		return 0;
	more = realloc(t->ids, room * sizeof(*more));
	if (!more)
		return -ENOMEM;
	t->ids = more;
	t->room = room;
	return 0;
}

int shms_attempt_room(struct shmstore_arb_context *c, size_t n)
{
	int r = 0;

	if (!c->attempt)
		return 0;
	pthread_mutex_lock(&c->arb->lock);
	/* All that is around it too: what this one leaves will be theirs. */
	for (struct shms_attempt *t = c->attempt; t && r == 0; t = t->outer) {
		r = grow(t, n);
		n += t->n_ids;
	}
	pthread_mutex_unlock(&c->arb->lock);
	return r;
}

void shms_attempt_note(struct shmstore_arb_context *c, struct shmstore_arb_reservation *r)
{
	struct shms_attempt *t = c->attempt;

	r->context = c->id;
	r->attempt = t ? t->serial : 0;
	if (!t)
		return;
	if (r->leased)
		atomic_fetch_add_explicit(&t->leased[r->pool - 1], r->leased, memory_order_relaxed);
	if (r->id) {
		pthread_mutex_lock(&c->arb->lock);
		t->ids[t->n_ids++] = r->id;
		pthread_mutex_unlock(&c->arb->lock);
	}
}

/* The attempt that r is of, among those of the calling thread's context. */
static struct shms_attempt *find_own(const struct shmstore *s, const struct shmstore_arb_reservation *r)
{
	struct shms_arb_thread *thread = shms_arb_thread_find(s);
	struct shmstore_arb_context *c = thread ? (thread->used ? thread->used : thread->mine) : NULL;
	struct shms_attempt *t = c && c->id == r->context ? c->attempt : NULL;

	while (t && t->serial > r->attempt)
		t = t->outer;
	return t;
}

/* Among those of all threads. arb->lock is held. */
static struct shms_attempt *find(struct shms_arb *a, const struct shmstore_arb_reservation *r)
{
	struct shms_attempt *best = NULL;

	for (struct shms_attempt *t = a->attempts; t; t = t->next) {
		if (t->context->id == r->context && t->serial <= r->attempt && (!best || t->serial > best->serial))
			best = t;
	}
	return best;
}

static void drop_id(struct shms_attempt *t, uint32_t id)
{
	for (size_t i = 0; i < t->n_ids; i++) {
		if (t->ids[i] == id) {
			t->ids[i] = t->ids[--t->n_ids];
			return;
		}
	}
}

/* Adds to, or takes off, the books of whatever attempt r is of. */
static void change(struct shmstore *s, const struct shmstore_arb_reservation *r, uint64_t leased, bool id)
{
	struct shms_attempt *t = find_own(s, r);

	if (t && !id) {
		atomic_fetch_add_explicit(&t->leased[r->pool - 1], leased, memory_order_relaxed);
		return;
	}
	/* Under the lock none ends. */
	pthread_mutex_lock(&s->arb->lock);
	t = t ? t : find(s->arb, r);
	if (t && leased)
		atomic_fetch_add_explicit(&t->leased[r->pool - 1], leased, memory_order_relaxed);
	if (t && id)
		drop_id(t, r->id);
	pthread_mutex_unlock(&s->arb->lock);
}

void shms_attempt_lease(struct shmstore *s, const struct shmstore_arb_reservation *r, uint64_t bytes)
{
	if (r->attempt && bytes)
		change(s, r, bytes, false);
}

void shms_attempt_forget(struct shmstore *s, const struct shmstore_arb_reservation *r, uint64_t leased, bool id)
{
	if (r->attempt && (leased || id))
		change(s, r, -leased, id);
}

void shms_attempt_undo(struct shmstore *s, struct shms_attempt *t)
{
	struct wire_arb m = {.op = WIRE_ARB_RELEASE, .flags = WIRE_ARB_QUIET};

	for (uint32_t i = 0; i < WIRE_LEASES; i++) {
		uint64_t bytes = atomic_exchange_explicit(&t->leased[i], 0, memory_order_relaxed);

		if (bytes)
			shms_lease_give(s, i + 1, bytes);
	}
	/* Ours alone: who releases one of these in another thread now would do so twice. */
	for (size_t i = 0; i < t->n_ids; i++) {
		m.reservation = t->ids[i];
		shms_arb_post(s, &m, 0);
	}
	t->n_ids = 0;
}

void shms_attempt_end(struct shms_attempt *t)
{
	struct shmstore_arb_context *c = t->context;
	struct shms_attempt *outer = t->outer;

	pthread_mutex_lock(&c->arb->lock);
	for (uint32_t i = 0; outer && i < WIRE_LEASES; i++)
		atomic_fetch_add_explicit(&outer->leased[i], atomic_load_explicit(&t->leased[i], memory_order_relaxed),
					  memory_order_relaxed);
	for (size_t i = 0; outer && i < t->n_ids; i++)
		outer->ids[outer->n_ids++] = t->ids[i];
	*t->prev = t->next;
	if (t->next)
		t->next->prev = t->prev;
	pthread_mutex_unlock(&c->arb->lock);
	c->attempt = outer;
	free(t->ids);
	t->ids = NULL;
}
