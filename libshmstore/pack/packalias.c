/* SPDX-License-Identifier: Apache-2.0 */
/* packalias.c: see packsegs.h. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "format.h"
#include "packsegs.h"

/* ---- the table ------------------------------------------------------------------------------- */

static struct shms_packalias *find(const struct shms_pack *p, struct shms_packplace place)
{
	struct shms_packalias *a = NULL;

	HASH_FIND(hh, p->aliases.aliases, &place, sizeof(place), a);
	return a;
}

static struct shms_packaliased *find_object(const struct shms_pack *p, struct shms_packplace place)
{
	struct shms_packaliased *o = NULL;

	HASH_FIND(hh, p->aliases.objects, &place, sizeof(place), o);
	return o;
}

static void remove_object(struct shms_pack *p, struct shms_packaliased *o)
{
	HASH_DEL(p->aliases.objects, o);
	free(o);
}

/* The object's entry, made where there is none. NULL: out of memory. */
static struct shms_packaliased *object_for(struct shms_pack *p, struct shms_packplace place,
					   bool native)
{
	struct shms_packaliased *o = find_object(p, place);

	if (o)
		return o;
	o = calloc(1, sizeof(*o));
	if (!o)
		return NULL;
	o->place = place;
	o->native = native;
	HASH_ADD(hh, p->aliases.objects, place, sizeof(o->place), o);
	if (o->hh.tbl)
		return o;
	free(o);
	return NULL;
}

static int add(struct shms_pack *p, struct shms_packplace place, struct shms_packplace object,
	       bool native)
{
	struct shms_packaliased *o = object_for(p, object, native);
	struct shms_packalias *a = o ? calloc(1, sizeof(*a)) : NULL;

	if (a) {
		a->place = place;
		a->object = object;
		HASH_ADD(hh, p->aliases.aliases, place, sizeof(a->place), a);
	}
	if (a && a->hh.tbl) {
		DL_APPEND(o->aliases, a);
		return 0;
	}
	free(a);
	if (o && !o->aliases)
		remove_object(p, o);
	return -ENOMEM;
}

static void remove_alias(struct shms_pack *p, struct shms_packaliased *o, struct shms_packalias *a)
{
	DL_DELETE(o->aliases, a);
	HASH_DEL(p->aliases.aliases, a);
	free(a);
	if (!o->aliases)
		remove_object(p, o);
}

void shms_packalias_deinit(struct shms_pack *p)
{
	struct shms_packaliased *o, *next_object;
	struct shms_packalias *a, *next;

	HASH_ITER(hh, p->aliases.aliases, a, next)
	{
		HASH_DEL(p->aliases.aliases, a);
		free(a);
	}
	HASH_ITER(hh, p->aliases.objects, o, next_object)
	{
		remove_object(p, o);
	}
}

struct shms_packplace shms_packalias_object(const struct shms_pack *p, struct shms_packplace place)
{
	const struct shms_packalias *a = p->aliases.aliases ? find(p, place) : NULL;

	return a ? a->object : place;
}

bool shms_packalias_is_aliased(const struct shms_pack *p, struct shms_packplace object)
{
	return p->aliases.objects && find_object(p, object);
}

bool shms_packalias_is_native(const struct shms_pack *p, struct shms_packplace object)
{
	const struct shms_packaliased *o = p->aliases.objects ? find_object(p, object) : NULL;

	return !o || o->native;
}

/* ---- in segments ----------------------------------------------------------------------------- */

static void mark(struct shms_pack *p, struct shms_packplace alias, bool instead)
{
	struct shms_segslot slot = shms_packseg_slot(&p->segments[alias.segment], alias.slot);

	shms_segpacked_flag(&slot, SHMS_SEGPACKED_INSTEAD, instead);
}

static bool is_marked(const struct shms_pack *p, struct shms_packplace alias)
{
	struct shms_segslot slot = shms_packseg_slot(&p->segments[alias.segment], alias.slot);

	return (shms_segpacked_flags_of(&slot) & SHMS_SEGPACKED_INSTEAD) != 0;
}

int shms_packalias_make(struct shms_pack *p, const void *key, size_t key_size,
			struct shms_packplace object, uint32_t generation, bool native,
			uint64_t now_ms, struct shms_packplace *ret)
{
	/* Where the object has further keys already, one of them says INSTEAD if that is so. */
	bool instead = !native && !shms_packalias_is_aliased(p, object);
	struct shms_packalias_bytes bytes = {.slot = object.slot, .generation = generation};
	struct iovec iov = {&bytes, sizeof(bytes)};
	struct shms_segobject what = {.key = key,
				      .key_size = key_size,
				      .buffers = &iov,
				      .n_buffers = 1,
				      .flags = SHMS_SEGPACKED_ALIAS |
					       (instead ? SHMS_SEGPACKED_INSTEAD : 0)};
	int r;

	memcpy(bytes.segment, p->segments[object.segment].file->segment.uuid,
	       sizeof(bytes.segment));
	r = shms_pack_place(p, &what, now_ms, ret);
	if (r < 0)
		return r;
	shms_pack_gain(p, *ret);
	r = add(p, *ret, object, native);
	if (r < 0)
		shms_pack_lose(p, *ret, now_ms);
	return r;
}

void shms_packalias_unmake(struct shms_pack *p, struct shms_packplace place, uint64_t now_ms)
{
	struct shms_packalias *a = find(p, place);

	remove_alias(p, find_object(p, a->object), a);
	shms_pack_lose(p, place, now_ms);
}

/* Of which object of the store's is it? */
static bool read_object(struct shms_pack *p, const struct shms_packseg *own,
			const struct shms_segpacked *o, struct shms_packplace *ret)
{
	struct shms_packalias_bytes bytes;
	const struct shms_packseg *g;
	struct shms_segslot slot;
	uint64_t state;

	if (o->buffer_size != sizeof(bytes))
		return false;
	memcpy(&bytes, own->file->segment.bytes + o->extent_off, sizeof(bytes));
	if (!shms_packsegs_find(p, bytes.segment, &ret->segment))
		return false;
	g = &p->segments[ret->segment];
	ret->slot = bytes.slot;
	if (bytes.slot >= shms_segment_born(&g->file->segment) ||
	    !shms_packseg_named(g, bytes.slot))
		return false;
	slot = shms_packseg_slot(g, bytes.slot);
	state = shms_segword_load(slot.state);
	return shms_segstate_published(state) &&
	       shms_segstate_generation(state) == bytes.generation;
}

int shms_packalias_reopen(struct shms_pack *p, struct shms_packplace place,
			  const struct shms_segpacked *o)
{
	bool instead = (o->flags & SHMS_SEGPACKED_INSTEAD) != 0;
	struct shms_packseg *g = &p->segments[place.segment];
	struct shms_packaliased *aliased;
	struct shms_packplace object;
	int r;

	if (!read_object(p, g, o, &object)) {
		shms_packseg_came(p, place);
		shms_packseg_drop(p, place, 0);
		return 0;
	}
	r = add(p, place, object, true);
	if (r < 0 || !instead)
		return r;
	aliased = find_object(p, object);
	/* The last process was killed between two marks. */
	if (!aliased->native)
		mark(p, place, false);
	aliased->native = false;
	return 0;
}

uint64_t shms_packalias_unname(struct shms_pack *p, struct shms_packplace place, uint64_t now_ms)
{
	struct shms_packalias *a = p->aliases.aliases ? find(p, place) : NULL;
	struct shms_packaliased *o =
		p->aliases.objects ? find_object(p, a ? a->object : place) : NULL;
	uint64_t bytes = 0;

	if (!o)
		return shms_pack_lose(p, place, now_ms);
	if (!a) {
		mark(p, o->aliases->place, true);
		o->native = false;
		return 0;
	}
	if (!o->native && !o->aliases->next)
		bytes = shms_pack_lose(p, a->object, now_ms);
	else if (is_marked(p, place))
		/* killed here, two are; if none were, the key that went before would be back */
		mark(p, (o->aliases == a ? a->next : o->aliases)->place, true);
	remove_alias(p, o, a);
	return bytes + shms_pack_lose(p, place, now_ms);
}

void shms_packalias_forget_objects(struct shms_pack *p, uint64_t now_ms)
{
	struct shms_packaliased *o, *next;

	HASH_ITER(hh, p->aliases.objects, o, next)
	{
		if (shms_packseg_named(&p->segments[o->place.segment], o->place.slot))
			shms_packseg_drop(p, o->place, now_ms);
	}
}

/* ---- one more key ---------------------------------------------------------------------------- */

/* The segment that the address is in. */
static bool segment_at(const struct shms_pack *p, const uint8_t *at, uint32_t *ret_number)
{
	SHMS_PACKSEGS_EACH(p, seg) {
		const struct shms_segment *g = &seg->file->segment;

		if (at >= g->bytes + g->shape.data_off && at < g->bytes + g->shape.size) {
			*ret_number = shms_packseg_number(p, seg);
			return true;
		}
	}
	return false;
}

/* Are the object's bytes those of what, and in the same place? */
static bool is_object(const struct shms_segment *g, const struct shms_segpacked *o,
		      const struct shms_segobject *what)
{
	const uint8_t *extent = g->bytes + o->extent_off;
	uint64_t sizes[SHMS_SEGOWN_BUFFERS], off = 0;

	if (o->n_buffers != what->n_buffers || o->n_buffers > SHMS_SEGOWN_BUFFERS ||
	    o->metadata_size != what->metadata_size || (what->flags & ~o->flags) ||
	    shms_segpacked_sizes(g, o, sizes) < 0 ||
	    (o->metadata_size &&
	     memcmp(extent + o->metadata_off, what->metadata, o->metadata_size) != 0))
		return false;
	for (uint32_t i = 0; i < o->n_buffers; i++) {
		if (what->buffers[i].iov_len != sizes[i] ||
		    (sizes[i] && what->buffers[i].iov_base != extent + off))
			return false;
		off = shms_layout_next(off, sizes[i]);
	}
	return true;
}

/* The store's object of which the first byte is there. */
static bool object_at(struct shms_pack *p, const uint8_t *at, const struct shms_segobject *what,
		      struct shms_packplace *ret)
{
	const struct shms_segment *g;
	uint32_t n, extent;

	if (!segment_at(p, at, &ret->segment))
		return false;
	g = &p->segments[ret->segment].file->segment;
	extent = (uint32_t)((uint64_t)(at - g->bytes) / SHMS_SEGCLASS_ALIGN);
	n = shms_segment_born(g);
	for (ret->slot = 0; ret->slot < n; ret->slot++) {
		struct shms_segslot slot = shms_segslot_at(g, ret->slot);
		struct shms_segpacked o;

		if ((uint32_t)shms_segword_plain_load(&slot.packed[0]) != extent ||
		    !shms_packseg_named(&p->segments[ret->segment], ret->slot))
			continue;
		return shms_segpacked_read(g, &slot, &o) == 0 && is_object(g, &o, what);
	}
	return false;
}

static int alias(struct shms_pack *p, const struct shms_segobject *what,
		 struct shms_packplace object, bool replace, uint64_t now_ms)
{
	struct shms_segslot slot = shms_packseg_slot(&p->segments[object.segment], object.slot);
	uint32_t generation = shms_segstate_generation(shms_segword_load(slot.state));
	const struct shms_packhashed key = shms_packhash(what->key, what->key_size);
	struct shms_packplace old, old_object, place;
	bool held = shms_pack_find(p, &key, &old);
	int r;

	if (held) {
		old_object = shms_packalias_object(p, old);
		if (!replace)
			return -EEXIST;
		if (old_object.segment == object.segment && old_object.slot == object.slot)
			return 0;
	}
	r = shms_pack_reserve(p);
	if (r == 0)
		r = shms_packalias_make(p, what->key, what->key_size, object, generation,
					shms_packalias_is_native(p, object), now_ms, &place);
	if (r < 0)
		return r;
	shms_pack_rename(p, &key, held ? &old : NULL, place, now_ms);
	return 0;
}

int shms_pack_alias(struct shms_pack *p, const struct shms_segobject *what, bool replace,
		    uint64_t now_ms, uint64_t may)
{
	struct shms_packplace object;
	uint32_t first = 0;
	int r = -ENOENT;

	while (first < what->n_buffers && !what->buffers[first].iov_len)
		first++;
	if (first == what->n_buffers || !what->key_size)
		return -ENOENT;
	SHMS_LIGHT_HELD(&p->lock);
	p->grow.may = may;
	shms_pack_changing(p);
	if (object_at(p, what->buffers[first].iov_base, what, &object))
		r = alias(p, what, object, replace, now_ms);
	shms_pack_changed(p);
	return r;
}
