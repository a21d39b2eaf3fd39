/* SPDX-License-Identifier: Apache-2.0 */
/* recent.c: see recent.h. A cache over the directory; forgetting all of it is always right. */
#include "recent.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "sys.h"

void shms_recent_init(struct shms_recent *r)
{
	shms_random(&r->seed, sizeof(r->seed));
	r->entries = calloc(SHMS_RECENT_SIZE, sizeof(*r->entries));
}

void shms_recent_deinit(struct shms_recent *r)
{
	free(r->entries);
	r->entries = NULL;
}

static uint64_t hash(const struct shms_recent *r, const char *name)
{
	uint64_t h = XXH3_64bits_withSeed(name, strlen(name), r->seed);
	return h ? h : 1;
}

void shms_recent_set(struct shms_recent *r, const char *name, uint64_t header_size, uint64_t buffer_size)
{
	uint64_t h = hash(r, name);
	size_t i = h % SHMS_RECENT_SIZE;

	if (!r->entries)
		return;
	r->entries[i].hash = h;
	r->entries[i].header_size = header_size;
	r->entries[i].buffer_size = buffer_size;
}

void shms_recent_drop(struct shms_recent *r, const char *name)
{
	uint64_t h = hash(r, name);
	size_t i = h % SHMS_RECENT_SIZE;

	if (r->entries && r->entries[i].hash == h)
		r->entries[i].hash = 0;
}

bool shms_recent_find(const struct shms_recent *r, const char *name, uint64_t *ret_header_size,
		      uint64_t *ret_buffer_size)
{
	uint64_t h = hash(r, name);
	size_t i = h % SHMS_RECENT_SIZE;

	if (!r->entries || r->entries[i].hash != h)
		return false;
	*ret_header_size = r->entries[i].header_size;
	*ret_buffer_size = r->entries[i].buffer_size;
	return true;
}
