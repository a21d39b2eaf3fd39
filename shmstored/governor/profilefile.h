/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profilefile.h: the files in which users' profiles outlive the daemon: one for each user, in a
 * directory that is the daemon's alone. A file is written under another name and then renamed, so
 * that at every instant the old or the new one is there as a whole.
 */
#ifndef PROFILEFILE_H
#define PROFILEFILE_H

#include <stddef.h>
#include <stdint.h>

#define PROFILEFILE_MAX ((size_t)16 << 20) /* bytes of a file that is read */

/*
 * Opens the directory: configured; if NULL, /var/lib/shmstored/profiles for root, else
 * shmstored/profiles below $XDG_STATE_HOME or ~/.local/state. Makes it if it is missing, and locks
 * it as long as the descriptor is open. ret_path is to be freed, and may be set also if the call
 * fails. Return: fd; -EBUSY: another daemon has it; -EPERM: others may write to it; -ENOENT: there
 * is no place for it; -errno.
 */
int profilefile_open(const char *configured, char **ret_path);
/* Calls fn for each user that has a file. Return: 0, -errno. */
int profilefile_each(int dir_fd, void (*fn)(uint32_t uid, void *arg), void *arg);
/*
 * Return: 0; -ENOENT; -EPERM: the file is not ours, or others may write to it; -EFBIG; -errno.
 * Ownership: free().
 */
int profilefile_read(int dir_fd, uint32_t uid, char **ret_text, size_t *ret_n);
/* Return: 0: the file is on the disk; -errno: the old file is as it was. */
int profilefile_write(int dir_fd, uint32_t uid, const char *text, size_t n);
/*
 * Renames a file that was refused to profile-UID.refused, so that an administrator can look at it.
 */
int profilefile_put_aside(int dir_fd, uint32_t uid);

#endif
