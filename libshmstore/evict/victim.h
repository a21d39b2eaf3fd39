/* SPDX-License-Identifier: Apache-2.0 */
/*
 * victim.h: what to demote first. Pure: times and sizes in, an order out; no
 * clock, no I/O.
 *
 * The least recently used goes first, weighed by what it costs. An object's score is
 *
 *   age * (bytes of memory it frees / cost of moving it out and back) * weight of its stores
 *
 * and the highest one is next. docs/tier.md says what that means to users.
 */
#ifndef SHMS_VICTIM_H
#define SHMS_VICTIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
/* Of goal, the part of those who have bytes of what is used. */
uint64_t shms_victim_part(uint64_t goal, uint64_t bytes, uint64_t used);

#endif
