/* SPDX-License-Identifier: Apache-2.0 */
/* filemode.c: see filemode.h. Killed in between: a file of mode 0600 or 0640 in a directory of
 * ours, which shmstored does not hand over. */
#include "filemode.h"

#include <errno.h>
#include <fcntl.h>

#include "cleanup.h"
#include "detail.h"
#include "opened.h"
#include "tier.h"

bool shms_file_handed(const struct shmstore *s, const struct stat *st)
{
	return st->st_uid != s->uid || (st->st_mode & 077 & ~s->file_mode);
}

int shms_file_hold(const struct shmstore *s, int fd, unsigned wait_ms, struct stat *ret)
{
	int r;

	if (fstat(fd, ret) < 0)
		return -errno;
	if (shms_file_handed(s, ret))
		return 0;
	r = shms_tier_flock(fd, wait_ms);
	if (r == -EBUSY)
		return shms_detail(-ETIMEDOUT, NULL,
				   "another process of user %u is handing the same object to "
				   "another user, and does not go on: it may have been stopped",
				   (unsigned)s->uid);
	if (r < 0)
		return r;
	return fstat(fd, ret) < 0 ? -errno : 0;
}

int shms_file_open_writable(int dir_fd, const char *name, int fd, mode_t mode)
{
	int writable, r = 0;

	if (fchmod(fd, mode | S_IWUSR) < 0)
		return -errno;
	writable = shms_open_file(dir_fd, name, O_RDWR);
	if (writable < 0)
		r = -errno;
	if (fchmod(fd, mode) < 0 && r == 0)
		r = -errno;
	if (r < 0)
		shms_close_fd(writable);
	return r < 0 ? r : writable;
}
