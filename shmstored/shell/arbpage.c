/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbpage.c: bytes that a client may reserve without asking, through its store's page
 * (wire.h, struct wire_lease).
 *
 * In the core a lease is two reservations: held, which was charged and is no object yet, and
 * unspent, which is reclaimable: the core has it taken back before anybody waits or is rolled
 * back, and that takes one store and one load here, never the client. As with credit
 * (quota_credit.c), booked is the most that can have been charged, only a grant raises it, and
 * what the page says of granted is not believed.
 *
 * Rejected: one reservation for both. The core would count what is spent as reclaimable, and
 * start spills that give nothing.
 */
#include <sys/param.h>

#include "arbhost.h"
#include "fields.h"
#include "log.h"

#define PAGE       UINT64_C(4096)
#define FREE_SHARE 8u /* a lease takes at most so much of what is free: others come too */
#define TOTAL_MAX  (UINT64_C(1) << 62) /* no honest total gets there */
#define MS         UINT64_C(1000000)

static struct wire_lease *page_of(const struct member *m, unsigned slot)
{
	/* credit NULL: mapped for reading only. */
	if (!m->page || !m->credit)
		return NULL;
	return (struct wire_lease *)(void *)((char *)m->page + WIRE_LEASE_OFF) + slot;
}

static uint32_t held_id(unsigned slot)
{
	return slot << 1;
}

static uint32_t unspent_id(unsigned slot)
{
	return slot << 1 | 1;
}

void arbpage_cut(struct member *m)
{
	for (unsigned slot = 0; slot < WIRE_LEASES; slot++) {
		struct wire_lease *p = page_of(m, slot);

		if (!p || !atomic_load_explicit(&p->epoch, memory_order_relaxed))
			continue;
		atomic_store_explicit(&p->max, 0, memory_order_relaxed);
		wire_lease_revoke(p, atomic_load_explicit(&p->settled, memory_order_acquire));
		atomic_store_explicit(&p->epoch, 0, memory_order_release);
	}
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The last believed values stay; the lease gets no more. */
static void lie(struct arbguest *c, unsigned slot, const char *what)
{
	const struct member *m = c->member;
	struct json_object *o = jsonmake_new();
	struct wire_lease *p = page_of(m, slot);

	c->leases[slot].liar = true;
	c->leases[slot].unspent = 0;
	atomic_store_explicit(&p->max, 0, memory_order_relaxed);
	atomic_store_explicit(&p->granted, 0, memory_order_seq_cst);
	log_say(LOG_WARNING, LOG_FIELDS(.object = m->path),
		"the totals of a lease in this store's page do not add up (%s): it gets none any "
		"more",
		what);
	fields_of(o, m, FIELD(path, "store"), SAME(pid), SAME(uid));
	jsonmake_text(o, "what", what);
	events_emit(m->account->host->events, EVENT_LIAR, m->path, o);
}

static const char *check(const struct arblease *l, uint64_t charged, uint64_t settled)
{
	if (settled < l->settled)
		return "settled runs backwards";
	if (settled > l->booked)
		return "settled is more than was granted";
	if (charged < settled)
		return "settled is more than charged";
	return charged > TOTAL_MAX ? "a total is beyond reason" : NULL;
}

void arbpage_read(struct arbguest *c, unsigned slot)
{
	struct arblease *l = &c->leases[slot];
	struct wire_lease *p = page_of(c->member, slot);
	uint64_t settled, charged;
	const char *wrong;

	if (!l->open || l->liar || !p)
		return;
	/* Acquire: pairs with wire_lease_settle(). Charged after it: it is raised first. */
	settled = atomic_load_explicit(&p->settled, memory_order_acquire);
	charged = atomic_load_explicit(&p->charged, memory_order_seq_cst);
	wrong = check(l, charged, settled);
	if (wrong) {
		lie(c, slot, wrong);
		return;
	}
	/* A charge that fails shows for a moment as too high a charged. */
	charged = MIN(charged, l->booked);
	l->booked = charged > l->granted ? charged : l->granted;
	l->settled = settled;
	l->held = charged - settled;
	l->unspent = l->granted > charged ? l->granted - charged : 0;
}

void arbpage_tell(struct arbguest *c, unsigned slot, bool raise)
{
	struct arblease *l = &c->leases[slot];

	if (!l->open)
		return;
	arbstep_set(c->host, arb_ours(c, held_id(slot)), &l->core_held, l->held, raise);
	arbstep_set(c->host, arb_ours(c, unspent_id(slot)), &l->core_unspent, l->unspent, raise);
}

static void tell_all(struct arbguest *c, unsigned slot)
{
	arbpage_tell(c, slot, true);
	arbpage_tell(c, slot, false);
}

/* Nothing can be charged any more; charged bytes stay booked until settled or uncharged. */
static void take_back(struct arbguest *c, unsigned slot)
{
	struct arblease *l = &c->leases[slot];
	struct wire_lease *p = page_of(c->member, slot);

	arbpage_read(c, slot);
	if (!l->open || l->liar || !p)
		return;
	l->granted = l->settled;
	l->booked = MIN(l->booked, wire_lease_revoke(p, l->granted));
	arbpage_read(c, slot);
}

void arbpage_recall(struct arbguest *c, unsigned slot)
{
	if (!c->leases[slot].open)
		return;
	take_back(c, slot);
	tell_all(c, slot);
	arbstep_about(c->host, ARB_OP_SPILLED, ARB_ALL, arb_ours(c, unspent_id(slot)));
}

/* ---- its life -------------------------------------------------------------------------------- */

/* The two reservations, empty. */
static bool open_lease(struct arbguest *c, unsigned slot)
{
	struct arblease *l = &c->leases[slot];
	uint64_t pool = arb_pool_id(c, slot + 1);

	if (arbstep_make(c->host, pool, arb_ours(c, held_id(slot)), 0, false) != ARB_OK)
		return false;
	if (arbstep_make(c->host, pool, arb_ours(c, unspent_id(slot)), 0, true) != ARB_OK) {
		arbstep_about(c->host, ARB_OP_RELEASE, 0, arb_ours(c, held_id(slot)));
		return false;
	}
	*l = (struct arblease){.open = true};
	return true;
}

/*
 * Bytes charged and not settled are in flight: they are booked, up to the largest lease. No honest
 * page says more, which would keep others from bytes that nobody has.
 */
static void inherit(struct arbguest *c, unsigned slot)
{
	struct arblease *l = &c->leases[slot];
	struct wire_lease *p = page_of(c->member, slot);
	uint64_t settled = atomic_load_explicit(&p->settled, memory_order_acquire), charged;

	if (settled > TOTAL_MAX) {
		lie(c, slot, "a total is beyond reason");
		return;
	}
	charged = wire_lease_revoke(p, settled);
	l->settled = l->granted = settled;
	l->booked = MIN(charged, settled + 2 * arb_config(c->host)->lease);
	atomic_store_explicit(&p->max, slot ? 0 : arb_config(c->host)->lease_small,
			      memory_order_relaxed);
	/* Release: a reader of our epoch sees the rest. */
	atomic_store_explicit(&p->epoch, c->host->account->host->epoch, memory_order_release);
	arbpage_read(c, slot);
}

bool arbpage_begin(struct arbguest *c, unsigned slot)
{
	if (!page_of(c->member, slot) || !arb_config(c->host)->lease || !open_lease(c, slot))
		return false;
	inherit(c, slot);
	arbpage_tell(c, slot, true);
	arbpage_wanted(c, c->host->wanted);
	return true;
}

void arbpage_end(struct arbguest *c, unsigned slot)
{
	struct arblease *l = &c->leases[slot];
	struct wire_lease *p = page_of(c->member, slot);

	if (!l->open)
		return;
	take_back(c, slot);
	if (p) {
		atomic_store_explicit(&p->max, 0, memory_order_relaxed);
		atomic_store_explicit(&p->wanted, 0, memory_order_relaxed);
		atomic_store_explicit(&p->epoch, 0, memory_order_release);
	}
	arbstep_about(c->host, ARB_OP_RELEASE, 0, arb_ours(c, unspent_id(slot)));
	arbstep_about(c->host, ARB_OP_RELEASE, 0, arb_ours(c, held_id(slot)));
	*l = (struct arblease){0};
}

void arbpage_wanted(struct arbguest *c, bool wanted)
{
	for (unsigned slot = 0; slot < WIRE_LEASES; slot++) {
		struct wire_lease *p = page_of(c->member, slot);

		/* seq_cst: pairs with wire_lease_uncharge(). The page is looked at once more after
		 * it, by the tick at the latest. */
		if (!p || !c->leases[slot].open)
			continue;
		atomic_store_explicit(&p->wanted, wanted, memory_order_seq_cst);
		/* Else its owner would go past all who wait, for as long as it lasts. */
		if (wanted) {
			take_back(c, slot);
			tell_all(c, slot);
		}
	}
}

/* ---- requests -------------------------------------------------------------------------------- */

/* How much it is given; 0: somebody would be disturbed. */
static uint64_t size_of(const struct arbguest *c, unsigned slot, uint64_t bytes)
{
	struct arb_pool_info i;
	uint64_t room, n;

	if (!arb_pool(c->host->core, arb_pool_id(c, slot + 1), &i) || i.n_waiting || i.closed_by)
		return 0;
	room = i.capacity > i.used + i.spill_reserve ? i.capacity - i.used - i.spill_reserve : 0;
	if (bytes > room)
		return 0;
	n = MIN(arb_config(c->host)->lease, room / FREE_SHARE) / PAGE * PAGE;
	return n > bytes ? n : bytes;
}

static int grant(struct arbrequest *q, unsigned slot)
{
	struct arbguest *c = q->client;
	struct arblease *l = &c->leases[slot];
	struct wire_lease *p = page_of(c->member, slot);
	uint64_t n, booked;

	if (!p || (!l->open && !arbpage_begin(c, slot)) || l->liar)
		return ARB_AGAIN;
	if (!q->w->bytes || q->w->bytes > arb_config(c->host)->lease_small)
		return ARB_INVALID;
	arbkernel_refresh(c->host, c);
	if (l->unspent >= q->w->bytes)
		return ARB_OK; /* what is there is enough: another thread has asked */
	n = size_of(c, slot, q->w->bytes);
	if (!n)
		return ARB_AGAIN;
	booked = l->core_unspent;
	arbstep_set(c->host, arb_ours(c, unspent_id(slot)), &l->core_unspent, l->unspent + n, true);
	if (l->core_unspent == booked)
		return ARB_AGAIN;
	l->unspent += n;
	l->granted = l->booked + n;
	l->booked = l->granted;
	atomic_store_explicit(&p->max, arb_config(c->host)->lease_small, memory_order_relaxed);
	atomic_store_explicit(&p->granted, l->granted, memory_order_seq_cst);
	q->bytes = n;
	return ARB_OK;
}

int arbpage_request(struct arbrequest *q)
{
	struct arbguest *c = q->client;
	unsigned slot = q->w->pool - 1;

	if (!q->w->pool || slot >= WIRE_LEASES || !arbguest_has_pool(c, q->w->pool))
		return ARB_INVALID;
	if (q->w->op == WIRE_ARB_LEASE)
		return grant(q, slot);
	/* LEASE_CALLED: read again what is there. */
	arbkernel_refresh(c->host, c);
	return ARB_OK;
}
