/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quota_credit.c: one store's page: what is read of it, and what is granted and taken back through
 * it (wire.h, struct wire_credit).
 *
 * booked is the most that the store can have charged. It is granted, as we wrote it; and where less
 * than that could be taken back because it had been charged already, what was charged. A charge
 * that fails shows for a moment as too high a charged; so charged is cut to booked, which nothing
 * but a grant raises: no store can book more than it was given. Nor is it a liar for that: its
 * owner may have been stopped right there. A store that settles more than it was granted is one.
 *
 * The sums of the groups are kept as of each store's last reading. Settling moves bytes from
 * outstanding to what the kernel counts, so an old reading of settled is an upper bound as long as
 * used is read later, and an old pair of settled and fresh is one where fresh was read later: both
 * hold here. Hence a request that fits by old readings fits, and costs one page's reading.
 *
 * Rejected: believing granted as it stands in the page. The page is the owner's
 * file; a store could raise it.
 */

#include "quota_core.h"

#define TOTAL_MAX    (UINT64_C(1) << 63) /* no honest total gets there */
#define INHERIT_MOST 4u /* times credit: what a page of an earlier life may still charge */

static void lie(struct quota *q, struct quota_store *s, const char *what)
{
	/* The last believed values stay: the store may have charged all that is booked. */
	s->liar = true;
	s->lie = what;
	/* Its user bears the believed bytes: nobody is refused for them before a survey. */
	q->unsure = true;
	q->tell_stores = true;
	s->granted = 0;
	atomic_store_explicit(&s->credit->granted, 0, memory_order_seq_cst);
}

/* Its part of the groups' sums becomes what is known now. */
static void count(struct quota_store *s, uint64_t settled, uint64_t fresh, uint64_t last)
{
	uint64_t out = s->limited ? s->booked - settled : 0;

	if (s->doubt > out)
		s->doubt = out;
	out -= s->doubt;
	QUOTA_EACH_OF(g, s) {
		g->out += out - s->out;
		g->fresh += fresh - s->fresh;
		g->last += last - s->last;
	}
	s->out = out;
	s->settled = settled;
	s->fresh = fresh;
	s->last = last;
}

/*
 * The bytes in flight come of its page, not of our grants: an earlier daemon granted them, or
 * nobody had to. More than the least of its limits, and what it had before that was set, it cannot
 * be, whatever the page says: no user may fill the others' partition by a lie. The rest is
 * doubtful, and is not counted; bytes that leave flight come off the doubt first.
 */
static void believe(const struct quota *q, struct quota_store *s, uint64_t flight)
{
	uint64_t most = QUOTA_MAX;

	QUOTA_EACH_SHARED(g, s)
		if (g->hard && g->hard < most)
			most = g->hard;
	most += INHERIT_MOST * q->config.credit;
	s->doubt = flight > most ? flight - most : 0;
}

static const char *check(const struct quota_store *s, uint64_t charged, uint64_t settled,
			 uint64_t fresh, uint64_t last)
{
	if (settled < s->settled || fresh < s->fresh || last < s->last)
		return "a total runs backwards";
	if (charged < settled)
		return "settled is more than charged";
	if (s->limited && settled > s->booked)
		return "settled is more than was granted";
	if (s->limited && fresh > s->booked)
		return "more came into being than was granted";
	if (charged > TOTAL_MAX || fresh > TOTAL_MAX || last > TOTAL_MAX)
		return "a total is beyond reason";
	return NULL;
}

void quota_credit_read(struct quota *q, struct quota_store *s)
{
	struct wire_credit *c = s->credit;
	uint64_t settled, fresh, last, charged;
	const char *wrong;

	if (!c || s->liar)
		return;
	/* Acquire: pairs with wire_credit_settle(). All else, statfs included, is read after it. */
	settled = atomic_load_explicit(&c->settled, memory_order_acquire);
	fresh = atomic_load_explicit(&c->fresh, memory_order_relaxed);
	last = atomic_load_explicit(&c->last, memory_order_relaxed);
	charged = atomic_load_explicit(&c->charged, memory_order_seq_cst);
	wrong = check(s, charged, settled, fresh, last);
	if (wrong) {
		lie(q, s, wrong);
		return;
	}
	if (!s->limited) {
		s->booked = charged;
	} else {
		uint64_t flight = s->booked - s->settled, now;

		if (charged > s->booked)
			charged = s->booked;
		s->booked = charged > s->granted ? charged : s->granted;
		now = s->booked - settled;
		s->doubt -= s->doubt < flight - now ? s->doubt : flight - now;
	}
	s->charged = charged;
	count(s, settled, fresh, last);
}

void quota_credit_read_all(struct quota *q, struct quota_group *g)
{
	QUOTA_EACH(s, g)
		quota_credit_read(q, s);
}

uint64_t quota_credit_unspent(const struct quota_store *s)
{
	return s->limited && !s->liar && s->granted > s->charged ? s->granted - s->charged : 0;
}

uint64_t quota_credit_lack(const struct quota_store *s, uint64_t need)
{
	uint64_t unspent = quota_credit_unspent(s);

	return s->limited && unspent < need ? need - unspent : 0;
}

uint64_t quota_credit_spare(const struct quota *q, const struct quota_store *s, bool all)
{
	uint64_t unspent = quota_credit_unspent(s);
	uint64_t pledged = !all && s->pledge > s->charged && q->now_ns < s->pledge_ns
				   ? s->pledge - s->charged
				   : 0;

	return unspent > pledged ? unspent - pledged : 0;
}

void quota_credit_grant(struct quota *q, struct quota_store *s, uint64_t n, uint64_t need)
{
	s->pledge = s->charged + need;
	s->pledge_ns = q->now_ns + q->config.pledge_ns;
	s->booked += n;
	s->granted = s->booked;
	count(s, s->settled, s->fresh, s->last);
	atomic_store_explicit(&s->credit->granted, s->granted, memory_order_seq_cst);
}

uint64_t quota_credit_take(struct quota_store *s, uint64_t n)
{
	uint64_t unspent = quota_credit_unspent(s), before = s->booked, booked;

	if (n > unspent)
		n = unspent;
	if (!n)
		return 0;
	s->granted -= n;
	booked = wire_credit_revoke(s->credit, s->granted);
	s->booked = booked < before ? booked : before;
	if (s->booked > s->granted)
		s->charged = s->booked;
	count(s, s->settled, s->fresh, s->last);
	return before - s->booked;
}

static void write_base(const struct quota_group *g, _Atomic uint64_t *hard, _Atomic int64_t *base)
{
	atomic_store_explicit(base, g ? g->base : 0, memory_order_relaxed);
	atomic_store_explicit(hard, g ? g->hard : 0, memory_order_relaxed);
}

void quota_credit_publish(const struct quota_store *s)
{
	const struct quota_group *user = s->groups[WIRE_LIMIT_USER],
				 *label = s->groups[WIRE_LIMIT_LABEL];
	struct wire_credit *c = s->credit;
	uint64_t flags = 0;

	if (!c)
		return;
	if (user->hard || user->soft || (label && (label->hard || label->soft)))
		flags |= WIRE_CREDIT_LAST;
	atomic_store_explicit(&c->flags, flags, memory_order_relaxed);
	atomic_store_explicit(&c->store_hard, s->groups[WIRE_LIMIT_STORE]->hard,
			      memory_order_relaxed);
	atomic_store_explicit(&c->partition_hard, s->groups[WIRE_LIMIT_PARTITION]->hard,
			      memory_order_relaxed);
	write_base(user, &c->user_hard, &c->user_base);
	write_base(label, &c->label_hard, &c->label_base);
}

void quota_credit_update(struct quota *q, struct quota_store *s)
{
	bool limited = false;

	if (!s->credit)
		return;
	quota_credit_publish(s);
	QUOTA_EACH_SHARED(g, s)
		limited |= g->hard != 0;
	if (s->liar)
		return;
	quota_credit_read(q, s);
	if (s->liar)
		return;
	if (limited && !s->limited) {
		/* To settled, not to charged: bytes in flight stay booked until they settle. */
		s->granted = s->settled;
		s->booked = wire_credit_revoke(s->credit, s->granted);
		s->charged = s->booked;
		believe(q, s, s->booked - s->settled);
	} else if (!limited && s->limited) {
		s->doubt = 0;
		s->granted = WIRE_UNLIMITED;
		atomic_store_explicit(&s->credit->granted, s->granted, memory_order_seq_cst);
	}
	s->limited = limited;
	count(s, s->settled, s->fresh, s->last);
}

void quota_credit_inherit(struct quota *q, struct quota_store *s)
{
	struct wire_credit *c = s->credit;
	int64_t user, label;
	uint64_t granted, cut;

	if (!c)
		return;
	s->limited = true;
	if (atomic_load_explicit(&c->epoch, memory_order_acquire)) {
		granted = atomic_load_explicit(&c->granted, memory_order_relaxed);
		/* Both before either is used: that writes to the page. */
		user = atomic_load_explicit(&c->user_base, memory_order_relaxed);
		label = atomic_load_explicit(&c->label_base, memory_order_relaxed);
		quota_group_inherit(s->groups[WIRE_LIMIT_USER], user);
		quota_group_inherit(s->groups[WIRE_LIMIT_LABEL], label);
		s->limited = granted != WIRE_UNLIMITED;
		if (s->limited) {
			cut = atomic_load_explicit(&c->charged, memory_order_seq_cst) +
			      INHERIT_MOST * q->config.credit;
			s->granted = granted < cut ? granted : cut;
			s->booked = wire_credit_revoke(c, s->granted);
		}
	} else {
		s->booked = wire_credit_revoke(c, 0);
	}
	quota_credit_read(q, s);
	believe(q, s, s->limited ? s->charged - s->settled : 0);
	/* For bytes from before our first grant there is only its own word. */
	if (s->fresh != s->last)
		q->unsure = true;
	quota_credit_update(q, s);
	atomic_store_explicit(&c->credit, q->config.credit, memory_order_relaxed);
	/* Release: a reader of our epoch sees the rest. */
	atomic_store_explicit(&c->epoch, q->config.epoch, memory_order_release);
}

void quota_credit_active(struct quota_store *s, bool active, uint64_t now_ns)
{
	if (active)
		s->active_ns = now_ns;
	if (active == s->active)
		return;
	s->active = active;
	QUOTA_EACH_OF(g, s)
		g->n_active += active ? 1u : UINT32_MAX;
}
