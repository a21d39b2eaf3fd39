/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storm.h: what the workers of the storm test and their supervisor share.
 *
 * Every worker writes down in shared memory, before each call, what a key of its store may hold after it (next), and after the
 * call what it does hold (now). Killed in between, the key must be found to hold one of the two. The memory outlives the
 * worker; its successor checks its store against it.
 */
#ifndef STORM_H
#define STORM_H

#include <shmstore/inspect.h>
#include <shmstore/shmstore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define STORM_WORKERS  8
#define STORM_KEYS     24
#define STORM_VIEWS    8
#define STORM_LEASE_MS 2000u

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
	OP_THREAD_GET,
	N_OPS,
};
extern const char *const storm_op_name[N_OPS];

struct storm_shared {
	_Atomic bool stop;
	_Atomic uint64_t next_seed;
	_Atomic uint64_t n_ops[N_OPS], n_enospc, n_stale, n_recycled;
	_Atomic bool failed;
	char message[1024];
	struct storm_key keys[STORM_WORKERS][STORM_KEYS];
};

struct storm_mail {
	struct shmstore_ticket ticket;
	uint64_t seed;
	uint64_t expiry_ms; /* CLOCK_BOOTTIME */
};

struct storm {
	const char *path; /* of the partition */
	const char *disk; /* of its tier; NULL: it has none */
	struct storm_shared *shared;
	uint64_t random_seed;
	int mailbox[STORM_WORKERS][2]; /* datagram socket pairs: [1] is written by all, [0] read by the worker */
};

/* Even workers keep their stores: not one object may ever be lost. Odd ones are swept by whoever comes by after their death. */
static inline bool storm_keeps(unsigned worker)
{
	return worker % 2 == 0;
}
void storm_name(unsigned worker, char ret_name[16]);
__attribute__((format(printf, 2, 3))) int storm_fail(struct storm *st, const char *format, ...);
uint64_t storm_now_ms(void);

/* The worker process: does not return before stop; then 0, or 1 with a message. */
int storm_worker(struct storm *st, unsigned id, unsigned life);

#endif
