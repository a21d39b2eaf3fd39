/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kinds: slot
 *
 * A partition's limit was exceeded on huge=within_size: khugepaged makes one page of 2 MiB of the
 * small pages that a process has mapped, and fills the holes between them. A segment is mapped
 * whole and has memory in part, so that it took up to 2 MiB that nobody had been granted, and that
 * no ledger had. Here each map of a segment meets that at once (MADV_COLLAPSE).
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>

#include "api.h"
#include "handle.h"
#include "pack.h"
#include "packed.h"
#include "sys.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static uint64_t used(const char *dir)
{
	struct statvfs fs;

	cr_assert_eq(statvfs(dir, &fs), 0);
	return (fs.f_blocks - fs.f_bfree) * fs.f_frsize;
}

/* Asks for huge pages in all of this process's maps of the partition's segments. Returns how many
 * ranges of 2 MiB were asked for. */
static unsigned collapse_all(unsigned *ret_done)
{
	char line[4096], path[2048];
	FILE *maps = fopen("/proc/self/maps", "re");
	uint64_t begin, end, offset;
	unsigned n = 0;

	cr_assert(maps);
	*ret_done = 0;
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*s %*s %2047s", &begin,
			   &end, &offset, path) != 4 ||
		    !strstr(path, "/segments/") || (begin - offset) % SHMS_HUGE_PAGE)
			continue;
		begin = (begin + SHMS_HUGE_PAGE - 1) & ~(SHMS_HUGE_PAGE - 1);
		for (; begin + SHMS_HUGE_PAGE <= end; begin += SHMS_HUGE_PAGE, n++)
			*ret_done += madvise((void *)(uintptr_t)begin, SHMS_HUGE_PAGE,
					     MADV_COLLAPSE) == 0;
	}
	fclose(maps);
	return n;
}

Test(segment_holes, are_not_filled_by_the_kernel)
{
	struct shmstore *owner, *other;
	const char *dir;
	struct shmstore_ticket t;
	unsigned n, done;
	uint64_t before;
	char key[16];

	dir = scratch_dir("size=256m,huge=within_size");
	if (!scratch_is_mount())
		cr_skip_test("no mount of its own\n");
	owner = packing_store("owner", 64 << 10, false);
	other = packing_store("other", 64 << 10, false);
	for (unsigned i = 0; i < 200; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		cr_assert_eq(put_pattern(owner, key, 30000, i, 0), 0);
	}
	/* Every fourth stays, so that there is something to fill. */
	for (unsigned i = 0; i < 200; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		cr_assert(i % 4 == 0 || shmstore_delete(owner, key, strlen(key)) == 0);
	}
	cr_assert_eq(shmstore_handoff(owner, KEY("k0"), 60000, &t), 0);
	cr_assert_eq(shmstore_adopt(other, KEY("k"), &t, 0), 0);
	shms_pack_trim(shms_packed_pack(owner), shms_now_boot_ms());
	before = used(dir);
	n = collapse_all(&done);
	if (!n)
		cr_log_warn("no map of a segment lies so that it could have a huge page\n");
	cr_expect_eq(done, 0, "%u of %u ranges became huge pages", done, n);
	cr_expect_eq(used(dir), before);
	cr_assert_eq(get_pattern(owner, "k4", 30000, 4), 0);
	cr_assert_eq(get_pattern(other, "k", 30000, 0), 0);
	cr_assert_eq(shmstore_close(other), 0);
	cr_assert_eq(shmstore_close(owner), 0);
	ensure_nothing_left();
}
