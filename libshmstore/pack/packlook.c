/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packlook.c: reads slots as seglook.c does: the state, then what it says, then the state and the
 * name again. The owner changes the generation before it changes any byte (segslot.h), so that what
 * was copied under one generation is that object's.
 */
#include "packlook.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "bootclock.h"
#include "cleanup.h"
#include "packsegs.h"
#include "sys.h"

#define TRIES 8

/* ---- aliases --------------------------------------------------------------------------------- */

/*
 * The store's aliases as they are in its segments. Private copies: nothing in them was checked
 * against the objects that they speak of.
 */
struct alias {
	struct shms_packalias_bytes object;
	bool instead; /* the store has the object by its own key no more */
	uint16_t key_size;
	const uint8_t *key;
};

/* All 0 at first. */
struct keys {
	struct alias *keys; /* by object, once they are sorted */
	size_t n, size;
};

static void keys_deinit(struct keys *k)
{
	for (size_t i = 0; i < k->n; i++)
		free((void *)(uintptr_t)k->keys[i].key);
	free(k->keys);
	*k = (struct keys){0};
}

static bool is_alias(const struct shms_segslot *slot, uint64_t state)
{
	return shms_segstate_published(state) &&
	       (shms_segpacked_flags_of(slot) & SHMS_SEGPACKED_ALIAS) &&
	       shms_segslot_named(slot, SHMS_SEG_OWNER);
}

/* Copies key and object. 1; 0: the slot is another one's by now, or damaged; -ENOMEM. */
static int copy_alias(const struct shms_seglook *file, uint32_t number, struct alias *ret)
{
	struct shms_segslot slot = shms_segslot_at(&file->segment, number);
	uint64_t state = shms_segword_load(slot.state);
	struct alias key;
	struct shms_segpacked o;

	if (!is_alias(&slot, state) || shms_segpacked_read(&file->segment, &slot, &o) < 0 ||
	    o.buffer_size != sizeof(key.object))
		return 0;
	_free_ uint8_t *bytes = malloc(o.key_size);
	if (!bytes)
		return -ENOMEM;
	if (shms_seglook_key(file, &o, bytes) < 0 ||
	    shms_seglook_read(file, o.extent_off, &key.object, sizeof(key.object)) < 0 ||
	    !shms_seglook_has(file, number, shms_segstate_generation(state)) ||
	    !is_alias(&slot, shms_segword_load(slot.state)))
		return 0;
	/* As it is now: an object's own key may have gone meanwhile. */
	key.instead = (shms_segpacked_flags_of(&slot) & SHMS_SEGPACKED_INSTEAD) != 0;
	key.key_size = o.key_size;
	key.key = bytes;
	bytes = NULL;
	*ret = key;
	return 1;
}

/* Adds the aliases that an own segment of the store has. 0, -ENOMEM. */
static int keys_read(struct keys *k, const struct shms_seglook *file)
{
	uint32_t n = shms_segment_born(&file->segment);

	for (uint32_t i = 0; i < n; i++) {
		struct shms_segslot slot = shms_segslot_at(&file->segment, i);
		int r = 0;

		if (!is_alias(&slot, shms_segword_load(slot.state)))
			continue;
		if (SHMS_GROW(k->keys, k->size, k->n, 1) < 0)
			return -ENOMEM;
		for (int tries = 0; tries < TRIES && r == 0; tries++)
			r = copy_alias(file, i, &k->keys[k->n]);
		if (r < 0)
			return r;
		k->n += r == 1;
	}
	return 0;
}

static int compare_keys(const void *a, const void *b)
{
	const struct alias *x = a, *y = b;

	return memcmp(&x->object, &y->object, sizeof(x->object));
}

static void keys_sort(struct keys *k)
{
	if (k->n)
		qsort(k->keys, k->n, sizeof(*k->keys), compare_keys);
}

/* The first of the object's aliases; they follow each other. NULL: it has none. */
static const struct alias *keys_of(const struct keys *k, const struct shms_packalias_bytes *object,
				   size_t *ret_n)
{
	struct alias wanted = {.object = *object};
	const struct alias *first =
		k->n ? bsearch(&wanted, k->keys, k->n, sizeof(*k->keys), compare_keys) : NULL;

	*ret_n = 0;
	if (!first)
		return NULL;
	while (first > k->keys && compare_keys(first - 1, &wanted) == 0)
		first--;
	while (first + *ret_n < k->keys + k->n && compare_keys(first + *ret_n, &wanted) == 0)
		++*ret_n;
	return first;
}

/* ---- objects --------------------------------------------------------------------------------- */

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
	struct keys keys;            /* all aliases of the store */
	const struct alias *aliases; /* of the object that is looked at */
	size_t n_aliases;
	bool own_key; /* it is asked for by its own key */
	bool instead; /* the store has it by others alone */
};

/* Copies size bytes of the extent, from off on, to the same place in the room. */
static int copy_part(struct looking *l, const struct shms_packlook *o, size_t off, size_t size)
{
	int r = SHMS_GROW(l->room, l->size, 0, off + size + 1);

	return r < 0 ? r
		     : shms_seglook_read(l->file, o->object.extent_off + off, l->room + off, size);
}

static bool is_key(const struct looking *l, const void *key, size_t key_size)
{
	return !l->key || (key_size == l->key_size && memcmp(key, l->key, key_size) == 0);
}

/* Finds the keys that the store has of the object. Is one of them asked for? */
static bool find_keys(struct looking *l, const struct shms_packlook *o, bool own_key)
{
	struct shms_packalias_bytes object = {.slot = o->slot, .generation = o->generation};
	bool found = false;

	memcpy(object.segment, o->segment->uuid, sizeof(object.segment));
	l->aliases = keys_of(&l->keys, &object, &l->n_aliases);
	l->instead = false;
	for (size_t i = 0; i < l->n_aliases; i++) {
		l->instead = l->instead || l->aliases[i].instead;
		found = found || is_key(l, l->aliases[i].key, l->aliases[i].key_size);
	}
	l->own_key = own_key && !l->instead;
	return l->own_key || found;
}

/* Copies the key, and all of the extent where that is asked for. 0; 1: the store has it by other
 * keys than the one that is asked for. */
static int copy(struct looking *l, struct shms_packlook *o)
{
	bool inside = o->object.key_size <= SHMS_SEGPACKED_KEY;
	int r = inside ? 0 : copy_part(l, o, o->object.key_off, o->object.key_size);

	if (r < 0)
		return r;
	o->key = inside ? (const uint8_t *)o->object.key : l->room + o->object.key_off;
	o->key_size = o->object.key_size;
	if (!find_keys(l, o, is_key(l, o->key, o->key_size)))
		return 1;
	if (!l->key)
		return 0;
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
		if (r == 0 && (o->object.flags & SHMS_SEGPACKED_ALIAS))
			return 0; /* what it speaks of has the key */
		if (r == 0 && l->key && o->object.key_size != l->key_size &&
		    !find_keys(l, o, false))
			r = 1;
		else if (r == 0)
			r = copy(l, o);
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

/* Tells of the object once for each of its keys that is asked for. All of the store's keys share
 * one bit, of which one is counted. */
static int tell(struct looking *l, struct shms_packlook *o)
{
	int r;

	o->n_links += l->n_aliases - (l->instead ? 1 : 0);
	r = l->own_key ? l->fn(o, l->arg) : 0;
	for (size_t i = 0; r == 0 && i < l->n_aliases; i++) {
		const struct alias *alias = &l->aliases[i];

		if (!is_key(l, alias->key, alias->key_size))
			continue;
		o->key = alias->key;
		o->key_size = alias->key_size;
		r = l->fn(o, l->arg);
	}
	return r;
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
			r = tell(l, &o);
	}
	return r;
}

/* In a store's own segments are its aliases. */
static int look_for_aliases(struct looking *l, const struct shms_seglook *file)
{
	return shms_segment_place(&file->segment, l->store) == SHMS_SEG_OWNER
		       ? keys_read(&l->keys, file)
		       : 0;
}

/* Calls one for each segment that can be read, and fn for each that may not. Each may be NULL. */
static int each(int dir_fd, struct looking *l,
		int (*one)(struct looking *l, const struct shms_seglook *file),
		int (*fn)(const struct shms_packlook *object, void *arg))
{
	_names_ struct shms_names d = shms_names(dir_fd, ".");
	struct shms_seglook file;
	int r = shms_error(d.error);

	while (r == 0 && shms_names_next(&d)) {
		if (d.name[0] == '.')
			continue;
		r = shms_seglook_open(d.fd, d.name, false, &file);
		if (r == 0) {
			r = one ? one(l, &file) : 0;
			shms_seglook_close(&file);
		} else if (r == -ENOENT || r == -EBADMSG || r == -ENOTSUP) {
			r = 0; /* gone, or what verify speaks of */
		} else if (r == -EPERM || r == -EACCES) {
			r = fn ? fn(&(struct shms_packlook){.error = -EPERM, .file = d.name},
				    l->arg)
			       : 0;
		} else {
			r = shms_error(r);
		}
	}
	return r != 0 ? r : d.error;
}

int shms_packlook(int dir_fd, const uint8_t store[16], const void *key, size_t key_size,
		  int (*fn)(const struct shms_packlook *object, void *arg), void *arg)
{
	struct looking l = {.store = store, .key = key, .key_size = key_size, .fn = fn, .arg = arg};
	int r = each(dir_fd, &l, look_for_aliases, NULL);

	if (r == 0) {
		keys_sort(&l.keys);
		r = each(dir_fd, &l, look, fn);
	}
	keys_deinit(&l.keys);
	free(l.room);
	return r;
}

int shms_packlook_refused(int dir_fd, int (*fn)(const struct shms_packlook *object, void *arg),
			  void *arg)
{
	struct looking l = {.arg = arg};

	return each(dir_fd, &l, NULL, fn);
}
