/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ramroom.h"
#include "scratch.h"

#define MIB (UINT64_C(1) << 20)

static char root[128];

static void put_file(const char *name, const char *text)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
		*at = '\0';
		mkdir(path, 0755);
		*at = '/';
	}
	f = fopen(path, "we");
	cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static struct shms_ramroom_look look(void)
{
	struct shms_ramroom_look l;
	char proc[160], cgroup[160];

	snprintf(proc, sizeof(proc), "%s/proc", root);
	snprintf(cgroup, sizeof(cgroup), "%s/cgroup", root);
	cr_assert(shms_ramroom_look(proc, cgroup, &l));
	return l;
}

static void init(void)
{
	snprintf(root, sizeof(root), "/tmp/shmstore-ramroom-XXXXXX");
	cr_assert(mkdtemp(root));
	put_file("proc/meminfo", "MemTotal:       8388608 kB\nMemFree:  1 kB\nMemAvailable:    "
				 "4194304 kB\nSwapFree:   "
				 "           0 kB\n");
	put_file("proc/self/cgroup", "0::/a/b\n");
}

static void fini(void)
{
	char command[160];

	snprintf(command, sizeof(command), "rm -rf %s", root);
	cr_assert_eq(system(command), 0);
}

TestSuite(ramroom, .init = init, .fini = fini);

/* Less what is spared. */
static void expect(uint64_t room, uint64_t limit, const char *where)
{
	struct shms_ramroom_look l = look();

	cr_assert_eq(l.room, room - (limit / 8 < 64 * MIB ? limit / 8 : 64 * MIB), "%ju",
		     (uintmax_t)l.room);
	cr_assert_eq(l.limit, limit);
	cr_assert(strstr(l.path, where), "%s", l.path);
}

static void v2(const char *directory, const char *max, uint64_t current, uint64_t file)
{
	char name[128], text[256];

	snprintf(name, sizeof(name), "cgroup/%smemory.max", directory);
	put_file(name, max);
	snprintf(name, sizeof(name), "cgroup/%smemory.current", directory);
	snprintf(text, sizeof(text), "%ju\n", (uintmax_t)current);
	put_file(name, text);
	snprintf(name, sizeof(name), "cgroup/%smemory.stat", directory);
	snprintf(text, sizeof(text),
		 "anon 5\nfile 9\nshmem 7\ninactive_anon 1\ninactive_file %ju\nactive_file %ju\n",
		 (uintmax_t)(file / 4), (uintmax_t)(file - file / 4));
	put_file(name, text);
}

Test(ramroom, of_the_host_alone)
{
	expect(4096 * MIB, 8192 * MIB, "meminfo");
}

Test(ramroom, least_of_all_levels_counts)
{
	v2("a/b/", "1073741824\n", 1000 * MIB, 600 * MIB);
	v2("a/", "max\n", 2000 * MIB, 0);
	expect(624 * MIB, 1024 * MIB, "/a/b");
	v2("a/", "2147483648\n", 1700 * MIB, 40 * MIB);
	expect(388 * MIB, 2048 * MIB, "/a");
}

Test(ramroom, swap_counts_as_far_as_it_may_be_used)
{
	v2("a/b/", "1073741824\n", 1000 * MIB, 0);
	put_file("proc/meminfo",
		 "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\nSwapFree: 1048576 kB\n");
	expect(24 * MIB + 1024 * MIB, 1024 * MIB, "/a/b");
	put_file("cgroup/a/b/memory.swap.max", "104857600\n");
	put_file("cgroup/a/b/memory.swap.current", "52428800\n");
	expect(74 * MIB, 1024 * MIB, "/a/b");
}

Test(ramroom, version_1)
{
	put_file("proc/self/cgroup", "5:cpu:/x\n4:memory:/a\n0::/\n");
	put_file("cgroup/memory/a/memory.limit_in_bytes", "536870912\n");
	put_file("cgroup/memory/a/memory.usage_in_bytes", "524288000\n");
	put_file("cgroup/memory/a/memory.stat",
		 "inactive_file 1\nactive_file 2\ntotal_inactive_file 104857600\ntotal_active_file "
		 "0\n");
	put_file("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	put_file("cgroup/memory/memory.usage_in_bytes", "9223372036\n");
	put_file("cgroup/memory/memory.stat", "total_inactive_file 0\n");
	expect(112 * MIB, 512 * MIB, "/memory/a");
}

/* A container without a cgroup namespace: its path is not there, and the root is its own. */
Test(ramroom, path_of_the_host)
{
	v2("", "268435456\n", 200 * MIB, 0);
	expect(56 * MIB, 256 * MIB, "/cgroup");
}

Test(ramroom, budget_is_counted)
{
	struct shms_ramroom r = {0};

	cr_assert(shms_ramroom_take(&r, 1));
	cr_assert_not(shms_ramroom_take(&r, UINT64_C(1) << 50));
	cr_assert(shms_ramroom_take(&r, 1));
	cr_assert_gt(shms_ramroom_free(&r), 0);
}
