/* SPDX-License-Identifier: Apache-2.0 */
/* beneath.h: opening what lies below a directory, where others may have put anything: no
 * symlink, no "..", no other mount. */
#ifndef BENEATH_H
#define BENEATH_H

#include <errno.h>
#include <stdint.h>
#include <sys/random.h>

#include "refused.h"
#include "wire.h"

#define BENEATH_TRIES 100 /* where a rename races with it: the daemon does not wait */

/* fd or -errno (-ELOOP: a symlink on the way; -EXDEV: it leads out). Adds O_CLOEXEC. */
static inline int beneath_open(int dir_fd, const char *path, int flags)
{
	int fd = -EAGAIN;

	for (int i = 0; i < BENEATH_TRIES && (fd == -EAGAIN || fd == -EINTR); i++)
		fd = shms_beneath_open(dir_fd, path, flags);
	return fd;
}

/* A fresh name of a lease (wire.h) with that expiry, by shmstore_lease_clock_ms(). 0, -EIO (no
 * random numbers). */
static inline int leasename_make(uint64_t expiry_ms, char ret_name[SHMS_LEASE_NAME_SIZE])
{
	uint64_t nonce;

	if (getrandom(&nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce))
		return -EIO;
	shms_lease_text(expiry_ms, nonce, ret_name);
	return 0;
}

#endif
