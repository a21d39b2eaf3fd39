/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packtrim.c: memory of a store's segments that no object needs goes back to the kernel.
 *
 * The pool of a store is what its own segments take, less what is in slots that are in use, by whomever. A segment with no slot in use
 * is given up, unless somebody else has a place in it: that keeps the file, so it is punched only. Of a segment whose owner is dead
 * any holder can give back what nobody has.
 */
#include "packsegs.h"
#include "seglook.h"
#include "segrescue.h"

#define TRIM_AGAIN_MS 100u

static uint64_t pool_of(const struct shms_packseg *g)
{
	uint64_t bytes = g->own ? g->own->mem.bytes : 0;

	return g->own && bytes > g->own->alloc.used ? bytes - g->own->alloc.used : 0;
}

static uint64_t pool(const struct shms_pack *p)
{
	uint64_t sum = 0;

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

/* What a dead owner's segment has for nobody. */
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
static bool is_empty(const struct shms_packseg *g, uint64_t now_ms)
{
	if (g->n_held || g->inherited || !shms_segown_unused(g->own, now_ms))
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
	freed = shms_segown_trim(g->own, SHMS_SEGMENT_PAGE, now_ms);
	if (!is_empty(g, now_ms))
		return freed;
	freed += shms_segfile_leave(g->file, p->options.dir_fd, now_ms);
	shms_packsegs_free(g);
	return freed;
}

uint64_t shms_pack_trim(struct shms_pack *p, uint64_t now_ms)
{
	uint64_t freed = 0;

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
	p->grow.gave += freed;
	p->trimmed = pool(p);
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
	*ret_memory = 0;
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
