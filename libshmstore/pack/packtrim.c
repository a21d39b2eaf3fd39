/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packtrim.c: memory of a store's segments that no object needs goes back to the kernel.
 *
 * The pool of a store is what its own segments take, less what is in slots that are in use, by whomever, and its index. A segment with no slot in use
 * is given up, unless somebody else has a place in it: that keeps the file, so it is punched only. Of a segment whose owner is dead
 * any holder can give back what nobody has.
 *
 * Free slots between objects are stranded: no other size can have their memory. Where a trim leaves more than a tenth of
 * what the segments take so, small objects are moved together (packcompact.c).
 */
#include "packcompact.h"
#include "packsegs.h"
#include "seglook.h"
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

static uint64_t pool(const struct shms_pack *p)
{
	uint64_t sum = p->lines.bytes;

	for (uint32_t i = 0; i < p->n_segments; i++)
		sum += pool_of(&p->segments[i]);
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

/* Frees the memory of a dead owner's segment that nobody holds. */
static uint64_t trim_orphan(const struct shms_pack *p, const struct shms_packseg *g, uint64_t now_ms)
{
	struct shms_segrescued done = {0};
	struct shms_seglook l;

	if (shms_seglook_open(p->options.dir_fd, g->file->name, true, &l) < 0)
		return 0;
	(void)shms_segrescue(&l, NULL, now_ms, &done);
	shms_seglook_close(&l);
	return done.freed;
}

/* Nothing of anybody's is there, and nobody else has a place. */
static bool is_empty(const struct shms_pack *p, const struct shms_packseg *g, uint64_t now_ms)
{
	if (g->n_held || g->inherited || !shms_segown_unused(g->own, now_ms) || shms_packseg_is_meant(p, g))
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
	if (!g->own)
		return trim_orphan(p, g, now_ms);
	freed = shms_segown_trim(g->own, now_ms);
	if (!is_empty(p, g, now_ms))
		return freed;
	freed += shms_segfile_leave(g->file, p->options.dir_fd, now_ms);
	shms_packsegs_free(g);
	return freed;
}

/* Bytes that a trim had to leave in free slots, without the slots' table. */
static uint64_t stranded_of(const struct shms_packseg *g)
{
	uint64_t bytes = pool_of(g), table = g->own ? g->own->slots_end : 0;

	return !g->large && bytes > table ? bytes - table : 0;
}

static uint64_t stranded(const struct shms_pack *p, uint64_t *ret_memory)
{
	uint64_t sum = 0;

	*ret_memory = 0;
	for (uint32_t i = 0; i < p->n_segments; i++) {
		*ret_memory += p->segments[i].own ? p->segments[i].own->mem.bytes : 0;
		sum += stranded_of(&p->segments[i]);
	}
	return sum;
}

/* The own segment for small objects that has least, or, of those with free slots in pages that have memory, most. */
static bool next_of(const struct shms_pack *p, const bool *passed, bool most, uint32_t *ret)
{
	bool found = false;

	for (uint32_t i = 0; i < p->n_segments; i++) {
		const struct shms_packseg *g = &p->segments[i];

		if (!g->own || g->large || passed[i] || (most && stranded_of(g) < SHMS_SEGMENT_PAGE) ||
		    (found && (g->own->alloc.used > p->segments[*ret].own->alloc.used) != most))
			continue;
		*ret = i;
		found = true;
	}
	return found;
}

/*
 * Moves objects from the segments that have least to those that have most, and within the one where both meet. *ret_more:
 * there is more to move.
 */
static uint64_t compact(struct shms_pack *p, uint64_t now_ms, bool *ret_more)
{
	bool passed[SHMS_PACKINDEX_SEGMENTS] = {false};
	uint64_t memory, lost = stranded(p, &memory), freed = 0;
	uint32_t from = 0, to = 0, n_steps = 0, n_moves = 0;

	*ret_more = false;
	if (lost < STRANDED_LEAST || lost < memory / 10)
		return 0;
	/* Objects that could not move a moment ago cannot move now. */
	if (lost <= p->unmoved + p->unmoved / 4 && now_ms - p->unmoved_ms < MOVE_AGAIN_MS)
		return 0;
	while (n_moves < MOVES && n_steps++ < STEPS && next_of(p, passed, false, &from) &&
	       next_of(p, passed, true, &to)) {
		struct shms_packseg *g = &p->segments[from];
		uint32_t moved = shms_packcompact(p, from, to, now_ms, MOVES - n_moves);

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
	p->unmoved = *ret_more ? 0 : stranded(p, &memory);
	p->unmoved_ms = now_ms;
	return freed;
}

uint64_t shms_pack_trim(struct shms_pack *p, uint64_t now_ms)
{
	uint64_t freed = 0;
	bool more = false;

	shms_lightlock_take(&p->lock);
	/* A scan finds what others left without a hint, and leases that have ended: both can wait for the next one. */
	if (pool(p) <= p->trimmed && now_ms - p->trimmed_ms < TRIM_AGAIN_MS) {
		shms_lightlock_release(&p->lock);
		return 0;
	}
	for (uint32_t i = 0; i < p->n_segments && !p->child; i++) {
		if (p->segments[i].file && !atomic_load_explicit(&p->retired, memory_order_relaxed))
			freed += trim(p, &p->segments[i], now_ms);
	}
	if (!p->child && !atomic_load_explicit(&p->retired, memory_order_relaxed))
		freed += compact(p, now_ms, &more);
	p->grow.gave += freed;
	/* If more can be moved, the next call goes on at once. */
	p->trimmed = more ? 0 : pool(p);
	p->trimmed_ms = now_ms;
	shms_lightlock_release(&p->lock);
	return freed;
}

uint64_t shms_pack_pool(struct shms_pack *p, uint64_t *ret_memory, uint64_t *ret_trimmed)
{
	uint64_t sum;

	shms_lightlock_take(&p->lock);
	sum = pool(p);
	*ret_trimmed = p->trimmed;
	*ret_memory = p->lines.bytes;
	for (uint32_t i = 0; i < p->n_segments; i++)
		*ret_memory += p->segments[i].own ? p->segments[i].own->mem.bytes : 0;
	shms_lightlock_release(&p->lock);
	return sum;
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
	shms_lightlock_take(&p->lock);
	p->grow.tight = tight;
	shms_lightlock_release(&p->lock);
}
