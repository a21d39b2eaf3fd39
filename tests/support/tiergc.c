/* SPDX-License-Identifier: Apache-2.0 */
/* tiergc.h's stores, paths and deaths. */
#include "tiergc.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "page.h"
#include "partition.h"
#include "tiered.h"

void tg_gc(struct gcplan *plan)
{
	gcplan_gc_disk(plan, tiered_disk());
}

void tg_gc_one(struct gcplan *plan, enum shmstore_gc_what what)
{
	tg_gc(plan);
	cr_assert_eq(plan->n, 1);
	cr_assert_eq(plan->list[0].what, what);
}

const char *tg_anchors(const char *name)
{
	static char paths[4][SCRATCH_PATH];
	static unsigned n;
	char *path = paths[n++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/tier/%u%s%s", scratch_partition_path(),
		 (unsigned)geteuid(), *name ? "/" : "", name);
	return path;
}

const char *tg_files(const char *name)
{
	static char paths[4][TIERED_PATH + 128];
	static unsigned n;
	struct shmstore_partition *p = scratch_partition();
	char *path = paths[n++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s/%u%s%s", tiered_disk(), p->uuid,
		 (unsigned)geteuid(), *name ? "/" : "", name);
	shmstore_partition_unref(p);
	return path;
}

void tg_write_file(const char *path, const char *text)
{
	int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

	cr_assert_geq(fd, 0, "%s", path);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	cr_assert_eq(fsync(fd), 0); /* its blocks are counted */
	close(fd);
}

bool tg_exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

void tg_demote(struct shmstore *s, const char *key)
{
	cr_assert_eq(shmstore_demote(s, KEY(key), 0), 0, "%s", shmstore_error_detail());
}

void tg_promote(struct shmstore *s, const char *key)
{
	cr_assert_eq(shmstore_promote(s, KEY(key), 0), 0, "%s", shmstore_error_detail());
}

struct shmstore *tg_store_with_all(const char *name)
{
	struct shmstore *s = scratch_store(name);

	cr_assert_eq(put_pattern(s, "demoted", MB, 1, 0), 0);
	cr_assert_eq(put_pattern(s, "clean", MB, 2, 0), 0);
	cr_assert_eq(put_pattern(s, "memory", MB, 3, 0), 0);
	tg_demote(s, "demoted");
	tg_demote(s, "clean");
	tg_promote(s, "clean");
	return s;
}

void tg_check_all(struct shmstore *s)
{
	cr_assert_eq(shmstore_locate(s, KEY("demoted")), SHMSTORE_IN_TIER);
	cr_assert_eq(shmstore_locate(s, KEY("clean")), SHMSTORE_IN_MEMORY);
	cr_assert_eq(tiered_count_files(), 2);
	cr_assert_eq(tiered_count_anchors(), 2);
	cr_assert_eq(get_pattern(s, "demoted", MB, 1), 0);
	cr_assert_eq(get_pattern(s, "clean", MB, 2), 0);
	cr_assert_eq(get_pattern(s, "memory", MB, 3), 0);
}

void tg_end(struct shmstore *s)
{
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

static int live_and_die(void *arg)
{
	const struct tg_death *d = arg;
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s;

	o.keep = d->keep;
	ENSURE(shmstore_open(p, d->name, &o, &s) == 0);
	ENSURE(put_pattern(s, "demoted", MB, 1, 0) == 0 && put_pattern(s, "clean", MB, 2, 0) == 0);
	ENSURE(put_pattern(s, "memory", MB, 3, 0) == 0);
	ENSURE(shmstore_demote(s, KEY("demoted"), 0) == 0 &&
	       shmstore_demote(s, KEY("clean"), 0) == 0);
	ENSURE(shmstore_promote(s, KEY("clean"), 0) == 0);
	if (d->adopt)
		ENSURE(shmstore_adopt(s, KEY("adopted"), d->adopt, 0) == 0);
	return 0;
}

void tg_die(struct tg_death d)
{
	shmstore_partition_unref(scratch_partition());
	cr_assert_eq(in_child(live_and_die, &d), 0);
}

void tg_unkeep(const char *store)
{
	uint64_t flags = 0;
	int fd = open(scratch_store_path(store, SHMS_PAGE_FILE), O_WRONLY | O_CLOEXEC);

	cr_assert_eq(pwrite(fd, &flags, sizeof(flags), offsetof(struct shms_page, flags)),
		     sizeof(flags));
	close(fd);
}
