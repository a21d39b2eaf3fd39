/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segtrim.c: punches holes where extents are free. Slots are cut one after the other, so that
 * neighbouring slots have neighbouring extents. Where damage made it otherwise, a run of free
 * extents ends.
 */
#include "segtrim.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "hostpage.h"
#include "sys.h"

static uint64_t blocks_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 ? shms_blocks(&st) : 0;
}

static uint64_t punch(const struct shms_segtrim *t, uint64_t from, uint64_t to)
{
	from = shms_whole_pages(from);
	to &= ~(shms_host_page() - 1);
	if (from >= to)
		return 0;
	if (fallocate(t->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
		      (off_t)(to - from)) < 0)
		return 0;
	return t->mem ? shms_segmem_punched(t->mem, t->fd, from, to) : 0;
}

/* Punches the extents of free slots [first, end), which are neighbours, but for alignment. */
static uint64_t punch_run(const struct shms_segtrim *t, uint32_t first, uint32_t end)
{
	/* The bits go first: a failure between leaves memory that is not counted on, and never the
	 * reverse. */
	for (uint32_t i = first; t->backed && i < end; i++)
		t->backed[i / 8] &= (uint8_t) ~(1u << i % 8);
	return punch(t, shms_segalloc_begin(t->alloc, first), shms_segalloc_end(t->alloc, end - 1));
}

/* Is slot i free, with an extent of its own? */
static bool goes(const struct shms_segalloc *a, uint32_t i)
{
	return i < a->n_born && shms_segalloc_is_free(a, i) && a->slots[i].extent;
}

/* Does its extent follow the one before, but for alignment? */
static bool follows(const struct shms_segalloc *a, uint32_t i)
{
	uint64_t begin = shms_segalloc_begin(a, i), end = shms_segalloc_end(a, i - 1);

	return begin >= end && begin - end < SHMS_SEGMENT_PAGE;
}

uint64_t shms_segtrim(const struct shms_segtrim *t)
{
	const struct shms_segalloc *a = t->alloc;
	uint64_t before = blocks_of(t->fd), after;
	uint32_t first = 0;

	for (uint32_t i = 0; i <= a->n_born; i++) {
		if (goes(a, i) && (i == first || follows(a, i)))
			continue;
		if (i > first)
			punch_run(t, first, i);
		/* A free extent that lies elsewhere begins a run of its own. */
		first = goes(a, i) ? i : i + 1;
	}
	punch(t, a->end_off, a->segment->shape.size);
	after = blocks_of(t->fd);
	return before > after ? before - after : 0;
}

int shms_segtrim_free(const struct shms_segment *g, int fd, uint64_t *io_freed)
{
	struct shms_segalloc a;
	uint32_t n_bad;
	int r = shms_segalloc_init(&a, g);

	if (r == 0)
		r = shms_segalloc_rebuild(&a, &n_bad);
	if (r == 0)
		*io_freed += shms_segtrim(&(struct shms_segtrim){.alloc = &a, .fd = fd});
	shms_segalloc_deinit(&a);
	return r;
}

uint64_t shms_segtrim_around(const struct shms_segtrim *t, uint32_t slot)
{
	const struct shms_segalloc *a = t->alloc;
	uint64_t from = shms_segalloc_begin(a, slot) & ~(shms_host_page() - 1),
		 to = shms_whole_pages(shms_segalloc_end(a, slot));
	uint32_t first = slot, end = slot + 1;

	while (first && shms_segalloc_begin(a, first) > from && goes(a, first - 1) &&
	       follows(a, first))
		first--;
	while (shms_segalloc_end(a, end - 1) < to && goes(a, end) && follows(a, end))
		end++;
	return punch_run(t, first, end);
}
