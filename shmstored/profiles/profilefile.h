/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profilefile.h: the files in which users' profiles outlive the daemon: one for each user, in a directory that is the daemon's alone. A file is
 * written under another name and then renamed: at every instant the old one or the new one is there, whole.
 */
#ifndef PROFILEFILE_H
#define PROFILEFILE_H

#include <stddef.h>
#include <stdint.h>

#define PROFILEFILE_MAX ((size_t)16 << 20) /* bytes of a file that is read */

/*
 * Where they are: configured, or NULL: /var/lib/shmstored/profiles for root, else shmstored/profiles below $XDG_STATE_HOME or ~/.local/state. The
 * directory is made, and locked as long as the descriptor is open.
 * ret_path: to be freed; may be there where it fails. Return: fd; -EBUSY: another daemon has it; -EPERM: others may write to it; -ENOENT: there is no
 * place for it; -errno.
 */
int profilefile_open(const char *configured, char **ret_path);
/* Calls fn for each user of whom there is a file. Return: 0, -errno. */
int profilefile_each(int dir_fd, void (*fn)(uint32_t uid, void *arg), void *arg);
/* Return: 0; -ENOENT; -EPERM: it is not ours, or others may write to it; -EFBIG; -errno. Ownership: free(). */
int profilefile_read(int dir_fd, uint32_t uid, char **ret_text, size_t *ret_n);
/* When it returns 0, the file is on the disk. Return: 0, -errno: the old file is as it was. */
int profilefile_write(int dir_fd, uint32_t uid, const char *text, size_t n);
/* A file that was refused gets another name (profile-UID.refused), for people to look at. */
int profilefile_put_aside(int dir_fd, uint32_t uid);

#endif
