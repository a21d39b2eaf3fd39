/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h: the protocol between the processes of a host and shmstored: messages on a SOCK_SEQPACKET Unix socket, and the credit
 * section of a store's page, through which the bytes that may be written are granted without a round trip.
 *
 * A packet is one message: a header, the fixed body of its type (wire.def), and up to tail bytes of text without a NUL. The
 * packet's size must be header + body + tail exactly as the header says. Both sides copy a message once, check it, then use it.
 * Native byte order: both ends are on one host. Reserved fields and unknown flags must be zero.
 *
 * Order: HELLO is the first message, once; it may be followed at once by others, without waiting for WELCOME. One connection
 * registers at most one store. Replies carry the serial of their request; serial 0 is what was not asked for (EVENT, ASK,
 * ERROR). Any fault of a client's ends its connection, after an ERROR that says the reason.
 */
#ifndef SHMS_WIRE_H
#define SHMS_WIRE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_VERSION  1u
#define WIRE_MAGIC    0x52444853u /* "SHDR" */
#define WIRE_SOCKET   "/run/shmstored/socket"
#define WIRE_PATH_MAX 4095u
#define WIRE_TEXT_MAX 4095u
#define WIRE_DATA_MAX 16384u

struct wire_header {
	uint32_t magic;
	uint16_t type;
	uint16_t flags;  /* 0 */
	uint32_t size;   /* bytes of the whole packet */
	uint32_t tail;   /* of them, bytes after the body */
	uint64_t serial; /* chosen by the client, not 0; echoed */
};

enum wire_type {
#define WIRE(NAME, name, number, from, tail) WIRE_##NAME = (number),
#include "wire.def"
#undef WIRE
};

/* ---- client to daemon ---------------------------------------------------------------------------------------------- */

struct wire_hello {
	uint32_t version_min, version_max;
	uint64_t features; /* 0 */
};

struct wire_ping {
	uint64_t cookie;
};

/* tail: the store's path below the partition. The rest is in its page. */
struct wire_register {
	uint8_t uuid[16]; /* of the partition */
	uint64_t reserved;
};

#define WIRE_GRANT_WAIT (1u << 0) /* the reply is withheld until there is room or timeout_ms are over */

struct wire_grant {
	uint64_t need;  /* bytes that are wanted now; 1 to WIRE_GRANT_MAX */
	uint64_t ahead; /* bytes wished beyond; the daemon gives what it thinks right */
	uint64_t timeout_ms;
	uint32_t flags; /* WIRE_GRANT_* */
	uint32_t reserved;
};
#define WIRE_GRANT_MAX (UINT64_C(1) << 46)

/* Ends a waiting GRANT: REFUSED with -ECANCELED for it, DONE for this. */
struct wire_cancel {
	uint64_t serial;
};

/*
 * Moves a lease to another user's inbox, <partition>/WIRE_INBOX/<uid>/handoff/. tail: a lease in the sender's own store, as the path
 * of its ticket. With lease_ms it is for the sender's own inbox, and the tail is an object of its own store, which stays: another
 * user's, of which only the daemon can make a lease. Answered by BROKERED (tail: the new lease's path) or REFUSED.
 */
struct wire_broker {
	uint32_t to_uid;
	uint32_t lease_ms; /* 0: the tail is a lease */
};
#define WIRE_INBOX        "inbox"
#define WIRE_BROKER_LEASE 86400000u /* ms: the longest lease in an inbox */

/* The store goes in good order: nothing is to be reaped. Answered by DONE. */
struct wire_bye {
	uint64_t reserved;
};

enum wire_question {
	WIRE_QUERY_STATUS = 1,
	WIRE_QUERY_WORKERS = 2,
	WIRE_QUERY_QUOTA = 3,
	WIRE_QUERY_HOLDERS = 4,
	WIRE_QUERY_EVENTS = 5,
	WIRE_QUERY_HISTORY = 6,
	WIRE_QUERY_RECONCILE = 7, /* as STATUS, after a full reconcile made for this query */
};

/* tail: the partition's path; empty = all. Answered by DATA: one JSON document in as many packets as it takes. */
struct wire_query {
	uint32_t what; /* enum wire_question */
	uint32_t reserved;
};

/* tail: names of events, separated by commas; empty = all. Answered by DONE, then EVENT after EVENT. */
struct wire_watch {
	uint64_t since; /* sequence number after which events are wanted; UINT64_MAX = from now on */
};

/* tail: "key=value", a limit at run time (shmstored.conf(5)). Answered by DONE or REFUSED. Root and the daemon's user only. */
struct wire_set {
	uint64_t reserved;
};

/* tail: the path of a dead store. Answered by DATA (what was done) or REFUSED. The store's user, root, the daemon's user. */
struct wire_reap {
	uint64_t reserved;
};

/* ---- daemon to client ---------------------------------------------------------------------------------------------- */

struct wire_welcome {
	uint32_t version;
	uint32_t pid;
	uint64_t epoch; /* of this daemon's life: CLOCK_BOOTTIME in ns at its start, never 0 */
	uint64_t features;
	uint64_t credit; /* bytes that it grants ahead */
};

struct wire_pong {
	uint64_t cookie;
};

struct wire_registered {
	uint64_t id;
	uint64_t reserved;
};

struct wire_granted {
	uint64_t granted; /* the page's new total */
	uint64_t bytes;   /* that this grant added; 0: what was there is enough */
};

enum wire_limit {
	WIRE_LIMIT_NONE = 0,
	WIRE_LIMIT_PARTITION = 1,
	WIRE_LIMIT_USER = 2,
	WIRE_LIMIT_LABEL = 3,
	WIRE_LIMIT_STORE = 4,
};

/* tail: why, as a sentence. */
struct wire_refused {
	int32_t error;  /* -errno out of shmstore.h's list */
	uint32_t limit; /* enum wire_limit */
	uint64_t hard;  /* the limit's bytes */
	uint64_t used;  /* of it */
};

#define WIRE_DATA_MORE (1u << 0)

struct wire_data {
	uint32_t flags;
	uint32_t reserved;
};

/* tail: one JSON object. */
struct wire_event {
	uint64_t sequence;
};

/* The page's asked has changed: for those who wait for the socket rather than look at the page. */
struct wire_ask {
	uint64_t bytes;
};

/* tail: why the connection ends. */
struct wire_error {
	int32_t error;
	uint32_t reserved;
};

struct wire_brokered {
	uint64_t reserved;
};

struct wire_done {
	uint64_t reserved;
};

/* What a type is: body size, most tail bytes, who sends it. NULL: unknown. */
struct wire_kind {
	const char *name;
	uint16_t type;
	bool from_client;
	uint16_t body;
	uint32_t tail;
};
const struct wire_kind *wire_kind(uint16_t type);

/*
 * Is the packet of n bytes a well-formed message from a client (or from the daemon)? 0, or -EBADMSG with *ret_reason set to a
 * static sentence. Checks magic, type, direction, sizes, flags, serial, reserved fields of the body, and that the tail has no NUL.
 * What else is in bodies is the handlers'.
 */
int wire_check(const void *packet, size_t n, bool from_client, const char **ret_reason);
/* Writes header, body and tail to packet (room bytes); returns the packet's size, 0 where it does not fit. */
size_t wire_pack(void *packet, size_t room, uint16_t type, uint64_t serial, const void *body, const void *tail,
		 size_t tail_size);

#define WIRE_PACKET_MAX (sizeof(struct wire_header) + 64 + WIRE_DATA_MAX)

/* ---- the credit section of a page ---------------------------------------------------------------------------------- */

/*
 * At WIRE_CREDIT_OFF of the .store page (docs/format.md). Every field has one writer. Bytes in totals that only grow, so that what
 * is outstanding is a difference: it survives the death of either side.
 *
 *   granted   what the store may ever have charged; the daemon lowers it to take credit back, UINT64_MAX = no limit
 *   charged   what it has charged: raised before memory is taken
 *   settled   the part of charged whose memory the kernel counts by now (or that was taken back by the one who charged it)
 *   fresh     memory that it brought into being;  last   memory that it gave back to the kernel as the last who linked it
 *
 * The owner charges: charged += n; if charged > granted: charged -= n, ask for more. The daemon takes back: granted := g; then
 * reads charged; books max(g, charged). Both in one total order (seq_cst), so that one of the two sees the other.
 * Outstanding is granted - settled, an upper bound of what the store may still take; 0 for a dead store.
 * The daemon believes of the owner's fields nothing that it could gain by: a total that runs backwards or past granted is a
 * liar's, is said once, and gives it no more credit.
 */
struct wire_credit {
	/* The daemon's. */
	_Atomic uint64_t
		epoch; /* of the daemon that wrote here last (WELCOME); 0 = none ever did: nothing is counted */
	_Atomic uint64_t granted;
	_Atomic uint64_t flags;
	_Atomic uint64_t
		store_hard;       /* most bytes of linked + pool + reserved; 0 = no limit. The owner alone checks it */
	_Atomic uint64_t asked_n; /* number of times that bytes were asked back */
	_Atomic uint64_t asked_bytes; /* this time */
	_Atomic uint64_t credit;      /* bytes to ask for ahead */
	/* For stores that must go on alone: the limits, and what is used of them besides the fresh - last of live stores. */
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
#define WIRE_CREDIT_LAST (UINT64_C(1) << 0) /* flags: a user's or label's limit is in force: count last */
#define WIRE_CREDIT_GONE \
	(UINT64_C(1) << 1) /* flags: its owner is dead, and what it has is in the base of the others' pages */

#define WIRE_PAGE_FILE  ".store"
#define WIRE_PAGE_SIZE  4096u
#define WIRE_LEDGER_OFF 2048u /* 34 counters and more: as struct shmstore_counters of inspect.h */
#define WIRE_CREDIT_OFF 2560u
#define WIRE_UNLIMITED  UINT64_MAX

_Static_assert(sizeof(struct wire_header) == 24, "header");
_Static_assert(sizeof(struct wire_credit) == 512, "credit");
_Static_assert(offsetof(struct wire_credit, charged) == 256, "credit");

/* Charges n bytes. false: there is not enough, nothing was charged. */
static inline bool wire_credit_charge(struct wire_credit *c, uint64_t n)
{
	/* seq_cst: pairs with wire_credit_revoke(). */
	uint64_t charged = atomic_fetch_add_explicit(&c->charged, n, memory_order_seq_cst) + n;

	if (charged <= atomic_load_explicit(&c->granted, memory_order_seq_cst))
		return true;
	atomic_fetch_sub_explicit(&c->charged, n, memory_order_seq_cst);
	return false;
}

/* What was charged is the kernel's to count now. fresh: the memory that came of it. Before the memory is visible as taken: never. */
static inline void wire_credit_settle(struct wire_credit *c, uint64_t n, uint64_t fresh)
{
	if (fresh)
		atomic_fetch_add_explicit(&c->fresh, fresh, memory_order_relaxed);
	/* Release: who reads this settled (acquire, before it reads fresh or asks statfs) sees the memory. */
	atomic_fetch_add_explicit(&c->settled, n, memory_order_release);
}

/* Gives a charge back whose memory was not taken. */
static inline void wire_credit_uncharge(struct wire_credit *c, uint64_t n)
{
	atomic_fetch_sub_explicit(&c->charged, n, memory_order_seq_cst);
}

/* The daemon sets granted to g and returns what it has to book: g, or charged where that is more. */
static inline uint64_t wire_credit_revoke(struct wire_credit *c, uint64_t g)
{
	uint64_t charged;

	atomic_store_explicit(&c->granted, g, memory_order_seq_cst);
	charged = atomic_load_explicit(&c->charged, memory_order_seq_cst);
	return charged > g ? charged : g;
}

#endif
