/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The books with a disk tier: the df equation stays closed whatever is demoted, the tier's own
 * equation says what its disk says, and every inode counts once. The library's figures are held
 * against the file systems.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "partition.h"
#include "tier.h"
#include "tiered.h"

enum {
	MB = 1 << 20
};

static void own_mount(void)
{
	if (!scratch_is_mount())
		cr_skip_test("needs a mount of its own");
}

TestSuite(tier_books, .init = own_mount, .timeout = 120);

/* ---- what the disk says ---------------------------------------------------------------------- */

static uint64_t disk_bytes, disk_files;

static int add_file(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	const char *name = path + ftw->base;

	if (flag == FTW_F && strncmp(name, "partition", 9) != 0) {
		disk_bytes += (uint64_t)st->st_blocks * 512;
		disk_files++;
	}
	return 0;
}

/* Blocks of tier files below the tier's directory. */
static uint64_t on_disk(void)
{
	disk_bytes = disk_files = 0;
	cr_assert_eq(nftw(tiered_disk(), add_file, 16, FTW_PHYS), 0);
	return disk_bytes;
}

static struct shmstore_tier_info info(void)
{
	static struct shmstore_tier_info i;
	struct shmstore_partition *p = scratch_partition();

	cr_assert_eq(shmstore_tier_info(p, &i), 0, "%s", shmstore_error_detail());
	shmstore_partition_unref(p);
	return i;
}

/* Both equations close, agree with each other, and with the disk. */
static struct shmstore_usage closed(void)
{
	struct shmstore_usage u = ensure_books_close();
	struct shmstore_tier_info i = info();

	cr_assert_eq(u.tier, on_disk());
	cr_assert_eq(u.tier, u.tier_demoted + u.tier_clean + u.tier_orphans);
	cr_assert_eq(i.used, u.tier);
	cr_assert_eq(i.demoted, u.tier_demoted);
	cr_assert_eq(i.clean, u.tier_clean);
	cr_assert_eq(i.orphans, u.tier_orphans);
	cr_assert_eq(i.n_demoted + i.n_clean + i.n_orphans, disk_files);
	cr_assert_eq(i.n_codec_raw + i.n_codec_zstd, i.n_demoted + i.n_clean);
	return u;
}

static void demote(struct shmstore *s, const char *key)
{
	cr_assert_eq(shmstore_demote(s, KEY(key), 0), 0, "%s", shmstore_error_detail());
}

static void promote(struct shmstore *s, const char *key)
{
	cr_assert_eq(shmstore_promote(s, KEY(key), 0), 0, "%s", shmstore_error_detail());
}

static void adopt(struct shmstore *from, struct shmstore *to, const char *key)
{
	struct shmstore_ticket t;

	cr_assert_eq(shmstore_handoff_flags(from, KEY(key), 60000, SHMSTORE_AS_IS, &t), 0);
	cr_assert_eq(shmstore_adopt(to, KEY(key), &t, 0), 0);
}

/* ---- the equations --------------------------------------------------------------------------- */

Test(tier_books, an_object_moves_from_one_equation_to_the_other_and_back)
{
	struct shmstore_usage before, in_memory, u;
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = scratch_store("a");
	before = closed();
	cr_assert_eq(before.tier, 0);
	cr_assert_eq(put_pattern(s, "k", 8 * MB, 1, 0), 0);
	cr_assert_eq(put_pattern(s, "other", MB, 2, 0), 0);
	in_memory = closed();
	cr_assert_eq(in_memory.n_demoted, 0);

	demote(s, "k");
	u = closed();
	cr_assert_eq(u.linked, in_memory.linked - 8 * MB - 4096, "stubs take no memory");
	cr_assert_eq(u.metadata, in_memory.metadata);
	cr_assert_eq(u.n_objects, 2);
	cr_assert_eq(u.n_demoted, 1);
	cr_assert_geq(u.tier_demoted, 8 * MB, "noise does not shrink");
	cr_assert_eq(u.tier_clean + u.tier_orphans, 0);
	cr_assert_eq(info().original, 8 * MB + 4096);
	cr_assert_eq(info().n_codec_raw, 1);

	promote(s, "k");
	u = closed();
	cr_assert_eq(u.linked, in_memory.linked);
	cr_assert_eq(u.n_demoted, 0);
	cr_assert_geq(u.tier_clean, 8 * MB);
	cr_assert_eq(u.tier_demoted + u.tier_orphans, 0);

	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	u = closed();
	cr_assert_eq(u.tier, 0, "the last name was deleted");
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

Test(tier_books, what_compresses_is_counted_so)
{
	static char zeros[2 * MB];
	struct iovec iov = {zeros, sizeof(zeros)};
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = scratch_store("a");
	cr_assert_eq(shmstore_put(s, KEY("z"), NULL, 0, &iov, 1, 0), 0);
	demote(s, "z");
	closed();
	cr_assert_eq(info().n_codec_zstd, 1);
	cr_assert_eq(info().n_codec_raw, 0);
	cr_assert_lt(info().demoted, MB);
	cr_assert_geq(info().original, 2 * MB);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(tier_books, a_ghost_of_a_demoted_object_is_a_ghost_once_the_tier_lets_go)
{
	struct shmstore_usage in_memory, u;
	struct shmstore_view *v;
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = scratch_store("a");
	cr_assert_eq(put_pattern(s, "k", 4 * MB, 1, 0), 0);
	v = get_view(s, "k", 0);
	in_memory = closed();
	demote(s, "k");
	u = closed();
	cr_assert_eq(u.n_demoted, 1);
	cr_assert_eq(u.linked + u.ghosts, in_memory.linked, "mapped memory is somewhere, once");
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	u = closed();
	cr_assert_eq(u.ghosts, 4 * MB + 4096);
	cr_assert_eq(u.tier, 0);
	shmstore_view_unref(v);
	cr_assert_eq(closed().ghosts, 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

Test(tier_books, a_lease_of_a_demoted_object_is_a_lease)
{
	struct shmstore_usage u;
	struct shmstore_ticket t;
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = scratch_store("a");
	cr_assert_eq(put_pattern(s, "k", MB, 1, 0), 0);
	demote(s, "k");
	cr_assert_eq(shmstore_handoff_flags(s, KEY("k"), 60000, SHMSTORE_AS_IS, &t), 0);
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	u = closed();
	cr_assert_eq(u.n_leases, 1);
	cr_assert_eq(u.n_objects, 0);
	cr_assert_geq(u.tier_demoted, MB, "the lease holds the tier file");
	cr_assert_eq(shmstore_adopt(s, KEY("again"), &t, 0), 0);
	cr_assert_eq(get_pattern(s, "again", MB, 1), 0);
	cr_assert_eq(closed().n_leases, 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

/* ---- several stores -------------------------------------------------------------------------- */

struct sums {
	uint64_t pss, linked, uss, n_demoted, demoted, n_clean;
};

static int add_store(const struct shmstore_store_books *b, void *arg)
{
	struct sums *s = arg;

	s->pss += b->pss;
	s->linked += b->linked;
	s->uss += b->uss;
	s->n_demoted += b->n_demoted;
	s->demoted += b->demoted;
	s->n_clean += b->n_clean;
	return 0;
}

static struct sums sums(void)
{
	struct shmstore_partition *p = scratch_partition();
	struct sums s = {0};

	cr_assert_eq(shmstore_partition_books(p, add_store, &s, NULL), 0);
	shmstore_partition_unref(p);
	return s;
}

Test(tier_books, a_promoted_object_is_one_object_while_others_still_hold_its_stub)
{
	const uint64_t blocks = 3 * MB + 4096;
	struct shmstore *a, *b, *c;
	struct shmstore_usage empty, u;
	struct sums s;

	TIERED_OR_SKIP();
	a = scratch_store("a");
	b = scratch_store("b");
	c = scratch_store("c");
	empty = closed();
	cr_assert_eq(put_pattern(a, "k", 3 * MB, 1, 0), 0);
	demote(a, "k");
	adopt(a, b, "k");
	adopt(a, c, "k");
	u = closed();
	s = sums();
	cr_assert_eq(u.linked, empty.linked);
	cr_assert_eq(u.n_demoted, 3);
	cr_assert_eq(s.n_demoted, 3);
	cr_assert_eq(s.demoted, 3 * blocks);
	cr_assert_eq(s.linked + s.pss + s.uss, 0);

	promote(b, "k");
	cr_assert_eq(tiered_count_residents(), 1);
	u = closed();
	s = sums();
	cr_assert_eq(u.linked, empty.linked + blocks, "the resident is no second object");
	cr_assert_eq(u.n_demoted, 2);
	cr_assert_eq(u.tier_demoted, 0, "it is in memory as well");
	cr_assert_geq(u.tier_clean, 3 * MB);
	cr_assert_eq(s.linked, blocks);
	cr_assert_eq(s.pss, blocks, "the tier's link is nobody's share");
	cr_assert_eq(s.n_clean, 1);

	cr_assert_eq(get_pattern(c, "k", 3 * MB, 1), 0);
	s = sums();
	cr_assert_eq(closed().linked, empty.linked + blocks);
	cr_assert_eq(s.linked, 2 * blocks);
	cr_assert_eq(s.pss, blocks);
	cr_assert_eq(s.n_clean, 2);

	/* Memory that only the tier links is linked memory, and no store's. */
	cr_assert_eq(shmstore_close(b), 0);
	cr_assert_eq(shmstore_close(c), 0);
	u = closed();
	s = sums();
	cr_assert_eq(s.linked + s.pss, 0);
	cr_assert_eq(s.n_demoted, 1);
	cr_assert_eq(u.linked - u.metadata, tiered_count_residents() ? blocks : 0);
	cr_assert_eq(get_pattern(a, "k", 3 * MB, 1), 0);
	cr_assert_eq(shmstore_close(a), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

struct users {
	uint64_t tier, n_demoted, linked;
	unsigned n;
};

static int add_user(const struct shmstore_user_books *b, void *arg)
{
	struct users *u = arg;

	u->n++;
	u->tier += b->tier;
	u->n_demoted += b->n_demoted;
	u->linked += b->linked;
	return 0;
}

Test(tier_books, a_survey_says_whose_the_tier_files_are)
{
	struct shmstore_partition *p = scratch_partition();
	struct users users = {0};
	struct shmstore_survey survey = {.size = sizeof(survey), .user = add_user, .arg = &users};
	struct shmstore_usage u;
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = scratch_store("a");
	cr_assert_eq(put_pattern(s, "k", MB, 1, 0), 0);
	cr_assert_eq(put_pattern(s, "l", MB, 2, 0), 0);
	demote(s, "k");
	demote(s, "l");
	promote(s, "l");
	cr_assert_eq(shmstore_partition_survey(p, &survey, &u), 0);
	cr_assert_eq(u.residual, 0);
	cr_assert_eq(users.n, 1);
	cr_assert_eq(users.tier, on_disk());
	cr_assert_eq(u.tier, users.tier);
	cr_assert_eq(users.n_demoted, 1);
	cr_assert_eq(users.linked, u.linked);
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
}

/* ---- what is not the tier's ------------------------------------------------------------------ */

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

	cr_assert_geq(fd, 0, "%s", path);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static const char *files_path(const char *name)
{
	static char path[8192];

	snprintf(path, sizeof(path), "%s/%u/%s", info().path, (unsigned)geteuid(), name);
	return path;
}

Test(tier_books, a_file_without_an_anchor_is_an_orphan_and_one_being_written_is_not_counted)
{
	struct shmstore *s;
	int fd;

	TIERED_OR_SKIP();
	s = scratch_store("a");
	cr_assert_eq(put_pattern(s, "k", MB, 1, 0), 0);
	demote(s, "k");
	write_file(files_path("00000000000000aa"), "an orphan");
	write_file(files_path("tmp-00000000000000bb"), "half of one");
	cr_assert_eq(closed().tier_orphans, 2 * 4096u);
	cr_assert_eq(info().n_orphans, 2);
	fd = open(files_path("tmp-00000000000000bb"), O_RDONLY | O_CLOEXEC);
	cr_assert_eq(flock(fd, LOCK_EX), 0);
	cr_assert_eq(ensure_books_close().tier_orphans, 4096u, "its writer lives");
	close(fd);
	write_file(files_path("thesis.txt"), "not ours");
	cr_assert_eq(info().n_orphans, 2);
	cr_assert_eq(unlink(files_path("thesis.txt")), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

Test(tier_books, without_its_directory_the_tier_says_so_and_the_books_close)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_tier_info i;
	struct shmstore_usage u;
	char away[2 * TIERED_PATH];
	struct shmstore *s;

	cr_assert_eq(shmstore_tier_info(p, &i), -ENOENT);
	TIERED_OR_SKIP();
	s = scratch_store("a");
	cr_assert_eq(put_pattern(s, "k", MB, 1, 0), 0);
	demote(s, "k");
	snprintf(away, sizeof(away), "%s-away", tiered_disk());
	cr_assert_eq(rename(tiered_disk(), away), 0);
	cr_assert_eq(shmstore_tier_info(p, &i), -ENOENT);
	cr_assert_neq(*shmstore_error_detail(), '\0');
	u = ensure_books_close();
	cr_assert_eq(u.tier, 0);
	cr_assert_eq(u.n_demoted, 1);
	/* The anchors stay too while somebody names them. */
	cr_assert_eq(shmstore_partition_gc(p, 0, NULL), 0);
	cr_assert_eq(rename(away, tiered_disk()), 0);
	cr_assert_eq(get_pattern(s, "k", MB, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
	ensure_nothing_left();
	ensure_tier_empty();
}
