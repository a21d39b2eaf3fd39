/* SPDX-License-Identifier: Apache-2.0 */
/* segafter.c: the board that stores share, and what is done and looked at
 * after one of them was killed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "scratch.h"
#include "segworld.h"
#include "sys.h"

struct segboard *segworld_board(void)
{
	struct segboard *b =
		mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ENSURE(b != MAP_FAILED);
	atomic_store(&b->clock_ms, 1000000);
	atomic_store(&b->next_id, 1);
	return b;
}

void segworld_fail(struct segboard *b, const char *format, ...)
{
	uint32_t none = 0;
	va_list args;

	if (atomic_compare_exchange_strong(&b->failed, &none, 1)) {
		va_start(args, format);
		vsnprintf(b->text, sizeof(b->text), format, args);
		va_end(args);
		atomic_store(&b->failed, 2);
	}
	_exit(3);
}

void segworld_uuid(uint32_t number, uint8_t ret[16])
{
	memset(ret, 0, 16);
	memcpy(ret, "store", 5);
	ret[15] = (uint8_t)number;
}

void segworld_path(uint32_t number, char ret[32])
{
	snprintf(ret, 32, "%u/segments", number);
}

void segworld_directory(int root_fd, uint32_t number)
{
	char name[32];

	snprintf(name, sizeof(name), "%u", number);
	ENSURE(mkdirat(root_fd, name, 0700) == 0);
	segworld_path(number, name);
	ENSURE(mkdirat(root_fd, name, 0700) == 0);
}

void segworld_forget(struct segboard *b, uint32_t number)
{
	for (size_t i = 0; i < SEGWORLD_JOURNAL; i++)
		atomic_store(&b->journal[number][i].state, SEGENTRY_NONE);
}

enum what {
	RECOVER,
	RETIRE,
	UNLINK
};

static int gc_one(int dirfd, const char *name, const uint8_t uuid[16], enum what what,
		  uint64_t now_ms)
{
	struct shms_segrescued done;
	struct shms_seglook l;
	int r;

	if (what == UNLINK)
		return shms_segrescue_unlink(dirfd, name, uuid, now_ms, false, &done);
	r = shms_seglook_open(dirfd, name, true, &l);
	if (r < 0)
		return r;
	r = shms_segrescue(&l, what == RETIRE ? uuid : NULL, now_ms, &done);
	shms_seglook_close(&l);
	return r < 0 ? r : 1;
}

/* Links that are left. */
static unsigned gc_all(struct segboard *b, int root_fd, uint32_t number, enum what what)
{
	uint64_t now_ms = atomic_load(&b->clock_ms);
	char name[32];
	uint8_t uuid[16];
	unsigned n_left = 0;

	segworld_path(number, name);
	segworld_uuid(number, uuid);
	_names_ struct shms_names d = shms_names(root_fd, name);
	ENSURE(d.dir);
	while (shms_names_next(&d)) {
		int r;

		if (d.name[0] == '.')
			continue;
		r = gc_one(d.fd, d.name, uuid, what, now_ms);
		/* The survivor may have taken its link away meanwhile. */
		if (r < 0 && !(r == -ENOENT && number == 0))
			segworld_fail(b, "gc of store %u: %s", number, strerror(-r));
		n_left += r == 1;
	}
	return n_left;
}

unsigned segworld_gc(struct segboard *b, int root_fd, uint32_t number, bool gone)
{
	return gc_all(b, root_fd, number, gone ? UNLINK : RECOVER);
}

void segworld_retire(struct segboard *b, int root_fd, uint32_t number)
{
	gc_all(b, root_fd, number, RETIRE);
}

static void check_empty(struct segboard *b, const struct shms_seglook *l, uint64_t now_ms)
{
	struct shms_segsurvey books;

	for (uint32_t i = 0; i < shms_segment_born(&l->segment); i++) {
		struct shms_segslot slot = shms_segslot_at(&l->segment, i);
		uint64_t state = shms_segword_load(slot.state);

		if (shms_segslot_held(&slot) || shms_segstate_of(state) != SHMS_SEG_FREE)
			segworld_fail(b, "slot %u is not free at the end: state %lx, holders %lx",
				      i, state, shms_segword_load(slot.holders));
	}
	for (unsigned h = 0; h < shms_segment_holders(&l->segment); h++) {
		uint64_t state = shms_segword_load(&shms_segment_record(&l->segment, h)->state);

		if (state != SHMS_SEGRECORD_FREE && state != SHMS_SEGRECORD_ORPHAN)
			segworld_fail(b, "place %u is not free at the end: %lu", h, state);
	}
	shms_segsurvey(l, (const uint8_t[16]){0}, now_ms, &books);
	if (books.n_linked || books.n_ghosts || books.n_inflight || books.n_bad ||
	    books.pool_bytes != l->n_blocks)
		segworld_fail(b,
			      "the books of an empty segment: %lu linked, %lu ghosts, %lu in "
			      "flight, %u bad",
			      books.n_linked, books.n_ghosts, books.n_inflight, books.n_bad);
	/* All extents were given back: what is left is the books, and a chunk
	 * that was allocated ahead. */
	if (l->n_blocks > l->segment.shape.data_off + (UINT64_C(512) << 10))
		segworld_fail(b, "an empty segment takes %lu bytes", l->n_blocks);
}

void segworld_check(struct segboard *b, int root_fd, uint32_t number)
{
	char name[32];

	segworld_path(number, name);
	_names_ struct shms_names d = shms_names(root_fd, name);
	ENSURE(d.dir);
	while (shms_names_next(&d)) {
		struct shms_seglook l;

		if (d.name[0] == '.')
			continue;
		if (shms_seglook_open(d.fd, d.name, false, &l) < 0)
			segworld_fail(b, "store %u: segment %s cannot be looked at", number,
				      d.name);
		check_empty(b, &l, atomic_load(&b->clock_ms));
		shms_seglook_close(&l);
	}
}
