/* SPDX-License-Identifier: Apache-2.0 */
/* wirearb.h: messages of the arbiter (wire.h): ARB, ARB_ADMIN, ARBED, ARB_CALL. */
#ifndef SHMS_WIREARB_H
#define SHMS_WIREARB_H

#include <stdint.h>

/*
 * The arbiter. All ids are the client's own, 1 to UINT32_MAX, and mean something on this connection
 * only; the connection must have registered a store, whose partition's pool is WIRE_ARB_PARTITION.
 * Answered by ARBED with the request's serial, late where the reply is withheld, and not at all
 * with WIRE_ARB_QUIET where the outcome is OK. Operations and their fields are those of arbiter.h
 * (shmstored/arbiter/), but for:
 *
 *   POOL_CREATE   pool > 1: a private pool of this client; bytes, extra; tail: its name
 *   TASK_BEGIN    tail: its label
 *   BIND, UNBIND  tail: tasks as decimal numbers, separated by commas; BIND: kind
 *   RESERVE       tail: empty, or "pool:bytes,pool:bytes": all or nothing
 *   SEAL          bytes: what the object really took. With WIRE_ARB_DROP it is the kernel's to
 *                 count from here on, and the reservation is gone
 *   FREED         memory of the partition was given back by a delete:
 *                 asked for by wire_lease.wanted
 *   LEASE         pool, bytes: raises granted of the page's lease of that pool by that and
 *                 something ahead, where nobody is disturbed by it; else AGAIN
 *   LEASE_CALLED  pool: something of a lease that was recalled has come back
 *                 (uncharged after wanted was set)
 *   SERVE         on a second connection of the same process, without a store: it is the
 *                 up-call channel of the client with that id (reservation =
 *                 REGISTERED.id). Answered by ARBED
 *   EVICTED       on the up-call channel, answers ARB_CALL: other = its call, bytes
 *                 that went (they were released or spilled before by messages of their
 *                 own, on the store's connection)
 *   STATE         context: tail of ARBED is {"state":"BLOCKED","since_ms":n,"held":n,"need":n}
 *   STATS         task, pool (0 = all), flags RESET:
 *                 {"retries":n,"splits":n,"grants":n,"blocked_ns":n,"lost_ns":n,
 *                 "blocked_or_lost_ns":n,"current":n,"max":n,"footprint":n,"need":n}.
 *                 Without a task, of a pool: {"capacity":n,"used":n,"reclaimable":n,
 *                 "spilled":n,"max_used":n,"waiting":n,"level":n}
 *
 * timeout_ms: of what may be withheld; 0 = as long as the daemon lets anybody wait (configured),
 * which is the bound in any case.
 */
enum wire_arb_op {
	WIRE_ARB_POOL_CREATE = 1,
	WIRE_ARB_POOL_RESIZE,
	WIRE_ARB_POOL_REMOVE,
	WIRE_ARB_TASK_BEGIN,
	WIRE_ARB_TASK_END,
	WIRE_ARB_BIND,
	WIRE_ARB_UNBIND,
	WIRE_ARB_RESERVE,
	WIRE_ARB_RELEASE,
	WIRE_ARB_RESIZE,
	WIRE_ARB_SEAL,
	WIRE_ARB_PIN,
	WIRE_ARB_UNPIN,
	WIRE_ARB_SPILLED,
	WIRE_ARB_READY,
	WIRE_ARB_RETRY_BEGIN,
	WIRE_ARB_RETRY_END,
	WIRE_ARB_WAIT_ON,
	WIRE_ARB_WAIT_OFF,
	WIRE_ARB_SPILL_BEGIN,
	WIRE_ARB_SPILL_END,
	WIRE_ARB_CANCEL,
	WIRE_ARB_INJECT,
	WIRE_ARB_FREED,
	WIRE_ARB_LEASE,
	WIRE_ARB_LEASE_CALLED,
	WIRE_ARB_SERVE,
	WIRE_ARB_EVICTED,
	WIRE_ARB_STATE,
	WIRE_ARB_STATS,
	WIRE_ARB_OP_END,
};

#define WIRE_ARB_PARTITION 1u /* pool */

#define WIRE_ARB_NONBLOCK (1u << 0) /* as ARB_NONBLOCK and so on of arbiter.h */
#define WIRE_ARB_SPILL    (1u << 1)
#define WIRE_ARB_RELEASED (1u << 2) /* TASK_END: ARB_RELEASE */
#define WIRE_ARB_ALL      (1u << 3)
#define WIRE_ARB_RESET    (1u << 4)
#define WIRE_ARB_QUIET    (1u << 8) /* no ARBED where the outcome is OK */
#define WIRE_ARB_DROP     (1u << 9) /* SEAL */

struct wire_arb {
	uint16_t op; /* enum wire_arb_op */
	uint16_t kind;
	uint32_t flags; /* WIRE_ARB_* */
	uint32_t context, task, pool, other;
	/* extra_kib: POOL_CREATE's spill reserve in KiB; INJECT's skip */
	uint32_t reservation, extra_kib;
	uint64_t bytes;
	int64_t value;
	uint64_t timeout_ms;
};

/* Root and the daemon's user. tail: the partition's path. Answered by DONE or REFUSED. */
enum wire_arb_admin_op {
	WIRE_ARB_ADMIN_KNOB = 1,
	WIRE_ARB_ADMIN_INJECT,
	WIRE_ARB_ADMIN_CANCEL
};
/* flags: the target is a task, whatever context has the same number */
#define WIRE_ARB_ADMIN_TASK (1u << 0)
struct wire_arb_admin {
	uint16_t op;
	uint16_t kind;   /* enum arb_knob, enum arb_inject */
	uint32_t flags;  /* WIRE_ARB_ADMIN_TASK */
	uint64_t target; /* a context or task as in the ARBITER document; 0 with KNOB */
	int64_t value;   /* KNOB: its value; INJECT: count */
	uint64_t skip;
	uint64_t pool; /* INJECT: as in the document, 0 = any */
};

/* ---- daemon to client ------------------------------------------------------------------------ */

/* tail: why, where the outcome is not OK; STATE, STATS: one JSON object. */
struct wire_arbed {
	int32_t outcome; /* enum arb_outcome of arbiter.h, never PENDING */
	uint32_t context;
	uint32_t reservation; /* the first of a RESERVE */
	uint32_t reserved;
	uint64_t bytes; /* LEASE: that granted was raised by. TOOBIG: the pool's capacity */
};

enum wire_arb_call_kind {
	/* make room of bytes in pool: release or spill, then EVICTED; within timeout_ms */
	WIRE_ARB_CALL_EVICT = 1,
	/* level of pool has changed: 0 none, 1 somebody waits, 2 somebody was
	 * rolled back lately; no answer */
	WIRE_ARB_CALL_PRESSURE = 2,
};
struct wire_arb_call {
	uint32_t kind;
	uint32_t call; /* of an EVICT, to be answered */
	uint32_t pool;
	uint32_t reservation; /* the one that was chosen first; 0 = any */
	uint64_t bytes;
	uint64_t timeout_ms;
	uint32_t level;
	uint32_t reserved;
};

#endif
