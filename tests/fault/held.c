/* SPDX-License-Identifier: Apache-2.0 */
/* held.c: see held.h. It asks the kernel, and allocates nothing itself. */
#include "held.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "allocfail.h"

static char maps[1 << 20], differs[512];

void held_look(const char *mount, struct held *ret)
{
	ret->n_blocks = allocfail_live();
	for (int fd = 0; fd < HELD_FDS; fd++)
		ret->fd[fd] = fcntl(fd, F_GETFD) >= 0;
	ret->n_maps = 0;
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	size_t size = 0;
	ssize_t n;
	while (fd >= 0 && size < sizeof(maps) - 1 &&
	       (n = read(fd, maps + size, sizeof(maps) - 1 - size)) > 0)
		size += (size_t)n;
	close(fd);
	maps[size] = '\0';
	char prefix[256];
	snprintf(prefix, sizeof(prefix), " %s/", mount);
	for (const char *at = maps; (at = strstr(at, prefix)); at++)
		ret->n_maps++;
}

const char *held_differs(const char *mount, const struct held *before)
{
	static struct held after;
	held_look(mount, &after);
	for (int fd = 0; fd < HELD_FDS; fd++)
		if (after.fd[fd] != before->fd[fd]) {
			char path[64], target[256];
			snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
			ssize_t n = readlink(path, target, sizeof(target) - 1);
			target[n < 0 ? 0 : n] = '\0';
			snprintf(differs, sizeof(differs), "descriptor %d is %s: %s", fd,
				 after.fd[fd] ? "left open" : "gone", target);
			return differs;
		}
	if (after.n_maps != before->n_maps)
		snprintf(differs, sizeof(differs), "%d mappings are left",
			 (int)(after.n_maps - before->n_maps));
	else if (after.n_blocks != before->n_blocks)
		snprintf(differs, sizeof(differs), "%ld blocks of the heap are left",
			 after.n_blocks - before->n_blocks);
	else
		return NULL;
	return differs;
}
