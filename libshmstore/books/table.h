/* SPDX-License-Identifier: Apache-2.0 */
/* table.h: hashes to indices of somebody else's array, which compares what it finds there. */
#ifndef SHMS_TABLE_H
#define SHMS_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct shms_table_slot {
	uint64_t hash;
	uint32_t at; /* never 0 */
};

/* All zero: empty. */
struct shms_table {
	struct shms_table_slot *slots;
	size_t size, n;
};

/* One more entry; a hash may have several. 0, -ENOMEM. */
int shms_table_add(struct shms_table *t, uint64_t hash, uint32_t at);
/* The entries of a hash, one after the other: start with *io_i = SIZE_MAX. 0: no more. */
uint32_t shms_table_next(const struct shms_table *t, uint64_t hash, size_t *io_i);
void shms_table_clear(struct shms_table *t);
void shms_table_deinit(struct shms_table *t);

#endif
