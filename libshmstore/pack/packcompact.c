/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packcompact.c: moves small objects together.
 *
 * Where many small objects were deleted at random, nearly every page has a few that stay, and none can go back to the
 * kernel; nor can the slots' table of a segment that has any. Objects move from the pages that have least to free slots
 * of the same class in the pages that have most. An object moves as a put that replaces it would: the copy is published
 * under the owner's name before the index has its place and the old slot loses its name. So a kill between leaves a key
 * in two slots with the same bytes, as such a put does. An object with views, leases, other holders or further keys stays.
 *
 * Only slots that have memory are moved into: in a full partition there is no more.
 */
#include "packcompact.h"

#include <stdlib.h>

#include "hostpage.h"
#include "packfork.h"
#include "packvictim.h"

/* A slot, in the order of what the page has that it begins in. */
struct ranked {
	uint64_t rank;
	uint32_t slot;
};

struct side {
	struct shms_segown *own;
	uint32_t number;
	uint32_t *live;       /* of each page: bytes of extents that are in use */
	struct ranked *slots; /* of one class: objects that may move, or free slots that have memory */
	uint32_t n;
};

struct compact {
	struct shms_pack *pack;
	struct side from, to;
	uint8_t *picked; /* a bit for each slot that is moved into */
	uint64_t now_ms;
};

/* The kernel gives and takes so many bytes at a time. */
static uint64_t page_of(const struct side *s)
{
	return s->own->mem.unit > shms_host_page() ? s->own->mem.unit : shms_host_page();
}

static void count_live(const struct side *s)
{
	const struct shms_segalloc *a = &s->own->alloc;
	uint64_t page = page_of(s);

	for (uint32_t i = 0; i < a->n_born; i++) {
		uint64_t at = shms_segalloc_begin(a, i), end = shms_segalloc_end(a, i);

		while (at && !shms_segalloc_is_free(a, i) && at < end) {
			uint64_t next = (at / page + 1) * page;

			next = next < end ? next : end;
			s->live[at / page] += (uint32_t)(next - at);
			at = next;
		}
	}
}

static bool begin(struct shms_pack *p, uint32_t number, struct side *ret)
{
	struct shms_segown *own = p->segments[number].own;

	*ret = (struct side){.own = own, .number = number};
	ret->live = calloc(own->file.segment.shape.size / page_of(ret) + 1, sizeof(*ret->live));
	ret->slots = calloc(own->alloc.n_born + UINT64_C(1), sizeof(*ret->slots));
	if (ret->live && ret->slots)
		count_live(ret);
	return ret->live && ret->slots;
}

static void end(struct side *s)
{
	free(s->live);
	free(s->slots);
}

static int by_rank(const void *a, const void *b)
{
	uint64_t x = ((const struct ranked *)a)->rank, y = ((const struct ranked *)b)->rank;

	return (x > y) - (x < y);
}

/* Finds the slots of that class, the emptiest pages first. */
static void rank(const struct compact *c, struct side *s, uint8_t class)
{
	const struct shms_segalloc *a = &s->own->alloc;
	uint32_t now = shms_segnow_of_ms(c->now_ms);

	s->n = 0;
	for (uint32_t i = 0; i < a->n_born; i++) {
		uint64_t at = shms_segalloc_begin(a, i), page = at / page_of(s);

		if (a->slots[i].class != class || !at)
			continue;
		if (s == &c->from ? shms_segalloc_is_free(a, i) ||
					    !shms_packvictim_may_go(c->pack, (struct shms_packplace){s->number, i}, now)
				  : !shms_segalloc_is_free(a, i) || !shms_segown_backed(s->own, i))
			continue;
		s->slots[s->n++] = (struct ranked){(uint64_t)s->live[page] << 32 | page, i};
	}
	qsort(s->slots, s->n, sizeof(*s->slots), by_rank);
}

static bool move(struct compact *c, uint32_t from, uint32_t to)
{
	struct shms_pack *p = c->pack;
	const struct shms_packseg *g = &p->segments[c->from.number];
	struct shms_segslot slot = shms_packseg_slot(g, from);
	struct shms_packplace old = {c->from.number, from}, place = {c->to.number, to}, found;
	struct shms_packhashed key;
	struct shms_segpacked o;

	/* The allocator's word holds: others can write to the slot's. */
	if (shms_segpacked_read(&g->file->segment, &slot, &o) < 0 ||
	    o.extent_off != shms_segalloc_begin(&c->from.own->alloc, from) ||
	    o.class != c->from.own->alloc.slots[from].class)
		return false;
	key = shms_packhash(shms_packseg_key(g, &o), o.key_size);
	if (!shms_pack_find(p, &key, &found) || found.segment != old.segment || found.slot != old.slot)
		return false;
	if (shms_segown_copy(c->to.own, &o, g->file->segment.bytes + o.extent_off, to) < 0)
		return false;
	shms_pack_changing(p);
	shms_pack_gain(p, place);
	shms_pack_rename(p, &key, &old, place, c->now_ms);
	shms_pack_changed(p);
	return true;
}

static uint32_t compact_class(struct compact *c, uint8_t class, uint32_t most)
{
	struct shms_segalloc *a = &c->to.own->alloc;
	const struct ranked *from, *to;
	uint32_t n = 0, n_moved = 0;

	rank(c, &c->from, class);
	rank(c, &c->to, class);
	from = c->from.slots;
	to = c->to.slots + c->to.n;
	while (n < c->from.n && n < c->to.n && n < most &&
	       (c->from.own != c->to.own || from[n].rank < (to - n - 1)->rank)) {
		uint32_t slot = (to - ++n)->slot;

		c->picked[slot / 8] |= (uint8_t)(1u << slot % 8);
	}
	if (n)
		shms_segalloc_pick(a, class, c->picked);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t slot = (to - i - 1)->slot;

		c->picked[slot / 8] &= (uint8_t) ~(1u << slot % 8);
		if (move(c, from[i].slot, slot))
			n_moved++;
		else
			shms_segalloc_give(a, slot);
	}
	return n_moved;
}

uint32_t shms_packcompact(struct shms_pack *p, uint32_t from, uint32_t to, uint64_t now_ms, uint32_t most)
{
	struct compact c = {.pack = p, .now_ms = now_ms};
	uint32_t n_moved = 0;
	bool began = begin(p, from, &c.from);

	began = begin(p, to, &c.to) && began && shms_segown_enter(c.to.own, now_ms);
	c.picked = calloc(c.to.own->alloc.n_born / 8 + 1, 1);
	/* A larger object has a page of its own. */
	for (unsigned class = 0; began && c.picked && class < SHMS_SEGCLASSES && n_moved < most; class ++) {
		if (shms_segclass_size((uint8_t) class) < shms_host_page() &&
		    c.to.own->alloc.stacks[class] < c.to.own->alloc.n_born)
			n_moved += compact_class(&c, (uint8_t) class, most - n_moved);
	}
	shms_segown_leave(c.to.own);
	end(&c.from);
	end(&c.to);
	free(c.picked);
	return n_moved;
}
