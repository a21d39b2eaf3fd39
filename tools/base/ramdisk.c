/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ramdisk.c: mount(2) of a tmpfs. Only root may; anybody else is told the command. Nothing
 * is ever mounted over a directory that holds something, because it would vanish from sight.
 * A remount changes only what is named: tmpfs keeps its other options, the flags (nosuid,
 * ...) have to be given again.
 */
#include "ramdisk.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cleanup.h"
#include "human.h"
#include "message.h"
#include "opening.h"
#include "sysroot.h"

#define OPTIONS_SIZE 256u

uint64_t ramdisk_inodes(uint64_t size)
{
	uint64_t pages = size / 4096;

	return pages < 1u << 20 ? 1u << 20 : pages;
}

/* Whether the directory holds nothing. A missing one does, and one that we may not look into:
 * the kernel will say more. */
static bool is_empty(const char *path)
{
	_dir_ DIR *d = opendir(path);
	const struct dirent *e;
	bool empty = true;

	if (!d)
		return errno == ENOENT || errno == EACCES;
	while (empty && (e = readdir(d)))
		empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
	return empty;
}

static int explain_not_root(const struct ramdisk *disk)
{
	char size[64] = "";

	if (disk->size)
		snprintf(size, sizeof(size), " --size %" PRIu64, disk->size);
	message_fail(disk->path, "only root may mount a tmpfs or resize one");
	message_hint("run: sudo " ADMIN_NAME " -p %s init%s%s%s%s --owner %u",
		     shellword(disk->path), size, disk->huge ? " --huge " : "",
		     disk->huge ? disk->huge : "", disk->shared ? " --shared" : "", geteuid());
	return -1;
}

static int explain_not_empty(const char *path, const struct shms_mountline *m)
{
	if (opening_marker_version(path)) {
		message_fail(path,
			     "is a partition already, on the file system mounted at %s: a mount "
			     "would hide it",
			     m ? m->point : "?");
		message_hint("make a new one: name a directory that is empty or does not exist");
	} else {
		message_fail(path, "is not empty: a mount would hide what is in it");
		message_hint("name an empty or a new directory");
	}
	return -1;
}

/* The flags of the mount that is there, as mount(2) wants them again. */
static unsigned long mount_flags(const char *path)
{
	static const struct {
		unsigned long statvfs, mount;
	} flags[] = {
		{ST_RDONLY, MS_RDONLY},     {ST_NOSUID, MS_NOSUID},
		{ST_NODEV, MS_NODEV},       {ST_NOEXEC, MS_NOEXEC},
		{ST_NOATIME, MS_NOATIME},   {ST_NODIRATIME, MS_NODIRATIME},
		{ST_RELATIME, MS_RELATIME},
	};
	unsigned long found = 0;
	struct statvfs fs;

	if (statvfs(path, &fs) < 0)
		return 0;
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		found |= fs.f_flag & flags[i].statvfs ? flags[i].mount : 0;
	return found;
}

/* The options of a new tmpfs and of a resized one, each behind a comma. */
static void format_options(const struct ramdisk *disk, const char *huge, char ret[OPTIONS_SIZE])
{
	char size[64] = "";

	if (disk->size)
		snprintf(size, sizeof(size), ",size=%" PRIu64 ",nr_inodes=%" PRIu64, disk->size,
			 ramdisk_inodes(disk->size));
	snprintf(ret, OPTIONS_SIZE, "%s%s%s%s%s", size, huge ? ",huge=" : "", huge ? huge : "",
		 disk->mpol ? ",mpol=" : "", disk->mpol ? disk->mpol : "");
}

static int explain_mount(const struct ramdisk *disk, const char *data, int error)
{
	message_fail(disk->path, "the kernel refuses a tmpfs with the options %s: %s", data,
		     strerror(error));
	if (error == EINVAL && disk->huge)
		message_hint("huge is one of never, within_size, advise, always, and needs a "
			     "kernel with huge pages");
	if (error == EINVAL && disk->size)
		message_hint("a size below what is in use cannot be: %s asked for",
			     human_size(disk->size));
	if (error == EPERM)
		message_hint("in a container, the host's root must mount it");
	return -1;
}

static int resize(const struct ramdisk *disk)
{
	char options[OPTIONS_SIZE], *data = options;

	format_options(disk, disk->huge, options);
	data += *data == ',';
	if (mount("shmstore", disk->path, NULL, MS_REMOUNT | mount_flags(disk->path), data) < 0)
		return explain_mount(disk, data, errno);
	return RAMDISK_RESIZED;
}

static int make(const struct ramdisk *disk)
{
	char options[OPTIONS_SIZE], data[64 + OPTIONS_SIZE];
	bool made = mkdir(disk->path, 0700) == 0;

	if (!made && errno != EEXIST) {
		message_fail(disk->path, "the directory cannot be made: %s", strerror(errno));
		if (errno == ENOENT)
			message_hint("its parent is missing: mkdir -p \"$(dirname %s)\"",
				     shellword(disk->path));
		return -1;
	}
	format_options(disk, disk->huge ? disk->huge : "within_size", options);
	snprintf(data, sizeof(data), "mode=%s,uid=%u,gid=%u%s", disk->shared ? "1777" : "0700",
		 disk->uid, disk->gid, options);
	if (mount("shmstore", disk->path, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, data) < 0) {
		int error = errno;
		if (made)
			rmdir(disk->path);
		return explain_mount(disk, data, error);
	}
	return RAMDISK_MOUNTED;
}

int ramdisk_make(const struct admin *a, const struct ramdisk *disk)
{
	_mounts_ struct mountinfo_table mounts = {0};
	_free_ char *canonical = realpath(disk->path, NULL);

	mountinfo_read(a, &mounts);
	const struct shms_mountline *m = canonical ? mountinfo_find(&mounts, canonical) : NULL;
	bool is_point = m && strcmp(m->point, canonical) == 0;
	if (is_point && strcmp(m->type, "tmpfs") != 0) {
		message_fail(disk->path, "is the mount point of another file system (%s)", m->type);
		message_hint("name another directory");
		return -1;
	}
	if (!is_point && !is_empty(disk->path))
		return explain_not_empty(disk->path, m);
	if (geteuid() != 0)
		return explain_not_root(disk);
	return is_point ? resize(disk) : make(disk);
}
