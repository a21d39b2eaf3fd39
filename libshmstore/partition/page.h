/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page.h: the .store file: one page with the identity of a store's owner and
 * its ledger (docs/format.md).
 *
 * The file is made unnamed, filled, locked (flock LOCK_EX) and only then linked as ".store": its
 * readers see a locked, complete page until the owner dies. The owner alone writes (but for the
 * daemon's half of the credit, wire.h). Readers copy the page (shms_page_read) and check the copy.
 */
#ifndef SHMS_PAGE_H
#define SHMS_PAGE_H

#include <shmstore/inspect.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pagewords.h"
#include "wire.h"

#define SHMS_PAGE_FILE    ".store"
#define SHMS_PAGE_SIZE    4096u
#define SHMS_PAGE_MAGIC   "SHMSTORE"
#define SHMS_PAGE_VERSION 1u
#define SHMS_PAGE_KEEP    (1ull << 0) /* flags */

#define SHMS_DIR_STORES   "stores"
/* one kept store per user: leases from other users arrive there */
#define SHMS_DIR_INBOX    WIRE_INBOX
#define SHMS_DIR_PEERS    "peers"
#define SHMS_DIR_OBJECTS  "objects"
#define SHMS_DIR_RECYCLE  "recycle"
#define SHMS_DIR_HANDOFF  "handoff"
#define SHMS_DIR_SEGMENTS "segments"
#define SHMS_INDEX_FILE   "index" /* of packed objects (packlines.h) */

/* The ledger: 64-bit counters, relaxed atomics (each stands alone, no reader
 * infers one from another). */
struct shms_ledger {
	_Atomic uint64_t put_n, put_bytes;
	_Atomic uint64_t get_n, get_bytes;
	_Atomic uint64_t delete_n, delete_bytes;
	_Atomic uint64_t handoff_n, handoff_bytes;
	_Atomic uint64_t adopt_n, adopt_bytes;
	_Atomic uint64_t alias_n, alias_bytes;
	_Atomic uint64_t recycled_n, recycled_bytes;
	_Atomic uint64_t linked_n, linked_bytes;
	_Atomic uint64_t mapped_n, mapped_bytes;
	_Atomic uint64_t reserved_n, reserved_bytes;
	_Atomic uint64_t pool_n, pool_bytes;
	_Atomic uint64_t demoted_n, demoted_bytes;
	_Atomic uint64_t evicted_n, evicted_bytes;
	_Atomic uint64_t linked_bytes_max, mapped_bytes_max, pool_bytes_max;
	_Atomic uint64_t enospc_n;
	_Atomic uint64_t reserved[34];
};

/* Others' moves between memory and disk tier, written under the names lock (nameslock.h). */
struct shms_page_moved {
	_Atomic uint64_t n; /* how often, either way */
	/* demoted by others, less what others promoted: to be taken off ledger.linked_bytes */
	_Atomic uint64_t bytes;
	/* not 0: a peer linked an object by its path, without a lease (links.h) */
	_Atomic uint64_t exposed;
	/* recycled files that others took: to be taken off the ledger's pool */
	_Atomic uint64_t pool_n, pool_bytes;
	_Atomic uint64_t inode; /* what is being moved (shms_move_begin()); 0: nothing */
	/* what bytes is to be then, if objects/ has a name of it, and if not */
	_Atomic uint64_t linked, unlinked;
};

struct shms_page {
	char magic[8]; /* SHMS_PAGE_MAGIC, no NUL */
	uint32_t version;
	uint32_t size; /* SHMS_PAGE_SIZE */
	uint64_t flags;
	uint32_t pid;
	uint32_t uid;
	uint64_t start_time; /* of pid, in clock ticks since boot */
	int64_t created_ns;  /* CLOCK_REALTIME */
	uint8_t boot_id[16];
	char name[256]; /* NUL-terminated, as the next three */
	char label[128];
	char address[256];     /* "" = none */
	char leases_with[256]; /* the store with whose owner its leases end; "" = none */
	uint8_t reserved0[1088];
	struct shms_ledger ledger;    /* at 2048 */
	struct wire_credit credit;    /* at 2560; some of it is the daemon's to write */
	struct shms_page_moved moved; /* at 3072 */
	/* of the store, for as long as its page is there: whose a place in a segment is */
	uint8_t uuid[16];
	struct wire_packed packed;             /* at 3152 */
	struct wire_lease leases[WIRE_LEASES]; /* at 3200; half of each is the daemon's to write */
	/* Odd while a packed key may get another slot: for who looks at slots without the index. */
	_Atomic uint64_t changes;
	_Atomic uint32_t waiting; /* not 0: a process waits for a key (wait.c) */
	_Atomic uint32_t woken;   /* a futex: how often those that wait were woken */
	/* not 0: another process waits for the names lock (nameslock.c) */
	_Atomic uint32_t names_asked;
	uint8_t reserved2[364];
};

_Static_assert(sizeof(struct shms_ledger) == 512, "ledger");
_Static_assert(offsetof(struct shms_page, boot_id) == 48, "boot_id");
_Static_assert(offsetof(struct shms_page, name) == 64, "name");
_Static_assert(offsetof(struct shms_page, ledger) == WIRE_LEDGER_OFF, "ledger");
_Static_assert(offsetof(struct shms_page, credit) == WIRE_CREDIT_OFF, "credit");
_Static_assert(offsetof(struct shms_page, moved) == WIRE_MOVED_OFF, "moved");
_Static_assert(offsetof(struct shms_page, packed) == WIRE_PACKED_OFF, "packed");
_Static_assert(offsetof(struct shms_page, leases) == WIRE_LEASE_OFF, "leases");
_Static_assert(sizeof(struct shms_page) == SHMS_PAGE_SIZE, "page");

/* Copies the page of the store directory storefd and checks it: magic, version, sizes, NULs. 0,
 * -ENOENT, -EBADMSG, -ENOTSUP, -EPERM (may not be read). */
int shms_page_read(int storefd, struct shms_page *ret);
/* The same; -EBADMSG also where the totals of its credit cannot be true. */
int shms_page_read_true(int storefd, struct shms_page *ret);
/* Fills everything but the ledger for the calling process; the uuid is a new one. */
void shms_page_fill(struct shms_page *page, const char *name, const char *label, bool keep);
void shms_page_counters(const struct shms_page *page, struct shmstore_counters *ret);
/* Blocks of the named objects: as the owner booked, less those that others moved. */
uint64_t shms_page_linked(const struct shms_page *page);
/* To be written by somebody else than the owner. -1: it is none, or may not be. */
int shms_page_open(int dirfd, const char *path);
/* The same, mapped: no child has it. NULL: none of that user's. */
struct shms_page *shms_page_map(int dirfd, const char *path, uid_t uid);
/* Books recycled files of the store open as storefd as taken by somebody else than its owner.
 * flock on its recycle/ is held. */
void shms_page_pool_taken(int storefd, uint64_t n, uint64_t bytes);
/* A peer is about to link an object of the store whose directory, below the partition, is that. */
void shms_page_exposed(int partition_fd, const char *store);

/*
 * Liveness, by the lock. storefd is a store's directory.
 * shms_page_alive: SHMSTORE_ALIVE, _DEAD, _ALIVE_UNKNOWN, or -ENOENT where there is no .store.
 * Takes a shared lock for a moment. shms_page_lock: takes the exclusive lock of a dead store's page
 * and returns its fd (the lock is the fd's): -EBUSY where the owner lives, -ENOENT where there is
 * no .store or it was replaced meanwhile. Retries while only probed by others.
 */
int shms_page_alive(int storefd);
int shms_page_lock(int storefd);
/* Is the process gone that a locked page names? Then the lock is held by a process that takes the
 * store apart, by an owner of another PID namespace, or by the maps of the killed owner, which live
 * as long as somebody reads its /proc/PID/maps. */
bool shms_page_owner_gone(const struct shms_page *page);
/* Whether leases of the dead store whose page that is are over before their time: they are of
 * another boot, or nobody has the store of leases_with open. */
bool shms_page_leases_over(const struct shms_page *page, bool tmpfs, int partition_fd);

/*
 * The books of a store's object that somebody else than the store's owner moves
 * between memory and the disk tier.
 *
 * The mover may be killed between the exchange of the names and its booking. So it writes
 * beforehand what the books are to say in either case, and whoever takes the names lock next looks
 * at the directory, and books what is there (shms_move_settle()).
 */

/* Says to the owner that somebody else waits for the names lock, or no more: its threads would
 * have that in turn for ever. */
void shms_move_ask(int objects_fd, bool wanted);

/* objects_fd is the store's objects/; its names lock is held. Books are not worth an error: what
 * cannot be written is off until the next owner counts. */

/* Before the first name is exchanged: the object is that inode, and takes so many bytes of the
 * books if the store links it. linked: it does now. */
void shms_move_begin(int objects_fd, uint64_t inode, uint64_t bytes, bool linked);
/* After it, or instead: does the store link it? Nothing is booked where the page has
 * a new owner, who counted. */
void shms_move_end(int objects_fd, bool linked);

/* For who gets the lock, before anything else: ends what a dead mover began. */
void shms_move_settle(int objects_fd);
/* Did somebody begin, and not end? Without the lock: now, or ever. */
static inline bool shms_move_begun(const struct shms_page *page)
{
	return atomic_load_explicit(&page->moved.inode, memory_order_relaxed) != 0;
}

/* Removes the objects' files from clean/: they are there in the middle of an exchange only, and
 * who makes it holds the lock. */
void shms_move_sweep(int objects_fd);

#endif
