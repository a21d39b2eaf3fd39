/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segalloc.c: stacks of free slots, hints, the scan, and the cutting of slots.
 *
 * A process that may write to the segment could change what it says of a free extent, so that two
 * objects would share bytes. So the owner keeps its own list, 8 bytes a slot. Only a process that
 * takes over a dead owner's segment has to read the extents from there. It then checks them as a
 * whole: a bit for each 64 bytes says whether an extent has them.
 *
 * Rejected: extents that are split and merged (a free slot's extent would then be another slot's,
 * and a view of it); a segment for each class.
 */
#include "segalloc.h"

#include <errno.h>
#include <stdlib.h>

#include "segment.h"
#include "segslot.h"

#define NONE   UINT32_MAX
#define BOTTOM SHMS_SEGMENT_SLOTS_MAX /* the same in 24 bits: no slot has this number */

static bool bit(const uint8_t *bits, uint64_t i)
{
	return bits[i / 8] >> i % 8 & 1;
}

static void flip(uint8_t *bits, uint64_t i)
{
	bits[i / 8] ^= (uint8_t)(1u << i % 8);
}

int shms_segalloc_init(struct shms_segalloc *a, const struct shms_segment *segment)
{
	uint32_t n_slots = segment->shape.n_slots;

	*a = (struct shms_segalloc){.segment = segment, .end_off = segment->shape.data_off};
	a->slots = calloc(n_slots, sizeof(*a->slots));
	a->free = calloc(n_slots / 8 + 1, 1);
	a->pages = calloc(n_slots, sizeof(*a->pages));
	if (!a->slots || !a->free || !a->pages) {
		shms_segalloc_deinit(a);
		return -ENOMEM;
	}
	for (size_t i = 0; i < SHMS_SEGCLASSES; i++)
		a->stacks[i] = NONE;
	return 0;
}

void shms_segalloc_deinit(struct shms_segalloc *a)
{
	free(a->slots);
	free(a->free);
	free(a->pages);
	a->pages = NULL;
	a->slots = NULL;
	a->free = NULL;
}

/* As shms_segsurvey() counts it. */
static uint64_t bytes_of(const struct shms_segalloc *a, uint32_t slot)
{
	uint64_t size = shms_segclass_size((uint8_t)a->slots[slot].class);

	return size < SHMS_SEGCLASS_BIG ? size : (uint64_t)a->pages[slot] * SHMS_SEGMENT_PAGE;
}

void shms_segalloc_fill(struct shms_segalloc *a, uint32_t slot, uint64_t used)
{
	a->used -= bytes_of(a, slot);
	a->pages[slot] = (uint16_t)((used + SHMS_SEGMENT_PAGE - 1) / SHMS_SEGMENT_PAGE);
	a->used += bytes_of(a, slot);
}

void shms_segalloc_give(struct shms_segalloc *a, uint32_t slot)
{
	struct shms_segextent *e = &a->slots[slot];

	if (shms_segalloc_is_free(a, slot))
		return;
	flip(a->free, slot);
	e->below = a->stacks[e->class] & BOTTOM;
	a->stacks[e->class] = slot;
	a->n_free++;
	a->used -= bytes_of(a, slot);
}

static uint32_t below(const struct shms_segalloc *a, uint32_t slot)
{
	return a->slots[slot].below == BOTTOM ? NONE : a->slots[slot].below;
}

/* Slot, which is free, is off its stack. */
static void taken(struct shms_segalloc *a, uint32_t slot)
{
	flip(a->free, slot);
	a->n_free--;
	a->used += bytes_of(a, slot);
}

static uint32_t pop(struct shms_segalloc *a, uint8_t class)
{
	uint32_t slot = a->stacks[class];

	if (slot == NONE)
		return NONE;
	a->stacks[class] = below(a, slot);
	taken(a, slot);
	return slot;
}

void shms_segalloc_pick(struct shms_segalloc *a, uint8_t class, const uint8_t *picked)
{
	uint32_t slot = a->stacks[class], next, kept = NONE;

	a->stacks[class] = NONE;
	for (; slot != NONE; slot = next) {
		next = below(a, slot);
		if (bit(picked, slot)) {
			taken(a, slot);
			continue;
		}
		if (kept == NONE)
			a->stacks[class] = slot;
		else
			a->slots[kept].below = slot & BOTTOM;
		a->slots[slot].below = BOTTOM;
		kept = slot;
	}
}

/* Takes a slot back that may have been left. True: it is ours again. */
static bool reclaim(struct shms_segalloc *a, uint32_t index, uint32_t now)
{
	struct shms_segslot slot;

	if (index >= a->n_born || shms_segalloc_is_free(a, index) || !a->slots[index].extent)
		return false;
	slot = shms_segslot_at(a->segment, index);
	/* Most slots that a scan meets are held. A look is cheaper than two changes, and
	 * disturbs no other process. */
	if (shms_segslot_held(&slot) || !shms_segslot_free(&slot, now))
		return false;
	shms_segalloc_give(a, index);
	return true;
}

uint32_t shms_segalloc_hints(struct shms_segalloc *a, uint32_t now)
{
	/* acquire: of the count's release in shms_segment_hint(). */
	uint32_t seen = atomic_load_explicit(&shms_segment_control(a->segment)->n_hints,
					     memory_order_acquire);
	uint32_t n = 0;

	if (seen == a->hints_seen)
		return 0;
	a->hints_seen = seen;
	for (uint32_t word = 0; word <= (a->n_born - 1) / 64 && a->n_born; word++) {
		for (uint64_t bits = shms_segment_hinted(a->segment, word); bits; bits &= bits - 1)
			n += reclaim(a, word * 64 + (uint32_t)__builtin_ctzll(bits), now);
	}
	return n;
}

bool shms_segalloc_has(struct shms_segalloc *a, uint8_t class, uint32_t now)
{
	return a->stacks[class] != NONE ||
	       (shms_segalloc_hints(a, now) && a->stacks[class] != NONE);
}

uint32_t shms_segalloc_scan(struct shms_segalloc *a, uint32_t now)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < a->n_born; i++)
		n += reclaim(a, i, now);
	return n;
}

/*
 * Cuts one more slot, with an extent behind the last one. A kill before n_born is stored leaves
 * nothing of it.
 */
static int cut(struct shms_segalloc *a, uint8_t class, uint32_t *ret_slot)
{
	const struct shms_segment_shape *shape = &a->segment->shape;
	uint64_t size = shms_segclass_size(class), off = a->end_off;
	struct shms_segpacked told = {.class = class, .key_size = 1, .n_buffers = 1};
	struct shms_segslot slot;

	if (size >= SHMS_SEGCLASS_BIG)
		off = (off + SHMS_SEGMENT_PAGE - 1) & ~(uint64_t)(SHMS_SEGMENT_PAGE - 1);
	if (a->n_born == shape->n_slots || off > shape->size || size > shape->size - off)
		return -ENOSPC;
	slot = shms_segslot_at(a->segment, a->n_born);
	told.extent_off = off;
	shms_segpacked_write(&slot, &told);
	a->slots[a->n_born] = (struct shms_segextent){
		.extent = (uint32_t)(off / SHMS_SEGCLASS_ALIGN), .class = class};
	a->end_off = off + size;
	a->used += bytes_of(a, a->n_born);
	*ret_slot = a->n_born++;
	/* release: a process that sees the number sees the slot's extent. The acquire is in
	 * shms_segment_born(). */
	atomic_store_explicit(&shms_segment_control(a->segment)->n_born, a->n_born,
			      memory_order_release);
	return 0;
}

int shms_segalloc_take(struct shms_segalloc *a, uint8_t class, uint32_t now, uint32_t *ret_slot)
{
	uint32_t slot = pop(a, class);

	if (slot == NONE && shms_segalloc_hints(a, now))
		slot = pop(a, class);
	if (slot == NONE)
		return cut(a, class, ret_slot);
	*ret_slot = slot;
	return 0;
}

/* Marks [extent, extent + size) as a slot's. False: a part of it is another slot's. */
static bool mark(uint8_t *map, uint64_t first, uint64_t n)
{
	for (uint64_t i = first; i < first + n; i++) {
		if (bit(map, i))
			return false;
	}
	for (uint64_t i = first; i < first + n; i++)
		flip(map, i);
	return true;
}

/* Reads what slot i says of its extent. False: it cannot be so. */
static bool told(struct shms_segalloc *a, uint32_t i, uint8_t *map, bool *ret_free)
{
	const struct shms_segment *g = a->segment;
	struct shms_segslot slot = shms_segslot_at(g, i);
	uint32_t extent = (uint32_t)shms_segword_plain_load(&slot.packed[0]);
	uint8_t class = (uint8_t)(shms_segword_plain_load(&slot.packed[1]) >> 48);
	uint64_t off = (uint64_t)extent * SHMS_SEGCLASS_ALIGN, size = shms_segclass_size(class);

	if (!shms_segpacked_extent(g, extent, class) ||
	    !mark(map, (off - g->shape.data_off) / SHMS_SEGCLASS_ALIGN, size / SHMS_SEGCLASS_ALIGN))
		return false;
	a->slots[i] = (struct shms_segextent){.extent = extent, .class = class};
	/* Of a large one it is not worth reading what its object takes: a
	 * sixteenth too much at most. */
	a->pages[i] = (uint16_t)(size / SHMS_SEGMENT_PAGE);
	a->used += bytes_of(a, i);
	a->end_off = off + size > a->end_off ? off + size : a->end_off;
	*ret_free = shms_segstate_of(shms_segword_load(slot.state)) == SHMS_SEG_FREE;
	return true;
}

int shms_segalloc_rebuild(struct shms_segalloc *a)
{
	const struct shms_segment_shape *shape = &a->segment->shape;
	uint8_t *map = calloc((shape->size - shape->data_off) / SHMS_SEGCLASS_ALIGN / 8 + 1, 1);

	if (!map)
		return -ENOMEM;
	a->n_born = shms_segment_born(a->segment);
	for (uint32_t i = 0; i < a->n_born; i++) {
		bool is_free = false;

		/* else extent 0: reclaim() passes it over */
		if (told(a, i, map, &is_free) && is_free)
			shms_segalloc_give(a, i);
	}
	free(map);
	return 0;
}
