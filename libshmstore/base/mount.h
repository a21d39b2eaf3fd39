/* SPDX-License-Identifier: Apache-2.0 */
/* mount.h: what /proc/self/mountinfo says about a file system. */
#ifndef SHMS_MOUNT_H
#define SHMS_MOUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * The mount that canonical_path lies in, and its huge= option.
 *   device      st_dev of the path; a mount of another device is taken only where none of this
 *               device covers the path (file systems whose st_dev is not the mount's).
 *   ret_mount   its mount point, at most mount_size bytes with the NUL.
 *   ret_huge    huge= of a tmpfs ("never" where it is not given); "" for any other file system.
 * 0, -ENOENT (no mount covers it, or /proc is not there), -EINVAL (a buffer is
 * too small), -EMFILE, -ENOMEM.
 */
int shms_mount_find(const char *canonical_path, dev_t device, char *ret_mount, size_t mount_size,
		    char *ret_huge, size_t huge_size);

/*
 * Opens the root directory of the file system device, to walk all of it. Where the
 * caller may (CAP_SYS_ADMIN), the directory belongs to a private clone of the mount, in
 * which no other mount hides anything.
 *   mount       where to look if the root itself is not mounted in our
 *               namespace: then *ret_whole is false.
 * Returns the fd, or -ENOENT, -EPERM, -EMFILE, -ENOMEM.
 */
int shms_mount_open(dev_t device, const char *mount, bool *ret_whole);

/*
 * Has any process of the host the file system device mounted? 1, 0, -ENOMEM, -EMFILE.
 * ret_whole: whether all could be asked: else 0 proves nothing. For root outside of containers;
 * it costs a look at each process.
 */
int shms_mount_anywhere(dev_t device, bool *ret_whole);
/* Is this the first pid namespace, whose /proc shows every process of the host? Not known: no. */
bool shms_sees_all_pids(void);

#endif
