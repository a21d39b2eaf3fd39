/* SPDX-License-Identifier: Apache-2.0 */
/* sidecar.c: written without a name and linked whole, like everything that others read. */
#include "sidecar.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "name.h"
#include "sys.h"
#include "unnamed.h"

int shms_sidecar_write(int objects_fd, const char *name, const void *key, size_t key_size)
{
	char sidecar[SHMS_NAME_SIZE];
	struct stat dir;
	int r;
	_fd_ int fd = shms_unnamed_part(objects_fd, O_WRONLY, shms_mode_in(objects_fd, 0400));

	if (fd < 0)
		return -errno;
	/* Root's hand, the user's file: its store is to read it. */
	if (geteuid() == 0 &&
	    (fstat(objects_fd, &dir) < 0 || fchown(fd, dir.st_uid, (gid_t)-1) < 0))
		return -errno;
	r = shms_write_at(fd, key, key_size, 0);
	if (r < 0)
		return r;
	shms_name_sidecar(name, sidecar);
	r = shms_link_fd(fd, objects_fd, sidecar);
	return r == -EEXIST ? 0 : r;
}

void shms_sidecar_drop(int objects_fd, const char *name)
{
	char sidecar[SHMS_NAME_SIZE];

	shms_name_sidecar(name, sidecar);
	unlinkat(objects_fd, sidecar, 0);
}
