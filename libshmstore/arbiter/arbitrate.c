/* SPDX-License-Identifier: Apache-2.0 */
/* arbitrate.c: see arbitrate.h. */
#include "arbitrate.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "arbcontext.h"
#include "cancel.h"
#include "cleanup.h"
#include "detail.h"
#include "sys.h"

#define WHY_MAX 1024
#define INVALID 12 /* of the daemon's outcomes: our fault */

static _Thread_local char why[WHY_MAX];

const char *shmstore_arb_outcome_name(int outcome)
{
	static const char *const names[] = {"OK",       "PENDING", "RETRY", "SPLIT",
					    "NOMEM",    "TOOBIG",  "AGAIN", "TIMEDOUT",
					    "CANCELED", "REMOVED", "DOWN",  "ERROR"};

	return outcome >= 0 && (size_t)outcome < sizeof(names) / sizeof(names[0]) ? names[outcome]
										  : "UNKNOWN";
}

const char *shmstore_arb_why(void)
{
	return why;
}

int shms_arb_say(int outcome, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(why, sizeof(why), format, ap);
	va_end(ap);
	return outcome;
}

void shms_arb_ref(struct shms_arb *a)
{
	atomic_fetch_add_explicit(&a->n_ref, 1, memory_order_relaxed);
}

struct shms_arb *shms_arb_unref(struct shms_arb *a)
{
	/* Pairs with itself: the last one sees all that the others did. */
	if (a && atomic_fetch_sub_explicit(&a->n_ref, 1, memory_order_acq_rel) == 1) {
		pthread_mutex_destroy(&a->lock);
		free(a);
	}
	return NULL;
}

/* ---- ids ---- */

uint32_t shms_arb_next_ids(_Atomic uint32_t *last, uint32_t n)
{
	uint32_t first;

	/* After four milliards it begins anew, without 0. */
	do {
		first = atomic_fetch_add_explicit(last, n, memory_order_relaxed) + 1;
	} while (!first || first + n < first);
	return first;
}

uint32_t shms_arb_new_id(struct shms_arb *a, struct shms_arb_ids *ids, uint64_t generation)
{
	SHMS_HELD(&a->lock);
	if (ids->generation != generation) {
		ids->stale = ids->last;
		ids->generation = generation;
	}
	return ++ids->last;
}

bool shms_arb_knows(struct shms_arb *a, const struct shms_arb_ids *ids, uint32_t id,
		    uint64_t generation)
{
	SHMS_HELD(&a->lock);
	return ids->generation == generation && id > ids->stale;
}

uint64_t shms_arb_generation(struct shmstore *s)
{
	SHMS_NO_CANCEL;
	uint64_t generation = shms_attach_generation(shms_attach_of(s));

	if (generation || !shms_attach_needed(shms_attach_of(s)))
		return generation;
	return shms_attach_generation(shms_attach_of(s));
}

/* ---- messages ---- */

int shms_arb_judge(int r, const struct shms_reply *reply, int lost)
{
	int outcome;

	if (r == -ENOTCONN && lost == SHMSTORE_ARB_DOWN)
		return shms_arb_say(lost, "the daemon went away");
	if (r < 0)
		return r == -ENOTCONN ? lost : shms_error(r);
	if (reply->type == WIRE_REFUSED) {
		shms_arb_say(0, "%s", reply->tail);
		return shms_error(reply->body.refused.error);
	}
	outcome = reply->body.arbed.outcome;
	if (outcome == SHMSTORE_ARB_OK)
		return 0;
	shms_arb_say(0, "%s", reply->tail);
	/* INVALID, or what no daemon says. */
	if (outcome < 0 || outcome == SHMSTORE_ARB_PENDING || outcome >= INVALID)
		return shms_detail(-EINVAL, NULL, "%s",
				   reply->tail_size ? reply->tail : "shmstored does not take that");
	return outcome;
}

struct shms_call shms_arb_make_call(const struct wire_arb *m, const char *tail, uint64_t generation)
{
	return (struct shms_call){.type = WIRE_ARB,
				  .answer = WIRE_ARBED,
				  .body = m,
				  .tail = tail,
				  .tail_size = tail ? strlen(tail) : 0,
				  .generation = generation};
}

int shms_arb_call(struct shmstore *s, const struct wire_arb *m, const char *tail,
		  uint64_t generation, struct shms_reply *ret)
{
	SHMS_NO_CANCEL;
	struct shms_call call = shms_arb_make_call(m, tail, generation);
	struct shms_reply own, *reply = ret ? ret : &own;
	/* Not shms_attach_call(): who is bound to a daemon that is late
	 * must not take it for dead. */
	int r = shms_request_ask(shms_attach_of(s), &call, reply);

	return shms_arb_judge(r, reply, generation ? SHMSTORE_ARB_DOWN : -ENOTSUP);
}

void shms_arb_post(struct shmstore *s, const struct wire_arb *m, uint64_t generation)
{
	SHMS_NO_CANCEL;
	struct shms_call call = shms_arb_make_call(m, NULL, generation);

	/* Where that fails, the connection ends, and with it all that the daemon had of ours. */
	shms_request_post(shms_attach_of(s), &call, NULL);
}

/* ---- its life -------------------------------------------------------------------------------- */

/*
 * How a store's state of the arbiter (arbitrate.h) begins, forks and ends.
 *
 * The state is of its own, counted: a thread that ends after the store was closed, or in a forked
 * child, finds there that nothing is to be said to anybody. It does not hold the store's memory:
 * that would keep a partition open for as long as any thread lives that ever waited there.
 */

static void no_queue(struct shms_arb_events *e)
{
	pthread_mutex_init(&e->lock, NULL);
	e->first = NULL;
}

struct shms_arb *shms_arb_new(struct shmstore *s)
{
	struct shms_arb *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	atomic_init(&a->n_ref, 1);
	pthread_mutex_init(&a->lock, NULL);
	a->s = s;
	a->pools.last = SHMSTORE_ARB_PARTITION;
	no_queue(&a->events);
	a->events.bell = SHMS_BELL_NULL;
	shms_arb_channel_init(&a->channel);
	return a;
}

void shms_arb_close(struct shmstore *s)
{
	struct shms_arb *a = s->arb;

	if (!a)
		return;
	/* Under the lock: a thread that ends just now is either done with the
	 * store or does not find it. */
	pthread_mutex_lock(&a->lock);
	a->s = NULL;
	pthread_mutex_unlock(&a->lock);
	shms_contexts_close(a); /* which empties the queue */
	shms_bell_deinit(&a->events.bell);
	pthread_mutex_destroy(&a->events.lock);
	shms_arb_channel_deinit(&a->channel);
	s->arb = shms_arb_unref(a);
}

void shms_arb_fork_child(struct shms_arb *a)
{
	pthread_mutex_unlock(&a->lock);
	a->s = NULL;
	shms_bell_deinit(&a->events.bell);
	no_queue(&a->events);
	shms_arb_channel_fork_child(&a->channel);
}

/* ---- calls that complete later --------------------------------------------------------------- */

void shms_arb_ended(struct shms_request *q)
{
	struct shms_later *later = q->arg;
	struct shms_arb_events *e = later->events;

	SHMS_HELD(&e->lock);
	DL_APPEND(e->first, later);
	shms_bell_ring(&e->bell);
}

/* The first of the queue; NULL: there is none. */
static struct shms_later *take_first(struct shms_arb_events *e)
{
	struct shms_later *later;

	SHMS_HELD(&e->lock);
	later = e->first;
	if (later)
		DL_DELETE(e->first, later);
	if (!e->first)
		shms_bell_quiet(&e->bell);
	return later;
}

void shms_arb_forget(struct shmstore *s, struct shms_arb_events *e, struct shms_later *later)
{
	const struct shms_later *at;

	shms_request_withdraw(shms_attach_of(s), &later->request);
	pthread_mutex_lock(&e->lock);
	for (at = e->first; at && at != later; at = at->next)
		;
	if (at)
		DL_DELETE(e->first, later);
	pthread_mutex_unlock(&e->lock);
	free(later);
}

int shmstore_arb_fd(struct shmstore *s)
{
	struct shms_arb_events *e = &s->arb->events;
	int fd = shms_request_fd(shms_attach_of(s));

	if (fd < 0)
		return fd;
	SHMS_HELD(&e->lock);
	return shms_bell_fd(&e->bell, fd, e->first);
}

int shmstore_arb_next(struct shmstore *s, struct shmstore_arb_done *ret)
{
	struct shms_later *later;
	int r;

	if (!ret)
		return shms_detail_null("ret");
	shms_request_look(shms_attach_of(s));
	later = take_first(&s->arb->events);
	if (!later)
		return 0;
	*ret = (struct shmstore_arb_done){.context = later->context,
					  .reservation = later->reservation};
	later->context->later = NULL;
	r = shms_arb_judge(later->request.error, &later->reply, SHMSTORE_ARB_DOWN);
	ret->outcome = shms_context_told(later->context, r);
	if (ret->outcome != 0)
		ret->reservation = (struct shmstore_arb_reservation){0};
	free(later);
	return 1;
}
