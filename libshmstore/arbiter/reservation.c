/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reservation.c: reservations: from a lease where they are small, else asked for, and
 * given back in parts or whole.
 *
 * A reservation may have leased bytes, which go first, and bytes that the daemon knows by its id.
 * Releases do not wait: the daemon judges the next request after them, as it reads in order.
 *
 * Killed anywhere: what the daemon knows goes with the connection, what is leased with the page:
 * the daemon counts what was granted and not settled until it sees the death, and nothing after.
 *
 * A lease that the daemon would not raise means that others want the room: for a while each
 * reservation is asked for by itself, one round trip instead of two.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "arbitrate.h"
#include "cleanup.h"
#include "detail.h"
#include "sys.h"

#define MANY_MAX 16u /* the daemon's bound */
#define MS       1000000ull
#define REST_NS  (20 * MS)    /* not asked for more, after it would give no more */
#define OFF_NS   (10000 * MS) /* the same where it gives none at all */
/* a small reservation, before the daemon has said what that is: of a private pool it
 * does with the first lease */
#define GUESS    65536u

/* ---- leases: the way of every small reservation, without a lock, memory or a system call ----- */

/* Must a reserve of this context in this pool be the daemon's to see? */
static struct wire_lease *lease_of(const struct shmstore *s, const struct shmstore_arb_context *c,
				   uint32_t pool, uint64_t bytes, unsigned flags)
{
	struct wire_lease *l;

	if (pool > WIRE_LEASES || c->slow || (flags & SHMSTORE_ARB_SPILL) ||
	    !shms_context_bound(s, c))
		return NULL;
	l = &s->page->leases[pool - 1];
	return bytes <= atomic_load_explicit(&l->max, memory_order_relaxed) ? l : NULL;
}

/* Charges the lease. false: nothing was. */
static bool lease_take(const struct shmstore *s, const struct shmstore_arb_context *c,
		       uint32_t pool, uint64_t bytes, unsigned flags)
{
	struct wire_lease *l = lease_of(s, c, pool, bytes, flags);

	return l && wire_charge(&l->charged, &l->granted, bytes);
}

/* Might more of this pool's lease help? */
static struct wire_lease *worth_asking(const struct shmstore *s,
				       const struct shmstore_arb_context *c, uint32_t pool,
				       uint64_t bytes, unsigned flags)
{
	if (pool > SHMSTORE_ARB_PARTITION && pool <= WIRE_LEASES &&
	    !atomic_load_explicit(&s->page->leases[pool - 1].max, memory_order_relaxed))
		return lease_of(s, c, pool, 0, flags) && bytes <= GUESS ? &s->page->leases[pool - 1]
									: NULL;
	return lease_of(s, c, pool, bytes, flags);
}

/* The lease was short of bytes: asks the daemon to raise it, unless it would
 * not lately. true: try again. */
static bool lease_more(struct shmstore *s, struct shmstore_arb_context *c, uint32_t pool,
		       uint64_t bytes, unsigned flags)
{
	struct wire_lease *l = worth_asking(s, c, pool, bytes, flags);
	struct wire_arb m = {.op = WIRE_ARB_LEASE, .context = c->id, .pool = pool, .bytes = bytes};
	_Atomic uint64_t *rest = pool <= WIRE_LEASES ? &s->arb->lease_ns[pool - 1] : NULL;
	uint64_t now;
	int r;

	if (!l || !rest || atomic_load_explicit(&l->wanted, memory_order_relaxed))
		return false;
	now = shms_now_mono_ns();
	if (now < atomic_load_explicit(rest, memory_order_relaxed))
		return false;
	r = shms_arb_call(s, &m, NULL, atomic_load_explicit(&c->generation, memory_order_relaxed),
			  NULL);
	if (r == SHMSTORE_ARB_OK)
		return true;
	atomic_store_explicit(rest, now + (r == SHMSTORE_ARB_AGAIN ? REST_NS : OFF_NS),
			      memory_order_relaxed);
	return false;
}

void shms_lease_give(struct shmstore *s, uint32_t pool, uint64_t bytes)
{
	struct wire_arb m = {.op = WIRE_ARB_LEASE_CALLED, .flags = WIRE_ARB_QUIET, .pool = pool};
	struct wire_lease *l;

	if (!pool || pool > WIRE_LEASES)
		return;
	l = &s->page->leases[pool - 1];
	atomic_fetch_sub_explicit(&l->charged, bytes, memory_order_seq_cst);
	if (atomic_load_explicit(&l->wanted, memory_order_seq_cst))
		shms_arb_post(s, &m, 0);
}

/* Charged bytes have become memory that the kernel counts. */
static void lease_settle(struct shmstore *s, uint32_t pool, uint64_t bytes)
{
	struct wire_lease *l = &s->page->leases[pool - 1];
	struct wire_arb m = {.op = WIRE_ARB_LEASE_CALLED, .flags = WIRE_ARB_QUIET, .pool = pool};

	atomic_fetch_add_explicit(&l->settled, bytes, memory_order_release);
	/* If anybody waits for the difference, the daemon counts anew what has become memory. */
	if (atomic_load_explicit(&l->wanted, memory_order_relaxed))
		shms_arb_post(s, &m, 0);
}

/* ---- requests -------------------------------------------------------------------------------- */

static int post_later(struct shmstore *s, struct shmstore_arb_context *c,
		      const struct shms_call *call, const struct shmstore_arb_reservation *r)
{
	struct shms_later *later = calloc(1, sizeof(*later));
	int sent;

	if (!later)
		return -ENOMEM;
	later->events = &s->arb->events;
	later->context = c;
	if (r)
		later->reservation = *r;
	later->request = (struct shms_request){
		.reply = &later->reply, .ended = shms_arb_ended, .arg = later};
	/* Before it is sent: it may end at once. */
	c->later = later;
	sent = shms_request_begin(shms_attach_of(s), call, &later->request);
	if (sent == 0)
		return SHMSTORE_ARB_PENDING;
	c->later = NULL;
	free(later);
	return sent;
}

static int shms_arb_withheld(struct shmstore *s, const struct shmstore_arb_how *how,
			     struct wire_arb *m, const char *tail,
			     const struct shmstore_arb_reservation *later)
{
	SHMS_NO_CANCEL;
	struct shmstore_arb_context *c = how->context;
	uint64_t generation = atomic_load_explicit(&c->generation, memory_order_relaxed);
	int lost = generation ? SHMSTORE_ARB_DOWN : -ENOTSUP, r;
	struct shms_call call = shms_arb_make_call(m, tail, generation);
	struct shms_reply reply;

	m->context = c->id;
	m->timeout_ms = how->timeout_ms;
	m->flags |= (how->flags & SHMSTORE_ARB_NONBLOCK ? WIRE_ARB_NONBLOCK : 0) |
		    (how->flags & SHMSTORE_ARB_SPILL ? WIRE_ARB_SPILL : 0);
	if (how->flags & SHMSTORE_ARB_ASYNC) {
		r = post_later(s, c, &call, later);
		return r == -ENOTCONN ? lost : r;
	}
	r = shms_request_ask(shms_attach_of(s), &call, &reply);
	return shms_context_told(c, shms_arb_judge(r, &reply, lost));
}

/* How a call is meant: *io_how filled up with its context. 0, an outcome, -errno. */
static int begin(struct shmstore *s, const struct shmstore_arb_how *how,
		 struct shmstore_arb_how *ret)
{
	uint64_t generation;
	bool async;

	*ret = how ? *how : (struct shmstore_arb_how){0};
	async = ret->flags & SHMSTORE_ARB_ASYNC;
	if (ret->flags & ~SHMS_ARB_FLAGS)
		return shms_detail_flags(ret->flags, SHMS_ARB_FLAGS);
	if (async && (!ret->context || ret->context->of_thread))
		return shms_detail(-EINVAL, NULL,
				   "SHMSTORE_ARB_ASYNC needs a context that is no thread's own");
	return shms_context_begin(s, ret->context, &ret->context, &generation);
}

/* ---- reserve --------------------------------------------------------------------------------- */

/* Of the daemon. */
static int reserve_asked(struct shmstore *s, const struct shms_arb_ask *ask,
			 struct shmstore_arb_reservation *ret)
{
	struct shmstore_arb_context *c = ask->how.context;
	struct shmstore_arb_reservation r = {
		.bytes = ask->bytes, .pool = ask->pool, .context = c->id};
	struct wire_arb m = {.op = WIRE_ARB_RESERVE, .pool = ask->pool, .bytes = ask->bytes};
	int outcome = ask->no_attempt ? 0 : shms_attempt_room(c, 1);

	if (outcome < 0)
		return outcome;
	r.id = m.reservation = shms_arb_next_ids(&s->arb->last_reservation, 1);
	outcome = shms_arb_withheld(s, &ask->how, &m, NULL, &r);
	if (outcome == 0) {
		if (!ask->no_attempt)
			shms_attempt_note(c, &r);
		*ret = r;
	}
	return outcome;
}

int shms_arb_reserve(struct shmstore *s, const struct shms_arb_ask *ask,
		     struct shmstore_arb_reservation *ret)
{
	struct shmstore_arb_context *c = ask->how.context;
	unsigned flags = ask->how.flags;
	bool leased = false;

	if (!ask->no_lease) {
		leased = lease_take(s, c, ask->pool, ask->bytes, flags);
		if (!leased && !(flags & SHMSTORE_ARB_ASYNC) &&
		    lease_more(s, c, ask->pool, ask->bytes, flags))
			leased = lease_take(s, c, ask->pool, ask->bytes, flags);
	}
	if (!leased)
		return reserve_asked(s, ask, ret);
	*ret = (struct shmstore_arb_reservation){
		.bytes = ask->bytes, .leased = ask->bytes, .pool = ask->pool, .context = c->id};
	if (!ask->no_attempt)
		shms_attempt_note(c, ret);
	return 0;
}

int shmstore_arb_reserve(struct shmstore *s, uint32_t pool, uint64_t bytes,
			 const struct shmstore_arb_how *how, struct shmstore_arb_reservation *ret)
{
	struct shms_arb_ask ask = {.pool = pool, .bytes = bytes};
	int r = !ret    ? shms_detail_null("ret")
		: !pool ? shms_detail(-EINVAL, NULL, "0 is no pool")
			: begin(s, how, &ask.how);

	return r != 0 ? r : shms_arb_reserve(s, &ask, ret);
}

/* "1:4096,2:100". false: more than is taken at once. */
static bool list_pools(const struct shmstore_arb_reservation *r, size_t n, char *ret, size_t size)
{
	size_t at = 0;

	for (size_t i = 0; i < n; i++) {
		int k = snprintf(ret + at, size - at, "%s%u:%" PRIu64, i ? "," : "", r[i].pool,
				 r[i].bytes);

		if (!r[i].pool || k < 0 || (size_t)k >= size - at)
			return false;
		at += (size_t)k;
	}
	return true;
}

int shmstore_arb_reserve_many(struct shmstore *s, struct shmstore_arb_reservation *r, size_t n,
			      const struct shmstore_arb_how *how)
{
	struct wire_arb m = {.op = WIRE_ARB_RESERVE};
	struct shmstore_arb_how own;
	char list[MANY_MAX * 32];
	int outcome;

	if (!r || !n || n > MANY_MAX || !list_pools(r, n, list, sizeof(list)))
		return !r ? shms_detail_null("r")
			  : shms_detail(-EINVAL, NULL,
					"%zu reservations: 1 to %u, none of pool 0, can be made at "
					"once",
					n, (unsigned)MANY_MAX);
	outcome = begin(s, how, &own);
	if (outcome == 0)
		outcome = shms_attempt_room(own.context, n);
	if (outcome != 0)
		return outcome;
	m.pool = r[0].pool;
	m.reservation = shms_arb_next_ids(&s->arb->last_reservation, (uint32_t)n);
	for (size_t i = 0; i < n; i++)
		r[i] = (struct shmstore_arb_reservation){.bytes = r[i].bytes,
							 .pool = r[i].pool,
							 .id = m.reservation + (uint32_t)i,
							 .context = own.context->id};
	outcome = shms_arb_withheld(s, &own, &m, list, &r[0]);
	for (size_t i = 0; i < n; i++) {
		if (outcome == 0)
			shms_attempt_note(own.context, &r[i]);
		else if (outcome != SHMSTORE_ARB_PENDING)
			r[i].id = 0;
	}
	return outcome;
}

/* ---- less, and nothing ----------------------------------------------------------------------- */

static void post(struct shmstore *s, enum wire_arb_op op, const struct shmstore_arb_reservation *r,
		 uint64_t bytes)
{
	struct wire_arb m = {.op = (uint16_t)op,
			     .flags = WIRE_ARB_QUIET | (op == WIRE_ARB_SEAL ? WIRE_ARB_DROP : 0),
			     .context = r->context,
			     .pool = r->pool,
			     .reservation = r->id,
			     .bytes = bytes};

	shms_arb_post(s, &m, 0);
}

static int check(const struct shmstore_arb_reservation *r)
{
	if (!r)
		return shms_detail_null("r");
	if ((r->leased && (!r->pool || r->pool > WIRE_LEASES)) || r->leased > r->bytes)
		return shms_detail(-EINVAL, NULL,
				   "what is given is no reservation of shmstore_arb_reserve()");
	return 0;
}

/* bytes less; settled: they are memory now. */
static void shrink(struct shmstore *s, struct shmstore_arb_reservation *r, uint64_t bytes,
		   bool settled)
{
	uint64_t leased = bytes < r->leased ? bytes : r->leased;

	if (leased) {
		shms_attempt_change(s, r, -leased, false);
		if (settled)
			lease_settle(s, r->pool, leased);
		else
			shms_lease_give(s, r->pool, leased);
		r->leased -= leased;
	}
	r->bytes -= bytes;
	if (bytes == leased || !r->id)
		return;
	if (r->bytes > r->leased || !settled) {
		post(s, WIRE_ARB_RESIZE, r, r->bytes - r->leased);
		return;
	}
	/* All of it is memory. */
	shms_attempt_change(s, r, 0, true);
	post(s, WIRE_ARB_SEAL, r, bytes - leased);
	r->id = 0;
}

void shms_arb_settle(struct shmstore *s, struct shmstore_arb_reservation *r, uint64_t bytes)
{
	shrink(s, r, bytes < r->bytes ? bytes : r->bytes, true);
}

int shmstore_arb_release(struct shmstore *s, struct shmstore_arb_reservation *r)
{
	int e = check(r);

	if (e < 0)
		return e;
	shms_attempt_change(s, r, -r->leased, r->id != 0);
	if (r->leased)
		shms_lease_give(s, r->pool, r->leased);
	if (r->id)
		post(s, WIRE_ARB_RELEASE, r, 0);
	r->bytes = r->leased = 0;
	r->id = 0;
	return 0;
}

int shmstore_arb_commit(struct shmstore *s, struct shmstore_arb_reservation *r, uint64_t bytes)
{
	int e = check(r);

	if (e < 0)
		return e;
	if (r->pool != SHMSTORE_ARB_PARTITION)
		return shms_detail(-EINVAL, NULL,
				   "the reservation is of pool %u, not of the partition's",
				   r->pool);
	if (r->id && bytes > r->leased) {
		/* Tell the daemon the memory's size: it may be less, or more, than was reserved. */
		shms_attempt_change(s, r, 0, true);
		post(s, WIRE_ARB_SEAL, r, bytes - r->leased);
		r->bytes = r->leased;
		r->id = 0;
	}
	shms_arb_settle(s, r, bytes);
	return shmstore_arb_release(s, r);
}

/* ---- more ------------------------------------------------------------------------------------ */

/* The part that the daemon knows grows by more bytes, or comes to be. */
static int grow(struct shmstore *s, struct shmstore_arb_reservation *r, uint64_t more,
		const struct shmstore_arb_how *how)
{
	struct wire_arb m = {.op = WIRE_ARB_RESIZE, .pool = r->pool, .reservation = r->id};
	struct shmstore_arb_reservation grown = *r, part;
	struct shms_arb_ask ask = {.pool = r->pool, .bytes = more, .how = *how, .no_lease = true};
	int outcome;

	grown.bytes += more;
	if (r->id) {
		m.bytes = grown.bytes - r->leased;
		outcome = shms_arb_withheld(s, how, &m, NULL, &grown);
	} else if (how->flags & SHMSTORE_ARB_ASYNC) {
		return shms_detail(
			-EINVAL, NULL,
			/* two reservations would be one struct's, later */
			"what is served from a lease cannot grow with SHMSTORE_ARB_ASYNC");
	} else {
		outcome = reserve_asked(s, &ask, &part);
		if (outcome == 0) {
			/* Of the attempt under way now, wherever the leased part came from. */
			shms_attempt_change(s, r, -r->leased, false);
			grown.id = part.id;
			grown.context = part.context;
			grown.attempt = part.attempt;
			shms_attempt_change(s, &grown, grown.leased, false);
		}
	}
	if (outcome == 0)
		*r = grown;
	return outcome;
}

int shmstore_arb_resize(struct shmstore *s, struct shmstore_arb_reservation *r, uint64_t bytes,
			const struct shmstore_arb_how *how)
{
	struct shmstore_arb_how own;
	uint64_t more;
	int e = check(r);

	if (e < 0)
		return e;
	if (bytes <= r->bytes) {
		shrink(s, r, r->bytes - bytes, false);
		return 0;
	}
	e = begin(s, how, &own);
	if (e != 0)
		return e;
	more = bytes - r->bytes;
	if (!lease_take(s, own.context, r->pool, more, own.flags))
		return grow(s, r, more, &own);
	shms_attempt_change(s, r, more, false);
	r->bytes += more;
	r->leased += more;
	return 0;
}

/* ---- spillable ------------------------------------------------------------------------------- */

/* Declares the leased bytes to the daemon. */
static int unlease(struct shmstore *s, struct shmstore_arb_reservation *r)
{
	struct shmstore_arb_how how = {.flags = SHMSTORE_ARB_NONBLOCK};
	uint64_t leased = r->leased;
	int outcome = begin(s, &how, &how);

	if (outcome != 0)
		return outcome;
	/* Booked twice for a moment, never not at all. */
	outcome = grow(s, r, leased, &how);
	if (outcome == 0)
		shrink(s, r, leased, false);
	return outcome;
}

static int unknown(void)
{
	return shms_detail(
		-EINVAL, NULL,
		"the daemon knows no such reservation: it is empty, or served from a lease");
}

int shmstore_arb_unpin(struct shmstore *s, struct shmstore_arb_reservation *r)
{
	struct wire_arb m = {.op = WIRE_ARB_UNPIN};
	int e = check(r);

	if (e == 0 && r->leased)
		e = unlease(s, r);
	if (e != 0)
		return e;
	m.reservation = r->id;
	return r->id ? shms_arb_call(s, &m, NULL, 0, NULL) : unknown();
}

int shmstore_arb_pin(struct shmstore *s, const struct shmstore_arb_reservation *r,
		     const struct shmstore_arb_how *how)
{
	struct wire_arb m = {.op = WIRE_ARB_PIN};
	struct shmstore_arb_how own;
	int e = check(r);

	if (e == 0)
		e = begin(s, how, &own);
	if (e != 0)
		return e;
	if (!r->id)
		return unknown();
	m.reservation = r->id;
	m.pool = r->pool;
	return shms_arb_withheld(s, &own, &m, NULL, r);
}

int shmstore_arb_spilled(struct shmstore *s, const struct shmstore_arb_reservation *r,
			 uint64_t bytes)
{
	int e = check(r);

	if (e < 0)
		return e;
	if (!r->id)
		return unknown();
	post(s, WIRE_ARB_SPILLED, r, bytes);
	return 0;
}

/* ---- waiting again, and no longer ------------------------------------------------------------ */

int shmstore_arb_ready(struct shmstore *s, const struct shmstore_arb_how *how)
{
	struct wire_arb m = {.op = WIRE_ARB_READY};
	struct shmstore_arb_how own;
	int r = begin(s, how, &own);

	return r != 0 ? r : shms_arb_withheld(s, &own, &m, NULL, NULL);
}

int shmstore_arb_cancel(struct shmstore *s, struct shmstore_arb_context *c)
{
	struct wire_arb m = {.op = WIRE_ARB_CANCEL};
	int r = shms_context(s, c, &c);

	if (r < 0)
		return r;
	if (!shms_context_bound(s, c))
		return 0;
	m.context = c->id;
	r = shms_arb_call(s, &m, NULL, atomic_load_explicit(&c->generation, memory_order_relaxed),
			  NULL);
	/* Unbound just now by its own thread: it waits for nothing. */
	return r == -EINVAL ? 0 : r;
}
