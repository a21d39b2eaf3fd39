/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pagewords.h: words of the store's page (docs/format.md) that a store and the daemon share: they
 * grant bytes to write without a message.
 */
#ifndef SHMS_PAGEWORDS_H
#define SHMS_PAGEWORDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * At WIRE_CREDIT_OFF of the page. Every field has one writer. Bytes in totals that only grow, so
 * that what is outstanding is a difference: it survives the death of either side.
 *
 *   granted   what the store may ever have charged; the daemon lowers it to take
 *             credit back, UINT64_MAX = no limit
 *   charged   what it has charged: raised before memory is taken
 *   settled   the part of charged whose memory the kernel counts by now (or that was taken
 *             back by the one who charged it)
 *   fresh     memory that it brought into being: never more than charged
 *   last      memory that it gave back to the kernel as the last who linked it
 *
 * The owner charges: charged += n; if charged > granted: charged -= n, ask for more. The daemon
 * takes back: granted := g; then reads charged; books max(g, charged). Both in one total order
 * (seq_cst), so that one of the two sees the other. Outstanding is granted - settled, an upper
 * bound of what the store may still take; 0 for a dead store. The daemon believes of the owner's
 * fields nothing that it could gain by: a total that runs backwards or past granted is a liar's, is
 * said once, and gives it no more credit.
 */
struct wire_credit {
	/* The daemon's. */
	/* of the daemon that wrote here last (WELCOME); 0 = none ever did: nothing is counted */
	_Atomic uint64_t epoch;
	_Atomic uint64_t granted;
	_Atomic uint64_t flags;
	/* most bytes of linked + pool + reserved; 0 = no limit. The owner alone checks it */
	_Atomic uint64_t store_hard;
	_Atomic uint64_t asked_n;     /* number of times that bytes were asked back */
	_Atomic uint64_t asked_bytes; /* this time */
	_Atomic uint64_t credit;      /* bytes to ask for ahead */
	/* For stores that must go on alone: the limits, and what is used of them besides the
	 * fresh - last of live stores. */
	_Atomic uint64_t partition_hard; /* 0 = no limit, as below */
	_Atomic uint64_t user_hard;
	_Atomic uint64_t label_hard;
	_Atomic int64_t user_base;
	_Atomic int64_t label_base;
	_Atomic uint64_t reserved0[20];
	/* The owner's. */
	_Atomic uint64_t charged;
	_Atomic uint64_t settled;
	_Atomic uint64_t fresh;
	_Atomic uint64_t last;
	_Atomic uint64_t given_n;     /* the asked_n that it has dealt with */
	_Atomic uint64_t given_bytes; /* in total */
	_Atomic uint64_t reserved1[26];
};
/* flags: a user's or label's limit is in force: count last */
#define WIRE_CREDIT_LAST (UINT64_C(1) << 0)
/* flags: its owner is dead, and what it has is in the base of the others' pages */
#define WIRE_CREDIT_GONE (UINT64_C(1) << 1)

/*
 * Leases of the arbiter, at WIRE_LEASE_OFF: one for each of a client's first WIRE_LEASES pools
 * (slot = pool id - 1). Bytes that the client may reserve without asking; rules and races as
 * of wire_credit. A small reservation charges, its release uncharges, and what became an
 * object (the kernel's to count) settles. Unspent is granted - charged; what is booked in the
 * arbiter is granted - settled.
 */
struct wire_lease {
	/* The daemon's. */
	_Atomic uint64_t epoch; /* of the daemon that wrote here last; 0 = none */
	_Atomic uint64_t granted;
	/* not 0: somebody waits for bytes of this pool: say LEASE_CALLED after an
	 * uncharge, FREED after a delete */
	_Atomic uint64_t wanted;
	_Atomic uint64_t max; /* largest reservation that is to be served from here; 0 = none is */
	_Atomic uint64_t reserved0[4];
	/* The owner's. */
	_Atomic uint64_t charged;
	_Atomic uint64_t settled;
	_Atomic uint64_t reserved1[6];
};
#define WIRE_LEASES 4u

/*
 * Memory of the store's segments, at WIRE_PACKED_OFF. Processes of the same user take free memory
 * themselves (seguse.h); only the owner can give back more. To ask, a process writes asked_ns, then
 * wanted, where that is 0. At its next call the owner writes asked_ns anew, gives up to a bound,
 * raises given, and lowers wanted by that, to 0 where it had nothing. An old wish means that the
 * owner makes no calls. A kill loses the wish.
 */
struct wire_packed {
	/* The owner's. */
	/* of its packed objects: more than it could give, as some are somebody else's too */
	_Atomic uint64_t bytes;
	_Atomic uint64_t given; /* in total, because it was asked */
	/* Anybody's who may write to the page. */
	_Atomic uint64_t wanted;   /* bytes; 0: none */
	_Atomic uint64_t asked_ns; /* CLOCK_BOOTTIME of the host (bootclock.c) */
	/* The owner's, not 0: before it uses free slots it looks whether somebody takes their
	 * memory, and the kernel puts barriers into it. 0.1.0 did not. */
	_Atomic uint64_t looks;
	_Atomic uint64_t reserved;
};

#define WIRE_PAGE_FILE  ".store"
#define WIRE_PAGE_SIZE  4096u
#define WIRE_LEDGER_OFF 2048u /* 34 counters and more: as struct shmstore_counters of inspect.h */
#define WIRE_CREDIT_OFF 2560u
/* n, bytes: others than its owner moved objects so often; demoted, less promoted */
#define WIRE_MOVED_OFF  3072u
/* n, bytes: that many words into it; what others took of the store's pool, ever */
#define WIRE_MOVED_POOL 3u
#define WIRE_PACKED_OFF 3152u
#define WIRE_LEASE_OFF  3200u
#define WIRE_UNLIMITED  UINT64_MAX

_Static_assert(sizeof(struct wire_credit) == 512, "credit");
_Static_assert(offsetof(struct wire_credit, charged) == 256, "credit");
_Static_assert(sizeof(struct wire_packed) == WIRE_LEASE_OFF - WIRE_PACKED_OFF, "packed");
_Static_assert(sizeof(struct wire_lease) == 128 &&
		       WIRE_LEASE_OFF + WIRE_LEASES * 128 <= WIRE_PAGE_SIZE,
	       "leases");

/* Blocks of a store's named objects: as booked by its owner, less those that others moved to the
 * disk tier. Moved wraps below zero where others brought back more than they moved. */
static inline uint64_t wire_linked(uint64_t booked, uint64_t moved)
{
	return (int64_t)moved < 0 || moved <= booked ? booked - moved : 0;
}

/* Charges n bytes of a credit or a lease. false: there is not enough, nothing was charged. */
static inline bool wire_charge(_Atomic uint64_t *charged, _Atomic uint64_t *granted, uint64_t n)
{
	/* seq_cst: pairs with wire_revoke(). */
	uint64_t sum = atomic_fetch_add_explicit(charged, n, memory_order_seq_cst) + n;

	if (sum <= atomic_load_explicit(granted, memory_order_seq_cst))
		return true;
	atomic_fetch_sub_explicit(charged, n, memory_order_seq_cst);
	return false;
}

static inline bool wire_credit_charge(struct wire_credit *c, uint64_t n)
{
	return wire_charge(&c->charged, &c->granted, n);
}

/* The kernel counts the charge now: its memory is visible. fresh: memory that came of it. */
static inline void wire_credit_settle(struct wire_credit *c, uint64_t n, uint64_t fresh)
{
	if (fresh)
		atomic_fetch_add_explicit(&c->fresh, fresh, memory_order_relaxed);
	/* Release: its reader (acquire, before fresh or statfs) sees the memory. */
	atomic_fetch_add_explicit(&c->settled, n, memory_order_release);
}

/* Gives a charge back whose memory was not taken. */
static inline void wire_credit_uncharge(struct wire_credit *c, uint64_t n)
{
	atomic_fetch_sub_explicit(&c->charged, n, memory_order_seq_cst);
}

/* Can the owner's totals be true? A copy may be of two moments, and say no for once. */
static inline bool wire_credit_adds_up(struct wire_credit *c)
{
	uint64_t charged = atomic_load_explicit(&c->charged, memory_order_relaxed);

	return charged >> 63 == 0 &&
	       atomic_load_explicit(&c->settled, memory_order_relaxed) <= charged &&
	       atomic_load_explicit(&c->fresh, memory_order_relaxed) <= charged &&
	       atomic_load_explicit(&c->last, memory_order_relaxed) >> 63 == 0;
}

/* The daemon sets granted to g and returns what it has to book: g, or
 * charged where that is more. */
static inline uint64_t wire_revoke(_Atomic uint64_t *charged, _Atomic uint64_t *granted, uint64_t g)
{
	uint64_t sum;

	atomic_store_explicit(granted, g, memory_order_seq_cst);
	sum = atomic_load_explicit(charged, memory_order_seq_cst);
	return sum > g ? sum : g;
}

static inline uint64_t wire_credit_revoke(struct wire_credit *c, uint64_t g)
{
	return wire_revoke(&c->charged, &c->granted, g);
}

static inline uint64_t wire_lease_revoke(struct wire_lease *l, uint64_t g)
{
	return wire_revoke(&l->charged, &l->granted, g);
}

#endif
