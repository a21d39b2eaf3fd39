/* SPDX-License-Identifier: Apache-2.0 */
/* remover.c: see remover.h. */
#include "remover.h"

#include <errno.h>
#include <unistd.h>

#include "sys.h"

int shms_remove_name(struct shms_tier *t, int dirfd, const char *name, const struct stat *st, struct shms_tierdrop *io)
{
	if (S_ISLNK(st->st_mode))
		return shms_tierdrop_name(t, dirfd, name, io);
	if (unlinkat(dirfd, name, 0) < 0)
		return shms_error(errno);
	if (st->st_nlink == 1)
		io->memory += shms_blocks(st);
	return 0;
}
