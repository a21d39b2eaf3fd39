/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segown.c: puts objects into a segment, after taking memory for what it writes.
 *
 * A write through a map to a page without memory would, in a full partition, end the process by
 * SIGBUS; the call shall fail with -ENOSPC instead. Slots get their memory by 64 KiB, before one is
 * cut; small extents get it by chunks. Large extents are written by pwrite at their first two uses:
 * that takes memory as it goes, and is faster than to fault fresh pages in. From the third use on
 * they are written through the map. A slot's generation counts the uses.
 */
#include "segown.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cleanup.h"
#include "copy.h"
#include "format.h"
#include "segfile.h"
#include "segmem.h"
#include "segslot.h"
#include "sys.h"

#define SLOTS_AHEAD   (UINT64_C(64) << 10)
#define CHUNK         (UINT64_C(256) << 10)
#define CHUNK_HUGE    (UINT64_C(2) << 20)
#define AHEAD_LEAST   (UINT64_C(16) << 10)
#define AGAIN         (UINT64_C(64) << 10) /* trimmed memory comes back by so many */
#define USES_BY_WRITE 2u

static int init(struct shms_segown *o, int dirfd, bool huge, bool fresh)
{
	const struct shms_segment_shape *shape = &o->file.segment.shape;
	int r = shms_segalloc_init(&o->alloc, &o->file.segment);

	if (r < 0)
		return r;
	o->chunk = huge ? CHUNK_HUGE : CHUNK;
	o->slots_end = shape->slots_off;
	o->fd = shms_open_file(dirfd, o->file.name, O_RDWR);
	if (o->fd < 0)
		return -errno;
	shms_transient_hold(o->fd);
	o->use = shms_seguse_begin(shms_segment_use(&o->file.segment), o->fd);
	return shms_segmem_init(&o->mem, o->fd, shape->size, huge ? CHUNK_HUGE : shms_host_page(),
				shape->slots_off, fresh);
}

uint64_t shms_segown_cost(const struct shms_segment_shape *shape, uint64_t size, bool huge,
			  bool ahead)
{
	uint64_t unit = huge ? CHUNK_HUGE : shms_host_page();
	uint64_t slots = ahead ? SLOTS_AHEAD : unit, extents = ahead ? CHUNK + size : size;

	if (huge)
		return (shape->data_off + extents + unit - 1) / unit * unit;
	return (shape->slots_off + unit - 1) / unit * unit + slots +
	       (extents + 2 * unit - 1) / unit * unit;
}

int shms_segown_create(int dirfd, const struct shms_segment_shape *shape, const uint8_t store[16],
		       bool kept, bool huge, struct shms_segown *ret)
{
	int r;

	*ret = (struct shms_segown){.fd = -1};
	r = shms_segfile_create(dirfd, shape, store, kept, &ret->file);
	if (r < 0)
		return r;
	/* The allocator points to segment, which stays where it is from here on. */
	r = init(ret, dirfd, huge, true);
	if (r < 0) {
		shms_segfile_leave(&ret->file, dirfd, 0);
		shms_segown_deinit(ret);
	}
	return r;
}

int shms_segown_reopen(struct shms_segfile *file, int dirfd, bool huge, struct shms_segown *ret)
{
	int r;

	*ret = (struct shms_segown){.file = *file, .fd = -1};
	*file = (struct shms_segfile){0};
	r = init(ret, dirfd, huge, false);
	if (r == 0)
		r = shms_segalloc_rebuild(&ret->alloc);
	if (r < 0) {
		shms_segfile_close(&ret->file);
		shms_segown_deinit(ret);
		return r;
	}
	return 0;
}

void shms_segown_deinit(struct shms_segown *o)
{
	shms_segalloc_deinit(&o->alloc);
	shms_segmem_deinit(&o->mem);
	o->fd = shms_close_fd(o->fd);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Maps the memory of [from, to) at once, not by a fault per page, if the kernel can. */
static void populate(const struct shms_segown *o, uint64_t from, uint64_t to)
{
	from &= ~(shms_host_page() - 1);
	madvise(o->file.segment.books + from, to - from, MADV_POPULATE_WRITE);
}

/* Bytes taken ahead: as many as the segment has, up to a chunk, so a small segment takes few. */
static uint64_t ahead_of(const struct shms_segown *o)
{
	uint64_t step = AHEAD_LEAST;

	while (step < o->chunk && step < o->mem.bytes)
		step *= 2;
	return step;
}

/* Takes memory for the next slot to be cut; for more of them only where extent bytes are left
 * then for the object itself. */
static int back_slots(struct shms_segown *o, uint64_t extent)
{
	const struct shms_segment_shape *shape = &o->file.segment.shape;
	uint64_t need = shape->slots_off +
			(o->alloc.n_born + UINT64_C(1)) * shms_segslot_size(shape->n_words);
	uint64_t step = ahead_of(o), to = need + (step < SLOTS_AHEAD ? step : SLOTS_AHEAD), end;
	int r;

	if (need <= o->slots_end || o->alloc.n_born == shape->n_slots)
		return 0;
	to = to < shape->data_off ? to : shape->data_off;
	if (!shms_seggrow_has(o->grow, shms_segmem_missing(&o->mem, o->slots_end, to) + extent +
					       2 * o->mem.unit))
		to = need;
	r = shms_segmem_take(&o->mem, o->grow, o->fd, o->slots_end, need, to, &end);
	if (r == 0) {
		populate(o, o->slots_end, end);
		o->slots_end = shms_whole_pages(end);
	}
	return r;
}

/*
 * Takes memory for the slot's extent; for a small one also for its neighbours: those that are yet
 * to be cut, or that were trimmed with it.
 */
static int back_extent(struct shms_segown *o, uint32_t slot)
{
	uint64_t from = shms_segalloc_begin(&o->alloc, slot),
		 to = shms_segalloc_end(&o->alloc, slot), step, most, ahead, end;
	bool last = to == o->alloc.end_off;
	int r;

	if (shms_segmem_has(&o->mem, from, to))
		return 0;
	step = last ? ahead_of(o) : to - from < SHMS_SEGCLASS_BIG ? AGAIN : shms_host_page();
	most = last ? o->file.segment.shape.size : o->alloc.end_off;
	ahead = (to + step - 1) / step * step;
	r = shms_segmem_take(&o->mem, o->grow, o->fd, from, to, ahead < most ? ahead : most, &end);
	if (r == 0)
		populate(o, from, end);
	return r;
}

/* ---- put ------------------------------------------------------------------------------------- */

/* Writes what follows the buffers, at o's offsets from to. */
static void write_rest(const struct shms_segobject *what, const struct shms_segpacked *o,
		       const uint64_t *sizes, uint8_t *to)
{
	shms_segpacked_table(o, sizes, to);
	if (o->flags & SHMS_SEGPACKED_CHECKSUM)
		memcpy(to + o->checksum_off, what->checksum, 16);
	if (o->metadata_size)
		memcpy(to + o->metadata_off, what->metadata, o->metadata_size);
	if (o->key_size > SHMS_SEGPACKED_KEY)
		memcpy(to + o->key_off, what->key, o->key_size);
}

static void by_map(struct shms_segown *o, const struct shms_segobject *what,
		   const struct shms_segpacked *p, const uint64_t *sizes)
{
	uint8_t *extent = o->file.segment.books + p->extent_off;
	uint64_t at = 0;

	for (uint32_t i = 0; i < what->n_buffers; i++) {
		uint64_t gap = shms_layout_next(at, 0) - at;

		/* Zero, as in files: a checksum is of all from the first buffer's
		 * begin to the last one's end. */
		memset(extent + at, 0, gap);
		at += gap;
		if (sizes[i])
			shms_copy(extent + at, what->buffers[i].iov_base, sizes[i]);
		at += sizes[i];
	}
	write_rest(what, p, sizes, extent);
}

static SHMS_ASIDE int by_write(struct shms_segown *o, const struct shms_segobject *what,
			       const struct shms_segpacked *p, const uint64_t *sizes)
{
	static const uint8_t zeros[SHMS_SEGCLASS_ALIGN];
	struct iovec iov[2 * SHMS_SEGOWN_BUFFERS + 1];
	struct shms_segpacked rest = *p; /* its offsets from the buffers' end */
	_free_ uint8_t *tail = NULL;
	uint64_t at = 0, n_tail = p->used - p->buffer_size, missing;
	size_t n = 0;
	int r;

	for (uint32_t i = 0; i < what->n_buffers; i++) {
		uint64_t gap = shms_layout_next(at, 0) - at;

		if (gap)
			iov[n++] = (struct iovec){(void *)(uintptr_t)zeros, gap};
		if (sizes[i])
			iov[n++] = what->buffers[i];
		at += gap + sizes[i];
	}
	if (n_tail) {
		tail = calloc(1, n_tail);
		if (!tail)
			return -ENOMEM;
		rest.table_off -= p->buffer_size;
		rest.checksum_off -= p->buffer_size;
		rest.metadata_off -= p->buffer_size;
		rest.key_off -= p->buffer_size;
		write_rest(what, &rest, sizes, tail);
		iov[n++] = (struct iovec){tail, n_tail};
	}
	missing = shms_segmem_missing(&o->mem, p->extent_off, p->extent_off + p->used);
	if (!shms_seggrow_may(o->grow, missing, missing))
		return -ENOSPC;
	r = shms_pwritev_all(o->fd, iov, n, p->extent_off);
	shms_segmem_written(&o->mem, o->grow, o->fd, p->extent_off, p->extent_off + p->used,
			    r == 0);
	return r;
}

/* Fills the slot, which is ours and WRITING. */
static int fill(struct shms_segown *o, const struct shms_segobject *what,
		const struct shms_segpacked *p, const uint64_t *sizes, uint32_t slot,
		uint32_t generation)
{
	int r;

	if (p->extent_size >= SHMS_SEGCLASS_BIG && generation <= USES_BY_WRITE)
		return by_write(o, what, p, sizes);
	r = back_extent(o, slot);
	if (r == 0)
		by_map(o, what, p, sizes);
	return r;
}

/* Lays the object out. ret_sizes: of its buffers. */
static int plan(const struct shms_segobject *what, uint64_t ret_sizes[SHMS_SEGOWN_BUFFERS],
		struct shms_segpacked *ret)
{
	if (what->n_buffers > SHMS_SEGOWN_BUFFERS)
		return -EFBIG;
	for (uint32_t i = 0; i < what->n_buffers; i++)
		ret_sizes[i] = what->buffers[i].iov_len;
	return shms_segpacked_plan(ret_sizes, what->n_buffers, what->metadata_size, what->key,
				   what->key_size, what->flags, ret);
}

int shms_segown_class(const struct shms_segobject *what)
{
	uint64_t sizes[SHMS_SEGOWN_BUFFERS];
	struct shms_segpacked p;
	int r = plan(what, sizes, &p);

	return r < 0 ? r : p.class;
}

/* Between shms_seguse_enter() and _leave(): a process that takes would count the same bytes. */
static uint64_t trim(struct shms_segown *o, uint64_t now_ms)
{
	shms_segalloc_scan(&o->alloc, shms_segnow_of_ms(now_ms));
	return shms_segtrim(&(struct shms_segtrim){&o->alloc, o->fd, &o->mem});
}

/* A trim punches all that may have been taken, and so the bits are right again. */
bool shms_segown_look(struct shms_segown *o, uint64_t now_ms)
{
	enum shms_segusable usable =
		shms_seguse_look(shms_segment_use(&o->file.segment), &o->use, o->fd);
	uint64_t freed = usable == SHMS_SEGUSABLE_ANEW ? trim(o, now_ms) : 0;

	if (o->grow)
		o->grow->gave += freed;
	return usable != SHMS_SEGUSABLE_NOT;
}

int shms_segown_put(struct shms_segown *o, const struct shms_segobject *what, uint64_t now_ms,
		    uint32_t *ret_slot, uint32_t *ret_generation, bool *ret_full)
{
	uint64_t sizes[SHMS_SEGOWN_BUFFERS];
	struct shms_segpacked p;
	struct shms_segslot slot;
	uint32_t index, generation;
	int r;

	*ret_full = !shms_segown_enter(o, now_ms);
	r = *ret_full ? -ENOSPC : plan(what, sizes, &p);
	if (r == 0)
		r = back_slots(o, p.extent_size);
	if (r < 0)
		goto out;
	r = shms_segalloc_take(&o->alloc, p.class, shms_segnow_of_ms(now_ms), &index);
	if (r < 0) {
		*ret_full = true;
		goto out;
	}
	slot = shms_segslot_at(&o->file.segment, index);
	r = shms_segslot_begin(&slot, &generation);
	if (r < 0)
		goto out; /* nobody gets it again */
	p.extent_off = shms_segalloc_begin(&o->alloc, index);
	shms_segalloc_fill(&o->alloc, index, p.used);
	r = fill(o, what, &p, sizes, index, generation);
	if (r < 0) {
		shms_segslot_abandon(&slot, generation);
		shms_segalloc_give(&o->alloc, index);
		goto out;
	}
	shms_segpacked_write(&slot, &p);
	shms_segslot_publish(&slot, generation);
	*ret_slot = index;
	*ret_generation = generation;
out:
	shms_segown_leave(o);
	return r;
}

int shms_segown_copy(struct shms_segown *own, const struct shms_segpacked *o, const uint8_t *extent,
		     uint32_t to)
{
	struct shms_segslot slot = shms_segslot_at(&own->file.segment, to);
	struct shms_segpacked copy = *o;
	uint32_t generation;
	int r = shms_segslot_begin(&slot, &generation);

	if (r < 0)
		return r;
	copy.extent_off = shms_segalloc_begin(&own->alloc, to);
	memcpy(own->file.segment.books + copy.extent_off, extent, o->used);
	shms_segpacked_write(&slot, &copy);
	shms_segslot_publish(&slot, generation);
	return 0;
}

/* Frees the slot's memory, unless another process may have taken it, which counts it. */
static void free_around(struct shms_segown *o, uint32_t index)
{
	struct shms_segment_use *use = shms_segment_use(&o->file.segment);
	const struct shms_segtrim t = {&o->alloc, o->fd, &o->mem};
	/* A move of objects has entered, and goes on after this. */
	bool within = atomic_load_explicit(&use->owner, memory_order_relaxed) != 0;

	if (shms_seguse_enter(use, &o->use))
		o->grow->gave += shms_segtrim_around(&t, index);
	if (!within)
		shms_seguse_leave(use);
}

bool shms_segown_take_back(struct shms_segown *o, uint32_t index, uint64_t now_ms)
{
	struct shms_segslot slot = shms_segslot_at(&o->file.segment, index);

	if (shms_segslot_held(&slot) || !shms_segslot_free(&slot, shms_segnow_of_ms(now_ms)))
		return false;
	shms_segalloc_give(&o->alloc, index);
	if (o->grow && o->grow->tight)
		free_around(o, index);
	return true;
}

uint64_t shms_segown_trim(struct shms_segown *o, uint64_t now_ms)
{
	struct shms_segment_use *use = shms_segment_use(&o->file.segment);
	uint64_t freed = 0;

	if (shms_seguse_enter(use, &o->use) ||
	    shms_seguse_look(use, &o->use, o->fd) != SHMS_SEGUSABLE_NOT)
		freed = trim(o, now_ms);
	shms_seguse_leave(use);
	return freed;
}

bool shms_segown_unused(struct shms_segown *o, uint64_t now_ms)
{
	if (o->alloc.n_free < o->alloc.n_born)
		shms_segalloc_scan(&o->alloc, shms_segnow_of_ms(now_ms));
	return o->alloc.n_free == o->alloc.n_born;
}
