/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packlook.c: reads slots as seglook.c does: the state, then what it says, then the state and the
 * name again. The owner changes the generation before it changes any byte (segslot.h), so that what
 * was copied under one generation is that object's.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "cleanup.h"
#include "pack.h"
#include "packsegs.h"
#include "sys.h"

#define TRIES 8

struct looking {
	const uint8_t *store;
	const void *key;
	size_t key_size;
	int (*fn)(const struct shms_packlook *object, void *arg);
	void *arg;
	unsigned place;
	const struct shms_seglook *file;
	uint8_t *room; /* for a key, or an extent */
	size_t size;
};

/* Copies size bytes of the extent, from off on, to the same place in the room. */
static int copy_part(struct looking *l, const struct shms_packlook *o, size_t off, size_t size)
{
	int r = SHMS_GROW(l->room, l->size, 0, off + size + 1);

	return r < 0 ? r
		     : shms_seglook_read(l->file, o->object.extent_off + off, l->room + off, size);
}

/* Copies the key, and all of the extent where that is asked for. 0; 1: it has another key than the
 * one that is asked for. */
static int copy(struct looking *l, struct shms_packlook *o)
{
	bool inside = o->object.key_size <= SHMS_SEGPACKED_KEY;
	int r = inside ? 0 : copy_part(l, o, o->object.key_off, o->object.key_size);

	if (r < 0)
		return r;
	o->key = inside ? (const uint8_t *)o->object.key : l->room + o->object.key_off;
	o->key_size = o->object.key_size;
	if (!l->key)
		return 0;
	if (memcmp(o->key, l->key, l->key_size) != 0)
		return 1;
	r = copy_part(l, o, 0, o->object.used);
	o->copy = l->room;
	o->key = inside ? o->key : l->room + o->object.key_off;
	return r;
}

uint64_t shms_packlook_links(const struct shms_segslot *slot, uint64_t state)
{
	uint64_t n = shms_segstate_promised(state, shms_segnow_of_ms(shms_now_boot_ms()))
			     ? (uint64_t)__builtin_popcount(shms_segstate_leases(state))
			     : 0;

	for (uint32_t w = 0; w < slot->n_words; w++)
		n += (uint64_t)__builtin_popcountll(shms_segword_load(&slot->holders[w]) &
						    UINT64_C(0x5555555555555555));
	return n;
}

/* 1: *o is that slot's object, as it was at one moment; 0: it has none of the store's.
 * NOLINTNEXTLINE(readability-function-cognitive-complexity) */
static int read_slot(struct looking *l, const struct shms_segslot *slot, struct shms_packlook *o)
{
	for (int tries = 0; tries < TRIES; tries++) {
		uint64_t state = shms_segword_load(slot->state), now;
		int r, again;

		if (!shms_segstate_published(state) || !shms_segslot_named(slot, l->place))
			return 0;
		r = shms_segpacked_read(o->segment, slot, &o->object);
		if (r == -EBADMSG && l->file->error)
			return shms_error(l->file->error);
		o->generation = shms_segstate_generation(state);
		if (r == 0)
			r = l->key && o->object.key_size != l->key_size ? 1 : copy(l, o);
		if (r == -ENOMEM)
			return r;
		o->n_links = shms_packlook_links(slot, state);
		/* Where only the slot was used, its copy is of one moment. */
		if (r == 0 && o->object.key_size <= SHMS_SEGPACKED_KEY &&
		    !(o->object.flags & SHMS_SEGPACKED_TABLE) && !l->key)
			return 1;
		again = shms_seglook_again(l->file, o->slot);
		if (again < 0)
			return again == -EBADMSG ? 0 : shms_error(again);
		now = shms_segword_load(slot->state);
		if (!shms_segstate_published(now) ||
		    shms_segstate_generation(now) != o->generation ||
		    !shms_segslot_named(slot, l->place))
			continue;
		/* Damage is what verify speaks of; that it could not be read now is to be known. */
		return r < 0 && r != -EBADMSG ? shms_error(r) : r == 0;
	}
	return 0;
}

static int look(struct looking *l, const struct shms_seglook *file)
{
	uint32_t n = shms_segment_born(&file->segment);
	int r = 0;

	l->file = file;
	l->place = shms_segment_place(&file->segment, l->store);
	for (uint32_t i = 0; r == 0 && i < n && l->place != SHMS_SEGMENT_NO_PLACE; i++) {
		struct shms_packlook o = {.segment = &file->segment,
					  .inode = file->inode,
					  .uid = file->uid,
					  .slot = i};
		struct shms_segslot slot = shms_segslot_at(&file->segment, i);

		r = read_slot(l, &slot, &o);
		if (r == 1)
			r = l->fn(&o, l->arg);
	}
	return r;
}

int shms_packlook(int dir_fd, const uint8_t store[16], const void *key, size_t key_size,
		  int (*fn)(const struct shms_packlook *object, void *arg), void *arg)
{
	struct looking l = {.store = store, .key = key, .key_size = key_size, .fn = fn, .arg = arg};
	_names_ struct shms_names d = shms_names(dir_fd, ".");
	struct shms_seglook file;
	int r = shms_error(d.error);

	while (r == 0 && shms_names_next(&d)) {
		if (d.name[0] == '.')
			continue;
		r = shms_seglook_open(d.fd, d.name, false, &file);
		if (r == 0) {
			r = store ? look(&l, &file) : 0;
			shms_seglook_close(&file);
		} else if (r == -ENOENT || r == -EBADMSG || r == -ENOTSUP) {
			r = 0; /* gone, or what verify speaks of */
		} else if (r == -EPERM || r == -EACCES) {
			r = fn(&(struct shms_packlook){.error = -EPERM, .file = d.name}, arg);
		} else {
			r = shms_error(r);
		}
	}
	free(l.room);
	return r != 0 ? r : d.error;
}
