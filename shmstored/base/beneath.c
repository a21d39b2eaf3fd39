/* SPDX-License-Identifier: Apache-2.0 */
/* beneath.c: the library's way to open what lies below a directory, tried again where a rename
 * raced with it; the daemon does not wait. */
#include "beneath.h"

#include <errno.h>

#include "openbeneath.h"

#define TRIES 100

int beneath_open(int dir_fd, const char *path, int flags)
{
	int fd = -EAGAIN;

	for (int i = 0; i < TRIES && (fd == -EAGAIN || fd == -EINTR); i++)
		fd = shms_beneath_open(dir_fd, path, flags);
	return fd;
}
