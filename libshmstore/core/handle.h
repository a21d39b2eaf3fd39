/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handle.h: an open store, for the library's own modules.
 *
 * n_ref counts the handle, live views and live writers: the memory goes with the last, the
 * descriptors with the handle. Its descriptors are closed by shmstore_close() or by the child's
 * side of a fork; their doors ask shms_store_usable() first. names is held exclusively by whoever
 * changes which file a name in objects/ means, and shared over each look-up that must not be
 * overtaken by that (recycling: a file must not change under somebody who is just opening it).
 */
#ifndef SHMS_HANDLE_H
#define SHMS_HANDLE_H

#include <pthread.h>
#include <shmstore/shmstore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "attach.h"
#include "credit.h"
#include "draft.h"
#include "fairlock.h"
#include "lightlock.h"
#include "links.h"
#include "name.h"
#include "packed.h"
#include "page.h"
#include "partition.h"
#include "recent.h"
#include "recycle.h"
#include "running.h"

#define SHMS_HUGE_PAGE (2ull << 20) /* bytes; more on some machines */

struct shms_arb;

struct shmstore {
	uint64_t magic;
	_Atomic uint64_t n_ref;
	atomic_bool forked; /* we are in a child of the owner */
	bool readonly;
	bool any_user;    /* readonly: it may be another user's */
	ino_t dir_inode;  /* of the store's directory */
	ino_t page_inode; /* of the .store: the owner's, or the one that was found (renew.c) */
	/* readonly: no owner lived then: keys may be a file's and a packed object's */
	bool unowned;
	bool keep;
	uid_t uid;
	struct shmstore_partition *p;
	char name[SHMSTORE_NAME_MAX + 1];
	char *path;             /* absolute directory */
	const char *base;       /* last component of path */
	char *segments;         /* a reader's: its path beneath the partition; packed.lock */
	int parent_fd;          /* the directory that base is in, until the store is open */
	mode_t file_mode;       /* of its objects: 0400; 0440 in a group's partition */
	int dir_fd, objects_fd; /* recycle/, handoff/, segments/ go by dir_fd; a reader's is -1 */
	int lock_fd;            /* the .store page, until it is mapped */
	/* the mapped page, whose lock is our life; private memory when read-only */
	struct shms_page *page;
	struct shms_ledger *ledger; /* page->ledger */
	struct shms_fairlock names;
	struct shms_recycle recycle;
	struct shms_recent recent;
	struct shms_links links;
	struct shms_packed packed;
	/* a file of so many bytes may take others than its pages: huge= of the mount */
	uint64_t huge_from;
	struct shms_credit credit;
	struct shms_attach attach;
	struct shms_running running;
	struct shms_drafts drafts;
	_Atomic(void *) small_map; /* writer.c; NULL: none is kept */
	struct shms_arb *arb;      /* arbitrate.h; there as long as the handle is */
	/* The disk tier (nameslock.h): from tier_on on other processes may exchange names with
	 * their stubs; clean_fd is clean/. */
	atomic_bool tier_on;
	int clean_fd;
	_Atomic uint64_t tier_looked_ms;
	/* when there.h looked, and when files got new times */
	_Atomic uint64_t there_ms, touched_ms;
	/* when the last call that puts or deletes began: shms_lately_boot_ms() */
	_Atomic uint64_t called_ms;
	/* copied to the ledger by the handle's own calls: views outlive it */
	_Atomic uint64_t n_views, mapped;
	struct shmstore *prev, *next; /* all stores of this process, for fork */
};

#define SHMS_STORE_MAGIC 0x53484d53544f5245ull

/* 0, or -EINVAL, -EPERM (forked), -EPERM (read-only and write is wanted). */
int shms_store_usable(const struct shmstore *s, bool write);
void shms_store_ref(struct shmstore *s);
void shms_store_unref(struct shmstore *s);

/* Words that this process alone changes: the ledger's, the handle's. */
static inline void shms_count(_Atomic uint64_t *n, uint64_t add)
{
	shms_light_add(n, add);
}

/* A gauge with its high-water mark. */
void shms_linked_add(struct shmstore *s, uint64_t bytes);
void shms_linked_sub(struct shmstore *s, uint64_t bytes);
/* Has the kernel to be asked what a file of size bytes takes? Else that is its pages. */
static inline bool shms_huge(const struct shmstore *s, uint64_t size)
{
	return size >= s->huge_from;
}
/* The memory of a file of size bytes, just written. */
uint64_t shms_file_bytes(const struct shmstore *s, int fd, uint64_t size);
/* A name that is held already takes memory again. */
void shms_linked_back(struct shmstore *s, uint64_t bytes);

/* Before size bytes of a file are taken; *ret goes to shms_credit_end(). 0, -ENOSPC, -EDQUOT;
 * -ETIMEDOUT with SHMS_CREDIT_WAIT. */
static inline int shms_credit_take(struct shmstore *s, uint64_t size, unsigned flags,
				   struct shms_charge *ret)
{
	*ret = (struct shms_charge){0};
	return shms_credit_counted(&s->credit) ? shms_credit_take_counted(s, size, flags, ret) : 0;
}

/* taken: how much of the memory is there now; 0: it was not taken, or has gone back. */
static inline void shms_credit_end_part(struct shmstore *s, const struct shms_charge *charge,
					uint64_t taken)
{
	if (charge->bytes || charge->writing)
		shms_credit_end_counted(s, charge, taken);
}

/* taken: all of it. */
static inline void shms_credit_end(struct shmstore *s, const struct shms_charge *charge, bool taken)
{
	shms_credit_end_part(s, charge, taken ? charge->bytes : 0);
}

/* At calls that put or delete: answers what the daemon asks, and looks for it where it is away. */
static inline void shms_credit_tend(struct shmstore *s)
{
	if (shms_credit_counted(&s->credit))
		shms_credit_tend_counted(s);
}

void shms_wake_all(struct shms_page *page);
/*
 * After a key came: wakes who waits for one. Those set the word and then have the kernel put a
 * barrier into this process (wait.c): either they see the key, or we see the word.
 */
static inline void shms_wake(struct shmstore *s)
{
	atomic_signal_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&s->page->waiting, memory_order_relaxed))
		shms_wake_all(s->page);
}

/* Does anybody wait for memory of the partition? One load. */
static inline bool shms_memory_wanted(const struct shmstore *s)
{
	return atomic_load_explicit(&s->page->leases[WIRE_ARB_PARTITION - 1].wanted,
				    memory_order_relaxed) != 0;
}

/* Every open store of this process, from before anything of it is locked until it is closed. */
void shms_ours_add(struct shmstore *s);
/* May be called for one that is not there. */
void shms_ours_del(struct shmstore *s);
/* None comes or goes in between. */
void shms_ours_lock(void);
void shms_ours_unlock(void);
/* Locked: the first, of which the others are ->next. */
struct shmstore *shms_ours_first(void);
/* Locked, in a child of a fork: none of them is this process's. */
void shms_ours_forget(void);

#endif
