/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seglock.c: OFD locks of single bytes.
 *
 * Rejected: flock (one lock for a file, and not one for each holder); process locks of fcntl (any
 * close() in the process ends them); pids (they are reused); a robust mutex in the segment (a
 * stopped holder stops all others).
 */
#include "seglock.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "sys.h"

#define WAIT_NS 1000000

int shms_seglock_try(int fd, unsigned holder)
{
	return shms_lock_bytes(fd, F_WRLCK, holder, 1);
}

int shms_seglock_wait(int fd, unsigned holder)
{
	uint64_t until = shms_now_mono_ns() + SHMS_SEGLOCK_WAIT_MS * UINT64_C(1000000);
	int r;

	while ((r = shms_seglock_try(fd, holder)) == -EAGAIN) {
		if (shms_now_mono_ns() > until)
			return -EBUSY;
		nanosleep(&(struct timespec){.tv_nsec = WAIT_NS}, NULL);
	}
	return r;
}

bool shms_seglock_taken(int fd, unsigned byte)
{
	struct flock lock = {
		.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1};

	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

void shms_seglock_end(int fd, unsigned holder)
{
	(void)shms_lock_bytes(fd, F_UNLCK, holder, 1);
}
