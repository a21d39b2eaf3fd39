/* SPDX-License-Identifier: Apache-2.0 */
/* peersecret.c: see peersecret.h. The file that is checked is the one that is read:
 * one descriptor does both. */
#include "peersecret.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_open(int fd, struct peersecret *s, const char **ret_why)
{
	struct stat st;
	ssize_t n;

	*ret_why = "it cannot be read";
	if (fstat(fd, &st) < 0)
		return -errno;
	*ret_why = "it is no regular file of at most 4096 bytes";
	if (!S_ISREG(st.st_mode) || st.st_size > (off_t)PEERSECRET_MOST)
		return -EINVAL;
	*ret_why = "it must belong to the daemon's user or root, and nobody else may read or write "
		   "it (chmod 600)";
	if ((st.st_uid != geteuid() && st.st_uid != 0) || (st.st_mode & 077))
		return -EPERM;
	n = read(fd, s->bytes, sizeof(s->bytes));
	*ret_why = "it cannot be read";
	if (n < 0)
		return -errno;
	s->n = (size_t)n;
	while (s->n && isspace(s->bytes[s->n - 1]))
		s->n--;
	*ret_why = "a secret has at least 32 bytes (openssl rand -hex 32)";
	return s->n < PEERSECRET_LEAST ? -EINVAL : 0;
}

int peersecret_read(const char *path, struct peersecret *ret, const char **ret_why)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), r;

	if (fd < 0) {
		*ret_why = "it cannot be opened";
		return -errno;
	}
	r = read_open(fd, ret, ret_why);
	close(fd);
	return r;
}
