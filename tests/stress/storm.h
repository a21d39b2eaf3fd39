/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storm.h: what the workers of the storm and chaos tests and their supervisor share.
 *
 * Every worker writes down in shared memory, before each call, what a key of its store may
 * hold after it (next), and after the call what it does hold (now). Killed in between, the
 * key must be found to hold one of the two. The memory outlives the worker; its successor
 * checks its store against it.
 */
#ifndef STORM_H
#define STORM_H

#include <shmstore/inspect.h>
#include <shmstore/shmstore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define STORM_WORKERS  8
#define STORM_KEYS     24 /* of the first thread */
#define STORM_MORE     8  /* of the second that writes */
#define STORM_THREADS  3
#define STORM_VIEWS    8
#define STORM_LEASE_MS 2000u
#define STORM_PACK_MAX (UINT64_C(1) << 20) /* of stores that pack */

/* Seeds; 0 = the key is not held. */
struct storm_key {
	_Atomic uint64_t now, next;
	_Atomic bool pending;
};

enum storm_op {
	OP_PUT,
	OP_REPLACE,
	OP_CREATE,
	OP_ABORT,
	OP_GET,
	OP_VIEW,
	OP_ALIAS,
	OP_HANDOFF,
	OP_ADOPT,
	OP_DELETE,
	OP_PEEK,   /* get from a peer's store through a read-only handle */
	OP_DEMOTE, /* from here: where there is a tier */
	OP_PROMOTE,
	OP_PIN,
	OP_EVICT,
	OP_GC,
	OP_REOPEN,
	OP_FORK, /* where there are forks */
	OP_THREAD_GET,
	OP_THREAD_WRITE, /* any of the above, by the second that writes */
	N_OPS,
};
extern const char *const storm_op_name[N_OPS];

struct storm_shared {
	_Atomic bool stop;
	_Atomic uint64_t next_seed;
	_Atomic uint64_t n_ops[N_OPS], n_enospc, n_edquot, n_timedout, n_stale, n_recycled;
	/* All threads come to rest between two calls while this is set; so many have. */
	_Atomic bool rest;
	_Atomic unsigned n_resting;
	_Atomic bool failed;
	/* Of a call during which its worker was not stopped; how often it was. */
	_Atomic uint64_t longest_ms, longest_op;
	_Atomic unsigned n_stopped[STORM_WORKERS];
	/* how often a process of the worker's began to open its store */
	_Atomic uint64_t n_opened[STORM_WORKERS];
	char message[1024];
	struct storm_key keys[STORM_WORKERS][STORM_KEYS + STORM_MORE];
};

struct storm_mail {
	struct shmstore_ticket ticket;
	uint64_t seed;
	uint64_t expiry_ms; /* CLOCK_BOOTTIME */
	unsigned donor;     /* a worker, */
	uint64_t opened;    /* its n_opened */
};

/* The parameters of a storm. */
struct storm_options {
	unsigned seconds;
	uint64_t seed;
	unsigned megabytes; /* of the partition */
	const char *disk;   /* of its tier; NULL: it has none */
	const char *daemon; /* shmstored's path; NULL: there is none */
	unsigned n_users;   /* 1: all workers are root's */
	unsigned limit;     /* MiB that each user may have, with the daemon; 0 = no limit */
	uint64_t pack_max;  /* of the workers' stores */
	/* not 0: instead of the time, so many at random instructions (storm_kills.c) */
	uint64_t n_kills;
	bool steps;        /* these come after a number of instructions, else after a time */
	bool stops, forks; /* workers are stopped for a while; have children */
	/* odd workers are each in pid, ipc and user namespaces of their own, as in containers */
	bool apart;
	bool writers; /* two threads of each worker write */
	bool ledgers; /* are compared with a walk */
	bool quiet;   /* says nothing but what failed */
};

struct storm_result {
	uint64_t n_ops, n_kills, n_stops, n_forks, n_stands, n_rests, n_enospc, n_edquot,
		n_timedout;
	uint64_t n_late;                 /* of the stands: the kernel gave memory back meanwhile */
	uint64_t longest_ms, longest_op; /* of all calls but those of stopped workers */
	int64_t drift;                   /* of ledgers, at rest: the largest */
	bool failed;
};

struct storm {
	const char *path; /* of the partition */
	const struct storm_options *options;
	struct storm_shared *shared;
	/* of this process: operations after which it waits to be killed by steps; 0 = it does
	 * not */
	unsigned wait_after;
	/* datagram socket pairs: [1] is written by all, [0] read by the worker */
	int mailbox[STORM_WORKERS][2];
};

/* In a sandbox of its own. Return: that of main(). *ret is of what was done until then. */
int storm_run(const struct storm_options *options, struct storm_result *ret);

#define STORM_UID 60001u
static inline uid_t storm_uid(const struct storm_options *o, unsigned worker)
{
	return o->n_users > 1 ? STORM_UID + worker % o->n_users : 0;
}
/* For a child: that worker's user, for good. */
int storm_become(const struct storm_options *o, unsigned worker);

/* Even workers keep their stores: not one object may ever be lost. Odd ones are swept by whoever
 * comes by after their death. */
static inline bool storm_keeps(unsigned worker)
{
	return worker % 2 == 0;
}
void storm_name(unsigned worker, char ret_name[16]);
__attribute__((format(printf, 2, 3))) int storm_fail(struct storm *st, const char *format, ...);
uint64_t storm_now_ms(void);
/* Where all shall rest, until they may go on or *stop. */
void storm_rest(struct storm *st, const _Atomic bool *stop);

/* The worker process: does not return before stop; then 0, or 1 with a message. */
int storm_worker(struct storm *st, unsigned id, unsigned life);

#endif
