/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor_mount.c: the partition and its file system: is it a tmpfs, is it as large as is good for
 * the machine, has it huge pages and inodes, and can every store link what another store holds.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "admin.h"
#include "doctor.h"
#include "fields.h"
#include "jsonin.h"
#include "opening.h"

static const char *point_of(const struct doctor *d)
{
	return d->mount ? d->mount->point : d->dir;
}

static void fix_anew(struct doctor *d)
{
	const char *path = shellword(d->path);

	doctor_fix(d,
		   "rm -r %s/.shmstore %s/stores %s/peers && " ADMIN_NAME
		   " -p %s init  # if nothing in it is needed",
		   path, path, path, path);
}

static void check_partition(struct doctor *d)
{
	if (d->p) {
		doctor_ok(d, "format %u, uuid %s%s", d->info.version, d->info.uuid,
			  d->info.same_boot ? "" : ", made before the last boot");
	} else if (d->error == -ENOENT) {
		doctor_warn(d, "%s: not initialised: %s", d->path,
			    d->exists ? "the directory holds no partition"
				      : "there is no such directory");
		if (d->tmpfs)
			doctor_fix(d, ADMIN_NAME " -p %s init", shellword(d->path));
		else
			doctor_fix_root(d, ADMIN_NAME " -p %s init --size 50%%",
					shellword(d->path));
	} else if (d->error == -ENOTSUP && !d->tmpfs) {
		doctor_warn(d, "%s: not initialised", d->path);
		doctor_fix_root(d, ADMIN_NAME " -p %s init --size 50%%", shellword(d->path));
	} else if (d->error == -EPERM && !d->admin->partition && d->owner != 0 &&
		   d->owner != geteuid()) {
		doctor_fail(d,
			    "the default partition %s belongs to user %u, not to you (user %u) or "
			    "root: somebody took its name",
			    d->path, d->owner, geteuid());
		doctor_fix_root(d, "rm -r %s  # if nothing in it is needed", shellword(d->path));
	} else if (d->error == -EPERM && d->owner != geteuid() && geteuid() != 0) {
		doctor_fail(d, "belongs to user %u; you are user %u", d->owner, geteuid());
		doctor_fix(d, "sudo -u '#%u' " ADMIN_NAME " -p %s doctor", d->owner,
			   shellword(d->path));
	} else if (d->error == -ENOTSUP &&
		   opening_marker_version(d->path) != OPENING_MARKER_VERSION) {
		doctor_fail(d, "is of format version %u, which this program (%s) does not know",
			    opening_marker_version(d->path), shmstore_version());
		fix_anew(d);
	} else {
		doctor_fail(d, "%s", d->reason);
		if (d->error == -EBADMSG)
			fix_anew(d);
	}
}

static void check_tmpfs(struct doctor *d)
{
	if (d->tmpfs) {
		doctor_ok(d, "tmpfs mounted at %s", point_of(d));
		return;
	}
	/* a missing directory may well become a mount; a partition on disk was allowed by
	 * somebody */
	doctor_add(d, d->exists && !d->p ? DOCTOR_FAIL : DOCTOR_WARN,
		   "%s is on a disk file system (%s)", d->exists ? d->path : d->dir,
		   d->mount ? d->mount->type : "unknown");
	doctor_fix_root(d, ADMIN_NAME " -p %s init --size 50%%", shellword(d->path));
}

static void check_size(struct doctor *d)
{
	const char *size = human_size(d->size), *ram = human_size(d->ram);
	/* the kernel's own "50%" is of a total that differs a little from MemTotal */
	uint64_t slack = d->ram / 64;

	if (!d->tmpfs)
		return;
	if (!d->ram) {
		doctor_warn(d, "%s; the RAM is unknown: /proc/meminfo cannot be read", size);
		return;
	}
	if (!d->size)
		doctor_fail(d, "no limit: the partition can take all of the RAM (%s)", ram);
	else if (d->size > d->ram + d->swap + slack)
		doctor_fail(d, "%s, more than RAM (%s) and swap (%s): full, it halts the machine",
			    size, ram, human_size(d->swap));
	else if (d->size > d->ram / 2 + slack)
		doctor_warn(d, "%s, more than half of the RAM (%s)", size, ram);
	else {
		doctor_ok(d, "%s, %" PRIu64 " %% of the RAM (%s)", size, d->size * 100 / d->ram,
			  ram);
		return;
	}
	doctor_fix_root(d, "mount -o remount,size=50%% %s", shellword(point_of(d)));
}

static void check_huge(struct doctor *d)
{
	char huge[32] = "never"; /* what a mount has that does not say */

	if (!d->tmpfs)
		return;
	if (!d->mount) {
		doctor_warn(d, "unknown: /proc/self/mountinfo cannot be read");
		return;
	}
	mountinfo_option(d->mount->super, "huge", huge, sizeof(huge));
	if (strcmp(huge, "within_size") == 0) {
		doctor_ok(d, "huge=within_size");
		return;
	}
	if (strcmp(huge, "always") == 0)
		doctor_warn(d, "huge=always: an object of 4 KiB takes 2 MiB");
	else if (strcmp(huge, "advise") == 0)
		doctor_warn(d, "huge=advise: objects are written without asking for huge pages");
	else
		doctor_warn(d, "huge=%s: a put costs several times what it costs with huge pages",
			    huge);
	doctor_fix_root(d, "mount -o remount,huge=within_size %s", shellword(point_of(d)));
}

/* On which nodes of a NUMA machine its memory is. A list of them has commas of its own. */
static void check_mpol(struct doctor *d)
{
	const char *at = d->mount ? strstr(d->mount->super, "mpol=") : NULL;
	int n = 0;

	while (at && at[n] && (at[n] != ',' || (at[n + 1] >= '0' && at[n + 1] <= '9')))
		n++;
	if (d->tmpfs)
		doctor_ok(d, "%.*s%s", n, at ? at : "",
			  at ? "" : "none: memory is of the NUMA node of whoever writes it first");
}

static void check_inodes(struct doctor *d)
{
	if (!d->exists && !d->tmpfs) /* it will be another file system's */
		return;
	if (!d->inodes) {
		doctor_ok(d, "no limit");
		return;
	}
	enum doctor_level level = d->inodes_free == 0               ? DOCTOR_FAIL
				  : d->inodes_free < d->inodes / 10 ? DOCTOR_WARN
								    : DOCTOR_OK;
	doctor_add(d, level, "%" PRIu64 " of %" PRIu64 " free; each object and each link takes one",
		   d->inodes_free, d->inodes);
	if (level != DOCTOR_OK && d->tmpfs)
		doctor_fix_root(d, "mount -o remount,nr_inodes=%" PRIu64 " %s",
				d->inodes * 2 > mountinfo_inodes(d->size)
					? d->inodes * 2
					: mountinfo_inodes(d->size),
				shellword(point_of(d)));
	else if (level != DOCTOR_OK)
		doctor_fix(d, ADMIN_NAME " -p %s gc", shellword(d->path));
}

/* Links a file from one directory into another one, both new in the partition. 0 or -errno. */
static int try_link(const char *dir)
{
	char base[PATH_MAX + 32], one[PATH_MAX + 64], two[PATH_MAX + 64], from[PATH_MAX + 80],
		to[PATH_MAX + 80];
	int r = 0;

	snprintf(base, sizeof(base), "%s/.doctor-XXXXXX", dir);
	if (!mkdtemp(base))
		return -errno;
	snprintf(one, sizeof(one), "%s/1", base);
	snprintf(two, sizeof(two), "%s/2", base);
	snprintf(from, sizeof(from), "%s/x", one);
	snprintf(to, sizeof(to), "%s/x", two);
	if (mkdir(one, 0700) < 0 || mkdir(two, 0700) < 0 || mknod(from, S_IFREG | 0400, 0) < 0 ||
	    link(from, to) < 0)
		r = -errno;
	unlink(to);
	unlink(from);
	rmdir(two);
	rmdir(one);
	rmdir(base);
	return r;
}

static void check_links(struct doctor *d)
{
	if (!d->exists)
		return;
	if (!d->writable) {
		doctor_warn(d, "not tried: you may not write to %s", d->path);
		return;
	}
	int r = try_link(d->dir);
	if (r == 0) {
		doctor_ok(d, "a file can be linked from one directory into another");
		return;
	}
	doctor_fail(d, "linking a file from one directory into another: %s", strerror(-r));
	if (r == -ENOSPC)
		doctor_fix(d, ADMIN_NAME " -p %s gc", shellword(d->path));
}

/* The id of the mount that path is on; 0 = unknown. */
static uint64_t mount_id(const char *path)
{
	struct statx st;

	if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_MNT_ID, &st) < 0 ||
	    !(st.stx_mask & STATX_MNT_ID))
		return 0;
	return st.stx_mnt_id;
}

/* Says of the first store that lies on another mount than the partition. */
static bool find_other_mount(struct doctor *d)
{
	_stores_ struct storelist stores = STORELIST_NULL;
	uint64_t id = mount_id(d->dir);

	storelist_read(d->p, &stores);
	for (size_t i = 0; i < stores.n_stores; i++) {
		const char *path = stores.stores[i].path;
		uint64_t other = mount_id(path);
		if (!id || !other || other == id)
			continue;
		doctor_fail(d, "the store %s is on another mount: handoffs to it give EXDEV", path);
		const struct shms_mountline *m = mountinfo_find(&d->mounts, path);
		doctor_fix_root(d, "umount %s", shellword(m ? m->point : path));
		return true;
	}
	return false;
}

static void check_exdev(struct doctor *d)
{
	if (!d->exists)
		return;
	if (d->p && find_other_mount(d))
		return;
	for (size_t i = 0; i < d->mounts.n_mounts; i++) {
		const struct shms_mountline *m = &d->mounts.mounts[i];
		if (!mountinfo_below(m->point, d->dir))
			continue;
		doctor_fail(d,
			    "%s is another mount inside the partition: handoffs into it give EXDEV",
			    m->point);
		doctor_fix_root(d, "umount %s", shellword(m->point));
		return;
	}
	if (d->mount && d->tmpfs && strcmp(d->mount->root, "/") != 0) {
		doctor_warn(d,
			    "%s is a bind mount of %s of its file system: processes that came in "
			    "through another mount of it get EXDEV",
			    d->mount->point, d->mount->root);
		doctor_fix(d,
			   "# mount the partition's root, not a part of it, into every container");
		return;
	}
	doctor_ok(d, "all stores are on one mount");
}

const struct doctor_check doctor_of_mount[] = {
	{"partition", check_partition}, {"tmpfs", check_tmpfs}, {"size", check_size},
	{"huge", check_huge},           {"mpol", check_mpol},   {"inodes", check_inodes},
	{"links", check_links},         {"exdev", check_exdev}, {NULL, NULL},
};

/* ---- the disk tier --------------------------------------------------------------------------- */

/* Room below its limits, direct I/O, memory that may be locked for io_uring's buffers: each has a
 * fallback, and it is said; a directory has none. A partition without a tier is in order. */
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
