/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opened.h: an open store as all rooms see it: where it lies, its page, and what the names in its
 * directory mean. Its other parts (the pool, links, credit, the daemon, drafts) are handle.h's.
 *
 * Its descriptors are closed by shmstore_close() or by the child's side of a fork; their doors ask
 * shms_store_usable() first. names is held exclusively by whoever changes which file a name in
 * objects/ means, and shared over each look-up that must not be overtaken by that (recycling: a
 * file must not change under somebody who is just opening it).
 */
#ifndef SHMS_OPENED_H
#define SHMS_OPENED_H

#include <shmstore/shmstore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fairlock.h"
#include "page.h"
#include "partition.h"

/*
 * The sizes of the objects that the store named lately, so that handing one off need not open it. A
 * direct-mapped table of fixed size, changed together with the names, under names: a miss costs a
 * look into the file, nothing else, and forgetting all of it is always right.
 */
#define SHMS_RECENT_SIZE 4096

struct shms_recent {
	uint64_t seed; /* random: nobody can choose names that collide */
	/* SHMS_RECENT_SIZE, taking memory as they are used; NULL = no memory, nothing is found */
	struct shms_recent_entry {
		_Atomic uint64_t hash; /* of the name; 0 = empty */
		uint64_t header_size, buffer_size;
		/* it takes the pages of its size, as it was booked:
		 * nothing was punched out of it */
		atomic_bool whole;
		atomic_bool handed; /* links.h knows that it was handed off */
	} * entries;
};

struct shms_arb;
struct shms_attach;
struct shms_pack;

struct shmstore {
	bool readonly;
	/* readonly: no owner lived then: keys may be a file's and a packed object's */
	bool unowned;
	uid_t uid;
	struct shmstore_partition *p;
	char name[SHMSTORE_NAME_MAX + 1];
	char *path;             /* absolute directory */
	mode_t file_mode;       /* of its objects: 0400; 0440 in a group's partition */
	int dir_fd, objects_fd; /* recycle/, handoff/, segments/ go by dir_fd; a reader's is -1 */
	ino_t dir_inode;        /* of the store's directory */
	ino_t page_inode;       /* of the .store: the owner's, or the one that was found (wait.c) */
	/* the mapped page, whose lock is our life; private memory when read-only */
	struct shms_page *page;
	struct shms_ledger *ledger; /* page->ledger */
	/* the page's; one that nobody writes to where the daemon is not to be heard (credit.h) */
	struct wire_credit *credit;
	struct shms_fairlock names;
	struct shms_recent recent;
	struct shms_pack *_Atomic pack; /* NULL: there is no packed object (packed.h) */
	struct shms_arb *arb;           /* arbitrate.h; there as long as the handle is */
	/* The disk tier (nameslock.h): from tier_on on other processes may exchange names with
	 * their stubs; clean_fd is clean/. */
	atomic_bool tier_on;
	int clean_fd;
	_Atomic uint64_t tier_looked_ms;
	/* when shms_there() looked, and when files got new times */
	_Atomic uint64_t there_ms, touched_ms;
	/* when the last call that puts or deletes began: shms_lately_boot_ms() */
	_Atomic uint64_t called_ms;
	/* a file of so many bytes may take others than its pages: huge= of the mount */
	uint64_t huge_from;
};

#define SHMS_HUGE_PAGE (2ull << 20) /* bytes; more on some machines */

/* 0, or -EINVAL, -EPERM (forked), -EPERM (read-only and write is wanted). */
int shms_store_usable(const struct shmstore *s, bool write);
/* The handle, live views and live writers: the memory goes with the last. */
void shms_store_ref(struct shmstore *s);
void shms_store_unref(struct shmstore *s);
/* Its connection to the daemon (attach.h). */
struct shms_attach *shms_attach_of(const struct shmstore *s);

/* Words that this process alone changes: the ledger's, the handle's. */
static inline void shms_count(_Atomic uint64_t *n, uint64_t add)
{
	shms_light_add(n, add);
}

void shms_linked_sub(struct shmstore *s, uint64_t bytes);
/* One more that is being made, of so many bytes, or one less. */
void shms_reserved(struct shmstore *s, uint64_t bytes, bool more);
/* Has the kernel to be asked what a file of size bytes takes? Else that is its pages. */
static inline bool shms_huge(const struct shmstore *s, uint64_t size)
{
	return size >= s->huge_from;
}
/* The memory of a file of size bytes, just written. */
uint64_t shms_file_bytes(const struct shmstore *s, int fd, uint64_t size);
/* A name that is held already takes memory again. */
void shms_linked_back(struct shmstore *s, uint64_t bytes);

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

/*
 * A live store whose files somebody removed: systemd's RemoveIPC at a logout, a sweeper of old
 * files, rm -r. Its handle would put into files that nobody finds, and another process may own the
 * name meanwhile.
 */

#define SHMS_THERE_LOOK_MS 20u

int shms_there_look(struct shmstore *s);
/* At calls that put, after shms_tier_notice(). 0; -ENOENT: its page, a directory or a segment of it
 * was removed, and nothing is put any more. */
static inline int shms_there(struct shmstore *s)
{
	uint64_t now_ms = atomic_load_explicit(&s->called_ms, memory_order_relaxed);

	if (now_ms - atomic_load_explicit(&s->there_ms, memory_order_relaxed) < SHMS_THERE_LOOK_MS)
		return 0;
	return shms_there_look(s);
}
/*
 * Has the handle its descriptors still? A program may have closed all that it does not know, and
 * opened files that have their numbers now: those must not be closed, nor written to.
 */
bool shms_there_are_descriptors(const struct shmstore *s);
/* For who closes the store: may it take apart what has its name? */
bool shms_there_is_page(const struct shmstore *s);

void shms_recent_init(struct shms_recent *r);
/* The caller holds store.names exclusively. */
void shms_recent_set(struct shms_recent *r, const char *name, uint64_t header_size,
		     uint64_t buffer_size, bool whole);
void shms_recent_drop(struct shms_recent *r, const char *name);
/* Its file takes less than the pages of its size from now on. Needs no lock. */
void shms_recent_punched(struct shms_recent *r, const char *name);
/* The caller holds store.names, shared at least, as long as it uses the entry. NULL: not known. */
struct shms_recent_entry *shms_recent_find(const struct shms_recent *r, const char *name);

#endif
