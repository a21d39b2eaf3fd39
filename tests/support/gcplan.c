/* SPDX-License-Identifier: Apache-2.0 */
#include "gcplan.h"

#include <ftw.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

static int on_action(const struct shmstore_gc_action *a, void *arg)
{
	struct gcplan *p = arg;
	struct gcplan_action *to = &p->list[p->n++];

	ENSURE(p->n <= GCPLAN_MAX);
	to->what = a->what;
	to->bytes = a->bytes;
	to->tier_bytes = a->tier_bytes;
	to->n_objects = a->n_objects;
	to->error = a->error;
	snprintf(to->path, sizeof(to->path), "%s", a->path);
	snprintf(to->evidence, sizeof(to->evidence), "%s", a->evidence);
	return 0;
}

static uint64_t used(void)
{
	struct statvfs fs;

	ENSURE(statvfs(scratch_dir(NULL), &fs) == 0);
	return (fs.f_blocks - fs.f_bfree) * fs.f_frsize;
}

static uint64_t inodes(void)
{
	struct statvfs fs;

	ENSURE(statvfs(scratch_dir(NULL), &fs) == 0);
	return fs.f_files - fs.f_ffree;
}

static uint64_t file_bytes;

static int add_file(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)path;
	(void)ftw;
	if (flag == FTW_F)
		file_bytes += (uint64_t)st->st_blocks * 512;
	return 0;
}

static uint64_t files(const char *disk)
{
	file_bytes = 0;
	if (disk)
		ENSURE(nftw(disk, add_file, 16, FTW_PHYS) == 0);
	return file_bytes;
}

void gcplan_run(struct gcplan *plan, unsigned flags)
{
	struct shmstore_partition *p = scratch_partition();

	memset(plan, 0, sizeof(*plan));
	ENSURE(shmstore_partition_gc_plan(p, flags, on_action, plan, &plan->report) == 0);
	shmstore_partition_unref(p);
}

static void print(const char *which, const struct gcplan *plan)
{
	for (size_t i = 0; i < plan->n; i++)
		fprintf(stderr, "%s: %s %s: %llu + %llu bytes, %llu objects, error %d: %s\n", which,
			shmstore_gc_what_name(plan->list[i].what), plan->list[i].path,
			(unsigned long long)plan->list[i].bytes,
			(unsigned long long)plan->list[i].tier_bytes,
			(unsigned long long)plan->list[i].n_objects, plan->list[i].error,
			plan->list[i].evidence);
}

static bool same(const struct gcplan_action *a, const struct gcplan_action *b)
{
	return a->what == b->what && a->bytes == b->bytes && a->tier_bytes == b->tier_bytes &&
	       a->n_objects == b->n_objects && a->error == 0 && strcmp(a->path, b->path) == 0 &&
	       strcmp(a->evidence, b->evidence) == 0 && a->evidence[0];
}

void gcplan_gc_disk(struct gcplan *plan, const char *disk)
{
	struct gcplan *dry = malloc(sizeof(*dry));
	uint64_t bytes = used(), n = inodes(), tier = files(disk);
	bool right;

	ENSURE(dry);
	gcplan_run(dry, SHMSTORE_GC_DRY_RUN);
	/* Others write to a file system that is no mount of our own, too. */
	ENSURE(!scratch_is_mount() || (used() == bytes && inodes() == n));
	ENSURE(files(disk) == tier);
	gcplan_run(plan, 0);
	right = plan->n == dry->n && memcmp(&plan->report, &dry->report, sizeof(dry->report)) == 0;
	for (size_t i = 0; right && i < plan->n; i++)
		right = same(&plan->list[i], &dry->list[i]);
	if (scratch_is_mount())
		right = right && plan->report.freed == bytes - used();
	right = right && (!disk || plan->report.tier_freed == tier - files(disk));
	if (!right) {
		print("dry", dry);
		print("run", plan);
		fprintf(stderr, "told: %llu bytes, on disk %llu; went: %llu, %llu\n",
			(unsigned long long)plan->report.freed,
			(unsigned long long)plan->report.tier_freed,
			(unsigned long long)(bytes - used()),
			(unsigned long long)(tier - files(disk)));
	}
	ENSURE(right);
	free(dry);
}

size_t gcplan_count(const struct gcplan *plan, enum shmstore_gc_what what)
{
	size_t n = 0;

	for (size_t i = 0; i < plan->n; i++)
		n += plan->list[i].what == what;
	return n;
}

const struct gcplan_action *gcplan_find(const struct gcplan *plan, const char *path)
{
	for (size_t i = 0; i < plan->n; i++) {
		if (strcmp(plan->list[i].path, path) == 0)
			return &plan->list[i];
	}
	print("no action of that path", plan);
	fprintf(stderr, "%s\n", path);
	ENSURE(false);
	return NULL;
}
