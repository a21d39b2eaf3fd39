/* SPDX-License-Identifier: Apache-2.0 */
/* openbeneath.h: opening what lies below a directory, where others may have put anything: no
 * symlink, no "..", no other mount. For the daemon, too. */
#ifndef SHMS_OPENBENEATH_H
#define SHMS_OPENBENEATH_H

/*
 * Tried once: a descriptor or -errno. -ELOOP: a symlink is on the way; -EXDEV: the path leads out;
 * -EAGAIN: a rename raced with it, or, with O_NONBLOCK, the file is under a lease. Adds O_CLOEXEC.
 */
int shms_beneath_open(int dir_fd, const char *path, int flags);

#endif
