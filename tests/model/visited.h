/* SPDX-License-Identifier: Apache-2.0 */
/* visited.h: the states that a search has met, each by a hash of 64 bits, and how
 * it came there (visited.c). */
#ifndef VISITED_H
#define VISITED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of each state, in the order in which they were met: the one it was met from, and the
 * how-manieth of its successors it is. */
struct visited_from {
	uint32_t parent;
	uint8_t choice;
} __attribute__((packed));

struct visited {
	uint64_t *table; /* hashes; 0: free */
	size_t table_size;
	struct visited_from *from;
	size_t from_size;
	uint32_t n;
};

void visited_init(struct visited *v);
void visited_deinit(struct visited *v);
/* Is the state new? Then its number is v->n - 1. */
bool visited_add(struct visited *v, const void *state, size_t size, uint32_t parent,
		 uint8_t choice);

#endif
