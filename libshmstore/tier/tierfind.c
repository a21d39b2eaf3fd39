/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierfind.c: opens one user's two directories after the other. A user's files come in runs, so the
 * last one's stay open until the next one's are asked for.
 */
#include "tierfind.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "partition.h"
#include "sys.h"
#include "tierscan.h"

int shms_tierfind_use(struct shms_tierfind *f, const struct shms_tier_config *config)
{
	struct shms_tier_config *copy;
	int fd = shms_tierscan_root(f->p, config);

	if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM)
		return shms_error(fd);
	copy = malloc(sizeof(*copy));
	if (!copy) {
		shms_close_fd(fd);
		return -ENOMEM;
	}
	*copy = *config;
	f->config = copy;
	f->files_root = fd >= 0 ? fd : fd == -ENOENT ? -1 : SHMS_TIERFIND_CLOSED;
	return 0;
}

int shms_tierfind_open(struct shms_tierfind *f)
{
	struct shms_tier_config config;
	int r = shms_tier_config_read(f->p, &config);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	return shms_tierfind_use(f, &config);
}

static void close_user(struct shms_tierfind *f)
{
	shms_tierroom_close(&f->tier);
	f->tier.dir_fd = shms_close_fd(f->tier.dir_fd);
	f->tier.files_fd = shms_close_fd(f->tier.files_fd);
	f->found = false;
}

void shms_tierfind_close(struct shms_tierfind *f)
{
	close_user(f);
	f->files_root = shms_close_fd(f->files_root);
	free(f->config);
	f->config = NULL;
}

struct shms_tier *shms_tierfind_user(struct shms_tierfind *f, uid_t uid)
{
	int files = -ENOENT;
	char name[16];

	if (!f->config || f->files_root == SHMS_TIERFIND_CLOSED)
		return NULL;
	if (f->found && f->tier.uid == uid)
		return &f->tier;
	close_user(f);
	snprintf(name, sizeof(name), "%u", (unsigned)uid);
	f->tier.p = f->p;
	f->tier.uid = uid;
	_fd_ int tier_fd = shms_open_dir(f->p->fd, SHMS_DIR_TIER);
	f->tier.dir_fd = tier_fd < 0 ? -1 : shms_tierscan_open(tier_fd, name, uid);
	if (f->tier.dir_fd >= 0 && f->files_root >= 0)
		files = shms_tierscan_open(f->files_root, name, uid);
	f->tier.files_fd = files < 0 ? -1 : files;
	f->found = f->tier.dir_fd >= 0 && (files >= 0 || files == -ENOENT);
	if (!f->found)
		close_user(f);
	return f->found ? &f->tier : NULL;
}

int shms_tierfind_stub(struct shms_tierfind *f, const struct shms_stub *stub,
		       const char **ret_reason)
{
	const struct shms_tier *t = shms_tierfind_user(f, stub->uid);
	char name[SHMS_TIER_NAME];
	struct stat st;

	*ret_reason = "demoted, and the partition has no disk tier any more";
	if (!f->config)
		return -EBADMSG;
	*ret_reason = "demoted, and its user's part of the disk tier may not be looked into";
	if (!t)
		return -EPERM;
	shms_tier_anchor_name(stub->id, name);
	*ret_reason = "demoted, and its anchor is gone: gc would take its tier file for garbage";
	if (fstatat(t->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? -EBADMSG : -EPERM;
	if (st.st_ino != stub->inode)
		return -EBADMSG;
	*ret_reason =
		"demoted, and the disk tier's directory is not there: is its file system mounted?";
	if (f->files_root < 0)
		return -EIO;
	shms_tier_file_name(stub->id, name);
	*ret_reason = "demoted, and its tier file is missing";
	if (t->files_fd < 0 || shms_lookup(t->files_fd, name) < 0)
		return t->files_fd < 0 || errno == ENOENT ? -EBADMSG : -EPERM;
	return 0;
}
