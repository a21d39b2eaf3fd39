/* SPDX-License-Identifier: Apache-2.0 */
/* arena.h: the buffers of an engine: one piece of memory, given out in units of 1
 * MiB. One thread's at a time. */
#ifndef SHMS_ARENA_H
#define SHMS_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHMS_ARENA_UNIT  ((size_t)1 << 20) /* bytes */
#define SHMS_ARENA_UNITS 56u               /* at most */

struct shms_arena {
	unsigned char *memory; /* NULL: none */
	size_t size;           /* bytes */
	uint64_t taken;        /* a bit for each unit */
	size_t touched;        /* bytes from the begin that may be in memory */
};

/* n_units up to SHMS_ARENA_UNITS. touched: all of it is about to be used, else it should cost
 * nothing before. 0, -ENOMEM. */
int shms_arena_init(struct shms_arena *a, unsigned n_units, bool touched);
/* Brings all of it into memory, while nothing in it is in use. A page at a time: the kernel, asked
 * to pin it as a whole, would do so under the lock of the address space, and whatever thread of the
 * process maps something waits for that. */
void shms_arena_touch(struct shms_arena *a);
/* inherited: in a child of fork(), which does not have the memory. Idempotent. */
void shms_arena_deinit(struct shms_arena *a, bool inherited);
/* Aligned for O_DIRECT; NULL: not so much in one piece now. size > 0. */
void *shms_arena_take(struct shms_arena *a, size_t size);
/* Of what was taken with that size. */
void shms_arena_give(struct shms_arena *a, const void *bytes, size_t size);
/* Keeps the first size bytes of what was taken with before. */
void shms_arena_trim(struct shms_arena *a, const void *bytes, size_t before, size_t size);
/* Nothing is taken: all but a little may be had by others who need memory. */
void shms_arena_rest(struct shms_arena *a);

#endif
