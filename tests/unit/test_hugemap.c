/* SPDX-License-Identifier: Apache-2.0 */
/* Large files in pages of 2 MiB: where they are mapped, and that neither their
 * bytes nor their memory change. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <shmstore/shmstore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "hugemap.h"
#include "scratch.h"

#define MIB (UINT64_C(1) << 20)

static int make_file(uint64_t size, uint64_t seed)
{
	int fd = open(scratch_dir(NULL), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	uint8_t *bytes = malloc(size);

	ENSURE(fd >= 0 && bytes);
	pattern_fill(bytes, size, seed);
	ENSURE(write(fd, bytes, size) == (ssize_t)size);
	free(bytes);
	return fd;
}

static bool fits(const void *map, uint64_t offset)
{
	return ((uintptr_t)map - offset) % SHMS_HUGEMAP_PAGE == 0;
}

Test(hugemap, large_maps_fit_wherever_they_are)
{
	int fd = make_file(9 * MIB + 100, 7);
	void *maps[6];

	for (size_t i = 0; i < 6; i++) {
		uint64_t offset = i % 2 ? 12288 : 0, size = 9 * MIB + 100 - offset;

		maps[i] = shms_map_aligned(size, PROT_READ, MAP_SHARED, fd, offset);
		cr_assert_neq(maps[i], MAP_FAILED);
		cr_assert(fits(maps[i], offset));
	}
	/* The whole of each is there, and nothing of what was reserved
	 * around it stands in its way. */
	for (size_t i = 0; i < 6; i += 2)
		cr_assert_eq(pattern_check(maps[i], 9 * MIB + 100, 7), 9 * MIB + 100);
	for (size_t i = 0; i < 6; i++)
		cr_assert_eq(munmap(maps[i], 9 * MIB + 100 - (i % 2 ? 12288 : 0)), 0);
	/* A place that is free again is found again. */
	for (size_t i = 0; i < 3; i++) {
		maps[i] = shms_map_aligned(9 * MIB, PROT_READ, MAP_SHARED, fd, 0);
		cr_assert_eq(munmap(maps[i], 9 * MIB), 0);
	}
	cr_assert(fits(maps[2], 0) && maps[2] == maps[1]);
	cr_assert_eq(shms_map_aligned(9 * MIB, PROT_READ, MAP_SHARED, -1, 0), MAP_FAILED);
	close(fd);
}

Test(hugemap, gathering_changes_neither_bytes_nor_memory)
{
	int fd = make_file(9 * MIB + 100, 3);
	struct stat before, after;
	void *map;
	int r;

	cr_assert_eq(fstat(fd, &before), 0);
	map = shms_map_aligned(9 * MIB + 100, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	cr_assert_neq(map, MAP_FAILED);
	for (uint64_t at = 0; at < 8 * MIB; at += 4 * MIB) {
		r = shms_gather(map, at, 4 * MIB);
		if (r < 0)
			cr_skip_test("no huge pages here");
	}
	cr_assert_eq(fstat(fd, &after), 0);
	cr_assert_eq(after.st_blocks, before.st_blocks);
	cr_assert_eq(after.st_size, before.st_size);
	cr_assert_eq(pattern_check(map, 9 * MIB + 100, 3), 9 * MIB + 100);
	close(fd);
}

/* One file after the other of one producer, sizes differing: each object has its
 * bytes, and the books close. */
Test(hugemap, file_that_comes_back_keeps_its_promises)
{
	struct shmstore *from = scratch_store("from"), *to = scratch_store("to");

	for (uint64_t i = 0; i < 12; i++) {
		uint64_t n = 16 * MIB + i * 4096 % 20000;
		struct shmstore_ticket ticket;
		struct shmstore_view *v;

		cr_assert_eq(put_pattern(from, "k", n, i, 0), 0);
		cr_assert_eq(shmstore_handoff(from, "k", 1, 60000, &ticket), 0);
		cr_assert_eq(shmstore_adopt(to, "k", 1, &ticket, 0), 0);
		cr_assert_eq(shmstore_delete(from, "k", 1), 0);
		v = get_view(to, "k", 0);
		cr_assert_eq(view_pattern(v, n, i), 0);
		cr_assert_eq(shmstore_delete(to, "k", 1), 0);
		cr_assert_eq(view_pattern(v, n, i), 0);
		shmstore_view_unref(v);
		ensure_books_close();
	}
	shmstore_close(to);
	shmstore_close(from);
	ensure_nothing_left();
}
