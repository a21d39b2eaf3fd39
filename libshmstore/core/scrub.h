/* SPDX-License-Identifier: Apache-2.0 */
/* scrub.h: what an object's file holds besides the object goes before another user may read it. */
#ifndef SHMS_SCRUB_H
#define SHMS_SCRUB_H

struct shmstore;

/*
 * Makes the unused room of the object called name in dir_fd zero. The name keeps the file from
 * being recycled meanwhile: a lease. 0 also where the file is another user's, or readable for
 * others already: that was scrubbed then, and not recycled since. *ret_fd: to be closed when the
 * other user may read it, or is not going to; till then it stays as it is. -EBADMSG, -ETIMEDOUT
 * (another process of ours has not closed its own for a second), -errno.
 */
int shms_scrub(struct shmstore *s, int dir_fd, const char *name, int *ret_fd);

#endif
