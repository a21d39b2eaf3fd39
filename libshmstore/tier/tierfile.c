/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierfile.c: tier files by their ids: made without a name and linked when they are whole, opened
 * with every check. A file system that cannot make unnamed files gets "tmp-<id>", locked by its
 * writer as long as that lives.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "detail.h"
#include "name.h"
#include "sys.h"
#include "tier.h"
#include "tierformat.h"

int shms_tier_resident_open(const struct shms_tier *t, uint64_t id)
{
	char name[SHMS_TIER_NAME];

	shms_tier_resident_name(id, name);
	return shms_open_object(t->dir_fd, name);
}

/* An error of the disk, said with its path. */
static int disk_error(const struct shms_tier *t, int error, const char *what)
{
	if (error == ENOSPC || error == EDQUOT)
		return shms_detail(-ENOSPC, t->files_path, "disk full: %s: %s (%s)", t->files_path,
				   what, strerror(error));
	return shms_detail(shms_error(error), t->files_path, "%s: %s: %s", t->files_path, what,
			   strerror(error));
}

int shms_tier_file_new(struct shms_tier *t, uint64_t id, char ret_name[SHMS_TIER_NAME], int *ret_fd)
{
	int flags = O_RDWR | O_CLOEXEC | (t->direct ? O_DIRECT : 0), error = 0;
	_fd_ int fd = -1;

	ret_name[0] = '\0';
	if (t->unnamed) {
		fd = shms_openat(t->files_fd, ".", O_TMPFILE | flags, 0400);
		if (fd < 0)
			return disk_error(t, errno, "a tier file cannot be made");
	} else {
		snprintf(ret_name, SHMS_TIER_NAME, "tmp-%016" PRIx64, id);
		fd = shms_openat(t->files_fd, ret_name, O_CREAT | O_EXCL | flags, 0400);
		if (fd < 0)
			return disk_error(t, errno, "a tier file cannot be made");
		if (flock(fd, LOCK_EX | LOCK_NB) < 0)
			error = errno;
	}
	/* Root's hand, the user's file. */
	if (!error && t->uid != geteuid() && fchown(fd, t->uid, (gid_t)-1) < 0)
		error = errno;
	if (error) {
		if (ret_name[0])
			unlinkat(t->files_fd, ret_name, 0);
		return disk_error(t, error, "a tier file cannot be made");
	}
	*ret_fd = shms_take_fd(&fd);
	return 0;
}

int shms_tier_file_link(struct shms_tier *t, uint64_t id, int fd, const char *tmp_name)
{
	char name[SHMS_TIER_NAME];
	int r;

	shms_tier_file_name(id, name);
	if (tmp_name[0])
		r = shms_rename_noreplace(t->files_fd, tmp_name, t->files_fd, name);
	else
		r = shms_link_fd(fd, t->files_fd, name);
	return r < 0 ? disk_error(t, -r, "a tier file cannot be named") : 0;
}

/* The same, of one tier file. */
static int file_error(const struct shms_tier *t, const char *name, int error, const char *what)
{
	char path[SHMSTORE_TICKET_PATH];

	snprintf(path, sizeof(path), "%s/%s", t->files_path, name);
	return shms_detail(shms_error(error), path, "%s: %s: %s", path, what, strerror(error));
}

static int damaged(const struct shms_tier *t, const char *name, const char *reason)
{
	char path[SHMSTORE_TICKET_PATH];

	snprintf(path, sizeof(path), "%s/%s", t->files_path, name);
	return shms_detail(-EBADMSG, path, "%s: %s", path, reason);
}

static bool is_stubs(const struct shms_stub *stub, const struct shms_tier_superblock *sb)
{
	return sb->id == stub->id && sb->generation == stub->generation &&
	       sb->object_header == stub->header_size && sb->object_buffer == stub->buffer_size;
}

/* Reads the header of the open tier file and checks it. *ret_reason is set
 * with -EBADMSG and -ENOTSUP. */
static int read_header(int fd, uint64_t size, struct shms_tier_header *h, const char **ret_reason)
{
	_free_ unsigned char *first = NULL;
	uint64_t need = 0;
	ssize_t n;
	int r;

	*ret_reason = "too short for a tier file: truncated";
	if (size < SHMS_TIER_ALIGN)
		return -EBADMSG;
	first = aligned_alloc(SHMS_TIER_ALIGN, SHMS_TIER_ALIGN);
	if (!first)
		return -ENOMEM;
	n = shms_pread_all(fd, first, SHMS_TIER_ALIGN, 0);
	if (n < 0)
		return (int)n;
	*ret_reason = "not a tier file, or its header is damaged";
	r = shms_tier_header_need(first, (size_t)n, size, &need);
	if (r < 0)
		return r;
	r = shms_tier_header_alloc(h, need);
	if (r < 0)
		return r;
	n = shms_pread_all(fd, h->bytes, need, 0);
	if (n < 0)
		r = (int)n;
	else
		r = (uint64_t)n == need ? shms_tier_header_parse(h, need, size, ret_reason)
					: -EBADMSG;
	if (r < 0)
		shms_tier_header_deinit(h);
	return r;
}

int shms_tier_file_open(struct shms_tier *t, const struct shms_stub *stub, int *ret_fd,
			struct shms_tier_header *ret_header)
{
	char name[SHMS_TIER_NAME];
	const char *reason;
	struct stat st;
	int r;
	_fd_ int fd = -1;

	shms_tier_file_name(stub->id, name);
	fd = shms_openat(
		t->files_fd, name,
		O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | (t->direct ? O_DIRECT : 0), 0);
	if (fd < 0 && errno == EINVAL && t->direct)
		fd = shms_open_file(t->files_fd, name, O_RDONLY);
	if (fd < 0)
		return errno == ENOENT || errno == ELOOP
			       ? damaged(t, name, "the tier file is missing")
			       : file_error(t, name, errno, "the tier file cannot be opened");
	if (fstat(fd, &st) < 0)
		return file_error(t, name, errno, "the tier file cannot be looked at");
	if (!S_ISREG(st.st_mode) || st.st_uid != t->uid)
		return damaged(t, name, "not a file of ours");
	r = read_header(fd, (uint64_t)st.st_size, ret_header, &reason);
	if (r == -EBADMSG || r == -ENOTSUP)
		return damaged(t, name, reason);
	if (r < 0)
		return r == -ENOMEM ? r : file_error(t, name, -r, "the tier file cannot be read");
	if (!is_stubs(stub, ret_header->sb)) {
		shms_tier_header_deinit(ret_header);
		return damaged(t, name, "holds another object than the name says");
	}
	*ret_fd = shms_take_fd(&fd);
	return 0;
}

bool shms_tier_file_good(struct shms_tier *t, const struct shms_stub *stub)
{
	struct shms_tier_header h;
	int fd;

	if (shms_tier_file_open(t, stub, &fd, &h) < 0) {
		shms_detail_clear();
		return false;
	}
	shms_close_fd(fd);
	shms_tier_header_deinit(&h);
	return true;
}
