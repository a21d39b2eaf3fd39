/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segtrim.c: punches holes where extents are free. Slots are cut one after the other, so that
 * neighbouring slots have neighbouring extents. Where damage made it otherwise, a run of free
 * extents ends.
 */
#include "segtrim.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "sys.h"

static uint64_t blocks_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 ? shms_blocks(&st) : 0;
}

static uint64_t begin_of(const struct shms_segalloc *a, uint32_t i)
{
	return (uint64_t)a->slots[i].extent * SHMS_SEGCLASS_ALIGN;
}

static bool is_free(const struct shms_segalloc *a, uint32_t i)
{
	return a->free[i / 8] >> i % 8 & 1;
}

/* Punches the extents of free slots [first, end), which are neighbours, but for alignment. */
static void punch(const struct shms_segalloc *a, uint32_t first, uint32_t end, int fd, uint64_t granule,
		  uint8_t *backed)
{
	uint64_t from = begin_of(a, first);
	uint64_t to = begin_of(a, end - 1) + shms_segclass_size((uint8_t)a->slots[end - 1].class);

	from = (from + granule - 1) / granule * granule;
	to = to / granule * granule;
	if (from >= to)
		return;
	/* The bits go first: a kill between leaves memory that is not counted on, and never the
	 * reverse. */
	for (uint32_t i = first; backed && i < end; i++)
		backed[i / 8] &= (uint8_t) ~(1u << i % 8);
	(void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(to - from));
}

uint64_t shms_segtrim(const struct shms_segalloc *a, int fd, uint64_t granule, uint8_t *backed)
{
	uint64_t before = blocks_of(fd), after;
	uint32_t first = 0;

	for (uint32_t i = 0; i <= a->n_born; i++) {
		bool goes_on = i < a->n_born && is_free(a, i) && a->slots[i].extent &&
			       (i == first || begin_of(a, i) >= begin_of(a, i - 1));

		if (goes_on)
			continue;
		if (i > first)
			punch(a, first, i, fd, granule, backed);
		/* A free extent that lies elsewhere begins a run of its own. */
		first = i < a->n_born && is_free(a, i) && a->slots[i].extent ? i : i + 1;
	}
	after = blocks_of(fd);
	return before > after ? before - after : 0;
}
