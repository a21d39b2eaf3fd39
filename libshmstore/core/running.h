/* SPDX-License-Identifier: Apache-2.0 */
/*
 * running.h: a store's tasks that a daemon let in and that run, and what was said of them
 * since: that they are to give way.
 *
 * They are kept for the next daemon: whenever one registers the store it is told which tasks run,
 * in the same order of messages as everything that follows. The thread that reads the connection
 * queues the daemon's unasked messages about them.
 */
#ifndef SHMS_RUNNING_H
#define SHMS_RUNNING_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attach.h"
#include "bell.h"

#define SHMS_RUNNING_SAID_MAX 1024u /* that nobody has asked for; beyond that the oldest go */

struct shms_running_task;
struct shms_running_said;

struct shms_running {
	/* all below; may be taken under the connection's, and nothing is locked under it */
	pthread_mutex_t lock;
	struct shms_running_task *tasks;
	struct shms_running_said *said;
	unsigned n_said;
	struct shms_bell bell; /* rung: something was said */
};

void shms_running_init(struct shms_running *r);
void shms_running_deinit(struct shms_running *r);
void shms_running_fork_child(struct shms_running *r);
/* For shms_attach.hooks, with r as arg. */
struct shms_attach_hooks shms_running_hooks(struct shms_running *r);

/*
 * One was let in by the daemon of this generation. what: its task is set. names: the kind's, of n
 * bytes, as in the message. True: a daemon that came meanwhile must be told by the caller. Without
 * memory it is not kept: the next daemon will not know of it.
 */
bool shms_running_add(struct shms_running *r, struct shms_attach *a,
		      const struct wire_task_runs *what, const char *names, size_t n,
		      uint64_t generation);
/* It has ended. */
void shms_running_del(struct shms_running *r, uint64_t id);
/* The oldest that was said and not taken. False: nothing. */
bool shms_running_take(struct shms_running *r, struct wire_task_preempt *ret);
/* Readable when shms_running_take() has something, or connection_fd is.
 * The same one always; -errno. */
int shms_running_fd(struct shms_running *r, int connection_fd);

#endif
