/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer.h: a way to get bytes from one process to another, as bench_peers runs it: a producer that
 * puts and drops, a consumer (a forked child) that takes. All functions return 0 or -errno; a peer
 * that cannot be prepared says why in run->reason.
 */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "exchange.h"
#include "place.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PEER_SIZE_MAX (64u << 20) /* bytes of the largest object */

/* A message to the consumer. */
struct peer_message {
	size_t size; /* bytes in use */
	int fd;      /* goes along; -1 = none */
	char bytes[EXCHANGE_MAX] __attribute__((aligned(8)));
};

struct peer_run {
	const struct place *place; /* for peers whose files may lie anywhere */
	void *state;               /* the peer's own, made by prepare; the child has a copy */
	pid_t server;              /* a process that prepare started, to be ended; 0 = none */
	char reason[160];
};

/* Puts one object and makes the message that tells the consumer of it. */
typedef int peer_put(struct peer_run *run, const void *data, size_t size, struct peer_message *m);

struct peer {
	int (*prepare)(struct peer_run *run);  /* before the fork; may be NULL, as the next two */
	int (*consumer)(struct peer_run *run); /* in the child */
	int (*producer)(struct peer_run *run); /* in the parent, after the fork */
	peer_put *put;
	peer_put *put_only; /* where put does more than that for the consumer; else NULL */
	int (*take)(struct peer_run *run, const void *message, size_t message_size,
		    int fd);                  /* reads a byte of each page */
	int (*drop)(struct peer_run *run);    /* after the answer */
	void (*finish)(struct peer_run *run); /* in the parent; may be NULL */
	size_t size_max;                      /* larger ones it does not take; 0 = it does */
	/* Many objects in one process, by number, after prepare and producer; NULL: it has
	 * no keys, or no such case. */
	int (*put_at)(struct peer_run *run, unsigned i, const void *data, size_t size);
	/* reads a byte of each page, and lets go */
	int (*get_at)(struct peer_run *run, unsigned i);
	int (*delete_at)(struct peer_run *run, unsigned i);
	/* Makes the message by which a consumer gets object i too, and
	 * keeps it: keep, in the child. */
	int (*hand_at)(struct peer_run *run, unsigned i, struct peer_message *m);
	int (*keep)(struct peer_run *run, const void *message, size_t message_size);
};

#define PEER_KEY 16u /* bytes of a key with its NUL: "object-00000000" */

/* Writes the key of object i. */
static inline size_t peer_key(unsigned i, char ret[PEER_KEY])
{
	size_t n = PEER_KEY - 1;

	for (size_t k = 0; k < 7; k++)
		ret[k] = "object-"[k];
	for (size_t k = n; k-- > 7; i /= 10)
		ret[k] = (char)('0' + i % 10);
	ret[n] = '\0';
	return n;
}

extern const struct peer peer_notify, peer_shm_open, peer_memfd; /* peer_posix.c */
/* peer_shmstore.c */
extern const struct peer peer_shmstore, peer_shmstore_fresh, peer_shmstore_packed;
extern const struct peer peer_segment; /* peer_segment.c */
/* peer_lmdb.c, peer_boost.cc, peer_redis.c */
extern const struct peer peer_lmdb, peer_boost, peer_redis;
extern const struct peer peer_iceoryx2; /* peer_iceoryx2.c */

/* Writes the reason and returns error. */
int peer_refuse(struct peer_run *run, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#ifdef __cplusplus
}
#endif
#endif
