/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handle.h: all of an open store, for the modules that own a part of it, and for those that open,
 * close and fork it. Everybody else sees opened.h.
 *
 * n_ref counts the handle, live views and live writers: the memory goes with the last, the
 * descriptors with the handle.
 */
#ifndef SHMS_HANDLE_H
#define SHMS_HANDLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attach.h"
#include "bell.h"
#include "credit.h"
#include "links.h"
#include "opened.h"
#include "packed.h"
#include "recycle.h"

/*
 * running.c: a store's tasks that a daemon let in and that run, and what was said of them
 * since: that they are to give way.
 *
 * They are kept for the next daemon: whenever one registers the store it is told which tasks run,
 * in the same order of messages as everything that follows. The thread that reads the connection
 * queues the daemon's unasked messages about them.
 */

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

struct shms_handle {
	struct shmstore s; /* first: whoever has it has the handle */
	uint64_t magic;
	_Atomic uint64_t n_ref;
	atomic_bool forked; /* we are in a child of the owner */
	bool any_user;      /* readonly: it may be another user's */
	bool keep;
	const char *base; /* last component of s.path */
	char *segments;   /* a reader's: its path beneath the partition; packed.lock */
	int parent_fd;    /* the directory that base is in, until the store is open */
	int lock_fd;      /* the .store page, until it is mapped */
	struct shms_recycle recycle;
	struct shms_links links;
	struct shms_packed packed;
	struct shms_credit credit;
	struct shms_attach attach;
	struct shms_running running;
	struct shms_drafts drafts;
	_Atomic(void *) small_map; /* writer.c; NULL: none is kept */
	/* copied to the ledger by the handle's own calls: views outlive it */
	_Atomic uint64_t n_views, mapped;
	struct shms_handle *prev, *next; /* all stores of this process, for fork */
};

#define SHMS_STORE_MAGIC 0x53484d53544f5245ull

static inline struct shms_handle *shms_handle(const struct shmstore *s)
{
	return (struct shms_handle *)(uintptr_t)s;
}

/* Every open store of this process, from before anything of it is locked until it is closed. */
void shms_ours_add(struct shms_handle *h);
/* May be called for one that is not there. */
void shms_ours_del(struct shms_handle *h);
/* None comes or goes in between. Returns the first, of which the others are ->next. */
struct shms_handle *shms_ours_lock(void);
void shms_ours_unlock(void);
/* Locked, in a child of a fork: none of them is this process's. */
void shms_ours_forget(void);

#endif
