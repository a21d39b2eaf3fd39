/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segmem.c: a bit for each page of a segment's file.
 *
 * Where memory comes by single pages the bits say exactly what the file takes, and no system call
 * is needed to know it. Where the kernel may give 2 MiB at a time, it is asked after each step;
 * the bits of what it gave beside are set only if it gave all that it could. Of a file whose
 * owner comes back nothing is known but its sum: SEEK_HOLE does not tell pages that were
 * allocated and never written.
 */
#include "segmem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "segment.h"
#include "sys.h"

static bool bit(const struct shms_segmem *m, uint64_t page)
{
	return m->has[page / 64] >> page % 64 & 1;
}

static void set(struct shms_segmem *m, uint64_t from, uint64_t to, bool has)
{
	for (uint64_t page = from / m->page; page < (to + m->page - 1) / m->page; page++) {
		uint64_t one = UINT64_C(1) << page % 64;

		m->has[page / 64] = has ? m->has[page / 64] | one : m->has[page / 64] & ~one;
	}
}

/* Asks the kernel. Returns the change. */
static uint64_t ask(struct shms_segmem *m, int fd)
{
	uint64_t before = m->bytes;
	struct stat st;

	if (fstat(fd, &st) == 0)
		m->bytes = shms_blocks(&st);
	return m->bytes - before;
}

int shms_segmem_init(struct shms_segmem *m, int fd, uint64_t size, uint64_t unit, uint64_t used,
		     bool fresh)
{
	*m = (struct shms_segmem){
		.size = size, .page = shms_host_page(), .unit = unit, .unsure = !fresh};
	m->has = calloc(size / m->page / 64 + 1, sizeof(*m->has));
	if (!m->has)
		return -ENOMEM;
	ask(m, fd);
	if (fresh)
		set(m, 0, used, true);
	return 0;
}

void shms_segmem_deinit(struct shms_segmem *m)
{
	free(m->has);
	m->has = NULL;
}

bool shms_segmem_has(const struct shms_segmem *m, uint64_t from, uint64_t to)
{
	unsigned bits = (unsigned)__builtin_ctzll(m->page); /* no division: each put asks */

	for (uint64_t page = from >> bits; page < (to + m->page - 1) >> bits; page++) {
		if (!bit(m, page))
			return false;
	}
	return true;
}

/*
 * Where the kernel gives larger units, a unit of which some pages have memory gets no
 * large page: it gives what is asked for, or, to one who asks for a page of another unit
 * beside it, no more than that unit.
 */
uint64_t shms_segmem_missing(const struct shms_segmem *m, uint64_t from, uint64_t to)
{
	uint64_t first = from / m->unit * m->unit, end = (to + m->unit - 1) / m->unit * m->unit,
		 n = 0;

	if (from == to || shms_segmem_has(m, from, to))
		return 0;
	end = m->unit > m->page || end < m->size ? end
						 : (m->size + m->page - 1) / m->page * m->page;
	for (uint64_t page = first / m->page; page < end / m->page; page++)
		n += page * m->page >= m->size || !bit(m, page);
	return n * m->page;
}

bool shms_seggrow_may(struct shms_seggrow *grow, uint64_t wanted, uint64_t least)
{
	if (!grow || grow->may == UINT64_MAX ||
	    (grow->taken <= grow->may && least <= grow->may - grow->taken))
		return true;
	grow->wanted = wanted;
	grow->least = least;
	return false;
}

/* Bytes that may still be taken. */
static uint64_t left(const struct shms_seggrow *grow)
{
	if (!grow || grow->may == UINT64_MAX)
		return UINT64_MAX;
	return grow->taken < grow->may ? grow->may - grow->taken : 0;
}

bool shms_seggrow_has(const struct shms_seggrow *grow, uint64_t bytes)
{
	return bytes <= left(grow);
}

static int allocate(int fd, uint64_t from, uint64_t to)
{
	for (;;) {
		if (fallocate(fd, 0, (off_t)from, (off_t)(to - from)) == 0)
			return 0;
		if (errno != EINTR)
			return -errno;
	}
}

void shms_segmem_written(struct shms_segmem *m, struct shms_seggrow *grow, int fd, uint64_t from,
			 uint64_t to, bool ok)
{
	uint64_t most = shms_segmem_missing(m, from, to), taken = most;

	if (!most && ok)
		return;
	m->unsure = m->unsure || !ok;
	if (m->unit > m->page || m->unsure)
		taken = ask(m, fd);
	else
		m->bytes += taken;
	if (ok && taken == most) {
		from = from / m->unit * m->unit;
		to = (to + m->unit - 1) / m->unit * m->unit;
	}
	if (ok)
		set(m, from, to < m->size ? to : m->size, true);
	if (grow)
		grow->taken += taken;
}

int shms_segmem_take(struct shms_segmem *m, struct shms_seggrow *grow, int fd, uint64_t from,
		     uint64_t to, uint64_t ahead, uint64_t *ret_to)
{
	uint64_t least = shms_segmem_missing(m, from, to),
		 wanted = shms_segmem_missing(m, from, ahead);
	bool more = ahead > to && wanted <= left(grow);
	uint64_t end = more ? ahead : to;
	int r;

	if (!shms_seggrow_may(grow, wanted, least))
		return -ENOSPC;
	r = allocate(fd, from, end);
	if (r == -ENOSPC && more) {
		end = to;
		r = allocate(fd, from, end);
	}
	if (r < 0)
		return r;
	shms_segmem_written(m, grow, fd, from, end, true);
	*ret_to = end;
	return 0;
}

/* A hole was punched at whole pages. Returns the bytes that went. */
static uint64_t punched(struct shms_segmem *m, int fd, uint64_t from, uint64_t to)
{
	uint64_t before = m->bytes;

	if (m->unit > m->page || m->unsure) {
		ask(m, fd);
	} else {
		for (uint64_t page = from / m->page; page < to / m->page; page++)
			m->bytes -= bit(m, page) ? m->page : 0;
	}
	set(m, from, to, false);
	return before > m->bytes ? before - m->bytes : 0;
}

/* ---- memory of free extents goes back -------------------------------------------------------- */

/*
 * Punches holes where extents are free. Slots are cut one after the other, so that
 * neighbouring slots have neighbouring extents. Where damage made it otherwise, a run of free
 * extents ends.
 */

/* Of a file without a name none: they were counted as it lost the last. */
static uint64_t blocks_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_nlink ? shms_blocks(&st) : 0;
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
	return t->mem ? punched(t->mem, t->fd, from, to) : 0;
}

/* Punches the extents of free slots [first, end), which are neighbours, but for alignment. */
static uint64_t punch_run(const struct shms_segtrim *t, uint32_t first, uint32_t end)
{
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
	int r = shms_segalloc_init(&a, g);

	if (r == 0)
		r = shms_segalloc_rebuild(&a);
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
