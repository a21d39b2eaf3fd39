/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actor.h: an actor is a process's object with a state of its own. It answers calls of other
 * processes, one after the other, and may be moved to another process with its state and all calls
 * that wait. Needs shmstored. docs/actors.md has the rules.
 *
 *   actor   a name of this user, and a state that only the program knows: what it is, how to save
 *           it, how to load it
 *   place   a store's process that takes actors. It asks for orders, and carries them out
 *   call    bytes for an actor, and the bytes of its answer. Calls of all callers have one order,
 *           in which they begin; each is answered once
 *
 *   struct shmstore_place *p;
 *   struct shmstore_actor_order o;
 *   shmstore_place_open(s, "first", SHMSTORE_PLACE_ROOMY, &p);
 *   shmstore_actor_begin(p, "counter", NULL);
 *   while (shmstore_actor_next(p, 1000, &o) >= 0)
 *           switch (o.what) {
 *           case SHMSTORE_ACTOR_RUN:                    // answer = counter(o.data)
 *                   shmstore_actor_done(p, &o, SHMSTORE_ACTOR_OK, answer, n);
 *           ...
 *           }
 *
 * These hold for every function, beside what it says itself:
 *
 *   Return   0, or -errno:
 *              -EINVAL    an argument is NULL; the store is closed; a name is no name: 1 to
 *                         SHMSTORE_ACTOR_NAME printable bytes, no blank, no slash, no dot in front
 *              -EPERM     the store was opened to be read only, or by the parent before a fork
 *              -ENOTSUP   there is no daemon, or it died meanwhile: then it is not known whether a
 *                         call ran
 *              -ENOMEM    out of memory, here or in the daemon
 *   Threads  many threads may call at once; only shmstore_actor_next() of one place, and any
 *            function of one call, take one thread at a time
 *   Fork     a child's copies are not usable: -EPERM
 *   Users    a user's actors are called, moved and taken by processes of that user alone
 *   Never    starts a thread. Since 0.1, all of it
 */
#ifndef SHMSTORE_ACTOR_H
#define SHMSTORE_ACTOR_H

#include "shmstore.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SHMSTORE_ACTOR_NAME 63u /* bytes of a name */
/* bytes of a call, and of an answer. Larger data is put into a store, and its ticket is sent */
#define SHMSTORE_ACTOR_DATA 4032u

/* ---- places ---------------------------------------------------------------------------------- */

struct shmstore_place;

#define SHMSTORE_PLACE_ROOMY UINT64_MAX /* room: as the store's partition has */
#define SHMSTORE_PLACE_FULL  UINT64_C(0)
/*
 * The store's process takes actors: one place for each store.
 *   name   a name that no other place of this user has
 *   room   bytes of state that may be moved here. Actors that begin here need none
 * Ownership: *ret is closed with shmstore_place_close(), before the store. Return: as above;
 * -EEXIST: another place has the name; -EBUSY: the store has another place.
 */
SHMSTORE_API int shmstore_place_open(struct shmstore *s, const char *name, uint64_t room,
				     struct shmstore_place **ret);
/* Ends the place and its actors; their callers are told. NULL is fine. Returns NULL. */
SHMSTORE_API struct shmstore_place *shmstore_place_close(struct shmstore_place *p);

/* ---- actors ---------------------------------------------------------------------------------- */

#define SHMSTORE_ACTOR_CAN_SAVE (1u << 0) /* flags: SHMSTORE_ACTOR_SAVE can be carried out */
#define SHMSTORE_ACTOR_CAN_LOAD (1u << 1) /* and SHMSTORE_ACTOR_LOAD, where it is moved to */
/* -EINVAL where a level is said and it cannot do both; else the level is 0 */
#define SHMSTORE_ACTOR_STRICT   (1u << 2)
struct shmstore_actor_options {
	size_t size; /* sizeof: by SHMSTORE_ACTOR_OPTIONS_INIT */
	/* the actor whose child it is, and with which it ends; NULL: none. 16 deep at most */
	const char *parent;
	/* how willing it is to be moved: 0 never, to 4 always (enum
	 * shmstore_task_level, but AUTO) */
	unsigned level;
	unsigned flags;   /* SHMSTORE_ACTOR_* */
	uint32_t at_once; /* calls that run side by side; 0 is 1 */
	/* how often it is begun again when its process died; UINT32_MAX: always */
	uint32_t max_restarts;
	uint64_t step_ms;    /* of each step of a move, which fails then; 0: as long as it takes */
	uint64_t suspend_ms; /* how long it is held, saved, where no other place has room */
	/*
	 * How copies of it are made where it shall not be as the daemon's section peers says: words
	 * "key=value" of that section (shmstored.conf(5)) with blanks between them, as
	 * "num=explicit:2 frequency=1s preempt-from-stale=timeout:500". NULL: as it says. At most
	 * SHMSTORE_ACTOR_COPIES bytes.
	 */
	const char *copies;
};
#define SHMSTORE_ACTOR_COPIES 500u
#define SHMSTORE_ACTOR_OPTIONS_INIT                                                       \
	{                                                                                 \
		sizeof(struct shmstore_actor_options), NULL, 0, 0, 1, 0, UINT64_C(10000), \
			UINT64_C(10000), NULL                                             \
	}
/*
 * An actor begins here.
 *   options   NULL: SHMSTORE_ACTOR_OPTIONS_INIT
 * Return: as above; -EEXIST: the user has an actor of that name; -ENOENT: there is no such parent;
 * -EINVAL also: options, or max_restarts of an actor that cannot both save and load; -EMFILE: 1024
 * actors are here, or it would be too deep; -ENOTSUP also: the daemon is older
 * than max_restarts and copies.
 */
SHMSTORE_API int shmstore_actor_begin(struct shmstore_place *p, const char *name,
				      const struct shmstore_actor_options *options);
/*
 * Ends the actor and its children. Waiting calls are answered SHMSTORE_ACTOR_LOST. Return: as
 * above; -ENOENT: the actor is not here.
 */
SHMSTORE_API int shmstore_actor_end(struct shmstore_place *p, const char *name);

enum shmstore_actor_what {
	SHMSTORE_ACTOR_RUN = 1, /* data is a call: run it, and say its answer */
	/* the call of this request should end soon: answer it, or say STOPPED where it had no
	 * effect so far. May be ignored */
	SHMSTORE_ACTOR_STOP = 2,
	SHMSTORE_ACTOR_SAVE = 3, /* put the state under key, and change it no more: OK, or FAILED */
	/* make the actor of what key holds; it runs nothing yet: OK, or FAILED */
	SHMSTORE_ACTOR_LOAD = 4,
	/* the actor is not here, or not any more: free it. Nothing is to be said */
	SHMSTORE_ACTOR_DROP = 5,
};
struct shmstore_actor_order {
	uint32_t what; /* enum shmstore_actor_what */
	uint32_t reserved;
	uint64_t request;       /* RUN, STOP */
	uint64_t step, version; /* SAVE, LOAD */
	const void *data;       /* RUN; valid until the next shmstore_actor_next() */
	size_t data_size;
	char name[SHMSTORE_ACTOR_NAME + 1]; /* the actor's */
	char key[SHMSTORE_ACTOR_NAME + 33]; /* SAVE, LOAD: "ckpt/<name>/<version>" */
};
/*
 * Takes the next order of this place. A process that has actors calls this all the time; an order
 * that it does not take, waits. By these calls a daemon that was started anew is told which actors
 * are here.
 *   timeout_ms   how long to wait; UINT64_MAX: without end
 * Return: 1: *ret is filled; 0: no order came; as above, but -ENOTSUP; -EEXIST: another place has
 * this place's name by now.
 */
SHMSTORE_API int shmstore_actor_next_sized(struct shmstore_place *p, uint64_t timeout_ms,
					   struct shmstore_actor_order *ret SHMSTORE_RET_SIZE);
#define shmstore_actor_next(...) SHMSTORE_FILLS(actor_next, actor_order, __VA_ARGS__)
/*
 * A descriptor for poll(). It is readable when shmstore_actor_next(p, 0, ...) may have something;
 * call that once before, and once a second. Return: the descriptor, or as above.
 */
SHMSTORE_API int shmstore_actor_fd(struct shmstore_place *p);

enum shmstore_actor_how {
	SHMSTORE_ACTOR_OK = 1,
	SHMSTORE_ACTOR_FAILED = 2,  /* of a call: data says how */
	SHMSTORE_ACTOR_STOPPED = 3, /* of a call: it had no effect, and is to be run again */
	/* of an answer: the actor has ended; it may have run the call, and nobody knows */
	SHMSTORE_ACTOR_LOST = 4,
};
/*
 * Says how an order ended. After SAVE, the library hands the object on from under its key, and
 * deletes it when it is of no use any more.
 *   data, size   the answer of RUN, at most SHMSTORE_ACTOR_DATA; else none
 * Return: as above; -EFBIG: size; -ENOENT: after SAVE, no object has the key.
 */
SHMSTORE_API int shmstore_actor_done(struct shmstore_place *p,
				     const struct shmstore_actor_order *order,
				     enum shmstore_actor_how how, const void *data, size_t size);

/* ---- calls ----------------------------------------------------------------------------------- */

struct shmstore_actor_call;

/*
 * Sends a call. The calls of one thread stay in the order in which it sent them.
 *   size   at most SHMSTORE_ACTOR_DATA
 * Ownership: *ret is given to shmstore_actor_forget(), before the store is closed. Return: as
 * above; -EFBIG: size.
 */
SHMSTORE_API int shmstore_actor_call(struct shmstore *s, const char *name, const void *data,
				     size_t size, struct shmstore_actor_call **ret);
struct shmstore_actor_answer {
	uint32_t how; /* enum shmstore_actor_how: OK, FAILED, LOST */
	uint32_t reserved;
	const void *data; /* valid until shmstore_actor_forget() */
	size_t data_size;
};
/*
 * Takes the answer of a call.
 *   timeout_ms   UINT64_MAX: as long as the daemon lives
 * Return: 1: *ret is filled; 0: it has not come; as above; -ENOENT: there is no actor of that name;
 * -EMFILE: 1024 calls of this store wait, or 65536 for the actor.
 */
SHMSTORE_API int shmstore_actor_answer_sized(struct shmstore_actor_call *c, uint64_t timeout_ms,
					     struct shmstore_actor_answer *ret SHMSTORE_RET_SIZE);
#define shmstore_actor_answer(...) SHMSTORE_FILLS(actor_answer, actor_answer, __VA_ARGS__)
/*
 * Gives up the answer. The call, or the move, is carried out all the same. NULL is fine. Returns
 * NULL.
 */
SHMSTORE_API struct shmstore_actor_call *shmstore_actor_forget(struct shmstore_actor_call *c);

/*
 * Moves an actor. shmstore_actor_answer() says when it is there: OK, without data.
 *   place   NULL: the place that has most room
 * Ownership: as of shmstore_actor_call(). Return: as above. The answer also: -ENOENT: there is no
 * such actor; -ESTALE: there is no such place, or the actor is there; -EPERM: its level is never,
 * or it cannot save and load; -EBUSY: it is being moved; -ECANCELED: a step failed or took too
 * long; the actor goes on where it was, with all calls, and the error's sentence says what failed.
 */
SHMSTORE_API int shmstore_actor_move(struct shmstore *s, const char *name, const char *place,
				     struct shmstore_actor_call **ret);

#ifdef __cplusplus
}
#endif

#endif
