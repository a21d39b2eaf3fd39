/* SPDX-License-Identifier: Apache-2.0 */
/* test_monitor_source.c: what is read of hosts that are made up in a directory: both versions of
 * cgroups, files that are missing, and of this host. */
#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memgroup.h"
#include "memsource.h"

#define MEMINFO                                                                                 \
	"MemTotal: 16384 kB\nMemFree: 100 kB\nMemAvailable: 8192 kB\nBuffers: 0 kB\nCached: 0 " \
	"kB\nShmem: 0 kB\n"                                                                     \
	"SwapTotal: 1024 kB\nSwapFree: 1000 kB\n"

static char root[PATH_MAX];

static void make_root(void)
{
	strcpy(root, "/tmp/shmstore-source-XXXXXX");
	cr_assert(mkdtemp(root));
}

static void remove_root(void)
{
	char command[PATH_MAX + 16];

	snprintf(command, sizeof(command), "rm -rf -- %s", root);
	cr_assert_eq(system(command), 0); // NOLINT(cert-env33-c)
}

/* A file below the root, with the directories above it. */
static void put(const char *path, const char *text)
{
	char full[PATH_MAX];
	FILE *file;

	snprintf(full, sizeof(full), "%s/%s", root, path);
	for (char *c = full + strlen(root) + 1; (c = strchr(c, '/')) != NULL; c++) {
		*c = 0;
		mkdir(full, 0755);
		*c = '/';
	}
	file = fopen(full, "we");
	cr_assert(file, "%s", full);
	fputs(text, file);
	fclose(file);
}

static struct memsource_reading look(bool swap)
{
	struct memsource_reading r;
	char proc[PATH_MAX + 8], cgroup[PATH_MAX + 8];

	snprintf(proc, sizeof(proc), "%s/proc", root);
	snprintf(cgroup, sizeof(cgroup), "%s/cgroup", root);
	cr_assert_eq(memsource_read(&(struct memsource_config){proc, cgroup, swap}, &r), 0);
	return r;
}

static const struct memsource_term *term(const struct memsource_level *l, const char *name)
{
	for (size_t i = 0; i < l->n_terms; i++)
		if (!strcmp(l->terms[i].name, name))
			return &l->terms[i];
	cr_assert(false, "no term %s", name);
	return NULL;
}

TestSuite(monitor_source, .init = make_root, .fini = remove_root);

Test(monitor_source, host_without_cgroups_is_its_meminfo)
{
	struct memsource_reading r;

	put("proc/meminfo", MEMINFO);
	r = look(false);
	cr_assert_eq(r.n_levels, 1);
	cr_assert_eq(r.levels[0].use.total.bytes, 16 << 20);
	cr_assert_eq(r.levels[0].use.used.bytes, 8 << 20);
	memsource_deinit(&r);
	r = look(true);
	cr_assert_eq(r.levels[0].use.total.bytes, 17 << 20);
	cr_assert_eq(r.levels[0].use.used.bytes, (8 << 20) + (24 << 10));
	memsource_deinit(&r);
}

Test(monitor_source, tightest_limit_on_the_way_up_counts)
{
	struct memsource_reading r;

	put("proc/meminfo", MEMINFO);
	put("proc/self/cgroup", "3:cpu,memory_not:/other\n0::/a/b/c\n");
	put("cgroup/cgroup.controllers", "memory\n");
	put("cgroup/a/memory.max", "9000000\n");
	put("cgroup/a/memory.current", "8000000\n");
	put("cgroup/a/memory.stat", "anon 1\ninactive_file 1000\nactive_file 2000\n");
	put("cgroup/a/b/memory.max", "5000000\n");
	put("cgroup/a/b/memory.current", "4000000\n");
	put("cgroup/a/b/memory.stat", "inactive_file 5\nactive_file 6\n");
	put("cgroup/a/b/memory.swap.max", "0\n");
	put("cgroup/a/b/memory.swap.current", "0\n");
	put("cgroup/a/b/c/memory.max", "max\n");
	put("cgroup/a/b/c/memory.current", "3000000\n");
	r = look(false);
	/* The host, c, b, a; the root has no files of its own. */
	cr_assert_eq(r.n_levels, 4);
	cr_assert_eq(r.tightest, 2);
	cr_assert_eq(r.levels[2].use.total.bytes, 5000000);
	cr_assert_eq(r.levels[2].use.used.bytes, 4000000 - 11);
	cr_assert_eq(r.levels[3].use.used.bytes, 8000000 - 3000);
	cr_assert_eq(term(&r.levels[1], "memory.max")->state, MEMSOURCE_UNLIMITED);
	/* Its memory.stat is missing: what is used is not 0, and not 3000000. */
	cr_assert_not(r.levels[1].use.used.known);
	cr_assert_eq(term(&r.levels[1], "memory.stat active_file")->state, MEMSOURCE_UNKNOWN);
	cr_assert_eq(term(&r.levels[2], "memory.swap.max")->state, MEMSOURCE_READ);
	memsource_deinit(&r);
	r = look(true);
	cr_assert_eq(r.levels[2].use.total.bytes, 5000000,
		     "a swap of 0 bytes is no swap without a limit");
	memsource_deinit(&r);
}

Test(monitor_source, version_1_is_read_below_its_controller)
{
	struct memsource_reading r;

	put("proc/meminfo", MEMINFO);
	put("proc/self/cgroup", "5:cpu:/x\n4:hugetlb,memory:/jobs/1:2\n0::/elsewhere\n");
	put("cgroup/unified/elsewhere/memory.max", "1\n");
	put("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	put("cgroup/memory/memory.usage_in_bytes", "7000000\n");
	put("cgroup/memory/jobs/1:2/memory.limit_in_bytes", "6000000\n");
	put("cgroup/memory/jobs/1:2/memory.usage_in_bytes", "5000000\n");
	put("cgroup/memory/jobs/1:2/memory.memsw.limit_in_bytes", "8000000\n");
	put("cgroup/memory/jobs/1:2/memory.memsw.usage_in_bytes", "5500000\n");
	put("cgroup/memory/jobs/1:2/memory.stat",
	    "inactive_file 1\ntotal_inactive_file 100\ntotal_active_file 200\n");
	r = look(false);
	cr_assert_eq(r.n_levels, 3);
	cr_assert_eq(r.tightest, 1);
	cr_assert_eq(r.levels[1].version, 1);
	cr_assert_eq(r.levels[1].use.total.bytes, 6000000);
	cr_assert_eq(r.levels[1].use.used.bytes, 5000000 - 300);
	cr_assert_eq(term(&r.levels[2], "memory.limit_in_bytes")->state, MEMSOURCE_UNLIMITED);
	memsource_deinit(&r);
	r = look(true);
	cr_assert_eq(r.levels[1].use.total.bytes, 8000000);
	cr_assert_eq(r.levels[1].use.used.bytes, 5500000 - 300);
	memsource_deinit(&r);
}

/* A container without a namespace of cgroups: its path is the host's, and
 * its tree is its own group. */
Test(monitor_source, tree_of_a_container_is_read_at_its_root)
{
	struct memsource_reading r;

	put("proc/meminfo", MEMINFO);
	put("proc/self/cgroup", "0::/docker/0123\n");
	put("cgroup/memory.max", "4000000\n");
	put("cgroup/memory.current", "3000000\n");
	put("cgroup/memory.stat", "inactive_file 0\nactive_file 0\n");
	r = look(false);
	cr_assert_eq(r.n_levels, 2);
	cr_assert_eq(r.tightest, 1);
	cr_assert_eq(r.levels[1].use.used.bytes, 3000000);
	memsource_deinit(&r);
}

Test(monitor_source, what_cannot_be_read_is_unknown)
{
	struct memsource_reading r = look(false);

	cr_assert_eq(r.n_levels, 1);
	cr_assert_not(r.levels[0].use.total.known || r.levels[0].use.used.known);
	memsource_deinit(&r);
	/* Cut in the middle of a number; a pipe, which must not be waited for. */
	put("proc/meminfo", "MemTotal: 16384 kB\nMemAvailable: 81");
	r = look(false);
	cr_assert(r.levels[0].use.total.known && !r.levels[0].use.used.known);
	memsource_deinit(&r);
	put("proc/self/cgroup", "0::/a\n");
	put("cgroup/a/memory.current", "5\n");
	{
		char path[PATH_MAX + 32];

		snprintf(path, sizeof(path), "%s/cgroup/a/memory.stat", root);
		cr_assert_eq(mkfifo(path, 0600), 0);
	}
	r = look(false);
	cr_assert_eq(r.n_levels, 2);
	cr_assert_not(r.levels[1].use.used.known);
	memsource_deinit(&r);
}

Test(monitor_source, paths_of_cgroups_stay_in_their_tree)
{
	static const struct {
		const char *text;
		int version;
		const char *path; /* NULL: none */
	} cases[] = {
		{"0::/a/b\n", 2, "/a/b"},
		{"0::/\n", 2, "/"},
		{"0::/../x\n", 2, "/"},
		{"0::/a/..\n", 2, "/"},
		{"0::/a/..b/...\n", 2, "/a/..b/..."},
		{"0::/a", 2, NULL},
		{"0::a\n", 2, NULL},
		{"10::/a\n", 2, NULL},
		{"0:name:/a\n", 2, NULL},
		{"0::/a:b c\n", 2, "/a:b c"},
		{"2:memory:/x\n", 1, "/x"},
		{"2:cpu,memory:/x\n", 1, "/x"},
		{"2:mem,memory2:/x\n", 1, NULL},
		{"2:memory,cpu:/x\n", 1, "/x"},
		{"garbage\n:\n2:memory:/x\n", 1, "/x"},
		{"", 1, NULL},
		{"0::/a\n", 1, NULL},
	};
	char path[32], copy[64];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bool found = shms_memgroup_path(cases[i].text, strlen(cases[i].text),
						cases[i].version, path, sizeof(path));

		cr_assert_eq(found, cases[i].path != NULL, "%s", cases[i].text);
		if (found)
			cr_assert_str_eq(path, cases[i].path);
	}
	snprintf(copy, sizeof(copy), "0::/%040d\n", 1);
	cr_assert_not(shms_memgroup_path(copy, strlen(copy), 2, path, sizeof(path)),
		      "it does not fit");
	strcpy(path, "/a/b");
	cr_assert(shms_memgroup_parent(path));
	cr_assert_str_eq(path, "/a");
	cr_assert(shms_memgroup_parent(path));
	cr_assert_str_eq(path, "/");
	cr_assert_not(shms_memgroup_parent(path));
}

Test(monitor_source, this_host_is_read)
{
	struct memsource_reading r;
	const struct memlimit_use *use;

	cr_assert_eq(memsource_read(&(struct memsource_config){0}, &r), 0);
	use = &r.levels[0].use;
	cr_assert(use->total.known && use->used.known && use->used.bytes > 0 &&
		  use->used.bytes < use->total.bytes);
	for (size_t i = 0; i < r.n_levels; i++) {
		if (r.levels[i].use.total.known)
			cr_assert_leq(r.levels[r.tightest].use.total.bytes,
				      r.levels[i].use.total.bytes);
		if (r.levels[i].use.used.known)
			cr_assert_geq(r.levels[i].use.used.bytes, 0);
	}
	memsource_deinit(&r);
}
