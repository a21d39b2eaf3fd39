/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_tier.c: the partition's disk tier and what it needs of its disk and of the host: a
 * directory that is there and is no memory, room below its limits, direct I/O, and memory that may
 * be locked for io_uring's buffers. Each has a fallback but the first two, and it is said. A
 * partition without a tier is in order.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "doctor.h"
#include "human.h"
#include "shellword.h"
#include "tierfigures.h"
#include "tierstate.h"

#define DIRECT_SIZE   4096u
/* as much as one process's moving of objects registers */
#define MEMLOCK_WANTS ((uint64_t)64 << 20)

/* The directory that the configuration names. True: it is one that can be gone on with. */
static bool check_directory(struct doctor *d, const char *path)
{
	struct statvfs vfs;
	struct statfs fs;
	struct stat st;

	if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode)) {
		doctor_fail(d, "%s: %s: objects that were moved there cannot come back", path,
			    errno == ENOENT ? "there is no such directory" : strerror(errno));
		doctor_fix(d,
			   "# mount what belongs there; or, if it is gone for good: " ADMIN_NAME
			   " -p %s gc",
			   shellword(d->path));
		return false;
	}
	if (statfs(path, &fs) < 0 || statvfs(path, &vfs) < 0) {
		doctor_fail(d, "%s: %s", path, strerror(errno));
		return false;
	}
	if (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC) {
		doctor_fail(d, "%s is in memory itself (tmpfs): moving objects there frees none",
			    path);
		doctor_fix(d, "# mount a disk there, or: " ADMIN_NAME " -p %s tier --set DIRECTORY",
			   shellword(d->path));
		return false;
	}
	const struct shms_mountline *m = mountinfo_find(&d->mounts, path);
	if (vfs.f_flag & ST_RDONLY) {
		doctor_fail(d, "%s is mounted read-only: nothing can be moved there", path);
		doctor_fix_root(d, "mount -o remount,rw %s", shellword(m ? m->point : path));
		return true;
	}
	doctor_ok(d, "%s, on %s", path, m ? m->type : "a disk");
	return true;
}

/* Below the watermark between two evictions there should be room for what one of them moves. */
static void check_space(struct doctor *d, const struct shmstore_tier_info *info)
{
	const struct shmstore_tier_config *c = &info->config;
	uint64_t available = tierfigures_available(info), batch = d->size / 100 * (100 - c->low);
	const char *room = human_size(available), *used = human_size(info->used);
	bool limit = c->max && c->max - (c->max < info->used ? c->max : info->used) == available;

	if (available && available >= batch) {
		doctor_ok(d, "room for %s more; %s are used", room, used);
		return;
	}
	enum doctor_level level = available ? DOCTOR_WARN : DOCTOR_FAIL;
	if (limit)
		doctor_add(d, level, "room for %s more: %s are used, and that is its limit", room,
			   used);
	else
		doctor_add(d, level,
			   "room for %s more: the disk has %s free, of which %s stay free", room,
			   human_size(info->disk_free), human_size(c->min_free));
	if (limit)
		doctor_fix(d, ADMIN_NAME " -p %s tier --max SIZE", shellword(d->path));
	else if (c->min_free)
		doctor_fix(d, ADMIN_NAME " -p %s tier --min-free SIZE  # or make room on the disk",
			   shellword(d->path));
	else
		doctor_fix(d, "df -h %s", shellword(c->path));
}

/* Writes one block past the page cache into a file that is gone at once. 0 or -errno. */
static int try_direct(const char *dir)
{
	void *block;
	int r = 0, fd = doctor_try_file(dir, O_DIRECT);

	if (fd < 0)
		return fd;
	if (posix_memalign(&block, DIRECT_SIZE, DIRECT_SIZE) == 0) {
		memset(block, 0, DIRECT_SIZE);
		if (pwrite(fd, block, DIRECT_SIZE, 0) != DIRECT_SIZE)
			r = errno ? -errno : -EIO;
		free(block);
	}
	close(fd);
	return r;
}

static void check_direct(struct doctor *d, const struct shmstore_tier_info *info)
{
	char own[PATH_MAX + 16];

	d->check = "tier-direct";
	snprintf(own, sizeof(own), "%s/%u", info->path, geteuid());
	const char *dir = access(own, W_OK | X_OK) == 0 ? own : info->config.path;
	if (access(dir, W_OK | X_OK) < 0) {
		doctor_ok(d, "not tried: nothing of yours can be written to %s", dir);
		return;
	}
	int r = try_direct(dir);
	if (r == 0)
		doctor_ok(d, "O_DIRECT works: tier files go past the page cache");
	else if (r == -EINVAL)
		doctor_warn(d, "no O_DIRECT on that file system: tier files go through the page "
			       "cache, which takes memory while it is being freed");
	else
		doctor_add(d, r == -ENOSPC ? DOCTOR_WARN : DOCTOR_FAIL, "writing to %s: %s", dir,
			   strerror(-r));
}

/* The library's own word: it has tried, and a seccomp filter shows in no other way. */
static void check_io(struct doctor *d)
{
	const char *io = shmstore_tier_io();

	d->check = "tier-io";
	if (strncmp(io, "io_uring", 8) == 0)
		doctor_ok(d, "objects are moved by %s", io);
	else
		doctor_warn(d, "objects are moved by plain reads and writes, which is slower (%s)",
			    io);
}

static void check_memlock(struct doctor *d)
{
	struct rlimit limit;

	d->check = "tier-memlock";
	if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0)
		return;
	if (geteuid() == 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= MEMLOCK_WANTS) {
		doctor_ok(d, "io_uring may lock the buffers that it is given");
		return;
	}
	doctor_warn(
		d,
		"ulimit -l is %s: io_uring does without registered buffers, which costs a little",
		human_size(limit.rlim_cur));
	if (limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= MEMLOCK_WANTS)
		doctor_fix(d, "ulimit -l %llu", (unsigned long long)(MEMLOCK_WANTS >> 10));
	else
		doctor_fix_root(d, "prlimit --memlock=%llu --pid $$",
				(unsigned long long)MEMLOCK_WANTS);
}

void doctor_check_tier(struct doctor *d)
{
	static struct shmstore_tier_info info;
	char path[PATH_MAX];

	if (!d->p)
		return;
	d->check = "tier";
	if (!tierstate_directory(d->p, path)) {
		doctor_ok(d,
			  "none: a full partition is an error (ENOSPC); to give it one: " ADMIN_NAME
			  " -p %s tier --set DIRECTORY",
			  shellword(d->path));
		return;
	}
	if (!check_directory(d, path))
		return;
	d->check = "tier-space";
	if (tierstate_read(d->p, &info) <= 0) {
		doctor_fail(d, "%s: %s", path,
			    *shmstore_error_detail() ? shmstore_error_detail()
						     : "cannot be looked at");
		return;
	}
	check_space(d, &info);
	check_direct(d, &info);
	check_io(d);
	check_memlock(d);
}
