/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inodes.c: a uthash table over entries that live in slabs.
 *
 * Only inodes with several links get here: an inode with one link is met once, and needs no
 * memory. Entries come out of slabs because a malloc for each would cost as much as the stat
 * that found it, and because they are all freed at once. The hash is one multiplication: inode
 * numbers of a tmpfs are consecutive.
 */
#include "inodes.h"

#include "alloc.h"

#define HASH_NONFATAL_OOM 1
#define HASH_FUNCTION(key, size, hashv) \
	((hashv) = slot_hash(*(const uint64_t *)(const void *)(key)))
#include <uthash.h>

#define SLAB_ENTRIES 1024u

struct slot {
	struct shms_inode inode;
	UT_hash_handle hh;
};

struct slab {
	struct slot slots[SLAB_ENTRIES];
};

struct shms_inodes {
	struct slot *table;  /* uthash's head */
	struct slab **index; /* the slabs in order */
	size_t n_slots, n_slabs, index_size;
};

static inline unsigned slot_hash(uint64_t ino)
{
	return (unsigned)((ino * 0x9E3779B97F4A7C15u) >> 32);
}

struct shms_inodes *shms_inodes_new(void)
{
	return calloc(1, sizeof(struct shms_inodes));
}

struct shms_inodes *shms_inodes_free(struct shms_inodes *s)
{
	if (!s)
		return NULL;
	HASH_CLEAR(hh, s->table);
	for (uint64_t i = 0; i < s->n_slabs; i++)
		free(s->index[i]);
	free(s->index);
	free(s);
	return NULL;
}

static struct slot *slot_new(struct shms_inodes *s)
{
	if (s->n_slots == s->n_slabs * SLAB_ENTRIES) {
		if (SHMS_GROW(s->index, s->index_size, s->n_slabs, 1) < 0)
			return NULL;
		s->index[s->n_slabs] = malloc(sizeof(struct slab));
		if (!s->index[s->n_slabs])
			return NULL;
		s->n_slabs++;
	}
	return &s->index[s->n_slots / SLAB_ENTRIES]->slots[s->n_slots % SLAB_ENTRIES];
}

struct shms_inode *shms_inodes_find(const struct shms_inodes *s, uint64_t ino)
{
	struct slot *slot;

	HASH_FIND(hh, s->table, &ino, sizeof(ino), slot);
	return slot ? &slot->inode : NULL;
}

struct shms_inode *shms_inodes_get(struct shms_inodes *s, uint64_t ino)
{
	struct shms_inode *found = shms_inodes_find(s, ino);
	struct slot *slot;

	if (found)
		return found;
	slot = slot_new(s);
	if (!slot)
		return NULL;
	slot->inode = (struct shms_inode){.ino = ino};
	HASH_ADD(hh, s->table, inode.ino, sizeof(ino), slot);
	if (!slot->hh.tbl)
		return NULL; /* the table had no memory to take it: the slot stays free */
	s->n_slots++;
	return &slot->inode;
}

const struct shms_inode *shms_inodes_next(const struct shms_inodes *s, uint64_t *io_cursor)
{
	if (*io_cursor == s->n_slots)
		return NULL;
	const struct slot *slot =
		&s->index[*io_cursor / SLAB_ENTRIES]->slots[*io_cursor % SLAB_ENTRIES];
	++*io_cursor;
	return &slot->inode;
}
