/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packtrim.c: memory of a store's segments that no object needs goes back to the kernel.
 *
 * The pool of a store is what its own segments take, less what is in slots that are in use, by
 * whomever, and its index. A segment with no slot in use is given up, unless somebody else has a
 * place in it: that keeps the file, so it is punched only. Of a segment whose owner is dead any
 * holder can give back what nobody has.
 *
 * Free slots between objects are stranded: no other size can have their memory. Where a trim leaves
 * more than a tenth of what the segments take so, small objects are moved together (below).
 */
#include <stdlib.h>

#include "hostpage.h"
#include "packsegs.h"
#include "segrescue.h"

#define TRIM_AGAIN_MS  100u
#define STRANDED_LEAST (UINT64_C(1) << 20)
#define MOVES          32768u /* of one trim */
#define STEPS          4u     /* pairs of segments */
#define MOVE_AGAIN_MS  1000u

static uint64_t pool_of(const struct shms_packseg *g)
{
	uint64_t bytes = g->own ? g->own->mem.bytes : 0;

	return g->own && bytes > g->own->alloc.used ? bytes - g->own->alloc.used : 0;
}

/* Bytes that own segments take in all. */
static uint64_t memory(const struct shms_pack *p)
{
	uint64_t sum = 0;

	SHMS_PACKSEGS_EACH(p, g)
		sum += g->own ? g->own->mem.bytes : 0;
	return sum;
}

static uint64_t pool(const struct shms_pack *p)
{
	uint64_t sum = p->lines.bytes;

	SHMS_PACKSEGS_EACH(p, g)
		sum += pool_of(g);
	return sum;
}

uint64_t shms_pack_hold(struct shms_pack *p)
{
	shms_lightlock_take(&p->lock);
	return pool(p);
}

void shms_pack_release(struct shms_pack *p)
{
	shms_lightlock_release(&p->lock);
}

/* Nothing of anybody's is there, and nobody else has a place. */
static bool is_empty(const struct shms_pack *p, const struct shms_packseg *g, uint64_t now_ms)
{
	if (g->n_held || g->inherited || !shms_segown_unused(g->own, now_ms) ||
	    shms_packseg_is_meant(p, g))
		return false;
	for (unsigned h = SHMS_SEG_OWNER + 1; h < shms_segment_holders(&g->file->segment); h++) {
		struct shms_segrecord *record = shms_segment_record(&g->file->segment, h);

		if (!shms_segword_is(&record->state, UINT64_MAX, SHMS_SEGRECORD_FREE))
			return false;
	}
	return true;
}

static uint64_t trim(struct shms_pack *p, struct shms_packseg *g, uint64_t now_ms)
{
	uint64_t freed;

	shms_packseg_settle(p, g, now_ms);
	if (!g->own) /* of a dead owner: what nobody holds there */
		return shms_segrescue_name(p->options.dir_fd, g->file->name, now_ms);
	freed = shms_segown_trim(g->own, now_ms);
	if (!is_empty(p, g, now_ms))
		return freed;
	freed += shms_segfile_leave(g->file, p->options.dir_fd, now_ms);
	shms_packsegs_free(g);
	return freed;
}

/* ---- moving small objects together ----------------------------------------------------------- */

/* A slot, in the order of what the page has that it begins in. */
struct ranked {
	uint64_t rank;
	uint32_t slot;
};

struct side {
	struct shms_segown *own;
	uint32_t number;
	uint32_t *live; /* of each page: bytes of extents that are in use */
	/* of one class: objects that may move, or free slots that have memory */
	struct ranked *slots;
	uint32_t n;
};

struct compaction {
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
static void rank(const struct compaction *c, struct side *s, uint8_t class)
{
	const struct shms_segalloc *a = &s->own->alloc;
	uint32_t now = shms_segnow_of_ms(c->now_ms);

	s->n = 0;
	for (uint32_t i = 0; i < a->n_born; i++) {
		uint64_t at = shms_segalloc_begin(a, i), page = at / page_of(s);

		if (a->slots[i].class != class || !at)
			continue;
		if (s == &c->from
			    ? shms_segalloc_is_free(a, i) ||
				      !shms_packvictim_may_go(
					      c->pack, (struct shms_packplace){s->number, i}, now)
			    : !shms_segalloc_is_free(a, i) ||
				      !shms_segmem_has(&s->own->mem, at, shms_segalloc_end(a, i)))
			continue;
		s->slots[s->n++] = (struct ranked){(uint64_t)s->live[page] << 32 | page, i};
	}
	qsort(s->slots, s->n, sizeof(*s->slots), by_rank);
}

static bool move(struct compaction *c, uint32_t from, uint32_t to)
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
	if (!shms_pack_find(p, &key, &found) || found.segment != old.segment ||
	    found.slot != old.slot)
		return false;
	if (shms_segown_copy(c->to.own, &o, g->file->segment.bytes + o.extent_off, to) < 0)
		return false;
	shms_pack_changing(p);
	shms_pack_gain(p, place);
	shms_pack_rename(p, &key, &old, place, c->now_ms);
	shms_pack_changed(p);
	return true;
}

static uint32_t compact_class(struct compaction *c, uint8_t class, uint32_t most)
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

/*
 * Moves up to most small objects out of the own segment from, emptiest pages first, into free slots
 * of the own segment to that have memory, fullest pages first; where both are the same, until the
 * two meet. Both were trimmed before, and from is to be trimmed after it. The pack's lock is held.
 * Returns how many were moved.
 */
static uint32_t compact_pair(struct shms_pack *p, uint32_t from, uint32_t to, uint64_t now_ms,
			     uint32_t most)
{
	struct compaction c = {.pack = p, .now_ms = now_ms};
	uint32_t n_moved = 0;
	bool began = begin(p, from, &c.from);

	began = begin(p, to, &c.to) && began && shms_segown_enter(c.to.own, now_ms);
	c.picked = calloc(c.to.own->alloc.n_born / 8 + 1, 1);
	/* A larger object has a page of its own. */
	for (unsigned class = 0; began && c.picked && class < SHMS_SEGCLASSES && n_moved < most;
	     class ++) {
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

/* ---- what a trim leaves ---------------------------------------------------------------------- */

/* Bytes that a trim had to leave in free slots, without the slots' table. */
static uint64_t stranded_of(const struct shms_packseg *g)
{
	uint64_t bytes = pool_of(g), table = g->own ? g->own->slots_end : 0;

	return !g->large && bytes > table ? bytes - table : 0;
}

static uint64_t stranded(const struct shms_pack *p)
{
	uint64_t sum = 0;

	SHMS_PACKSEGS_EACH(p, g)
		sum += stranded_of(g);
	return sum;
}

/* The own segment for small objects that has least, or, of those with free slots in
 * pages that have memory, most. */
static bool next_of(const struct shms_pack *p, const bool *passed, bool most, uint32_t *ret)
{
	bool found = false;

	for (uint32_t i = 0; i < p->n_segments; i++) {
		const struct shms_packseg *g = &p->segments[i];

		if (!g->own || g->large || passed[i] ||
		    (most && stranded_of(g) < SHMS_SEGMENT_PAGE) ||
		    (found && (g->own->alloc.used > p->segments[*ret].own->alloc.used) != most))
			continue;
		*ret = i;
		found = true;
	}
	return found;
}

/*
 * Moves objects from the segments that have least to those that have most, and within the one where
 * both meet. *ret_more: there is more to move.
 */
static uint64_t compact(struct shms_pack *p, uint64_t now_ms, bool *ret_more)
{
	bool passed[SHMS_PACKINDEX_SEGMENTS] = {false};
	uint64_t lost = stranded(p), freed = 0;
	uint32_t from = 0, to = 0, n_steps = 0, n_moves = 0;

	*ret_more = false;
	if (lost < STRANDED_LEAST || lost < memory(p) / 10)
		return 0;
	/* Objects that could not move a moment ago cannot move now. */
	if (lost <= p->unmoved + p->unmoved / 4 && now_ms - p->unmoved_ms < MOVE_AGAIN_MS)
		return 0;
	while (n_moves < MOVES && n_steps++ < STEPS && next_of(p, passed, false, &from) &&
	       next_of(p, passed, true, &to)) {
		struct shms_packseg *g = &p->segments[from];
		uint32_t moved = compact_pair(p, from, to, now_ms, MOVES - n_moves);

		n_moves += moved;
		if (moved)
			freed += trim(p, g, now_ms);
		/* The rest of the one segment may not move, or does not fit into the other. */
		if (!moved || from == to)
			passed[from] = true;
		else if (g->own)
			passed[to] = true;
	}
	*ret_more = n_moves && (n_moves >= MOVES || n_steps > STEPS);
	p->unmoved = *ret_more ? 0 : stranded(p);
	p->unmoved_ms = now_ms;
	return freed;
}

uint64_t shms_pack_trim(struct shms_pack *p, uint64_t now_ms)
{
	uint64_t freed = 0;
	bool more = false;

	shms_lightlock_take(&p->lock);
	/* A scan finds what others left without a hint, and leases that have ended: both
	 * can wait for the next one. */
	if (pool(p) <= p->trimmed && now_ms - p->trimmed_ms < TRIM_AGAIN_MS) {
		shms_lightlock_release(&p->lock);
		return 0;
	}
	if (!p->child && !atomic_load_explicit(&p->retired, memory_order_relaxed)) {
		SHMS_PACKSEGS_EACH(p, g)
			freed += trim(p, g, now_ms);
		freed += compact(p, now_ms, &more);
	}
	p->grow.gave += freed;
	/* If more can be moved, the next call goes on at once. */
	p->trimmed = more ? 0 : pool(p);
	p->trimmed_ms = now_ms;
	shms_lightlock_release(&p->lock);
	return freed;
}

uint64_t shms_pack_pool(struct shms_pack *p, uint64_t *ret_memory, uint64_t *ret_trimmed)
{
	SHMS_LIGHT_HELD(&p->lock);
	*ret_trimmed = p->trimmed;
	*ret_memory = p->lines.bytes + memory(p);
	return pool(p);
}

uint64_t shms_pack_gave(struct shms_pack *p)
{
	/* Sums alone: nothing is read because of them. */
	return atomic_load_explicit(&p->grow.gave, memory_order_relaxed)
		       ? atomic_exchange_explicit(&p->grow.gave, 0, memory_order_relaxed)
		       : 0;
}

void shms_pack_tight(struct shms_pack *p, bool tight)
{
	SHMS_LIGHT_HELD(&p->lock);
	p->grow.tight = tight;
}
