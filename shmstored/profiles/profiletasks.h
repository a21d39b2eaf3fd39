/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profiletasks.h: the tasks that run, as clients say when they begin and end, and the looks at their processes in between. A client's tasks end with its
 * connection, and then say nothing. Loop's thread only.
 *
 * A task's private memory is what its process has more than when it began (anonymous pages, by /proc/PID/statm), or what its client says, where
 * that is more. So several tasks that run in one process at once are each charged with what all of them take: too much, never too little.
 */
#ifndef PROFILETASKS_H
#define PROFILETASKS_H

#include <stdint.h>

#include "profiles.h"

struct profiletasks;

#define PROFILETASKS_MAX 1024u /* of one client */

/* NULL: no memory. */
struct profiletasks *profiletasks_new(struct host *h, struct profiles *p);
/* Before profiles_free() and loop_free(). Returns NULL. */
struct profiletasks *profiletasks_free(struct profiletasks *t);

/* 0; -EEXIST: it runs; -EINVAL: the name; -EMFILE: too many; -ENOMEM. */
int profiletasks_begin(struct profiletasks *t, struct conn *c, uint32_t task, const struct profile_name *name);
/* The client says what it has now. 0; -ENOENT. */
int profiletasks_sample(struct profiletasks *t, const struct conn *c, uint32_t task, uint64_t bytes);
/* told: what the client says of it, in used and has. 0; -ENOENT; as profiles_ended(). */
int profiletasks_end(struct profiletasks *t, struct conn *c, uint32_t task, const struct profile_task *told,
		     enum profiles_end how);

/* For those who show them. */
struct profiletasks_row {
	uint32_t uid, task;
	int pid;
	struct profile_name name;
	uint64_t age_ms, now, peak;
};
void profiletasks_each(const struct profiletasks *t, void (*fn)(const struct profiletasks_row *row, void *arg),
		       void *arg);

#endif
