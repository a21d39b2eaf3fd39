/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox.h: a place of one's own for tests that kill and fill: a process with its own PID
 * namespace, mount namespace, /proc and tmpfs. When it ends, however it ends, all of its
 * processes and its memory are gone. Plus what looks at the tmpfs from outside the library: a
 * listing of the tree and statfs.
 */
#ifndef SANDBOX_H
#define SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Runs body(path, arg) in a new sandbox with a tmpfs mounted at path with the given mount options
 * ("size=64m,huge=within_size"). Returns body's return; 77 with a message on stdout where the
 * kernel or our rights do not allow it; 3 where it died.
 */
int sandbox_run(const char *mount_options, int (*body)(const char *path, void *arg), void *arg);

/*
 * A directory on a real file system (in $SHMSTORE_TEST_DISK, /var/tmp or /tmp), for the caller and
 * its children, to be asked for before sandbox_run(): it is removed when the last of them has
 * ended, however they ended. NULL with errno. Once per process.
 */
const char *sandbox_disk(void);

/* Fresh tmpfs at path over the present one, which goes. For body(). 0 or -errno. */
int sandbox_remount(const char *path, const char *mount_options);

/*
 * One line for each name below path, sorted: type, mode, links, size, name. The content of recycled
 * files, names of nonces and counters do not appear. Heap; NULL on failure.
 */
char *sandbox_tree(const char *path);
/* Bytes and inodes used of the file system at path. */
struct sandbox_used {
	uint64_t bytes, inodes;
};
struct sandbox_used sandbox_used(const char *path);

/* Blocks (bytes) of the tier files below path, the directory of a tier: <uuid>/<uid>/<file>. */
uint64_t sandbox_tier_blocks(const char *path);

/* Removes everything below path (a foreign clean-up after a failed check, so
 * that one failure stays one). */
void sandbox_wipe(const char *path);

#endif
