/* SPDX-License-Identifier: Apache-2.0 */
/*
 * member.h: a live store of a partition under watch, registered or found by a scan: its page mapped, its owner's pidfd polled.
 *
 * The page is the owner's: every field is copied once and checked. Only the daemon's half of the credit section is written.
 */
#ifndef MEMBER_H
#define MEMBER_H

#include <shmstore/inspect.h>
#include <stdbool.h>
#include <stdint.h>

#include "loop.h"
#include "wire.h"

struct account;
struct conn;
struct quota_store;

struct member {
	struct account *account;
	struct member *next, **prev;
	uint64_t id; /* unique in this life of the daemon */
	char *path;  /* absolute */
	char *name, *label, *address;
	pid_t pid;
	uid_t uid;
	bool keep;
	struct conn *conn; /* registered through it; NULL = found by a scan, or its connection ended */
	int pidfd;         /* -1: none (another pid namespace) */
	struct loop_op pid_op;
	void *page;                 /* WIRE_PAGE_SIZE bytes, MAP_SHARED */
	struct wire_credit *credit; /* in page; NULL where the page could only be mapped for reading */
	struct quota_store *quota;
	int64_t registered_ns;         /* CLOCK_REALTIME; 0 = not registered */
	struct shmstore_counters last; /* as copied by the last tick */
	uint64_t asked_bytes;          /* asked back and not given so far */
};

/*
 * The live store at path (absolute, in a's partition), found or made. uid_wanted: its owner must be that user; -1: any.
 * 0; -ENOENT (no live store there), -EPERM (another user's; another pid's), -EBADMSG, -EMFILE, -ENOMEM.
 */
int member_get(struct account *a, const char *path, uid_t uid_wanted, struct member **ret);
struct member *member_find(struct account *a, const char *path);
/* Copies the ledger's counters. */
void member_counters(const struct member *m, struct shmstore_counters *ret);
/* It is gone (or its connection is): the credit returns, a reap is started where the owner died. */
void member_disconnected(struct member *m);
void member_gone(struct member *m, const char *why);

#endif
