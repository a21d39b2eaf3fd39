/* SPDX-License-Identifier: Apache-2.0 */
/*
 * teardown.c: takes a dead or closing store apart; see teardown.h for the order and why. Everything is idempotent: two that do
 * it at once, or one that starts where another was killed, do no harm.
 */
#include "teardown.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "lease.h"
#include "page.h"
#include "sys.h"

static void note(struct shms_teardown *io, int error)
{
	if (error && !io->error && error != ENOENT)
		io->error = shms_error(error);
}

static bool dot(const char *name)
{
	return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

static DIR *open_list(int storefd, const char *name, struct shms_teardown *io)
{
	int fd = shms_open_dir(storefd, name);
	DIR *dir = NULL;

	if (fd < 0) {
		note(io, -fd);
		return NULL;
	}
	dir = fdopendir(fd);
	if (!dir) {
		note(io, errno);
		shms_close_fd(fd);
	}
	return dir;
}

/* Unlinks one file and books what that frees. */
static bool drop(int dirfd, const char *name, struct shms_teardown *io)
{
	struct stat st;
	bool known = fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;

	if (unlinkat(dirfd, name, 0) < 0) {
		note(io, errno);
		return false;
	}
	if (known && st.st_nlink == 1)
		io->freed += shms_blocks(&st);
	return true;
}

static void empty(int storefd, const char *name, struct shms_teardown *io)
{
	_dir_ DIR *dir = open_list(storefd, name, io);
	struct dirent *e;
	int error = 0;

	while (dir && (e = shms_readdir(dir, &error)) != NULL) {
		if (!dot(e->d_name) && drop(dirfd(dir), e->d_name, io))
			io->n_objects++;
	}
	note(io, -error);
}

void shms_teardown_recycle(int storefd, struct shms_teardown *io)
{
	empty(storefd, SHMS_DIR_RECYCLE, io);
}

void shms_teardown_objects(int storefd, struct shms_teardown *io)
{
	shms_teardown_recycle(storefd, io);
	empty(storefd, SHMS_DIR_OBJECTS, io);
}

void shms_teardown_leases(int storefd, uint64_t now_ms, struct shms_teardown *io)
{
	_dir_ DIR *dir = open_list(storefd, SHMS_DIR_HANDOFF, io);
	struct dirent *e;
	uint64_t expiry;
	int error = 0;

	while (dir && (e = shms_readdir(dir, &error)) != NULL) {
		if (dot(e->d_name))
			continue;
		/* What is no lease got there by no doing of ours; in a store that goes, it goes. */
		if (shms_lease_parse(e->d_name, &expiry) && expiry > now_ms)
			io->n_left++;
		else if (drop(dirfd(dir), e->d_name, io))
			io->n_leases++;
	}
	note(io, -error);
}

void shms_teardown_store(int parentfd, const char *name, int storefd, uint64_t now_ms, struct shms_teardown *io)
{
	static const char *const parts[] = {SHMS_DIR_RECYCLE, SHMS_DIR_OBJECTS, SHMS_DIR_HANDOFF};

	shms_teardown_objects(storefd, io);
	shms_teardown_leases(storefd, now_ms, io);
	if (io->n_left || io->error)
		return;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (unlinkat(storefd, parts[i], AT_REMOVEDIR) < 0)
			note(io, errno);
	}
	if (io->error || (!drop(storefd, SHMS_PAGE_FILE, io) && io->error))
		return;
	/* A directory that holds more than ours (a Dask worker's own) stays: it is not only ours. */
	if (unlinkat(parentfd, name, AT_REMOVEDIR) < 0 && errno != ENOTEMPTY && errno != EEXIST && errno != EBUSY)
		note(io, errno);
}
