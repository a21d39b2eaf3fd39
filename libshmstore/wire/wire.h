/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h: the protocol between the processes of a host and shmstored: messages on a SOCK_SEQPACKET Unix socket. What they say to each
 * other without a message is in pagewords.h.
 *
 * A packet is one message: a header, the fixed body of its type (wire.def), and up to tail bytes of text without a NUL, or, after an
 * actor's name, of anything (ACTOR_CALL, _DONE, _ORDER, _ANSWER). The packet's size must be header + body + tail exactly as the header
 * says. Both sides copy a message once, check it, then use it.
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

#define WIRE_VERSION 1u
#define WIRE_MAGIC   0x52444853u /* "SHDR" */
#define WIRE_SOCKET  "/run/shmstored/socket"
/* Of a daemon that serves one user: in the directory of the user's session ($XDG_RUNTIME_DIR), which is WIRE_SESSION where the
 * environment does not say so (cron, su); without a session at all, WIRE_SESSIONLESS, made by the daemon and the user's alone. */
#define WIRE_OWN_SOCKET  "shmstored/socket"
#define WIRE_SESSION     "/run/user/%u"
#define WIRE_SESSIONLESS "/dev/shm/shmstored-%u"
#define WIRE_PATH_MAX    4095u
#define WIRE_TEXT_MAX    4095u
#define WIRE_DATA_MAX    16384u

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

/* Ends a waiting GRANT, TASK_ADMIT, ACTOR_CALL or ACTOR_MOVE: REFUSED with -ECANCELED for it, DONE for this. */
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
	WIRE_QUERY_ARBITER = 8,   /* pools, tasks, contexts, totals, knobs */
	WIRE_QUERY_ARB_LOG = 9,   /* the last transitions */
	WIRE_QUERY_MEMORY = 16,   /* the host's memory, term by term, and whose it is */
	WIRE_QUERY_GATE = 17,     /* whether more work may begin */
	WIRE_QUERY_STAGES = 32,   /* who runs which stage, with what */
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

/*
 * The arbiter. All ids are the client's own, 1 to UINT32_MAX, and mean something on this connection only; the connection must
 * have registered a store, whose partition's pool is WIRE_ARB_PARTITION. Answered by ARBED with the request's serial, late where the reply
 * is withheld, and not at all with WIRE_ARB_QUIET where the outcome is OK. Operations and their fields are those of arbiter.h (shmstored/arbiter/), but for:
 *
 *   POOL_CREATE   pool > 1: a private pool of this client; bytes, extra; tail: its name
 *   TASK_BEGIN    tail: its label
 *   BIND, UNBIND  tail: tasks as decimal numbers, separated by commas; BIND: kind
 *   RESERVE       tail: empty, or "pool:bytes,pool:bytes": all or nothing
 *   SEAL          bytes: what the object really took. With WIRE_ARB_DROP it is the kernel's to count from here on, and the reservation is gone
 *   FREED         memory of the partition was given back by a delete: asked for by wire_lease.wanted
 *   LEASE         pool, bytes: raises granted of the page's lease of that pool by that and something ahead, where nobody is disturbed by it; else AGAIN
 *   LEASE_CALLED  pool: something of a lease that was recalled has come back (uncharged after wanted was set)
 *   SERVE         on a second connection of the same process, without a store: it is the up-call channel of the client with that id (reservation =
 *                 REGISTERED.id). Answered by ARBED
 *   EVICTED       on the up-call channel, answers ARB_CALL: other = its call, bytes that went (they were released or spilled before by messages of their
 *                 own, on the store's connection)
 *   STATE         context: tail of ARBED is {"state":"BLOCKED","since_ms":n,"held":n,"need":n}
 *   STATS         task, pool (0 = all), flags RESET: {"retries":n,"splits":n,"grants":n,"blocked_ns":n,"lost_ns":n,"blocked_or_lost_ns":n,"current":n,"max":n,
 *                 "footprint":n,"need":n}. Without a task, of a pool: {"capacity":n,"used":n,"reclaimable":n,"spilled":n,"max_used":n,"waiting":n,"level":n}
 *
 * timeout_ms: of what may be withheld; 0 = as long as the daemon lets anybody wait (configured), which is the bound in any case.
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
	uint32_t reservation, extra_kib; /* extra_kib: POOL_CREATE's spill reserve in KiB; INJECT's skip */
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
#define WIRE_ARB_ADMIN_TASK (1u << 0) /* flags: the target is a task, whatever context has the same number */
struct wire_arb_admin {
	uint16_t op;
	uint16_t kind;   /* enum arb_knob, enum arb_inject */
	uint32_t flags;  /* WIRE_ARB_ADMIN_TASK */
	uint64_t target; /* a context or task as in the ARBITER document; 0 with KNOB */
	int64_t value;   /* KNOB: its value; INJECT: count */
	uint64_t skip;
	uint64_t pool; /* INJECT: as in the document, 0 = any */
};

/*
 * What tasks of a user used so far (shmstored/profile/profile.h). Tasks are numbered by the client, from 1, and mean something on this connection
 * only. A kind's name is the tail "LANG\nFUNC\nGROUP". Answered by PROFILED, by REFUSED, and not at all with WIRE_PROFILE_QUIET.
 *
 *   BEGIN      tail: the kind's name. From here on the daemon looks at the process's private memory
 *   SAMPLE     private_bytes: what the task itself has now, beside what the daemon sees
 *   END        how; private_bytes: the most that it had; shared_bytes: that it created; cpu_ms. Each where flags say so
 *   ESTIMATE   tail: the kind's name; private_bytes, shared_bytes, cpu_ms: what it declares (0: nothing)
 */
enum wire_profile_op {
	WIRE_PROFILE_BEGIN = 1,
	WIRE_PROFILE_SAMPLE,
	WIRE_PROFILE_END,
	WIRE_PROFILE_ESTIMATE,
	WIRE_PROFILE_OP_END,
};
enum wire_profile_how {
	WIRE_PROFILE_DONE = 0,
	WIRE_PROFILE_KILLED,    /* for want of memory: the next of its kind is estimated higher */
	WIRE_PROFILE_PREEMPTED, /* what it used until then says nothing */
	WIRE_PROFILE_DROPPED,   /* nor here: it failed */
	WIRE_PROFILE_HOW_END,
};
#define WIRE_PROFILE_HAS_PRIVATE (1u << 0)
#define WIRE_PROFILE_HAS_SHARED  (1u << 1)
#define WIRE_PROFILE_HAS_CPU     (1u << 2)
#define WIRE_PROFILE_QUIET       (1u << 8) /* SAMPLE, END: nothing is answered where all is well */

struct wire_profile {
	uint16_t op;  /* enum wire_profile_op */
	uint16_t how; /* END: enum wire_profile_how */
	uint32_t flags;
	uint32_t task;
	uint32_t reserved;
	uint64_t private_bytes, shared_bytes, cpu_ms;
};

/*
 * For tools. Each user has a profile of their own; another's than one's own, and ALL, are for root and the daemon's user.
 *
 *   SHOW    answered by DATA: a JSON document. ALL: everybody's
 *   TEXT    answered by DATA: the profile as the text that LOAD takes
 *   LOAD    tail: a part of such a text, which begins at offset and has total bytes. The parts come in their order, the first at 0; the last one
 *           replaces the profile, as a prior. Answered by DONE
 *   RESET   nothing is known any more. Answered by DONE
 */
enum wire_profile_admin_op {
	WIRE_PROFILE_ADMIN_SHOW = 1,
	WIRE_PROFILE_ADMIN_TEXT,
	WIRE_PROFILE_ADMIN_LOAD,
	WIRE_PROFILE_ADMIN_RESET,
	WIRE_PROFILE_ADMIN_OP_END,
};
#define WIRE_PROFILE_MINE     UINT32_MAX
#define WIRE_PROFILE_ALL      (UINT32_MAX - 1)
#define WIRE_PROFILE_TEXT_MAX (UINT64_C(16) << 20)

struct wire_profile_admin {
	uint32_t op;  /* enum wire_profile_admin_op */
	uint32_t uid; /* whose; WIRE_PROFILE_MINE, WIRE_PROFILE_ALL */
	uint64_t offset, total;
};

/*
 * What a worker gets for a stage of a job (shmstored/stage/stageprofile.h). QUERY and BEGIN come from a connection that has registered a store: that is the worker.
 * A stage's name has 1 to WIRE_STAGE_NAME bytes and no line break.
 *
 *   STAGE_QUERY    tail: the stage's name, a line break, and the shuffles that it reads as "MxN,MxN". Answered by STAGED
 *   STAGE_BEGIN    tail: the stage's name. Answered by STAGED: late, where others hold what it shall have, but not later than timeout_ms and what is configured
 *   STAGE_END      session: 0, or a worker's id (REGISTERED.id): of the same user, or for root and the daemon's user. Answered by STAGED: what the worker has now;
 *                  with a session by DONE
 *   STAGE_DEMOTE   should a stage keep its data private? By the conversions that this saves. Answered by DEMOTED
 */
#define WIRE_STAGE_NAME 240u

enum wire_stage_root {
	WIRE_STAGE_EXCHANGE = 0,
	WIRE_STAGE_FINAL,
	WIRE_STAGE_ROOT_END,
};
enum wire_stage_fallback {
	WIRE_STAGE_FALLBACK_FOUND = 0, /* by the counts and the share */
	WIRE_STAGE_FALLBACK_NONE,
	WIRE_STAGE_FALLBACK_PARTIAL,
	WIRE_STAGE_FALLBACK_WHOLE,
	WIRE_STAGE_FALLBACK_END,
};
#define WIRE_STAGE_HAS_NONSHARE (1u << 0)

struct wire_stage_query {
	uint32_t base;  /* a profile: 0. A query starts from the base always */
	uint32_t flags; /* WIRE_STAGE_HAS_NONSHARE */
	uint16_t root, fallback;
	uint32_t nonshare_ppm; /* of the bytes, what cannot be shared */
	uint64_t n_native, n_convert,
		n_other;     /* operators on shared memory, copies between it and private memory, all others */
	uint64_t bytes_in;   /* that the stage reads; 0: not known */
	uint32_t want_slots; /* 0: those of the base */
	uint32_t reserved;
};

struct wire_stage_begin {
	uint32_t profile, other; /* other: a second one that was asked for in this stage; else the same again */
	uint64_t timeout_ms;     /* UINT64_MAX: as configured */
};

#define WIRE_STAGE_LEARN       (1u << 0) /* it went well: the next run is known by it */
#define WIRE_STAGE_HAS_PRIVATE (1u << 1)

struct wire_stage_end {
	uint64_t session;
	uint32_t flags; /* WIRE_STAGE_LEARN, WIRE_STAGE_HAS_PRIVATE */
	uint32_t reserved;
	uint64_t private_bytes; /* the most that it had; what the daemon saw counts where that is more */
};

#define WIRE_STAGE_HAS_THRESHOLD (1u << 0)
struct wire_stage_demote {
	uint32_t flags; /* WIRE_STAGE_HAS_THRESHOLD: instead of the configured one */
	uint32_t reserved;
	int64_t to_private, to_shared, other_leaves, added, plain, threshold;
};

/*
 * May a task begin? (docs/pressure.md "The gate".) Answered by TASK_ADMITTED with the request's serial: at once, or late where it waits; a CANCEL of that serial
 * ends the wait (REFUSED with -ECANCELED). What was admitted counts until TASK_DONE, or the end of the connection. tail: the kind's name, as of PROFILE; empty:
 * nothing is known of it.
 */
enum wire_task_form {
	WIRE_TASK_TRY = 1, /* now or not at all */
	WIRE_TASK_UNTIL,   /* within timeout_ms */
	WIRE_TASK_WAIT,    /* as long as it takes */
	WIRE_TASK_FORM_END,
};
#define WIRE_TASK_LEVEL_AUTO 5u        /* 0 NEVER to 4 ALWAYS: enum policylevel of policylevel.h */
#define WIRE_TASK_RETRIABLE  (1u << 0) /* flags: it can be tried again if it is preempted */
#define WIRE_TASK_TOLD       (1u << 1) /* TASK_PREEMPT is understood on this connection */
#define WIRE_TASK_WORKER \
	(1u << 2) /* its process is a worker: while it runs no task it is idle, and the first that may be ended */
#define WIRE_TASK_MINE UINT32_MAX /* uid: of the user that asks. Another's is for root and the daemon's user */

struct wire_task_admit {
	uint16_t form;  /* enum wire_task_form */
	uint16_t level; /* how willing it is to be preempted */
	uint32_t flags; /* WIRE_TASK_* */
	uint32_t uid;   /* whose task it is: by whose profile it is estimated */
	uint32_t reserved;
	uint64_t declared;   /* private bytes that it needs at least; 0: it does not say */
	uint64_t timeout_ms; /* UNTIL */
	uint64_t parent;     /* the task that started it; 0: none that was admitted */
};

/* It has ended. Answered by DONE; REFUSED: -ENOENT: there is none; -EPERM: it is not of this connection. */
struct wire_task_done {
	uint64_t task;
};

/*
 * It was let in by an earlier daemon, and runs still: counted from here on as if it had been let in here, under the number that it has. Not answered: what cannot
 * be, or is not the sender's to say, is not counted, and its TASK_DONE will be refused. tail: as of TASK_ADMIT.
 */
struct wire_task_runs {
	uint64_t task;
	uint64_t declared, parent; /* these and the following as of TASK_ADMIT */
	uint32_t uid;
	uint32_t flags;
	uint32_t level;
	uint32_t reserved;
};

/*
 * Actors (docs/actors.md): processes with a state of their own that answer calls, and that may be moved. A connection is a place for actors by ACTOR_PLACE; an actor
 * begins at a place by ACTOR_BORN. What a place shall do it asks for by ACTOR_NEXT, whose answer (ACTOR_ORDER) is withheld until there is something; how that
 * ended it says by ACTOR_DONE. All of it is one user's: others' actors have other names.
 */
#define WIRE_ACTOR_NAME   63u        /* bytes of the name of an actor, or of a place: printable, no blank */
#define WIRE_ACTOR_LEAVES (1u << 0)  /* of ACTOR_PLACE, flags: a place no more; its actors end */
#define WIRE_ACTOR_ROOMY  UINT64_MAX /* free: as its store's partition has */

/* tail: its name, no other's of this user. Again, with the same name: what is free has changed. Answered by DONE. */
struct wire_actor_place {
	uint64_t free; /* bytes of state that may be moved here; 0: nothing may */
	uint32_t flags, reserved;
};

#define WIRE_ACTOR_CAN_SAVE (1u << 0) /* of ACTOR_BORN and ACTOR_ORDER */
#define WIRE_ACTOR_CAN_LOAD (1u << 1)
#define WIRE_ACTOR_STRICT   (1u << 2) /* that it cannot do both is an error where a level is said */
#define WIRE_ACTOR_NEW      (1u << 3) /* it begins; else the next daemon is told of it */
#define WIRE_ACTOR_SURE \
	(1u << 4) /* it has run something, and no move has begun since: there is no other of its state */

/* tail: its name, or its name, a line break, and the name of the actor whose child it is. Answered by DONE. */
struct wire_actor_born {
	uint64_t version; /* as the last order said; of a new one 0 */
	uint64_t step_ms, suspend_ms;
	uint32_t at_once; /* calls that run side by side */
	uint16_t level;   /* enum policylevel, but AUTO */
	uint16_t flags;   /* WIRE_ACTOR_* */
};

struct wire_actor_next {
	uint64_t reserved;
};

enum wire_actor_how {
	WIRE_ACTOR_OK = 1,
	WIRE_ACTOR_FAILED,  /* of a call: what it raised follows */
	WIRE_ACTOR_STOPPED, /* of a call that runs: it had no effect, and is to be run again */
	WIRE_ACTOR_LOST,    /* of an answer: the actor has ended, and perhaps ran this */
	WIRE_ACTOR_ENDED,   /* of no order: the actor ends here */
	WIRE_ACTOR_HOW_END,
};

/* step, request: of the ACTOR_ORDER, one of both. tail: the actor's name, and after it the answer, or the ticket of what was saved. Answered by DONE. */
struct wire_actor_done {
	uint64_t step, request;
	uint64_t bytes;     /* of what was saved */
	uint32_t how, name; /* name: bytes of it in the tail */
};

/* tail: the actor's name, and what it is told. Answered by ACTOR_ANSWER, when it ran; in the order of the calls of all. */
struct wire_actor_call {
	uint32_t name, reserved;
};

/* tail: the actor's name, a line break, and the name of a place; without these two where the daemon finds one. Answered by DONE when it is there. */
struct wire_actor_move {
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

/* tail: why, where the outcome is not OK; STATE, STATS: one JSON object. */
struct wire_arbed {
	int32_t outcome; /* enum arb_outcome of arbiter.h, never PENDING */
	uint32_t context;
	uint32_t reservation; /* the first of a RESERVE */
	uint32_t reserved;
	uint64_t bytes; /* LEASE: that granted was raised by. TOOBIG: the pool's capacity */
};

enum wire_arb_call_kind {
	WIRE_ARB_CALL_EVICT = 1, /* make room of bytes in pool: release or spill, then EVICTED; within timeout_ms */
	WIRE_ARB_CALL_PRESSURE =
		2, /* level of pool has changed: 0 none, 1 somebody waits, 2 somebody was rolled back lately; no answer */
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

/* BEGIN, ESTIMATE: what the next task of this kind will use, and of how many tasks that is known. Else zeros. */
struct wire_profiled {
	uint64_t private_bytes, shared_bytes, cpu_ms;
	uint64_t n;
};

#define WIRE_STAGED_CLAMPED  (1u << 0) /* private_bytes are less than the rules say */
#define WIRE_STAGED_DEGRADED (1u << 1) /* less than the profile: others hold the rest */

enum wire_stage_rule {
	WIRE_STAGE_WHOLE = 1,
	WIRE_STAGE_PARTIAL = 2,
	WIRE_STAGE_SHUFFLE = 4,
	WIRE_STAGE_MEASURED = 8,
};

struct wire_staged {
	uint32_t profile; /* 0: the base */
	uint32_t flags;   /* WIRE_STAGED_* */
	uint32_t rules;   /* of a query: enum wire_stage_rule */
	uint32_t slots;
	uint64_t private_bytes, shared_bytes, private_per_slot, shared_per_slot;
	uint64_t expires_ms; /* after that a query may say something else */
};

struct wire_demoted {
	int64_t net;     /* conversions that it saves */
	uint32_t demote; /* 1: it should */
	uint32_t reserved;
};

enum wire_task_outcome {
	WIRE_TASK_IN = 1,
	WIRE_TASK_REFUSED,  /* a TRY that would have to wait */
	WIRE_TASK_TIMEDOUT, /* an UNTIL that waited in vain */
	WIRE_TASK_TOOBIG,   /* it declared more than there ever is, or than its worker's stage leaves it */
};
/* Why: of those that are IN the first three. */
enum wire_task_reason {
	WIRE_TASK_PROGRESS = 1, /* nothing else runs */
	WIRE_TASK_FITS,
	WIRE_TASK_OFF,  /* nobody watches the host's memory, so nobody is held back. task is 0 */
	WIRE_TASK_GATE, /* the gate is closed, or as many began within this interval as may */
	WIRE_TASK_FULL, /* what those that run will take, and it, do not fit below the gate; or one waits before it that does not */
	WIRE_TASK_MORE_THAN_ALL,
};
struct wire_task_admitted {
	uint64_t task;    /* of the host, never 0 where it is IN: to be named in TASK_DONE */
	uint64_t reserve; /* private bytes that are expected of it */
	uint64_t waited_ms;
	uint32_t outcome; /* enum wire_task_outcome */
	uint32_t reason;  /* enum wire_task_reason */
};

/*
 * Memory is short, and a process that runs tasks was chosen to give way (docs/pressure.md "Preemption"): told of each task to the connection that it was let in on,
 * and to that of the task which started it (parent), where these said WIRE_TASK_TOLD; of an idle worker (task 0) to the worker. Serial 0. Left out for one
 * that reads so slowly that much waits for it.
 */
enum wire_task_preempt_what {
	WIRE_PREEMPT_NOTICE = 1, /* end the task within grace_ms, or its process is ended */
	WIRE_PREEMPT_SPARED,     /* the process goes on: the need passed by, or it ended its tasks in time */
	WIRE_PREEMPT_LOST,       /* the process has ended, and the task with it */
};
#define WIRE_PREEMPT_RETRY (1u << 0) /* flags: it may be tried again, after delay_ms */
#define WIRE_PREEMPT_ASKED (1u << 1) /* asked only: memory is not so short that a process is ended for it */

struct wire_task_preempt {
	uint64_t task, parent;
	uint64_t bytes; /* private ones that it had */
	uint64_t grace_ms, delay_ms;
	uint32_t what; /* enum wire_task_preempt_what */
	uint32_t flags;
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

/* Answers ACTOR_NEXT. tail: the actor's name, and after it what it is told (RUN), or a ticket (FETCH). */
enum wire_actor_what {
	WIRE_ACTOR_RUN = 1, /* request */
	WIRE_ACTOR_STOP,    /* request, which shall end soon, one way or the other */
	WIRE_ACTOR_SAVE,    /* step: nothing runs; its state becomes an object, and is not changed from now on */
	WIRE_ACTOR_FETCH,   /* step: take that object */
	WIRE_ACTOR_LOAD,    /* step: make the actor of it */
	WIRE_ACTOR_KEEP,    /* it is here, as that version; step may be 0: nothing is to be answered */
	WIRE_ACTOR_DROP,    /* it is not here, or not any more */
	WIRE_ACTOR_WHAT_END,
};
struct wire_actor_order {
	uint64_t step, request, version;
	uint64_t step_ms, suspend_ms; /* these and the following as of ACTOR_BORN */
	uint32_t at_once;
	uint16_t level, flags;
	uint32_t what, name; /* name: bytes of it in the tail */
};

/* tail: the answer. */
struct wire_actor_answer {
	uint32_t how, reserved; /* how: OK, FAILED, LOST */
};

#define WIRE_PACKET_MAX (sizeof(struct wire_header) + 64 + WIRE_DATA_MAX)

_Static_assert(sizeof(struct wire_header) == 24, "header");

#endif
