/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierscan.c: the tier files of a partition, by their directories.
 *
 * A tier file lives as long as its anchor has another name (tier.h). The object is in memory too if
 * one of the names is a stub in a clean/, or a resident beside the anchor. So no header of a tier
 * file is read, and no object is looked for.
 *
 * Without read access to a user's anchors the scan skips the user: all files would look like
 * orphans.
 *
 * A file is seen before its anchor is asked for. An anchor comes before its file and goes after it,
 * so that one which is missing then was missing all along, or its file is gone as well.
 */
#include "tierscan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "inodes.h"
#include "partition.h"
#include "sys.h"
#include "tier.h"
#include "walk.h"

#define TMP_PREFIX "tmp-"

int shms_tierscan_root(const struct shmstore_partition *p, const struct shms_tier_config *config)
{
	_fd_ int disk = open(config->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);

	return disk < 0 ? -errno : shms_open_dir(disk, p->uuid);
}

/* Opens the directory of that name if it is uid's own: another's files are nobody's to judge by his
 * names. The descriptor, -EPERM, -errno. */
static int open_own(int dirfd, const char *name, uid_t uid)
{
	_fd_ int fd = shms_open_dir(dirfd, name);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	return st.st_uid == uid ? shms_take_fd(&fd) : -EPERM;
}

/* ---- users ----------------------------------------------------------------------------------- */

struct users {
	struct shmstore_partition *p;
	int root_fd, tier_fd;
	int (*fn)(struct shms_tier *user, void *arg);
	void *arg;
	uint64_t *io_unreadable;
};

/* Opens the user's directory in dirfd, if there is one. 0, or why the scan ends. */
static int open_side(struct shms_tier *t, int dirfd, int *ret_fd)
{
	char name[16];
	int fd;

	snprintf(name, sizeof(name), "%u", (unsigned)t->uid);
	fd = dirfd < 0 ? -ENOENT : open_own(dirfd, name, t->uid);
	if (shms_fatal(fd))
		return shms_error(fd);
	t->closed = fd < 0 && fd != -ENOENT && fd != -ENOTDIR && fd != -ELOOP;
	*ret_fd = fd < 0 ? -1 : fd;
	return 0;
}

static void close_part(struct shms_tier *t)
{
	shms_tierroom_close(t);
	t->dir_fd = shms_close_fd(t->dir_fd);
	t->files_fd = shms_close_fd(t->files_fd);
}

/* Opens the part as it is. Where it is closed neither side is open. */
static int open_part(struct shms_tier *t, int tier_fd, int root_fd)
{
	int r = open_side(t, tier_fd, &t->dir_fd);

	if (r == 0 && !t->closed)
		r = open_side(t, root_fd, &t->files_fd);
	if (r < 0 || t->closed)
		close_part(t);
	return r;
}

static int one_user(struct users *u, uid_t uid)
{
	struct shms_tier user = SHMS_TIER_PART(u->p, uid);
	int r = open_part(&user, u->tier_fd, u->root_fd);

	*u->io_unreadable += user.closed;
	if (r == 0)
		r = u->fn(&user, u->arg);
	close_part(&user);
	return r;
}

/* The users that have a directory in dirfd; but for those that have one in
 * but_fd too, if that is not -1. */
static int each_user(struct users *u, int dirfd, int but_fd)
{
	_names_ struct shms_names d = shms_names(dirfd, ".");
	uid_t uid;

	if (d.error < 0)
		return shms_fatal(d.error) ? shms_error(d.error) : 0;
	while (shms_names_next(&d)) {
		if (shms_tier_uid(d.name, &uid) && (but_fd < 0 || shms_lookup(but_fd, d.name) < 0))
			d.error = one_user(u, uid);
	}
	return d.error;
}

int shms_tierscan_users(struct shmstore_partition *p, int root_fd,
			int (*fn)(struct shms_tier *user, void *arg), void *arg,
			uint64_t *io_unreadable)
{
	_fd_ int tier_fd = shms_open_dir(p->fd, SHMS_DIR_TIER);
	struct users u = {p, root_fd, tier_fd, fn, arg, io_unreadable};
	int r;

	if (shms_fatal(tier_fd))
		return shms_error(tier_fd);
	r = each_user(&u, tier_fd, -1);
	return r ? r : each_user(&u, root_fd, tier_fd);
}

/* ---- files ----------------------------------------------------------------------------------- */

bool shms_tierscan_tmp(int files_fd, const char *name, bool *ret_writing)
{
	uint64_t id;

	if (strncmp(name, TMP_PREFIX, sizeof(TMP_PREFIX) - 1) != 0 ||
	    shms_tier_parse_name(name + sizeof(TMP_PREFIX) - 1, NULL, &id) < 0)
		return false;
	_fd_ int fd = shms_open_file(files_fd, name, O_RDONLY);
	*ret_writing = fd < 0 || flock(fd, LOCK_SH | LOCK_NB) < 0;
	return true;
}

/* Sets f->what by the file's id. 0, or why its anchor could not be read. */
static int judge(const struct shms_tierscan *s, struct shms_tierscan_file *f)
{
	char name[SHMS_TIER_NAME];
	int r;

	shms_tier_anchor_name(f->id, name);
	r = shms_stub_read(f->user->dir_fd, name, &f->stub, NULL);
	if (r < 0)
		return shms_stub_none(r) ? 0 : shms_error(r);
	if (f->stub.n_names <= 1 || f->stub.id != f->id)
		return 0;
	shms_tier_resident_name(f->id, name);
	f->what =
		shms_inodes_find(s->clean, f->stub.inode) || shms_lookup(f->user->dir_fd, name) == 0
			? SHMS_TIERSCAN_CLEAN
			: SHMS_TIERSCAN_DEMOTED;
	return 0;
}

static int one_file(struct shms_tierscan *s, const struct shms_tier *user, const char *name)
{
	struct shms_tierscan_file f = {.user = user, .name = name, .what = SHMS_TIERSCAN_ORPHAN};
	struct stat st;
	bool writing = false;
	int r = 0;

	if (shms_tier_parse_name(name, NULL, &f.id) == 0)
		r = judge(s, &f);
	else if (!shms_tierscan_tmp(user->files_fd, name, &writing) || writing)
		return 0;
	if (r < 0 || fstatat(user->files_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !S_ISREG(st.st_mode))
		return r;
	f.st = &st;
	return s->file(&f, s->arg);
}

static int on_user(struct shms_tier *user, void *arg)
{
	struct shms_tierscan *s = arg;
	_names_ struct shms_names d = shms_names(user->files_fd, ".");

	if (d.error < 0)
		return shms_fatal(d.error) ? shms_error(d.error) : 0;
	while (shms_names_next(&d))
		d.error = one_file(s, user, d.name);
	return d.error == -EIO ? 0 : d.error; /* a disk that does not answer is the disk's affair */
}

/* ---- clean/ ---------------------------------------------------------------------------------- */

static int clean_store(const struct shms_walk_store *store, void *arg)
{
	struct shms_inodes *clean = arg;
	_names_ struct shms_names d = shms_names(store->fd, SHMS_DIR_CLEAN);

	if (d.error < 0)
		return shms_fatal(d.error) ? shms_error(d.error) : 0;
	while (shms_names_next(&d)) {
		if (d.type == DT_LNK && !shms_inodes_get(clean, d.ino))
			return -ENOMEM;
	}
	return d.error;
}

int shms_tierscan_clean(struct shmstore_partition *p, struct shms_inodes *clean)
{
	return shms_walk_stores(p, clean_store, clean);
}

/* ---- all files ------------------------------------------------------------------------------- */

static int run(struct shms_tierscan *s, struct shmstore_partition *p,
	       const struct shms_tier_config *config)
{
	_fd_ int root_fd = shms_tierscan_root(p, config);

	if (root_fd < 0) {
		s->n_unreadable += root_fd != -ENOENT;
		return shms_fatal(root_fd) ? shms_error(root_fd) : 0;
	}
	return shms_tierscan_users(p, root_fd, on_user, s, &s->n_unreadable);
}

int shms_tierscan_run(struct shms_tierscan *s, struct shmstore_partition *p,
		      const struct shms_tier_config *config)
{
	struct shms_inodes *found;
	int r;

	s->n_unreadable = 0;
	if (s->clean)
		return run(s, p, config);
	s->clean = found = shms_inodes_new();
	r = found ? shms_tierscan_clean(p, found) : -ENOMEM;
	if (r == 0)
		r = run(s, p, config);
	s->clean = shms_inodes_free(found);
	return r;
}

/* ---- one user's part, as it is --------------------------------------------------------------- */

/* A user's files come in runs, so the last one's directories stay open until the next one's are
 * asked for. */

int shms_tierfind_use(struct shms_tierfind *f, const struct shms_tier_config *config)
{
	int fd = shms_tierscan_root(f->p, config);

	if (shms_fatal(fd))
		return shms_error(fd);
	f->read = *config;
	f->config = &f->read;
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

void shms_tierfind_close(struct shms_tierfind *f)
{
	close_part(&f->tier);
	f->files_root = shms_close_fd(f->files_root);
}

struct shms_tier *shms_tierfind_user(struct shms_tierfind *f, uid_t uid)
{
	if (!f->config || f->files_root == SHMS_TIERFIND_CLOSED)
		return NULL;
	if (f->tier.dir_fd < 0 || f->tier.uid != uid) {
		_fd_ int tier_fd = shms_open_dir(f->p->fd, SHMS_DIR_TIER);

		close_part(&f->tier);
		f->tier = (struct shms_tier)SHMS_TIER_PART(f->p, uid);
		(void)open_part(&f->tier, tier_fd, f->files_root);
	}
	return f->tier.dir_fd < 0 ? NULL : &f->tier;
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
