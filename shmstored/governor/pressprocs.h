/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pressprocs.h: the processes that registered a store over the socket, each once however many
 * connections it has, and the private memory of each and of its descendants. A process that is
 * registered itself is not counted as a descendant, so that its memory counts once. The loop's
 * thread only.
 */
#ifndef PRESSPROCS_H
#define PRESSPROCS_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "amount.h"
#include "hash.h"

struct admit_task;
struct client;
struct host;
struct procmem;

struct pressproc {
	UT_hash_handle hh; /* by pid */
	struct pressproc *next, *prev;
	pid_t pid;
	uid_t uid;
	unsigned n_clients;
	struct procmem *mem; /* NULL: there was no memory for it */
	struct amount private;
	/* admittask.h */
	struct admit_task *tasks; /* that run */
	bool seen;                /* base is known: what is its own */
	int64_t base, grown;
	int64_t before; /* grown, before the host was read */
};

/* Processes of the host, and the parent of each. */
struct pressproc_parents {
	struct pressproc_parent {
		pid_t pid, parent;
	} * list;
	size_t n, room;
};

struct pressprocs {
	struct host *host;
	DIR *dir; /* of the pass over procfs; NULL: none is under way */
	/* what it found so far; what the last one found, sorted by pid */
	struct pressproc_parents fills, whole;
	struct pressproc *list, *by_pid;
	size_t n;
	bool swap; /* some of the host's was in use when all were read last */
	uint64_t pass_ns;
	char *proc; /* where procfs is mounted */
};

/* proc NULL: /proc. -ENOMEM. */
int pressprocs_init(struct pressprocs *p, struct host *h, const char *proc);
/* Its clients have left. */
void pressprocs_deinit(struct pressprocs *p);
/*
 * Adds processes that registered since the last look, and goes on with the pass that finds
 * descendants. now_ns: CLOCK_MONOTONIC.
 */
void pressprocs_look(struct pressprocs *p, uint64_t now_ns);
/* Reads all. swap: as procmem_read(). */
void pressprocs_read(struct pressprocs *p, bool swap);
/* The sum of what was read last; unknown if one of the values is. */
struct amount pressprocs_sum(const struct pressprocs *p);
/* The client's process, watched from now on. NULL: it is in a pid namespace that we
 * do not see; out of memory. */
struct pressproc *pressprocs_link(struct pressprocs *p, struct client *c);
/* NULL: it is not registered. */
struct pressproc *pressprocs_find(const struct pressprocs *p, pid_t pid);
/* Reads one now, whenever the next look is. */
void pressprocs_read_one(const struct pressprocs *p, struct pressproc *proc);

#endif
