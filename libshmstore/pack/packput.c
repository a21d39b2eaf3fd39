/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packput.c: puts packed objects, and makes the store's own segments.
 *
 * There are two kinds of own segments, for objects up to 8 KiB and for larger ones, so that small
 * extents do not lie between large ones. Each new segment is twice as large as the one before, 64
 * MiB at most. When all are full, they are scanned once for slots that others left without a hint,
 * or had when they died; only if that finds none, a new segment is made.
 *
 * The caller says how much memory a put may take (segmem.h). If one segment would need more, the
 * others are asked first: they may have a free slot whose memory is there.
 */
#include <errno.h>

#include "format.h"
#include "packsegs.h"
#include "seglook.h"
#include "sys.h"

#define HOLDERS       32u
#define FIRST_SEGMENT (UINT64_C(128) << 10)
#define SEGMENT_MAX   (UINT64_C(64) << 20)
#define SEGMENT_LEAST (UINT64_C(64) << 10)
#define SMALL_SLOT    1072u /* a segment has a slot for so many bytes */
#define LARGE_SLOT    8192u

/* Has the partition so much? Where it has not, a segment would be made only to be taken apart. */
static bool has_room(const struct shms_pack *p, uint64_t bytes)
{
	struct shms_space space;

	return shms_space(p->options.dir_fd, &space) < 0 || !space.size || space.available >= bytes;
}

/* Makes one more segment of that kind, with room for an object of size bytes at least. */
static int grow(struct shms_pack *p, bool large, uint64_t size, uint64_t now_ms,
		uint32_t *ret_number)
{
	uint64_t total = FIRST_SEGMENT;
	struct shms_segment_shape shape;
	struct shms_packseg *made;
	int r;

	SHMS_PACKSEGS_EACH(p, g) {
		if (g->own && g->large == large && g->file->segment.shape.size >= total)
			total = g->file->segment.shape.size * 2;
	}
	while (total < 2 * size)
		total *= 2;
	if (total > SEGMENT_MAX)
		total = SEGMENT_MAX;
	/* RLIMIT_FSIZE makes segments smaller; the kernel refuses one that must be larger. */
	while (total > shms_file_size_most() && total / 2 >= 2 * size && total > SEGMENT_LEAST)
		total /= 2;
	r = shms_segment_shape((uint32_t)(total / (large ? LARGE_SLOT : SMALL_SLOT)), HOLDERS,
			       total, &shape);
	if (r < 0)
		return r;
	/* All that the put needs, since a segment without room for it would
	 * take what a file could have. */
	if (!shms_seggrow_may(&p->grow, shms_segown_cost(&shape, size, p->options.huge, true),
			      shms_segown_cost(&shape, size, p->options.huge, false)) ||
	    !has_room(p, shms_segown_cost(&shape, size, p->options.huge, false)))
		return -ENOSPC;
	r = shms_packsegs_new(p, true, now_ms, &made);
	if (r < 0)
		return r;
	r = shms_segown_create(p->options.dir_fd, &shape, p->options.uuid, p->options.kept,
			       p->options.huge, made->own);
	if (r == 0)
		p->grow.taken += made->own->mem.bytes;
	made->large = large;
	*ret_number = shms_packseg_number(p, made);
	return shms_packsegs_add(p, made, r, now_ms);
}

struct put {
	const struct shms_segobject *what;
	uint64_t size, now_ms;
	bool large;
	struct shms_packplace place;
};

/* Returns 1 if the segment is full. */
static int put_into(struct shms_pack *p, uint32_t number, struct put *u)
{
	uint32_t generation;
	bool full;
	int r = shms_segown_put(p->segments[number].own, u->what, u->now_ms, &u->place.slot,
				&generation, &full);

	u->place.segment = number;
	return r == -ENOSPC && full ? 1 : r;
}

static bool is_for(const struct shms_packseg *g, const struct put *u)
{
	return g->own && g->large == u->large;
}

enum where {
	USED,   /* a slot that was used before: without this, objects that come and go in turn would
		 * take fresh memory of the last segment until that is full */
	ANY,    /* any slot */
	SCANNED /* one that others left without a hint, or had when they died */
};

/* Has the segment such a slot, as far as is known? class: of the object. */
static bool may_have(struct shms_pack *p, struct shms_packseg *g, enum where where, int class,
		     uint64_t now_ms)
{
	if (where == USED)
		return class >= 0 && shms_segalloc_has(&g->own->alloc, (uint8_t) class,
						       shms_segnow_of_ms(now_ms));
	if (where == ANY)
		return true;
	shms_packseg_settle(p, g, now_ms);
	/* Slots of dead stores come back; others, or the next call, do the rest. */
	shms_segrescue_name(p->options.dir_fd, g->file->name, now_ms);
	return shms_segalloc_scan(&g->own->alloc, shms_segnow_of_ms(now_ms)) > 0;
}

/* 1: there is none. */
static int put_into_any(struct shms_pack *p, struct put *u, enum where where)
{
	int class = where == USED ? shms_segown_class(u->what) : 0;
	bool refused = false;

	/* The last segment is the largest, and has most room. */
	for (uint32_t i = p->n_segments; i-- > 0;) {
		struct shms_packseg *g = &p->segments[i];
		int r;

		if (!is_for(g, u) || !may_have(p, g, where, class, u->now_ms))
			continue;
		r = put_into(p, i, u);
		/* It may take no memory: another segment may have some. */
		if (r != 1 && !(r == -ENOSPC && p->grow.wanted))
			return r;
		refused = refused || r != 1;
	}
	if (where != USED)
		return refused ? -ENOSPC : 1;
	p->grow.wanted = 0;
	return 1;
}

static int put_somewhere(struct shms_pack *p, struct put *u)
{
	uint32_t number, n = 0;
	int r = 1;

	/* One segment by itself uses such slots first anyway. */
	SHMS_PACKSEGS_EACH(p, g)
		n += is_for(g, u);
	if (n > 1)
		r = put_into_any(p, u, USED);
	if (r == 1)
		r = put_into_any(p, u, ANY);
	/* Both take a thousand times as long as a put. */
	if (r == 1 && u->now_ms < p->refused_ms)
		return -ENOSPC;
	if (r == 1)
		r = put_into_any(p, u, SCANNED);
	if (r != 1)
		return r;
	r = grow(p, u->large, u->size, u->now_ms, &number);
	/* For want of a mapping, a descriptor or a number; of room there
	 * may be some at any moment. */
	if (r < 0 && r != -ENOSPC)
		p->refused_ms = u->now_ms + SHMS_PACK_AGAIN_MS;
	if (r == 0)
		r = put_into(p, number, u);
	return r == 1 || r == -EAGAIN ? -ENOSPC : r;
}

static uint64_t size_of(const struct shms_segobject *what)
{
	uint64_t size = what->metadata_size + what->key_size + 64;

	for (uint32_t i = 0; i < what->n_buffers && size <= SHMS_SEGCLASS_MAX; i++)
		size = shms_layout_next(size, 0) + what->buffers[i].iov_len;
	return size;
}

static int put_locked(struct shms_pack *p, const struct shms_segobject *what, bool replace,
		      uint64_t now_ms)
{
	const struct shms_packhashed key = shms_packhash(what->key, what->key_size);
	struct put u = {.what = what, .now_ms = now_ms, .size = size_of(what)};
	struct shms_packplace old;
	bool held = shms_pack_find(p, &key, &old);
	int r = held && !replace ? -EEXIST : shms_pack_reserve(p);

	u.large = u.size > SHMS_PACK_SMALL;
	/* A key that comes is in one slot alone. */
	if (held)
		shms_pack_changing(p);
	if (r == 0)
		r = !what->key_size || u.size > SHMS_SEGCLASS_MAX ? -EFBIG : put_somewhere(p, &u);
	if (r == 0)
		shms_pack_rename(p, &key, held ? &old : NULL, u.place, now_ms);
	if (held)
		shms_pack_changed(p);
	return r;
}

int shms_pack_put(struct shms_pack *p, const struct shms_segobject *what, bool replace,
		  uint64_t now_ms, struct shms_seggrow *io)
{
	int r;

	SHMS_LIGHT_HELD(&p->lock);
	shms_packsegs_tidy_next(p, now_ms);
	p->grow.may = io->may;
	p->grow.taken = p->grow.wanted = 0;
	r = put_locked(p, what, replace, now_ms);
	io->taken = p->grow.taken;
	io->wanted = r == -ENOSPC ? p->grow.wanted : 0;
	io->least = p->grow.least;
	return r;
}
