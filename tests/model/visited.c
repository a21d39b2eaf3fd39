/* SPDX-License-Identifier: Apache-2.0 */
/*
 * visited.c: an open table of hashes, and how each state was reached: 5 bytes and, at most two
 * thirds full, 12 to 24 bytes a state. Two states of one hash would be taken for one: among 150
 * million the odds are one to 1,600 that any are.
 */
#include "visited.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xxh3.h"

static void *need(void *p)
{
	if (!p) {
		fprintf(stderr, "slotmodel: out of memory\n");
		exit(3);
	}
	return p;
}

void visited_init(struct visited *v)
{
	*v = (struct visited){.table_size = 1 << 16, .from_size = 1 << 15};
	v->table = need(calloc(v->table_size, sizeof(*v->table)));
	v->from = need(calloc(v->from_size, sizeof(*v->from)));
}

void visited_deinit(struct visited *v)
{
	free(v->table);
	free(v->from);
}

static uint64_t *place(uint64_t *table, size_t size, uint64_t hash)
{
	size_t i = hash & (size - 1);

	while (table[i] && table[i] != hash)
		i = (i + 1) & (size - 1);
	return &table[i];
}

static void grow(struct visited *v)
{
	size_t size = v->table_size * 2;
	uint64_t *table = need(calloc(size, sizeof(*table)));

	for (size_t i = 0; i < v->table_size; i++) {
		if (v->table[i])
			*place(table, size, v->table[i]) = v->table[i];
	}
	free(v->table);
	v->table = table;
	v->table_size = size;
}

bool visited_add(struct visited *v, const void *state, size_t size, uint32_t parent, uint8_t choice)
{
	uint64_t hash = XXH3_64bits(state, size) | 1;
	uint64_t *found = place(v->table, v->table_size, hash);

	if (*found)
		return false;
	*found = hash;
	if (v->n == v->from_size) {
		v->from_size *= 2;
		v->from = need(reallocarray(v->from, v->from_size, sizeof(*v->from)));
	}
	v->from[v->n++] = (struct visited_from){parent, choice};
	if (v->n > v->table_size / 3 * 2)
		grow(v);
	return true;
}
