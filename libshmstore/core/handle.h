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

#include "credit.h"
#include "links.h"
#include "opened.h"
#include "packed.h"
#include "recycle.h"
#include "running.h"

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
