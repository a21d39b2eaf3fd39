/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actor.h: a long-lived task with a state of its own and a queue of requests, which may be moved
 * elsewhere when its memory is wanted. Pure: events and time in, actions out; no clock, no I/O.
 *
 *   ACTIVE -> suspend -> stop what runs -> serialize -> [place] -> transfer -> deserialize ->
 *   forward the queue -> location -> ACTIVE
 *
 * From the suspension on requests only gather in the queue; nothing runs anywhere. The location
 * is the point of no return: until it is changed, every failure and every step that takes too
 * long brings the actor back to ACTIVE at home, with its queue as it was. The destination
 * discards its copy, of which it has run nothing. So each request is answered once, and they
 * begin in the order of their coming. Where no destination is found, the actor stays suspended
 * for suspend_max_ms; then it goes on at home, or is killed if its level is ALWAYS: its
 * requests are answered with that.
 */
#ifndef ACTOR_H
#define ACTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "ckptplan.h"

#define ACTOR_NEVER    0
#define ACTOR_ALWAYS   4
#define ACTOR_REQUESTS 65536u /* waiting and running at once */

struct actor_config {
	int level; /* ACTOR_NEVER to ACTOR_ALWAYS */
	bool can_save, can_load;
	uint32_t at_once;        /* methods that run side by side; 1 */
	uint64_t step_ms;        /* of each step of a move; 0: as long as it takes */
	uint64_t suspend_max_ms; /* without a destination */
};

enum actor_state {
	ACTOR_ACTIVE,
	ACTOR_SUSPENDING,
	ACTOR_STOPPING, /* what runs was told to stop */
	ACTOR_SERIALIZING,
	ACTOR_PLACING,
	ACTOR_TRANSFERRING,
	ACTOR_DESERIALIZING,
	ACTOR_FORWARDING,
	ACTOR_LOCATING,
	ACTOR_KILLED,
};

/* Actions for the caller. Those marked * are answered by actor_done() with their step. */
enum actor_action {
	ACTOR_SUSPEND, /* * home takes no more requests */
	/* request: this one shall end soon; answered by actor_answered() or actor_stopped() */
	ACTOR_STOP,
	ACTOR_SERIALIZE,   /* * */
	ACTOR_PLACE,       /* answered by actor_placed(), when there is a destination */
	ACTOR_TRANSFER,    /* * to peer */
	ACTOR_DESERIALIZE, /* * there */
	ACTOR_FORWARD,     /* * the queue, in its order; it runs nothing yet */
	ACTOR_LOCATE,      /* * everybody shall know that it is at peer now */
	ACTOR_DISCARD,     /* peer was given something that is of no use now */
	ACTOR_FAILED, /* for the log: the step of this state did not succeed; what is set to it */
	ACTOR_HOME,   /* everybody shall know that it is where it was */
	ACTOR_RESUME, /* it is active */
	ACTOR_RUN,    /* request, at peer ("": home) */
	ACTOR_LOSE,   /* request is answered with: the actor was killed */
	ACTOR_KILL,
};

struct actor_order {
	enum actor_action action;
	uint64_t step, request;
	const char *peer; /* "": home */
	enum actor_state what;
};

/* It must not call back. */
typedef void actor_do(void *arg, const struct actor_order *o);

/* To be read, not written. */
struct actor {
	struct actor_config config;
	actor_do *act;
	void *arg;
	enum actor_state state;
	uint64_t step;
	uint64_t deadline_ms; /* when to tick. UINT64_MAX: no need */
	bool given;           /* the destination has something */
	bool stays;           /* it is saved, not moved; also still at its RESUME */
	struct actor_request *requests, *table;
	uint32_t n_requests, n_running; /* all; those of them that run */
	char where[CKPT_NAME + 1], to[CKPT_NAME + 1];
};

/* The level that it really has: 0 unless it can save and load. strict: -EINVAL instead. */
int actor_level(int level, bool can_save, bool can_load, bool strict);
/* NULL: no memory. */
struct actor *actor_new(const struct actor_config *config, actor_do *act, void *arg);
/* Returns NULL. Waiting requests are forgotten. */
struct actor *actor_free(struct actor *a);

/* A request comes. Return: 0; -EEXIST: it is here already; -EAGAIN: ACTOR_REQUESTS are; -EPIPE: the
 * actor was killed; -ENOMEM. */
int actor_request(struct actor *a, uint64_t request);
/* A running request was answered. Return: 0: pass the answer on; -ENOENT: it did not run. */
int actor_answered(struct actor *a, uint64_t request, uint64_t now_ms);
/* A request stopped as told, with no effect; it reruns before later ones. Return: 0; -ENOENT. */
int actor_stopped(struct actor *a, uint64_t request, uint64_t now_ms);

/*
 * Its memory is wanted. peer: where it shall go; NULL: ask. Return: 0; -EPERM: it may not be
 * preempted; -EBUSY: it is on its way, or killed; -EINVAL: too long a name.
 */
int actor_preempt(struct actor *a, const char *peer, uint64_t now_ms);
/*
 * Its state shall be saved, for a copy, and it goes on where it is: as the first steps of a move,
 * but what runs ends by itself, and nothing is transferred. RESUME follows, after FAILED if it
 * could not be saved. Return: 0; -EPERM: it cannot be saved and loaded; -EBUSY: it is on its way,
 * or killed. A move that is asked for meanwhile goes on from there.
 */
int actor_save(struct actor *a, uint64_t now_ms);
/*
 * Its memory is wanted, and a copy at peer shall go on in its place, which is older than it is:
 * nothing is stopped, saved and transferred, and DESERIALIZE follows. Requests that run go on until
 * the caller, when the copy is there, kills it; if that step fails it goes on at home. Return: 0;
 * -EPERM: it may not be preempted; -EBUSY: it is saved already, or killed; -EINVAL: too long a
 * name.
 */
int actor_use_copy(struct actor *a, const char *peer, uint64_t now_ms);
/* A destination; NULL: there will be none, and it goes on where it is. Return: 0;
 * -ESTALE: nobody waits for one. */
int actor_placed(struct actor *a, const char *peer, uint64_t now_ms);
/* A step ended. Return: 0; -ESTALE: not this one, or not any more; nothing changed. */
int actor_done(struct actor *a, uint64_t step, bool ok, uint64_t now_ms);
/* Its process has ended, or it shall: all requests are answered with that (ACTOR_LOSE),
 * and there will be no others. */
void actor_kill(struct actor *a);
/* Time has passed: a step that takes too long has failed. */
void actor_tick(struct actor *a, uint64_t now_ms);

#endif
