/* SPDX-License-Identifier: Apache-2.0 */
/*
 * member.h: a live store of a partition under watch, registered or found by a scan: its page
 * mapped, its owner's pidfd polled.
 *
 * The page is the owner's: every field is copied once and checked. Only the daemon's half of
 * the credit section is written.
 */
#ifndef MEMBER_H
#define MEMBER_H

#include <shmstore/inspect.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "conn.h"
#include "hash.h"
#include "loop.h"
#include "pagewords.h"
#include "wire.h"

struct member {
	struct account *account;
	struct member *next, *prev;
	UT_hash_handle hh; /* in account.by_path */
	uint64_t id;       /* unique in this life of the daemon */
	char *path;        /* absolute */
	char name[256], label[128], address[256];
	pid_t pid; /* as the page says; as the socket says once it is registered */
	uid_t uid;
	bool keep;
	/* registered through it; NULL = found by a scan, or its connection ended */
	struct conn *conn;
	int pidfd; /* -1: none (another pid namespace) */
	struct loop_op pid_op;
	void *page; /* WIRE_PAGE_SIZE bytes, MAP_SHARED (below) */
	/* in page; NULL where the page could only be mapped for reading */
	struct wire_credit *credit;
	struct quota_store *quota;
	const struct survey_store *found;    /* by the last survey; NULL: it came later */
	struct arbguest *arb;                /* NULL = it asked the arbiter for nothing so far */
	struct stages_session *stage;        /* NULL = it asked for no stage so far */
	int64_t registered_ns;               /* CLOCK_REALTIME; 0 = not registered */
	struct shmstore_counters last;       /* as copied by the last tick */
	uint64_t put_bytes, put_bytes_per_s; /* ever, at the last tick; between the last two */
	/* CLOCK_MONOTONIC of the refresh that found last that its owner had done something */
	uint64_t active_ns;
	uint64_t asked_bytes; /* asked back and not given so far */
	bool asked_recycled;  /* for the arbiter's sake */
	/* member.c's */
	uint64_t inode;      /* of the page: another one under the same path is another store */
	uint64_t start_time; /* of its process, as the page says */
	int64_t created_ns;  /* of the store, as the page says: when this owner opened it */
	struct conn_end end;
	bool ended;  /* its process is dead; its lock may take a moment */
	bool leaves; /* it said so */
	bool ending; /* its connection ends, or has: whether it lives is looked at */
	bool gone;
};

/*
 * The live store at path (absolute, in a's partition), found or made. uid_wanted: its owner must be
 * that user; -1: any. 0; -ENOENT (no live store there), -EPERM (another user's; outside the
 * partition), -EBADMSG (no page of ours), -ENOTSUP, -EMFILE, -ENOMEM.
 */
int member_get(struct account *a, const char *path, uid_t uid_wanted, struct member **ret);
struct member *member_find(struct account *a, const char *path);
struct member *member_by_id(const struct host *h, uint64_t id);
/* Takes the connection c as m's. pid: the process at its end. */
void member_connect(struct member *m, struct conn *c, pid_t pid);
/* Copies the ledger's counters to m->last, and the address. Costs no system call. */
void member_refresh(struct member *m);
/* The kernel's view of what is at its path now. */
enum member_state {
	MEMBER_LIVES, /* its lock is held */
	MEMBER_DEAD,  /* its lock is free: what it left is to be reaped */
	MEMBER_CLOSED /* it is no longer there, or another owner's by now */
};
enum member_state member_state(const struct member *m);
/* The page is the next owner's by now; the look that finds it out is on its way. */
bool member_is_taken_over(const struct member *m);
/* Its connection ended: it goes where its owner died, and stays where that
 * only closed it. Idempotent. */
void member_disconnected(struct member *m);
/* It is no longer there: the credit returns. Frees m. */
void member_gone(struct member *m, const char *why);

/* The process behind a store: a pidfd that is that very process's, and whether a page's pid means
 * the process at a socket's end. */

/* A pidfd of pid, if that is the process that started at start_time (clock ticks since boot).
 * -ESRCH: it is gone, or it is another one. */
int owner_open(pid_t pid, uint64_t start_time);
/* Is the process that we know as pid known as inner in its own pid namespace, or one between? */
bool owner_is(pid_t pid, pid_t inner);

/*
 * The mapped .store pages of the stores under watch.
 *
 * A page belongs to its store's owner, who may cut its file at any time: looking at the mapping
 * would then be a SIGBUS. All of ours lie in one range of addresses, where that signal puts an
 * empty page in its place instead of ending the daemon.
 */

/* A page's words about its owner, before the ledger (docs/format.md). */
struct page_head {
	char magic[8];
	uint32_t version;
	uint32_t size;
	uint64_t flags;
	uint32_t pid;
	uint32_t uid;
	uint64_t start_time;
	int64_t created_ns;
	uint8_t boot_id[16];
	char name[256];
	char label[128];
	char address[256];
};
_Static_assert(sizeof(struct page_head) == 704, "page");
#define PAGE_MAGIC   "SHMSTORE"
#define PAGE_VERSION 1u
#define PAGE_KEEP    (UINT64_C(1) << 0)

/* Once, before anything else. 0, -errno. */
int pages_init(void);
void pages_deinit(void);

/* Maps the page open as fd, shared; writable where write. -EMFILE: too many.
 * *ret is WIRE_PAGE_SIZE bytes. */
int pages_map(int fd, bool write, void **ret);
void pages_unmap(void *page);
/* Its file was cut: an empty page of ours is mapped there now. */
bool pages_lost(const void *page);

/* The page of a store that is believed to be dead, by its path. A descriptor, -errno. */
int pages_open(const char *store);
/* Copies the head of the page open as fd and checks it: magic, version, size, ends of texts. 0,
 * -EBADMSG, -ENOTSUP, -errno. */
int pages_read_head(int fd, struct page_head *ret);

#endif
