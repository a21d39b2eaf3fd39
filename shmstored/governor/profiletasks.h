/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profiletasks.h: the running tasks, whose clients say when they begin and end, and the looks at
 * their processes in between. A client's tasks end with its connection, and then enter no profile.
 * Loop's thread only.
 *
 * A task's private memory is how much its process has grown since it began (anonymous pages, by
 * /proc/PID/statm, and memory of its store that is no object yet, as arrays that are born there),
 * or what its client says, if that is more. Several tasks that run in one process at once are
 * therefore each charged with what all of them take: too much, never too little.
 */
#ifndef PROFILETASKS_H
#define PROFILETASKS_H

#include <stdbool.h>
#include <stdint.h>

#include "hash.h"
#include "profile.h"
#include "profiles.h"

struct conn;
struct profiletasks;

/* A running task: one of client.profiled. */
struct profiled {
	uint64_t id;
	char *names; /* three, each with its NUL */
	struct profile_name name;
	uint64_t began_ns;
	bool seen;     /* its process could be looked at when it began: */
	uint64_t base; /* what that had then */
	bool has_told;
	uint64_t told; /* by the client, the last time */
	struct profiletrack track;
	UT_hash_handle hh;
};

#define PROFILETASKS_MAX 1024u /* of one client */

/* NULL: out of memory. */
struct profiletasks *profiletasks_new(struct host *h, struct profiles *p);
/* To be called after the connections were dropped, before profiles_free() and
 * loop_free(). Returns NULL. */
struct profiletasks *profiletasks_free(struct profiletasks *t);

/* 0; -EEXIST: it runs already; -EMFILE: too many tasks; -ENOMEM. */
int profiletasks_begin(struct profiletasks *t, struct conn *c, uint32_t task,
		       const struct profile_name *name);
/* The client says what the task has now. 0; -ENOENT. */
int profiletasks_sample(struct profiletasks *t, const struct conn *c, uint32_t task,
			uint64_t bytes);
/* told: what the client says of the task, in used and has. 0; -ENOENT; as profiles_ended(). */
int profiletasks_end(struct profiletasks *t, struct conn *c, uint32_t task,
		     const struct profile_task *told, enum profiles_end how);

/*
 * A JSON document of what is known of users' tasks, and of those that run.
 * docs/governor.md lists its fields.
 */
struct json_object;

/* all: of every user; else of this one. The caller puts the object. NULL: out of memory. */
struct json_object *profilereport_make(const struct host *h, bool all, uint32_t uid);

#endif
