/* SPDX-License-Identifier: Apache-2.0 */
/* beneath.h: opening what lies below a directory, where others may have put anything: no
 * symlink, no "..", no other mount. */
#ifndef BENEATH_H
#define BENEATH_H

/* fd or -errno (-ELOOP: a symlink on the way; -EXDEV: it leads out). Adds O_CLOEXEC. */
int beneath_open(int dir_fd, const char *path, int flags);

#endif
