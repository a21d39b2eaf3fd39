/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pressprocs.h: the processes that registered a store over the socket, each once however many
 * connections it has, and the private memory of each and of its descendants. A process that is
 * registered itself is not counted as a descendant, so that its memory counts once. The loop's
 * thread only.
 */
#ifndef PRESSPROCS_H
#define PRESSPROCS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "amount.h"
#include "conn.h"
#include "hash.h"

struct host;
struct procmem;
struct proctree;

struct pressproc {
	UT_hash_handle hh; /* by pid */
	struct pressproc *next, *prev;
	pid_t pid;
	uid_t uid;
	unsigned n_links;
	struct procmem *mem; /* NULL: there was no memory for it */
	struct amount private;
};

/* A connection, and its process. Ends with the connection. */
struct presslink {
	UT_hash_handle hh; /* by conn */
	struct pressprocs *procs;
	struct conn *conn;
	struct conn_end end;
	struct pressproc *proc; /* NULL: it is in a pid namespace that we do not see */
};

struct pressprocs {
	struct host *host;
	struct proctree *tree;
	struct pressproc *list, *by_pid;
	struct presslink *links;
	size_t n;
	bool swap; /* some of the host's was in use when all were read last */
	uint64_t pass_ns;
	char *proc; /* where procfs is mounted */
};

/* proc NULL: /proc. -ENOMEM. */
int pressprocs_init(struct pressprocs *p, struct host *h, const char *proc);
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
/* The link of a connection, made if it is missing. NULL: out of memory. */
struct presslink *pressprocs_link(struct pressprocs *p, struct conn *c);
/* NULL: it is not registered. */
struct pressproc *pressprocs_find(const struct pressprocs *p, pid_t pid);
/* Reads one now, whenever the next look is. */
void pressprocs_read_one(const struct pressprocs *p, struct pressproc *proc);

#endif
