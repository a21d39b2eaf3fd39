/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c: open addressing, at most half full, nothing is ever taken out alone. The whole hash is kept, so that few entries are compared by
 * their owner.
 */
#include "table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_MIN 1024u /* a power of 2, as all sizes */

static void table_put(struct shms_table *t, uint64_t hash, uint32_t at)
{
	size_t i = hash & (t->size - 1);

	while (t->slots[i].at)
		i = (i + 1) & (t->size - 1);
	t->slots[i] = (struct shms_table_slot){hash, at};
	t->n++;
}

int shms_table_add(struct shms_table *t, uint64_t hash, uint32_t at)
{
	struct shms_table larger = {.size = t->size ? 2 * t->size : TABLE_MIN};

	if (2 * (t->n + 1) > t->size) {
		larger.slots = calloc(larger.size, sizeof(*larger.slots));
		if (!larger.slots)
			return -ENOMEM;
		for (size_t i = 0; i < t->size; i++) {
			if (t->slots[i].at)
				table_put(&larger, t->slots[i].hash, t->slots[i].at);
		}
		free(t->slots);
		*t = larger;
	}
	table_put(t, hash, at);
	return 0;
}

uint32_t shms_table_next(const struct shms_table *t, uint64_t hash, size_t *io_i)
{
	if (!t->size)
		return 0;
	*io_i = *io_i == SIZE_MAX ? hash & (t->size - 1) : (*io_i + 1) & (t->size - 1);
	while (t->slots[*io_i].at && t->slots[*io_i].hash != hash)
		*io_i = (*io_i + 1) & (t->size - 1);
	return t->slots[*io_i].at;
}

void shms_table_clear(struct shms_table *t)
{
	if (t->n)
		memset(t->slots, 0, t->size * sizeof(*t->slots));
	t->n = 0;
}

void shms_table_deinit(struct shms_table *t)
{
	free(t->slots);
	*t = (struct shms_table){0};
}
