/* SPDX-License-Identifier: Apache-2.0 */
/*
 * textfile.c: see textfile.h. A name, and not an unnamed file that is linked later: linking does
 * not replace, and not every disk's file system has unnamed files.
 */
#include "textfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "sys.h"

static int write_text(int fd, const char *text, uid_t uid)
{
	int r = shms_write_at(fd, text, strlen(text), 0);

	if (r == 0 && fchmod(fd, 0444) < 0) /* whatever the umask says */
		r = -errno;
	if (r == 0 && uid != geteuid() && fchown(fd, uid, (gid_t)-1) < 0)
		r = -errno;
	/* Else a crash of the host may leave the name with an empty file. */
	return r == 0 && fsync(fd) < 0 ? -errno : r;
}

int shms_textfile_replace(int dirfd, const char *tmp_name, const char *name, const char *text,
			  uid_t uid)
{
	int r;

	if (unlinkat(dirfd, tmp_name, 0) < 0 && errno != ENOENT)
		return -errno;
	_fd_ int fd =
		openat(dirfd, tmp_name, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0400);
	if (fd < 0)
		return -errno;
	r = write_text(fd, text, uid);
	if (r == 0 && renameat(dirfd, tmp_name, dirfd, name) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(dirfd, tmp_name, 0);
	return r;
}
