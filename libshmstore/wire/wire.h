/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h: the protocol between the processes of a host and shmstored: messages on a SOCK_SEQPACKET
 * Unix socket. Here are the packet, the messages of stores and of tools, and the check of a packet;
 * messages of the arbiter, of tasks and of actors have a header each (wirearb.h and so on), which
 * this one includes. pagewords.h has the words that need no message.
 *
 * A packet is one message: a header, the fixed body of its type (wire.def), and a tail. The tail is
 * text without a NUL; in messages of actors (ACTOR_CALL, _DONE, _ORDER, _ANSWER) any bytes may
 * follow the actor's name. The packet's size must be header + body + tail exactly as the header
 * says. Both sides copy a message once, check the copy, then use it. Byte order is the host's: both
 * ends are on one host. Reserved fields and unknown flags must be zero.
 *
 * Order: HELLO is the first message, and comes once; other messages may follow it without waiting
 * for WELCOME. One connection registers at most one store. A reply carries the serial of its
 * request; a message that answers no request (EVENT, ASK, ERROR) has serial 0. Any fault of a
 * client ends its connection, after an ERROR that says the reason.
 */
#ifndef SHMS_WIRE_H
#define SHMS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wireactor.h"
#include "wirearb.h"
#include "wiretask.h"

#define WIRE_VERSION    1u
#define WIRE_MAGIC      0x52444853u /* "SHDR" */
#define WIRE_SOCKET     "/run/shmstored/socket"
/* Of a daemon that serves one user: in the partition, so that whoever sees this partition finds its
 * daemon, and nobody another's: two jobs may each have a /dev/shm of their own. Its further
 * partitions have a symlink there that leads to the first. */
#define WIRE_OWN_SOCKET ".socket"
#define WIRE_PATH_MAX   4095u
#define WIRE_TEXT_MAX   4095u
#define WIRE_DATA_MAX   16384u

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

/* ---- client to daemon ------------------------------------------------------------------------ */

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

/* the reply is withheld until there is room or timeout_ms are over */
#define WIRE_GRANT_WAIT (1u << 0)

struct wire_grant {
	uint64_t need;  /* bytes that are wanted now; 1 to WIRE_GRANT_MAX */
	uint64_t ahead; /* bytes wished beyond; the daemon gives what it thinks right */
	uint64_t timeout_ms;
	uint32_t flags; /* WIRE_GRANT_* */
	uint32_t reserved;
};
#define WIRE_GRANT_MAX (UINT64_C(1) << 46)

/* Ends a waiting GRANT, TASK_ADMIT, ACTOR_CALL or ACTOR_MOVE: REFUSED with
 * -ECANCELED for it, DONE for this. */
struct wire_cancel {
	uint64_t serial;
};

/*
 * Moves a lease to another user's inbox, <partition>/WIRE_INBOX/<uid>/handoff/. tail: a lease in
 * the sender's own store, as the path of its ticket. With lease_ms it is for the sender's own
 * inbox, and the tail is an object of its own store, which stays: another user's, of which only the
 * daemon can make a lease. Answered by BROKERED (tail: the new lease's path) or REFUSED.
 */
struct wire_broker {
	uint32_t to_uid;
	uint32_t lease_ms; /* 0: the tail is a lease */
};
#define WIRE_INBOX        "inbox"
#define WIRE_BROKER_LEASE 86400000u /* ms: the longest lease in an inbox */

/* The store goes in good order: nothing is to be reaped. Its requests that wait get no answer.
 * Answered by DONE. */
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
	WIRE_QUERY_ARBITER = 8,   /* pools, tasks, contexts, totals, knobs */
	WIRE_QUERY_ARB_LOG = 9,   /* the last transitions */
	WIRE_QUERY_MEMORY = 16,   /* the host's memory, term by term, and whose it is */
	WIRE_QUERY_GATE = 17,     /* whether more work may begin */
	WIRE_QUERY_STAGES = 32,   /* who runs which stage, with what */
	WIRE_QUERY_ACTORS = 48,   /* where actors are, copies of them, and other daemons */
	WIRE_QUERY_PROFILES = 49, /* what tasks used, and what runs */
};

/* tail: the partition's path; empty = all. Answered by DATA: one JSON document in as
 * many packets as it takes. */
struct wire_query {
	uint32_t what; /* enum wire_question */
	uint32_t reserved;
};

/* tail: names of events, separated by commas; empty = all. Answered by
 * DONE, then EVENT after EVENT. */
struct wire_watch {
	/* sequence number after which events are wanted; UINT64_MAX = from now on */
	uint64_t since;
};

/* tail: "key=value", a limit at run time (shmstored.conf(5)). Answered by DONE or REFUSED. Root
 * and the daemon's user only. */
struct wire_set {
	uint64_t reserved;
};

/* tail: the path of a dead store. Answered by DATA (what was done) or REFUSED. The store's
 * user, root, the daemon's user. */
struct wire_reap {
	uint64_t reserved;
};

/* ---- daemon to client ------------------------------------------------------------------------ */

#define WIRE_FEATURE_ACTOR_OPTIONS (UINT64_C(1) << 0) /* ACTOR_BORN may have them */

struct wire_welcome {
	uint32_t version;
	uint32_t pid;
	uint64_t epoch;    /* of this daemon's life: CLOCK_BOOTTIME in ns at its start, never 0 */
	uint64_t features; /* WIRE_FEATURE_*: what a client may use */
	uint64_t credit;   /* bytes that it grants ahead */
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

/* A message type: body size, most tail bytes, sender. NULL: unknown. */
struct wire_kind {
	const char *name;
	uint16_t type;
	bool from_client;
	uint16_t body;
	uint32_t tail;
};
const struct wire_kind *wire_kind(uint16_t type);

/*
 * Is the packet of n bytes a well-formed message from a client (or from the daemon)? 0, or -EBADMSG
 * with *ret_reason set to a static sentence. Checks magic, type, direction, sizes, flags, serial,
 * reserved fields of the body, and that the tail has no NUL. The handlers check the rest of a body.
 */
int wire_check(const void *packet, size_t n, bool from_client, const char **ret_reason);
/* Writes header, body and tail to packet (room bytes); returns the packet's
 * size, 0 where it does not fit. */
size_t wire_pack(void *packet, size_t room, uint16_t type, uint64_t serial, const void *body,
		 const void *tail, size_t tail_size);

#define WIRE_PACKET_MAX (sizeof(struct wire_header) + 64 + WIRE_DATA_MAX)

_Static_assert(sizeof(struct wire_header) == 24, "header");

/*
 * The file name of a leased link in handoff/: "<expiry>-<nonce>", expiry in ms of CLOCK_BOOTTIME as
 * decimal digits, nonce 16 hex digits. The library and the daemon both make and read such names.
 */

#define SHMS_LEASE_NAME_SIZE 48

/* Returns the name's length. */
size_t shms_lease_text(uint64_t expiry_ms, uint64_t nonce, char ret_name[SHMS_LEASE_NAME_SIZE]);
/* false: no name of a lease. */
bool shms_lease_parse(const char *name, uint64_t *ret_expiry_ms);

#endif
