/* SPDX-License-Identifier: Apache-2.0 */
/* filemode.h: the mode of an object's file, which is its owner's to set, and another user's right
 * to read at the same time: a mode that is set while the daemon gives the file an access list takes
 * the list's readers their right away for good. A process holds the file while it asks the daemon
 * for a list, or sets a mode; and what the file holds besides the object goes before that. */
#ifndef SHMS_FILEMODE_H
#define SHMS_FILEMODE_H

#include <stdbool.h>
#include <sys/stat.h>

struct shmstore;

#define SHMS_FILE_HOLD_MS 1000u /* that another process of ours may take to hand it over */

/*
 * Was the file given to another user once, or is it another user's? An access list shows in the
 * mode's group bits. The group of a group's partition is not meant: it may read what comes into the
 * file, too, and the daemon hands nothing over there.
 */
bool shms_file_handed(const struct shmstore *s, const struct stat *st);
/*
 * Holds the file until fd's open file is closed, and looks at it. A file that was handed is
 * not held: other users can open it, and would be in the way. It keeps its list, and the
 * group bits of a mode that is set are those that it has. 0, -ETIMEDOUT (somebody else holds
 * it, for wait_ms already), -errno.
 */
int shms_file_hold(const struct shmstore *s, int fd, unsigned wait_ms, struct stat *ret);
/*
 * Opens the file, which is called name in dir_fd, for writing: 0400 forbids that to its owner, too,
 * so its mode is another one for a moment. fd: an open file of it that is held, and was not handed.
 * Afterwards its mode is mode. A descriptor or -errno.
 */
int shms_file_open_writable(int dir_fd, const char *name, int fd, mode_t mode);

/*
 * Makes the unused room of the object called name in dir_fd zero. The name keeps the file from
 * being recycled meanwhile: a lease. 0 also where the file is another user's, or readable for
 * others already: that was scrubbed then, and not recycled since. *ret_fd: to be closed when the
 * other user may read it, or is not going to; till then it stays as it is. -EBADMSG, -ETIMEDOUT
 * (another process of ours has not closed its own for a second), -errno.
 */
int shms_scrub(struct shmstore *s, int dir_fd, const char *name, int *ret_fd);

#endif
