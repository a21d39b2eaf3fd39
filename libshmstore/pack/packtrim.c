/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packtrim.c: memory of a store's segments that no object needs goes back to the kernel; and which
 * objects may leave memory.
 *
 * The pool of a store is what its own segments take, less what is in slots that are in use, by
 * whomever, and its index. A segment with no slot in use is given up, unless somebody else has a
 * place in it: that keeps the file, so it is punched only. Of a segment whose owner is dead any
 * holder can give back what nobody has.
 *
 * Free slots between objects are stranded: no other size can have their memory. Where a trim leaves
 * more than a tenth of what the segments take so, small objects are moved together (below).
 */
#include <errno.h>
#include <stdlib.h>

#include "packsegs.h"
#include "seglook.h"
#include "sys.h"

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

/* ---- which packed objects may leave memory --------------------------------------------------- */

/*
 * A hand goes around over the slots, segment by segment, and stays where the last search ended (the
 * clock algorithm). An object that was got since the hand came by loses the flag that says so, and
 * stays; the next one that has none goes. The flags are bits, 512 slots of them in a cache line, so
 * that they cost a get next to nothing. A new object has none: the hand has just passed the slots
 * that were free, so that its turn comes last. Neighbours free whole pages together.
 */

/*
 * Has this store alone the object of that slot, without views and leases, and not pinned? An object
 * that goes frees memory that this process can give back only if the segment is the store's own.
 * now: segnow_of_ms(). The lock is held. Another process may get a view of it at any moment.
 */
static bool may_go(const struct shms_pack *p, struct shms_packplace place, uint32_t now)
{
	const struct shms_packseg *g = &p->segments[place.segment];
	struct shms_segslot s = shms_packseg_slot(g, place.slot);
	uint64_t state = shms_segword_load(s.state);

	if (shms_packviews_find(&p->views, place) || !shms_segstate_published(state) ||
	    shms_segstate_promised(state, now) ||
	    (shms_segpacked_flags_of(&s) & SHMS_SEGPACKED_PINNED))
		return false;
	for (uint32_t w = 0; w < s.n_words; w++) {
		if (shms_segword_load(&s.holders[w]) !=
		    (w ? 0 : shms_segholder_name(SHMS_SEG_OWNER)))
			return false;
	}
	return true;
}

/* True: it was used since the hand came by. */
static bool second_chance(struct shms_packseg *g, uint32_t slot)
{
	bool used = g->used[slot / 8] >> slot % 8 & 1;

	shms_packseg_unuse(g, slot);
	return used;
}

static uint32_t n_slots(const struct shms_packseg *g)
{
	return g->own ? shms_segment_born(&g->file->segment) : 0;
}

/* Looks at the rest of the segment at the hand. */
static bool find_victim(struct shms_pack *p, struct shms_packsearch *io, struct shms_pack_view *ret)
{
	struct shms_packseg *g = &p->segments[p->hand.segment];
	uint32_t n = n_slots(g);

	while (p->hand.slot < n && io->left) {
		struct shms_packplace place = p->hand;

		p->hand.slot++;
		io->left--;
		if (may_go(p, place, io->now) && !second_chance(g, place.slot) &&
		    shms_pack_view(p, place, ret) == 0)
			return true;
	}
	return false;
}

struct shms_packsearch shms_pack_search(struct shms_pack *p, uint64_t now_ms)
{
	struct shms_packsearch s = {.now = shms_segnow_of_ms(now_ms)};

	SHMS_LIGHT_HELD(&p->lock);
	SHMS_PACKSEGS_EACH(p, g)
		s.left += 2 * (uint64_t)n_slots(g);
	return s;
}

int shms_pack_victim(struct shms_pack *p, struct shms_packsearch *io, struct shms_pack_view *ret)
{
	bool found = false, over = false;

	/* Segment by segment, so that other threads need not wait for all of them. */
	while (!found && !over) {
		shms_lightlock_take(&p->lock);
		over = p->child || atomic_load_explicit(&p->retired, memory_order_relaxed) ||
		       !io->left;
		found = !over && find_victim(p, io, ret);
		if (!found && !over) {
			p->hand.slot = 0;
			p->hand.segment =
				p->hand.segment + 1 < p->n_segments ? p->hand.segment + 1 : 0;
		}
		shms_lightlock_release(&p->lock);
	}
	return found ? 0 : -ENOENT;
}

int shms_pack_pin(struct shms_pack *p, const void *key, size_t key_size, bool pin)
{
	struct shms_packplace place;
	struct shms_segslot slot;
	int r = -ENOENT;
	bool is;

	SHMS_LIGHT_HELD(&p->lock);
	if (shms_pack_find_object(p, key, key_size, &place)) {
		slot = shms_packseg_slot(&p->segments[place.segment], place.slot);
		is = (shms_segpacked_flags_of(&slot) & SHMS_SEGPACKED_PINNED) != 0;
		r = is == pin || p->segments[place.segment].own ? 0 : -EXDEV;
		if (r == 0 && is != pin)
			shms_segpacked_flag(&slot, SHMS_SEGPACKED_PINNED, pin);
	}
	return r;
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
				      !may_go(c->pack, (struct shms_packplace){s->number, i}, now)
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
	key = shms_packhash(shms_segpacked_key(&g->file->segment, &o), o.key_size);
	if (!shms_pack_find(p, &key, &found) || found.segment != old.segment ||
	    found.slot != old.slot)
		return false;
	if (shms_segown_copy(c->to.own, &o, g->file->segment.bytes + o.extent_off, to) < 0)
		return false;
	shms_pack_changing(p);
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

	SHMS_LIGHT_HELD(&p->lock);
	/* A scan finds what others left without a hint, and leases that have ended: both
	 * can wait for the next one. */
	if (pool(p) <= p->trimmed && now_ms - p->trimmed_ms < TRIM_AGAIN_MS)
		return 0;
	if (!p->child && !atomic_load_explicit(&p->retired, memory_order_relaxed)) {
		SHMS_PACKSEGS_EACH(p, g)
			freed += trim(p, g, now_ms);
		freed += compact(p, now_ms, &more);
	}
	p->grow.gave += freed;
	/* If more can be moved, the next call goes on at once. */
	p->trimmed = more ? 0 : pool(p);
	p->trimmed_ms = now_ms;
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
