/* SPDX-License-Identifier: Apache-2.0 */
/* evict.h: chooses what goes first, and demotes until enough is free. */
#ifndef SHMS_EVICT_H
#define SHMS_EVICT_H

#include <shmstore/shmstore.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tier.h"
#include "tierroom.h"

/* For a put or a promote that found the partition full: frees bytes at least, of this store's own
 * objects first, then of all of this user's.
 * True: something was freed, try again. Never called with a lock of the store held. */
bool shms_evict_for(struct shmstore *s, uint64_t bytes);
/* Before a put takes memory of a full partition: waits as long as another process evicts for one of
 * its own, a tenth of a second at most. */
void shms_evict_after(struct shmstore_partition *p);

/* One eviction (evictrun.c), for users whose parts of the tier are open, and locked (or see
 * one_name). */
struct shms_evict_run {
	struct shmstore_partition *p;
	struct shms_evict_users *users;
	struct shmstore *s;                /* whose objects go first; NULL = nobody's */
	const struct shmstore_evict *what; /* threads, progress */
	uint64_t goal;                     /* bytes to free */
	uint64_t need; /* less than so many is of no use; 0 = whatever can be had */
	bool mapped;   /* what is mapped too, where nothing else is left */
	bool one_name; /* only objects of one name: for who does not hold the user's lock */
	struct shmstore_evict_report *report; /* is added to */
};

/* 0, whether or not the goal was reached (report->freed); -ECANCELED, -ENOMEM, -EMFILE, -errno. */
int shms_evict_run(const struct shms_evict_run *run);

/* A user whose objects an eviction may demote: the part of the tier, and the lock that makes the
 * eviction the only one there. */
struct shms_evict_user {
	uid_t uid;
	struct shms_tier *t;
	int lock_fd; /* -1: not locked */
	struct shms_residents residents;
	bool full;   /* its disk is: nothing more is written */
	bool broken; /* likewise: its disk gives errors */
};

struct shms_evict_users {
	struct shms_evict_user *v; /* by uid */
	size_t n;
};

/* uid: SHMSTORE_EVICT_ALL for all who have stores (root). 0, -ENOENT (no tier), -EPERM, -ENOMEM,
 * -EMFILE, -errno with detail. */
int shms_evict_users_open(struct shmstore_partition *p, uid_t uid, struct shms_evict_users *ret);
void shms_evict_users_close(struct shms_evict_users *u);
/* After the lock: what residents there are. 0, -errno. */
int shms_evict_users_look(struct shms_evict_users *u);

/*
 * The order of demotion. Pure: times and sizes in, an order out; no clock, no I/O.
 *
 * The least recently used goes first, weighed by what it costs. An object's score is
 *
 *   age * (bytes of memory it frees / cost of moving it out and back) * weight of its stores
 *
 * and the highest one is next. docs/tier.md says what that means to users.
 */

#define SHMS_VICTIM_ONE 256u /* ratios and weights are in 1/256 */

struct shms_victim_store {
	uint64_t uss;     /* bytes that nobody else links */
	uint64_t share;   /* bytes that would be fair; 0 = unknown */
	uint64_t idle_ns; /* since it put, got or deleted anything */
};

/* Up to four times its share, and twice that where it idles: in 1/256. */
uint32_t shms_victim_weight(const struct shms_victim_store *s);

struct shms_victim {
	/* in */
	uint64_t id;     /* breaks ties of score and age, the lower first; no two alike */
	uint64_t bytes;  /* of memory */
	uint64_t age_ns; /* since its last use */
	uint32_t n_names;
	uint32_t weight; /* of its stores, the lightest: who needs it most says what it is worth */
	uint32_t ratio;  /* bytes on disk expected for 256 bytes of it */
	bool clean;      /* its tier file is there: nothing is written */
	bool mapped;     /* somebody maps it: frees nothing before they let go. After all others */
	bool near;       /* of the store that wants the room: before others */
	/* out */
	uint64_t score;
};

/* Sets the scores, and puts the one that is to go first in front. */
void shms_victims_sort(struct shms_victim *v, size_t n);

/* Bytes to free now: 0 up to the high watermark; above it, down to the low one.
 * Watermarks in percent of size. */
uint64_t shms_victim_goal(uint64_t size, uint64_t used, unsigned high, unsigned low);
/* The bytes to free beyond a waiter's need: the next ones need not wait, and the walk pays. */
uint64_t shms_victim_batch(uint64_t size);

#endif
