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

void shms_recent_set(struct shms_recent *r, const char *name, uint64_t header_size,
		     uint64_t buffer_size, bool whole)
{
	uint64_t h = hash(r, name);
	size_t i = h % SHMS_RECENT_SIZE;

	if (!r->entries)
		return;
	r->entries[i].header_size = header_size;
	r->entries[i].buffer_size = buffer_size;
	atomic_store_explicit(&r->entries[i].handed, false, memory_order_relaxed);
	atomic_store_explicit(&r->entries[i].whole, whole, memory_order_relaxed);
	atomic_store_explicit(&r->entries[i].hash, h, memory_order_relaxed);
}

struct shms_recent_entry *shms_recent_find(const struct shms_recent *r, const char *name)
{
	uint64_t h = hash(r, name);
	struct shms_recent_entry *e = r->entries ? &r->entries[h % SHMS_RECENT_SIZE] : NULL;

	return e && atomic_load_explicit(&e->hash, memory_order_relaxed) == h ? e : NULL;
}

void shms_recent_drop(struct shms_recent *r, const char *name)
{
	struct shms_recent_entry *e = shms_recent_find(r, name);

	if (e)
		atomic_store_explicit(&e->hash, 0, memory_order_relaxed);
}

void shms_recent_punched(struct shms_recent *r, const char *name)
{
	struct shms_recent_entry *e = shms_recent_find(r, name);

	/* At worst it is another object's by now, which is looked at for nothing once. */
	if (e)
		atomic_store_explicit(&e->whole, false, memory_order_relaxed);
}
