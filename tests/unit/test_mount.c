/* SPDX-License-Identifier: Apache-2.0 */
/* Which mount a path lies in, what its huge= is, and the file system's own root, also
 * below what is mounted over it. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mount.h"
#include "scratch.h"

static void need_mounts(void)
{
	scratch_dir(NULL);
	if (!scratch_is_mount())
		cr_skip_test("needs to mount (root)");
}

static dev_t device_of(const char *path)
{
	struct stat st;

	cr_assert_eq(stat(path, &st), 0, "%s", path);
	return st.st_dev;
}

/* A tmpfs of its own at scratch/name. */
static const char *mount_at(const char *name, const char *options)
{
	static char paths[4][SCRATCH_PATH];
	static unsigned n;
	char *path = paths[n++ % 4];

	snprintf(path, SCRATCH_PATH, "%.200s/%s", scratch_dir(NULL), name);
	cr_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
	cr_assert_eq(mount("tmpfs", path, "tmpfs", 0, options), 0);
	return path;
}

static void expect(const char *path, const char *mount, const char *huge)
{
	char found[PATH_MAX], option[16];

	cr_assert_eq(shms_mount_find(path, device_of(path), found, sizeof(found), option,
				     sizeof(option)),
		     0, "%s", path);
	cr_assert_str_eq(found, mount);
	cr_assert_str_eq(option, huge);
}

Test(mount, a_directory_belongs_to_the_mount_above_it)
{
	char path[SCRATCH_PATH];

	need_mounts();
	snprintf(path, sizeof(path), "%.200s/a", scratch_dir(NULL));
	cr_assert_eq(mkdir(path, 0700), 0);
	expect(path, scratch_dir(NULL), "never");
	expect(scratch_dir(NULL), scratch_dir(NULL), "never");
}

Test(mount, huge_is_read_from_the_options)
{
	const char *path;

	need_mounts();
	path = mount_at("w", "size=1m,huge=within_size");
	expect(path, path, "within_size");
	path = mount_at("a", "huge=advise,size=1m");
	expect(path, path, "advise");
	expect("/proc", "/proc", "");
}

Test(mount, the_longest_point_wins_and_only_whole_components_count)
{
	const char *outer, *inner, *twin;
	char below[SCRATCH_PATH];

	need_mounts();
	outer = mount_at("x", "size=1m");
	inner = mount_at("x/y", "size=1m,huge=always");
	twin = mount_at("x/yy", "size=1m");
	snprintf(below, sizeof(below), "%.200s/z", inner);
	cr_assert_eq(mkdir(below, 0700), 0);
	expect(below, inner, "always");
	expect(twin, twin, "never");
	expect(outer, outer, "never");
}

Test(mount, odd_bytes_in_a_point_are_unescaped)
{
	const char *path;

	need_mounts();
	path = mount_at("a b\tc\nd\\e#f", "size=1m,huge=within_size");
	expect(path, path, "within_size");
}

Test(mount, the_mount_on_top_is_found_and_the_covered_one_by_its_device)
{
	char found[PATH_MAX], huge[16];
	const char *path;
	dev_t lower, upper;

	need_mounts();
	path = mount_at("m", "size=1m,huge=advise");
	lower = device_of(path);
	mount_at("m", "size=1m,huge=within_size");
	upper = device_of(path);
	cr_assert_neq(lower, upper);
	cr_assert_eq(shms_mount_find(path, upper, found, sizeof(found), huge, sizeof(huge)), 0);
	cr_assert_str_eq(huge, "within_size");
	cr_assert_eq(shms_mount_find(path, lower, found, sizeof(found), huge, sizeof(huge)), 0);
	cr_assert_str_eq(huge, "advise");
}

Test(mount, a_buffer_too_small_is_an_error)
{
	char found[3] = "??", huge[16] = "??";
	const char *path;

	need_mounts();
	path = mount_at("m", "size=1m");
	cr_assert_eq(
		shms_mount_find(path, device_of(path), found, sizeof(found), huge, sizeof(huge)),
		-EINVAL);
	cr_assert_str_eq(found, "??");
	cr_assert_str_eq(huge, "??");
}

Test(mount, the_root_of_a_bound_directory_is_the_whole_file_system)
{
	char bound[SCRATCH_PATH], inside[SCRATCH_PATH];
	const char *path;
	bool whole = false;
	int fd;

	need_mounts();
	path = mount_at("m", "size=1m");
	snprintf(inside, sizeof(inside), "%.200s/inside", path);
	snprintf(bound, sizeof(bound), "%.200s/bound", scratch_dir(NULL));
	cr_assert_eq(mkdir(inside, 0700), 0);
	cr_assert_eq(mkdir(bound, 0700), 0);
	cr_assert_eq(mount(inside, bound, NULL, MS_BIND, NULL), 0);
	expect(bound, bound, "never");
	fd = shms_mount_open(device_of(bound), bound, &whole);
	cr_assert_geq(fd, 0);
	cr_assert(whole);
	cr_assert_eq(faccessat(fd, "inside", F_OK, 0), 0);
	close(fd);

	/* Only the part is left: it is opened, and said to be one. */
	cr_assert_eq(umount2(path, MNT_DETACH), 0);
	fd = shms_mount_open(device_of(bound), bound, &whole);
	cr_assert_geq(fd, 0);
	cr_assert_not(whole);
	close(fd);
}

Test(mount, what_is_mounted_over_hides_nothing_from_the_root)
{
	char covered[SCRATCH_PATH], file[SCRATCH_PATH];
	const char *path;
	bool whole = false;
	int fd;

	need_mounts();
	path = mount_at("m", "size=1m");
	snprintf(covered, sizeof(covered), "%.200s/c", path);
	snprintf(file, sizeof(file), "%.200s/c/file", path);
	cr_assert_eq(mkdir(covered, 0700), 0);
	close(open(file, O_CREAT | O_WRONLY, 0600));
	cr_assert_eq(mount("tmpfs", covered, "tmpfs", 0, "size=1m"), 0);
	cr_assert_eq(access(file, F_OK), -1);
	fd = shms_mount_open(device_of(path), path, &whole);
	cr_assert_geq(fd, 0);
	cr_assert(whole);
	cr_assert_eq(faccessat(fd, "c/file", F_OK, 0), 0);
	close(fd);
	cr_assert_eq(umount(covered), 0, "nothing of it may be held");
}

/* Until it is told to go, in another mount namespace than ours, and in it alone. */
static int hold_mount(void *arg)
{
	const int *pipes = arg;
	struct stat st;
	char byte;

	if (unshare(CLONE_NEWNS) < 0 ||
	    mount("tmpfs", scratch_dir(NULL), "tmpfs", 0, "size=1m") < 0 ||
	    stat(scratch_dir(NULL), &st) < 0)
		return 1;
	if (write(pipes[0], &st.st_dev, sizeof(st.st_dev)) != sizeof(st.st_dev))
		return 2;
	return read(pipes[1], &byte, 1) < 0 ? 3 : 0;
}

Test(mount, a_file_system_is_found_in_whatever_namespace_somebody_has_it_mounted)
{
	int told[2], go[2], status;
	bool whole;
	dev_t device;
	pid_t pid;

	need_mounts();
	cr_assert_eq(pipe(told), 0);
	cr_assert_eq(pipe(go), 0);
	pid = fork();
	if (pid == 0) {
		close(go[1]);
		_exit(hold_mount((int[]){told[1], go[0]}));
	}
	cr_assert_eq(read(told[0], &device, sizeof(device)), sizeof(device));
	cr_assert_eq(shms_mount_anywhere(device, &whole), 1);
	cr_assert_eq(shms_mount_anywhere(device_of(scratch_dir(NULL)), &whole), 1, "ours too");
	close(go[1]);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0);
	cr_assert_eq(shms_mount_anywhere(makedev(0, (1u << 20) - 2), &whole), 0);
}

static int ask_as_nobody(void *arg)
{
	bool whole = true;

	(void)arg;
	if (setgid(65534) < 0 || setuid(65534) < 0)
		return 1;
	return shms_mount_anywhere(makedev(0, (1u << 20) - 2), &whole) == 0 && !whole ? 0 : 2;
}

Test(mount, who_is_not_root_cannot_say_that_it_is_mounted_nowhere)
{
	need_mounts();
	cr_assert_eq(in_child(ask_as_nobody, NULL), 0);
}
