/* SPDX-License-Identifier: Apache-2.0 */
/* Making and opening partitions, and what is refused. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "api.h"

static const char *under(const char *name)
{
	static char paths[4][SCRATCH_PATH + 300];
	static unsigned n;
	char *path = paths[n++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", scratch_dir(NULL), name);
	return path;
}

static int try_open(const char *path, unsigned flags)
{
	struct shmstore_partition *p = NULL;
	int r = shmstore_partition_open(path, flags, &p);

	cr_assert((r == 0) == (p != NULL), "written on success only");
	shmstore_partition_unref(p);
	return r;
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

Test(partition, created_one_opens_again_and_says_what_it_is)
{
	struct shmstore_partition *p, *q;
	struct shmstore_partition_info a, b;
	struct stat st;

	cr_assert_eq(shmstore_partition_open(under("p"), SHMSTORE_CREATE, &p), 0);
	cr_assert_str_eq(shmstore_partition_path(p), under("p"));
	cr_assert_eq(shmstore_partition_open(under("p"), 0, &q), 0);
	cr_assert_eq(shmstore_partition_info(p, &a), 0);
	cr_assert_eq(shmstore_partition_info(q, &b), 0);
	cr_assert_eq(a.size, sizeof(a));
	cr_assert_str_eq(a.path, under("p"));
	cr_assert_str_eq(a.uuid, b.uuid);
	cr_assert_eq(strlen(a.uuid), 36);
	cr_assert_eq(a.version, 1);
	cr_assert(a.tmpfs && a.same_boot);
	cr_assert_eq(a.uid, geteuid());
	cr_assert_eq(a.mode, 0700);
	if (scratch_is_mount()) {
		cr_assert_str_eq(a.mount, scratch_dir(NULL));
		cr_assert_eq(a.bytes_size, 512u << 20);
		cr_assert_eq(a.bytes_size, a.bytes_used + a.bytes_available);
	}
	cr_assert_eq(a.inodes_size, a.inodes_used + a.inodes_free);
	cr_assert_eq(stat(under("p"), &st), 0);
	cr_assert_eq(a.device, st.st_dev);
	shmstore_partition_unref(p);
	shmstore_partition_unref(q);
	cr_assert_eq(try_open(under("p"), SHMSTORE_CREATE), 0,
		     "creating what is there already opens it");
	cr_assert_eq(try_open(under("p/"), 0), 0);
	cr_assert_eq(try_open(under("p/../p/."), 0), 0);
}

Test(partition, two_partitions_differ)
{
	struct shmstore_partition *p, *q;
	struct shmstore_partition_info a, b;

	cr_assert_eq(shmstore_partition_open(under("p"), SHMSTORE_CREATE, &p), 0);
	cr_assert_eq(shmstore_partition_open(under("q"), SHMSTORE_CREATE, &q), 0);
	shmstore_partition_info(p, &a);
	shmstore_partition_info(q, &b);
	cr_assert_str_neq(a.uuid, b.uuid);
	shmstore_partition_unref(p);
	shmstore_partition_unref(q);
}

Test(partition, references_keep_it)
{
	struct shmstore_partition *p;

	cr_assert_eq(shmstore_partition_open(under("p"), SHMSTORE_CREATE, &p), 0);
	cr_assert_eq(shmstore_partition_ref(p), p);
	cr_assert_null(shmstore_partition_unref(p));
	cr_assert_eq(shmstore_partition_gc(p, 0, NULL), 0);
	cr_assert_null(shmstore_partition_unref(p));
	cr_assert_null(shmstore_partition_unref(NULL));
}

Test(partition, missing_directory_and_missing_marker_are_enoent)
{
	cr_assert_eq(try_open(under("none"), 0), -ENOENT);
	cr_assert_eq(try_open(under("none/below"), SHMSTORE_CREATE), -ENOENT,
		     "one level is made, not two");
	cr_assert_eq(mkdir(under("empty"), 0700), 0);
	cr_assert_eq(try_open(under("empty"), 0), -ENOENT);
	cr_assert_eq(count_dir(under("empty")), 0, "looking makes nothing");
	cr_assert_eq(try_open(under("empty"), SHMSTORE_CREATE), 0);
}

Test(partition, wrong_arguments_are_einval)
{
	struct shmstore_partition *p;
	char path[8];

	cr_assert_eq(shmstore_partition_open(under("p"), SHMSTORE_CREATE, NULL), -EINVAL);
	cr_assert_eq(shmstore_partition_open(under("p"), 1u << 31, &p), -EINVAL);
	cr_assert_eq(shmstore_partition_open("", SHMSTORE_CREATE, &p), -EINVAL);
	cr_assert_eq(shmstore_default_path(path, 3), -EINVAL);
	cr_assert_eq(shmstore_default_path(NULL, 100), -EINVAL);
}

Test(partition, directory_that_holds_something_else_is_refused)
{
	cr_assert_eq(mkdir(under("d"), 0700), 0);
	write_file(under("d/precious"), "data");
	cr_assert_eq(try_open(under("d"), SHMSTORE_CREATE), -EEXIST);
	cr_assert_eq(count_dir(under("d")), 1, "nothing was made beside it");
	cr_assert_eq(unlink(under("d/precious")), 0);
	write_file(under("d/.hidden"), "data");
	cr_assert_eq(try_open(under("d"), SHMSTORE_CREATE), -EEXIST);
	cr_assert_eq(unlink(under("d/.hidden")), 0);
	cr_assert_eq(try_open(under("d"), SHMSTORE_CREATE), 0);
}

Test(partition, file_or_symlink_to_nowhere_is_refused)
{
	write_file(under("f"), "data");
	cr_assert_eq(try_open(under("f"), 0), -ENOENT);
	cr_assert_lt(try_open(under("f"), SHMSTORE_CREATE), 0);
	cr_assert_eq(symlink("nowhere", under("l")), 0);
	cr_assert_lt(try_open(under("l"), SHMSTORE_CREATE), 0);
}

Test(partition, half_made_one_is_completed)
{
	/* A process killed inside SHMSTORE_CREATE may leave this. */
	cr_assert_eq(mkdir(under("h"), 0700), 0);
	cr_assert_eq(mkdir(under("h/stores"), 0700), 0);
	cr_assert_eq(try_open(under("h"), 0), -ENOENT);
	cr_assert_eq(try_open(under("h"), SHMSTORE_CREATE), 0);
	cr_assert_eq(try_open(under("h"), 0), 0);
}

Test(partition, other_version_is_enotsup_and_damaged_marker_is_ebadmsg)
{
	char good[300], text[400];
	FILE *f;
	size_t n;

	cr_assert_eq(try_open(under("p"), SHMSTORE_CREATE), 0);
	f = fopen(under("p/.shmstore"), "re");
	cr_assert_not_null(f);
	n = fread(good, 1, sizeof(good) - 1, f);
	good[n] = '\0';
	fclose(f);
	cr_assert_eq(chmod(under("p/.shmstore"), 0600), 0);
	cr_assert_eq(unlink(under("p/.shmstore")), 0);
	for (size_t k = 0; k < n; k++) {
		int r;

		snprintf(text, sizeof(text), "%.*s", (int)k, good);
		write_file(under("p/.shmstore"), text);
		r = try_open(under("p"), 0);
		cr_assert_eq(r, -EBADMSG, "cut to %zu bytes: %d", k, r);
		cr_assert_eq(try_open(under("p"), SHMSTORE_CREATE), -EBADMSG,
			     "and never made anew");
	}
	for (size_t k = 0; k < n; k++) {
		memcpy(text, good, n + 1);
		text[k] = '\x01';
		write_file(under("p/.shmstore"), text);
		cr_assert_eq(try_open(under("p"), 0), -EBADMSG, "byte %zu", k);
	}
	snprintf(text, sizeof(text), "%strailer", good);
	write_file(under("p/.shmstore"), text);
	cr_assert_eq(try_open(under("p"), 0), -EBADMSG);
	snprintf(text, sizeof(text), "shmstore partition 2\nsomething new\n");
	write_file(under("p/.shmstore"), text);
	cr_assert_eq(try_open(under("p"), 0), -ENOTSUP);
	cr_assert_eq(try_open(under("p"), SHMSTORE_CREATE), -ENOTSUP);
	write_file(under("p/.shmstore"), good);
	cr_assert_eq(try_open(under("p"), 0), 0);
}

Test(partition, marker_that_is_no_file_is_refused, .timeout = 10)
{
	cr_assert_eq(try_open(under("p"), SHMSTORE_CREATE), 0);
	cr_assert_eq(rename(under("p/.shmstore"), under("m")), 0);
	cr_assert_eq(symlink("../m", under("p/.shmstore")), 0);
	cr_assert_lt(try_open(under("p"), 0), 0);
	cr_assert_eq(unlink(under("p/.shmstore")), 0);
	cr_assert_eq(mkfifo(under("p/.shmstore"), 0600), 0);
	cr_assert_lt(try_open(under("p"), 0), 0);
}

Test(partition, marker_without_its_directories_is_damaged)
{
	cr_assert_eq(try_open(under("p"), SHMSTORE_CREATE), 0);
	cr_assert_eq(rmdir(under("p/peers")), 0);
	cr_assert_eq(try_open(under("p"), 0), -EBADMSG);
	cr_assert_eq(mkdir(under("p/peers"), 0700), 0);
	cr_assert_eq(rmdir(under("p/stores")), 0);
	cr_assert_eq(try_open(under("p"), 0), -EBADMSG);
}

/* A directory on disk, for tests that need one; NULL if everything here is a tmpfs. */
static const char *disk_dir(void)
{
	static const char *const places[] = {"/var/tmp", "/tmp", "."};
	static char path[64];
	struct statfs fs;

	for (size_t i = 0; i < 3; i++) {
		if (statfs(places[i], &fs) == 0 && fs.f_type != 0x01021994) {
			snprintf(path, sizeof(path), "%s/shmstore-test-XXXXXX", places[i]);
			return mkdtemp(path);
		}
	}
	return NULL;
}

Test(partition, disk_is_refused_unless_allowed)
{
	char command[100], sub[80];
	const char *dir = disk_dir();
	struct shmstore_partition *p;
	struct shmstore_partition_info info;

	if (!dir)
		cr_skip_test("no directory on a disk here");
	cr_assert_eq(try_open(dir, SHMSTORE_CREATE), -ENOTSUP);
	cr_assert_eq(try_open(dir, 0), -ENOTSUP);
	cr_assert_eq(count_dir(dir), 0);
	snprintf(sub, sizeof(sub), "%s/p", dir);
	cr_assert_eq(shmstore_partition_open(sub, SHMSTORE_CREATE | SHMSTORE_ALLOW_DISK, &p), 0);
	cr_assert_eq(shmstore_partition_info(p, &info), 0);
	cr_assert_not(info.tmpfs);
	shmstore_partition_unref(p);
	cr_assert_eq(try_open(sub, 0), 0, "its marker says that it may");
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	cr_assert_eq(system(command), 0); /* NOLINT(concurrency-mt-unsafe) */
}

Test(partition, objects_live_on_disk_too)
{
	char command[100];
	const char *dir = disk_dir();
	struct shmstore_partition *p;
	struct shmstore *s, *t;
	struct shmstore_ticket ticket;

	if (!dir)
		cr_skip_test("no directory on a disk here");
	cr_assert_eq(shmstore_partition_open(dir, SHMSTORE_CREATE | SHMSTORE_ALLOW_DISK, &p), 0);
	cr_assert_eq(shmstore_open(p, "a", NULL, &s), 0);
	cr_assert_eq(shmstore_open(p, "b", NULL, &t), 0);
	cr_assert_eq(put_pattern(s, "k", 100000, 5, 0), 0);
	cr_assert_eq(get_pattern(s, "k", 100000, 5), 0);
	cr_assert_eq(shmstore_handoff(s, "k", 1, 60000, &ticket), 0);
	cr_assert_eq(shmstore_adopt(t, "k", 1, &ticket, 0), 0);
	cr_assert_eq(shmstore_delete(s, "k", 1), 0);
	cr_assert_eq(put_pattern(s, "k", 100000, 6, 0), 0);
	cr_assert_eq(get_pattern(t, "k", 100000, 5), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(shmstore_close(t), 0);
	shmstore_partition_unref(p);
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	cr_assert_eq(system(command), 0); /* NOLINT(concurrency-mt-unsafe) */
}

Test(partition, shared_one_has_sticky_directories)
{
	struct stat st;

	cr_assert_eq(try_open(under("s"), SHMSTORE_CREATE | SHMSTORE_SHARED), 0);
	cr_assert_eq(stat(under("s"), &st), 0);
	cr_assert_eq(st.st_mode & 07777, 01777);
	cr_assert_eq(stat(under("s/stores"), &st), 0);
	cr_assert_eq(st.st_mode & 07777, 01777);
	cr_assert_eq(stat(under("s/peers"), &st), 0);
	cr_assert_eq(st.st_mode & 07777, 01777);
	cr_assert_eq(stat(under("s/.shmstore"), &st), 0);
	cr_assert_eq(st.st_mode & 0777, 0444);
}

static int as_nobody(void *arg)
{
	struct shmstore_partition *p;
	struct shmstore *s;
	int r;

	if (setgid(65534) < 0 || setuid(65534) < 0)
		return 2;
	r = shmstore_partition_open(arg, 0, &p);
	if (r < 0)
		return 10;
	r = shmstore_open(p, "nobodys", NULL, &s);
	if (r < 0)
		return 11;
	if (put_pattern(s, "k", 5000, 1, 0) < 0 || get_pattern(s, "k", 5000, 1) != 0)
		return 12;
	return shmstore_close(s) == 0 ? 0 : 13;
}

Test(partition, other_user_uses_a_shared_one_and_not_a_private_one)
{
	if (geteuid() != 0)
		cr_skip_test("needs root to become somebody else");
	umask(0022);
	cr_assert_eq(try_open(under("s"), SHMSTORE_CREATE | SHMSTORE_SHARED), 0);
	cr_assert_eq(try_open(under("p"), SHMSTORE_CREATE), 0);
	cr_assert_eq(in_child(as_nobody, (void *)(uintptr_t)under("s")), 0);
	cr_assert_eq(in_child(as_nobody, (void *)(uintptr_t)under("p")), 10);
}

Test(partition, default_path_is_the_environments_or_the_users)
{
	char path[200], expect[64];

	/* NOLINTNEXTLINE(concurrency-mt-unsafe) */
	cr_assert_eq(setenv("SHMSTORE_PARTITION", "/some/where", 1), 0);
	cr_assert_eq(shmstore_default_path(path, sizeof(path)), 0);
	cr_assert_str_eq(path, "/some/where");
	cr_assert_eq(unsetenv("SHMSTORE_PARTITION"), 0); /* NOLINT(concurrency-mt-unsafe) */
	cr_assert_eq(shmstore_default_path(path, sizeof(path)), 0);
	snprintf(expect, sizeof(expect), "/dev/shm/shmstore-%u", (unsigned)geteuid());
	cr_assert_str_eq(path, expect);
	/* NOLINTNEXTLINE(concurrency-mt-unsafe) */
	cr_assert_eq(setenv("SHMSTORE_PARTITION", under("env"), 1), 0);
	cr_assert_eq(try_open(NULL, SHMSTORE_CREATE), 0);
	cr_assert_eq(count_dir(under("env")), 3);
}

/* Root makes one where somebody else was first. */
Test(partition, shared_one_changes_nothing_through_a_symlink)
{
	char outside[SCRATCH_PATH + 300];
	struct stat st;

	cr_assert_eq(mkdir(under("s"), 0755), 0);
	snprintf(outside, sizeof(outside), "%s", under("outside"));
	cr_assert_eq(mkdir(outside, 0700), 0);
	cr_assert_eq(symlink(outside, under("s/stores")), 0);
	cr_assert_eq(try_open(under("s"), SHMSTORE_CREATE | SHMSTORE_SHARED), -EPERM);
	cr_assert_eq(stat(outside, &st), 0);
	cr_assert_eq(st.st_mode & 07777, 0700);
	cr_assert_eq(stat(under("s"), &st), 0);
	cr_assert_eq(st.st_mode & 07777, 0755, "not opened to others before it is whole");
}

Test(partition, shared_one_is_the_same_whatever_the_umask)
{
	struct stat st;
	mode_t before = umask(077);

	cr_assert_eq(try_open(under("s"), SHMSTORE_CREATE | SHMSTORE_SHARED), 0);
	umask(before);
	cr_assert_eq(stat(under("s/.shmstore"), &st), 0);
	cr_assert_eq(st.st_mode & 07777, 0444);
	cr_assert_eq(stat(under("s/stores"), &st), 0);
	cr_assert_eq(st.st_mode & 07777, 01777);
	if (geteuid() != 0)
		return;
	cr_assert_eq(stat(under("s/inbox"), &st), 0);
	cr_assert_eq(st.st_mode & 07777, 0755, "inbox/ is root's alone");
}

Test(partition, shared_one_whose_maker_was_killed_before_the_end_is_finished)
{
	struct stat st;

	cr_assert_eq(try_open(under("s"), SHMSTORE_CREATE | SHMSTORE_SHARED), 0);
	cr_assert_eq(chmod(under("s"), 0755), 0);
	cr_assert_eq(try_open(under("s"), 0), 0);
	cr_assert_eq(stat(under("s"), &st), 0);
	cr_assert_eq(st.st_mode & 07777, 0755);
	cr_assert_eq(try_open(under("s"), SHMSTORE_CREATE | SHMSTORE_SHARED), 0);
	cr_assert_eq(stat(under("s"), &st), 0);
	cr_assert_eq(st.st_mode & 07777, 01777);
	cr_assert_eq(try_open(under("p"), SHMSTORE_CREATE), 0);
	cr_assert_eq(try_open(under("p"), SHMSTORE_CREATE | SHMSTORE_SHARED), 0);
	cr_assert_eq(stat(under("p"), &st), 0);
	cr_assert_eq(st.st_mode & 07777, 0700, "a private one stays private");
}
