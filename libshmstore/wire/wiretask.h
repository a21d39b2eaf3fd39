/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wiretask.h: messages about tasks and their memory (wire.h): of profiles PROFILE, PROFILE_ADMIN,
 * PROFILED; of stages STAGE_QUERY, _BEGIN, _END, STAGED; of the gate and of preemption TASK_ADMIT,
 * _DONE, _RUNS, _ADMITTED, _PREEMPT.
 */
#ifndef SHMS_WIRETASK_H
#define SHMS_WIRETASK_H

#include <stdint.h>

/*
 * Usage of a user's tasks so far (shmstored/decisions/profile.h). The client numbers the tasks of a
 * connection from 1. A kind's name is the tail "LANG\nFUNC\nGROUP". Answered by PROFILED, by
 * REFUSED, and not at all with WIRE_PROFILE_QUIET.
 *
 *   BEGIN      tail: the kind's name. From here on the daemon looks at the process's private memory
 *   SAMPLE     private_bytes: what the task itself has now, beside what the daemon sees
 *   END        how; private_bytes: the most that it had; shared_bytes: that it created;
 *              cpu_ms. Each where flags say so
 *   ESTIMATE   tail: the kind's name; private_bytes, shared_bytes, cpu_ms:
 *              what it declares (0: nothing)
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
 * For tools. Each user has a profile of their own; another's than one's own, and ALL, are
 * for root and the daemon's user.
 *
 *   SHOW    answered by DATA: a JSON document. ALL: everybody's
 *   TEXT    answered by DATA: the profile as the text that LOAD takes
 *   LOAD    tail: a part of such a text, which begins at offset and has total bytes. The
 *           parts come in their order, the first at 0; the last one replaces the profile,
 *           as a prior. Answered by DONE
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

/* ---- daemon to client ------------------------------------------------------------------------ */

/* BEGIN, ESTIMATE: what the next task of this kind will use, and of how many tasks
 * that is known. Else zeros. */
struct wire_profiled {
	uint64_t private_bytes, shared_bytes, cpu_ms;
	uint64_t n;
};

/*
 * Memory of a worker for a stage of a job (shmstored/decisions/stagebook.h). QUERY and BEGIN come
 * from the worker: a connection that has registered a store. A stage's name has 1 to
 * WIRE_STAGE_NAME bytes and no line break.
 *
 *   STAGE_QUERY    tail: the stage's name. Answered by STAGED
 *   STAGE_BEGIN    tail: the stage's name. Answered by STAGED: late, where others hold what it
 *                  shall have, but not later than timeout_ms and what is configured
 *   STAGE_END      session: 0, or a worker's id (REGISTERED.id): of the same user, or
 *                  for root and the daemon's user. Answered by STAGED: what the worker
 *                  has now; with a session by DONE
 */
#define WIRE_STAGE_NAME 240u

#define WIRE_STAGE_HAS_NONSHARE (1u << 0)

struct wire_stage_query {
	uint32_t base;           /* a profile: 0. A query starts from the base always */
	uint32_t flags;          /* WIRE_STAGE_HAS_NONSHARE */
	uint16_t root, fallback; /* enum shmstore_stage_root, shmstore_stage_fallback (stage.h) */
	uint32_t nonshare_ppm;   /* of the bytes, what cannot be shared */
	uint64_t n_native, n_convert,
		/* operators on shared memory, copies between it and private memory, all others */
		n_other;
	uint32_t want_slots; /* 0: those of the base */
	uint32_t reserved;
};

struct wire_stage_begin {
	/* other: a second one that was asked for in this stage; else the same again */
	uint32_t profile, other;
	uint64_t timeout_ms; /* UINT64_MAX: as configured */
};

struct wire_stage_end {
	uint64_t session;
};

/* ---- daemon to client ------------------------------------------------------------------------ */

#define WIRE_STAGED_CLAMPED  (1u << 0) /* private_bytes are less than the rules say */
#define WIRE_STAGED_DEGRADED (1u << 1) /* less than the profile: others hold the rest */

enum wire_stage_rule {
	WIRE_STAGE_WHOLE = 1,
	WIRE_STAGE_PARTIAL = 2,
};

struct wire_staged {
	uint32_t profile; /* 0: the base */
	uint32_t flags;   /* WIRE_STAGED_* */
	uint32_t rules;   /* of a query: enum wire_stage_rule */
	uint32_t slots;
	uint64_t private_bytes, shared_bytes, private_per_slot, shared_per_slot;
	uint64_t expires_ms; /* after that a query may say something else */
};

/*
 * May a task begin? (docs/governor.md "The gate".) Answered by TASK_ADMITTED with the request's
 * serial: at once, or late where it waits; a CANCEL of that serial ends the wait (REFUSED with
 * -ECANCELED). An admitted task counts until TASK_DONE, or the end of the connection. tail: the
 * kind's name, as of PROFILE; empty: nothing is known of it.
 */
enum wire_task_form {
	WIRE_TASK_TRY = 1, /* now or not at all */
	WIRE_TASK_UNTIL,   /* within timeout_ms */
	WIRE_TASK_WAIT,    /* as long as it takes */
	WIRE_TASK_FORM_END,
};
#define WIRE_TASK_LEVEL_AUTO 5u        /* 0 NEVER to 4 ALWAYS: enum policylevel of policy.h */
#define WIRE_TASK_RETRIABLE  (1u << 0) /* flags: it can be tried again if it is preempted */
#define WIRE_TASK_TOLD       (1u << 1) /* TASK_PREEMPT is understood on this connection */
/* its process is a worker: while it runs no task it is idle, and the first that may be ended */
#define WIRE_TASK_WORKER     (1u << 2)
/* uid: of the user that asks. Another's is for root and the daemon's user */
#define WIRE_TASK_MINE       UINT32_MAX

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

/* It has ended. Answered by DONE; REFUSED: -ENOENT: there is none; -EPERM: it
 * is not of this connection. */
struct wire_task_done {
	uint64_t task;
};

/*
 * An earlier daemon admitted the task, and it still runs: counts from here on under the number that
 * it has. No answer: an invalid one is not counted, and its TASK_DONE is refused. tail: as of
 * TASK_ADMIT.
 */
struct wire_task_runs {
	uint64_t task;
	uint64_t declared, parent; /* these and the following as of TASK_ADMIT */
	uint32_t uid;
	uint32_t flags;
	uint32_t level;
	uint32_t reserved;
};

/* ---- daemon to client ------------------------------------------------------------------------ */

enum wire_task_outcome {
	WIRE_TASK_IN = 1,
	WIRE_TASK_REFUSED,  /* a TRY that would have to wait */
	WIRE_TASK_TIMEDOUT, /* an UNTIL that waited in vain */
	/* it declared more than there ever is, or than its worker's stage leaves it */
	WIRE_TASK_TOOBIG,
};
/* Why: of those that are IN the first three. */
enum wire_task_reason {
	WIRE_TASK_PROGRESS = 1, /* nothing else runs */
	WIRE_TASK_FITS,
	WIRE_TASK_OFF,  /* nobody watches the host's memory, so nobody is held back. task is 0 */
	WIRE_TASK_GATE, /* the gate is closed, or as many began within this interval as may */
	/* what those that run will take, and it, do not fit below the gate; or one
	 * waits before it that does not */
	WIRE_TASK_FULL,
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
 * Memory is short, and a process that runs tasks shall give way (docs/governor.md "Preemption").
 * Goes to the connection that admitted each task, and to that of its parent task, where these said
 * WIRE_TASK_TOLD; for an idle worker (task 0) to the worker. Serial 0. A slow reader may miss it.
 */
enum wire_task_preempt_what {
	WIRE_PREEMPT_NOTICE = 1, /* end the task within grace_ms, or its process is ended */
	/* the process goes on: the need passed by, or it ended its tasks in time */
	WIRE_PREEMPT_SPARED,
	WIRE_PREEMPT_LOST, /* the process has ended, and the task with it */
};
#define WIRE_PREEMPT_RETRY (1u << 0) /* flags: it may be tried again, after delay_ms */
/* asked only: memory is not so short that a process is ended for it */
#define WIRE_PREEMPT_ASKED (1u << 1)

struct wire_task_preempt {
	uint64_t task, parent;
	uint64_t bytes; /* private ones that it had */
	uint64_t grace_ms, delay_ms;
	uint32_t what; /* enum wire_task_preempt_what */
	uint32_t flags;
};

#endif
