/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wiretask.h: messages of the gate and of preemption: TASK_ADMIT, _DONE, _RUNS, _ADMITTED,
 * _PREEMPT.
 */
#ifndef SHMS_WIRETASK_H
#define SHMS_WIRETASK_H

#include <stdint.h>

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
