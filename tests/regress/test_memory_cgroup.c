/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In a memory cgroup that lets in less than the partition has, a put that the kernel
 * refused no page ended its process: it was killed for want of memory, and so was the one
 * that was started in its place.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "memgroup.h"
#include "tiered.h"

#define MIB   (UINT64_C(1) << 20)
/* A sanitizer keeps what is freed. */
#define LIMIT ((SANITIZED ? 512 : 48) * MIB)

static char group[2 * PATH_MAX];

static bool write_file(const char *name, const char *text)
{
	char path[3 * PATH_MAX];
	int fd;
	bool ok;

	snprintf(path, sizeof(path), "%s/%s", group, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	if (fd >= 0)
		close(fd);
	return ok;
}

/* A cgroup below ours, with that limit. False: none is to be had. */
static bool make_group(void)
{
	char text[4096] = "", path[PATH_MAX];
	bool v1;
	FILE *f = fopen("/proc/self/cgroup", "re");
	size_t n = f ? fread(text, 1, sizeof(text), f) : 0;

	if (f)
		fclose(f);
	v1 = shms_memgroup_path(text, n, 1, path, sizeof(path));
	if (!v1 && !shms_memgroup_path(text, n, 2, path, sizeof(path)))
		return false;
	snprintf(group, sizeof(group), "/sys/fs/cgroup%s%s/shmstore-test-%d", v1 ? "/memory" : "",
		 path, getpid());
	if (mkdir(group, 0755) < 0)
		return false;
	snprintf(text, sizeof(text), "%ju", (uintmax_t)LIMIT);
	if (write_file(v1 ? "memory.limit_in_bytes" : "memory.max", text))
		return true;
	rmdir(group);
	return false;
}

/* A store in such a cgroup, or the test is skipped. */
static struct other start(const char *pack_max, bool tier)
{
	char text[32];
	struct other o;

	cr_assert_eq(setenv("SHMSTORE_PACK_MAX", pack_max, 1), 0);
	scratch_dir(SANITIZED ? "size=1g" : "size=256m");
	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own\n");
	if (tier)
		TIERED_OR_SKIP();
	if (!make_group())
		cr_skip_test("needs a memory cgroup to make one below\n");
	o = other_start("s");
	snprintf(text, sizeof(text), "%d", (int)o.pid);
	cr_assert(write_file("cgroup.procs", text));
	return o;
}

/* Puts until it is refused. */
static void fill(const char *pack_max, uint64_t size)
{
	struct other o = start(pack_max, false);
	char key[32];
	uint64_t n = 0;
	int r = 0;

	for (; r == 0 && n * size < 5 * LIMIT; n++) {
		snprintf(key, sizeof(key), "%ju", (uintmax_t)n);
		r = other_put(&o, key, size, n);
	}
	cr_assert_eq(r, -ENOSPC, "after %ju of %ju bytes: %d", (uintmax_t)n, (uintmax_t)size, r);
	cr_assert_gt(n * size, LIMIT / 4);
	/* Deleted objects make room. */
	for (uint64_t i = 0; i < n / 2; i++) {
		snprintf(key, sizeof(key), "%ju", (uintmax_t)i);
		cr_assert_eq(other_delete(&o, key), 0);
	}
	for (uint64_t i = 0; i < (SANITIZED ? 0 : n / 4); i++) {
		snprintf(key, sizeof(key), "%ju", (uintmax_t)i);
		cr_assert_eq(other_put(&o, key, size, i), 0);
	}
	cr_assert_eq(other_close(&o), 0);
	ensure_nothing_left();
	cr_assert_eq(rmdir(group), 0);
}

Test(memory_cgroup, files_are_refused)
{
	fill("0", 3 * MIB);
}

Test(memory_cgroup, packed_objects_are_refused)
{
	fill("1048576", 8000);
}

/* An eviction takes memory for its buffers, too. */
Test(memory_cgroup, evictions_find_room)
{
	struct other o = start("0", true);
	char key[32];

	for (unsigned i = 0; i < 40; i++) {
		snprintf(key, sizeof(key), "%u", i);
		cr_assert_eq(other_put(&o, key, 3 * MIB, i), 0);
	}
	cr_assert_eq(other_get(&o, "0", 3 * MIB, 0), 0);
	cr_assert_eq(other_close(&o), 0);
	ensure_nothing_left();
	ensure_tier_empty();
	cr_assert_eq(rmdir(group), 0);
}
