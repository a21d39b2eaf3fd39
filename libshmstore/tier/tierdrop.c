/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierdrop.c: removes a tier file when its last name goes. The kernel counts the names: a stub's
 * st_nlink, of which one is the anchor. A name is removed first and its count read after, by the
 * descriptor: of two processes that remove the last two names, one sees that only the anchor is
 * left. If it is killed, gc removes the file.
 *
 * Of the tier file, the resident and the anchor the anchor goes last: a tier file without one would
 * be garbage, an anchor without its file is just that. Where the file cannot be removed (a disk
 * that is read-only, say) the anchor stays, and gc comes back for both.
 */

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "sys.h"
#include "tier.h"

/* Unlinks what lies in memory and adds its blocks if this was its last name. */
static int drop(int dirfd, const char *name, const struct shms_tierdrop_dry *dry,
		struct shms_tierdrop *io)
{
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    (!dry && unlinkat(dirfd, name, 0) < 0))
		return errno == ENOENT ? 0 : shms_error(errno);
	if (dry)
		return dry->note(dry->arg, &st, io);
	if (st.st_nlink == 1)
		io->memory += shms_blocks(&st);
	return 0;
}

/* The same of a tier file. */
static int drop_file(struct shms_tier *t, const char *name, bool dry, struct shms_tierdrop *io)
{
	struct stat st;
	int r;

	if (dry)
		r = fstatat(t->files_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? -errno
		    : S_ISDIR(st.st_mode)                                    ? -EISDIR
									     : 0;
	else
		r = shms_tierroom_unlink(t, name, &st);
	if (r < 0)
		return r == -ENOENT ? 0 : shms_error(r);
	if (st.st_nlink == 1)
		io->disk += shms_blocks(&st);
	io->n_files++;
	return 0;
}

int shms_tierdrop_forget(struct shms_tier *t, uint64_t id, const struct shms_tierdrop_dry *dry,
			 struct shms_tierdrop *io)
{
	char name[SHMS_TIER_NAME];
	int r;

	shms_tier_file_name(id, name);
	/* Without its disk the file is found again when that is back: it has no anchor then. */
	r = t->files_fd < 0 ? 0 : drop_file(t, name, dry, io);
	if (r < 0)
		return r;
	shms_tier_resident_name(id, name);
	r = drop(t->dir_fd, name, dry, io);
	if (r < 0)
		return r;
	shms_tier_anchor_name(id, name);
	return drop(t->dir_fd, name, dry, io);
}

int shms_tierdrop_name(struct shms_tier *t, int dirfd, const char *name, struct shms_tierdrop *io)
{
	struct shms_stub stub;
	struct stat st;
	_fd_ int fd = -1;
	int r = shms_stub_read(dirfd, name, &stub, &fd);

	if (r == -ENOENT)
		return r;
	if (unlinkat(dirfd, name, 0) < 0)
		return shms_error(errno);
	/* A name that is no stub has no tier file; another user's tier file is his. */
	if (r < 0 || !t || stub.uid != t->uid || fstat(fd, &st) < 0 || st.st_nlink > 1)
		return 0;
	/* The name has gone, whatever the disk says: a delete is done. */
	shms_tierdrop_forget(t, stub.id, NULL, io);
	return 0;
}
