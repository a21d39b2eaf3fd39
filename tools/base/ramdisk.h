/* SPDX-License-Identifier: Apache-2.0 */
/* ramdisk.h: makes and resizes the tmpfs that a partition is the root of. */
#ifndef RAMDISK_H
#define RAMDISK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "admin.h"

struct ramdisk {
	const char *path;
	uint64_t size;    /* bytes; 0 = as it is, or half of the RAM */
	const char *huge; /* the mount option; NULL = as it is, or within_size */
	const char *mpol; /* its NUMA policy, as the mount option; NULL = as it is, or none */
	uid_t uid;        /* of the root directory */
	gid_t gid;
	bool shared; /* mode 1777, else 0700 */
};

enum ramdisk_done {
	RAMDISK_MOUNTED = 1,
	RAMDISK_RESIZED = 2
};

/*
 * Mounts a tmpfs at path (the directory is made where it is missing), or, where path is a tmpfs's
 * mount point already, gives that one the new size and huge option.
 * Returns RAMDISK_MOUNTED or RAMDISK_RESIZED, or -1 once everything is said.
 */
int ramdisk_make(const struct admin *a, const struct ramdisk *disk);
/* Inodes that a partition of so many bytes gets: one per page, as tmpfs counts every link as one,
 * and never under a million. */
uint64_t ramdisk_inodes(uint64_t size);

#endif
