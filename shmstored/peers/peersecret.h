/* SPDX-License-Identifier: Apache-2.0 */
/* peersecret.h: the secret that daemons of several hosts share: read once from a file
 * that nobody else may read. */
#ifndef PEERSECRET_H
#define PEERSECRET_H

#include <stddef.h>

#define PEERSECRET_LEAST 32u   /* bytes */
#define PEERSECRET_MOST  4096u /* of a file */

struct peersecret {
	size_t n;
	unsigned char bytes[PEERSECRET_MOST];
};

/*
 * White space at both ends does not count. ret_why: what is wrong, a static text. 0; -EPERM: the
 * file is another user's, or others may read or write it; -EINVAL: it is too short or too long, or
 * no regular file; -errno.
 */
int peersecret_read(const char *path, struct peersecret *ret, const char **ret_why);

#endif
