/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wireactor.h: messages of actors: ACTOR_PLACE, _BORN, _NEXT, _DONE, _CALL, _MOVE, _ORDER, _ANSWER.
 */
#ifndef SHMS_WIREACTOR_H
#define SHMS_WIREACTOR_H

#include <stdint.h>

/*
 * Actors (docs/actors.md): processes with a state of their own that answer calls, and that may be
 * moved. A connection is a place for actors by ACTOR_PLACE; an actor begins at a place by
 * ACTOR_BORN. A place asks by ACTOR_NEXT for an order; ACTOR_ORDER answers once there is one;
 * ACTOR_DONE says how that ended. Each user has actors of their own.
 */
/* bytes of the name of an actor, or of a place: printable, no blank */
#define WIRE_ACTOR_NAME    63u
#define WIRE_ACTOR_OPTIONS 512u       /* bytes of its options */
#define WIRE_ACTOR_LEAVES  (1u << 0)  /* of ACTOR_PLACE, flags: a place no more; its actors end */
#define WIRE_ACTOR_ROOMY   UINT64_MAX /* free: as its store's partition has */

/* tail: its name, no other's of this user. Again, with the same name: what is free has
 * changed. Answered by DONE. */
struct wire_actor_place {
	uint64_t free; /* bytes of state that may be moved here; 0: nothing may */
	uint32_t flags, reserved;
};

#define WIRE_ACTOR_CAN_SAVE (1u << 0) /* of ACTOR_BORN and ACTOR_ORDER */
#define WIRE_ACTOR_CAN_LOAD (1u << 1)
#define WIRE_ACTOR_STRICT   (1u << 2) /* that it cannot do both is an error where a level is said */
#define WIRE_ACTOR_NEW      (1u << 3) /* it begins; else the next daemon is told of it */
/* it has run something, and no move has begun since: there is no other of its state */
#define WIRE_ACTOR_SURE     (1u << 4)

/*
 * tail: its name, or its name, a line break, and the name of the actor whose child it is. Where the
 * daemon has WIRE_FEATURE_ACTOR_OPTIONS a second line break may follow, also after no parent, and
 * the actor's options: "3", how often it is begun again (UINT32_MAX: always), or "3 num=explicit:2
 * retry=0", with words of the section peers of shmstored.conf(5). Answered by DONE.
 */
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

/* step, request: of the ACTOR_ORDER, one of both. tail: the actor's name, and after it the answer,
 * or the ticket of what was saved. Answered by DONE. */
struct wire_actor_done {
	uint64_t step, request;
	uint64_t bytes;     /* of what was saved */
	uint32_t how, name; /* name: bytes of it in the tail */
};

/* tail: the actor's name, and what it is told. Answered by ACTOR_ANSWER, when it ran; in the
 * order of the calls of all. */
struct wire_actor_call {
	uint32_t name, reserved;
};

/* tail: the actor's name, a line break, and the name of a place; without these two where the daemon
 * finds one. Answered by DONE when it is there. */
struct wire_actor_move {
	uint64_t reserved;
};

/* ---- daemon to client ------------------------------------------------------------------------ */

/* Answers ACTOR_NEXT. tail: the actor's name, and after it what it is told (RUN), a ticket
 * (FETCH), or its options (LOAD). */
enum wire_actor_what {
	WIRE_ACTOR_RUN = 1, /* request */
	WIRE_ACTOR_STOP,    /* request, which shall end soon, one way or the other */
	/* step: nothing runs; its state becomes an object, and is not changed from now on */
	WIRE_ACTOR_SAVE,
	WIRE_ACTOR_FETCH, /* step: take that object */
	WIRE_ACTOR_LOAD,  /* step: make the actor of it */
	WIRE_ACTOR_KEEP, /* it is here, as that version; step may be 0: nothing is to be answered */
	WIRE_ACTOR_DROP, /* it is not here, or not any more */
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

#endif
