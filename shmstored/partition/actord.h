/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actord.h: actors, and other daemons (docs/actors.md), as the rest of the daemon knows them: by
 * one table of functions and nothing else. shmstore-actord is linked with them. shmstored is linked
 * without them and has actord_none: there no process has an actor, and a client that asks for one
 * is told which program keeps them. Loop's thread only.
 */
#ifndef ACTORD_H
#define ACTORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct host;
struct json_object;
struct metric_out;
struct report_view;

/* The purpose that a move must serve: docs/actors.md, "A move". */
struct actord_want {
	bool memory, daemons; /* daemons: to another daemon only */
	/* bytes that the old process's end frees; UINT64_MAX: its tasks' memory is wanted */
	uint64_t private;
};
/* The actors of a process that may be ended for its memory, and how many of
 * them may be moved as wanted. */
struct actord_leaving {
	size_t n, n_movable;
	/* Is one of them on its way to another process? Its steps have their own time, after which
	 * it is not. */
	bool moving;
	/* of the least willing one, ACTOR_NEVER to ACTOR_ALWAYS; without any: ACTOR_ALWAYS */
	int level;
};

/* Functions may be NULL, but for leaving, place_next and request: there is nothing to do. */
struct actord {
	/* Which program it is: "shmstored", "shmstore-actord". */
	const char *program;
	bool has_peers;
	/* After all that the table's functions need, and before any client comes. 0; -errno, said
	 * in the log. close: idempotent, after the connections were dropped. */
	int (*open)(struct host *h);
	void (*close)(struct host *h);

	/* ---- the governor ---- */
	void (*leaving)(const struct host *h, pid_t pid, struct actord_want want,
			struct actord_leaving *ret);
	/* Begins to move those actors. They are suspended now. */
	void (*evacuate)(const struct host *h, pid_t pid, struct actord_want want);
	/* Connections of places that have actors, one after the other: as stuck. */
	struct conn *(*place_next)(const struct host *h, const struct conn *after);
	/* Places that were told so long ago to drop children of an actor whose process has died,
	 * did not, and have no other actor. after NULL begins; NULL: there are no more. */
	struct conn *(*stuck)(const struct host *h, uint64_t ms, const struct conn *after);
	/* The user's own profile has changed: by a task that ended, or (anew) as a whole. */
	void (*profiled)(const struct host *h, uint32_t uid, bool anew);

	/* ---- requests and reports ---- */
	/* ACTOR_*, as dispatch.h's handlers. */
	int (*request)(struct conn *c, uint16_t type, uint64_t serial, const void *body,
		       const char *tail, size_t tail_size);
	/* Withdraws the request with this serial: it gets no answer, but what it asked for is done
	 * all the same. False: no such request waits. */
	bool (*cancel)(struct conn *c, uint64_t serial);
	void (*report)(const struct report_view *v, struct host *h, struct json_object *o);
	void (*metrics)(struct metric_out *o, const struct host *h);
};

extern const struct actord actord_none;

#endif
