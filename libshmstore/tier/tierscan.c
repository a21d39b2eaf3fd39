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
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "inodes.h"
#include "partition.h"
#include "sys.h"
#include "tier.h"
#include "transient.h"
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
	int (*fn)(const struct shms_tierscan_user *user, void *arg);
	void *arg;
	uint64_t *io_unreadable;
};

/* Opens the directory called name, if there is one. 0, or why the scan ends. */
static int open_side(struct users *u, int dirfd, const char *name, uid_t uid, int *ret_fd,
		     bool *ret_closed)
{
	int fd = dirfd < 0 ? -ENOENT : open_own(dirfd, name, uid);

	if (shms_fatal(fd))
		return shms_error(fd);
	*ret_closed = fd < 0 && fd != -ENOENT && fd != -ENOTDIR && fd != -ELOOP;
	*u->io_unreadable += *ret_closed;
	*ret_fd = fd < 0 ? -1 : fd;
	return 0;
}

static int one_user(struct users *u, const char *name, uid_t uid)
{
	struct shms_tierscan_user user = {.uid = uid, .files_fd = -1, .anchors_fd = -1};
	int r = open_side(u, u->tier_fd, name, uid, &user.anchors_fd, &user.closed);

	if (r == 0 && !user.closed)
		r = open_side(u, u->root_fd, name, uid, &user.files_fd, &user.closed);
	if (user.closed)
		user.anchors_fd = shms_close_fd(user.anchors_fd);
	if (r == 0)
		r = u->fn(&user, u->arg);
	shms_close_fd(user.anchors_fd);
	shms_close_fd(user.files_fd);
	return r;
}

/* The users that have a directory in dirfd; but for those that have one in
 * but_fd too, if that is not -1. */
static int each_user(struct users *u, int dirfd, int but_fd)
{
	_dir_ DIR *dir = NULL;
	struct dirent *e;
	uid_t uid;
	int r = shms_list_dir(dirfd, ".", &dir);

	if (r < 0)
		return shms_fatal(r) ? shms_error(r) : 0;
	while ((e = shms_readdir(dir, &r)) != NULL) {
		if (shms_tier_uid(e->d_name, &uid) &&
		    (but_fd < 0 || shms_lookup(but_fd, e->d_name) < 0))
			r = one_user(u, e->d_name, uid);
	}
	return r;
}

int shms_tierscan_users(struct shmstore_partition *p, int root_fd,
			int (*fn)(const struct shms_tierscan_user *user, void *arg), void *arg,
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
	_fd_ int fd =
		shms_openat(files_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
	*ret_writing = fd < 0 || flock(fd, LOCK_SH | LOCK_NB) < 0;
	return true;
}

/* Sets f->what by the file's id. 0, or why its anchor could not be read. */
static int judge(const struct shms_tierscan *s, struct shms_tierscan_file *f)
{
	char name[SHMS_TIER_NAME];
	int r;

	shms_tier_anchor_name(f->id, name);
	r = shms_stub_read(f->user->anchors_fd, name, &f->stub, NULL);
	if (r < 0)
		return shms_stub_none(r) ? 0 : shms_error(r);
	if (f->stub.n_names <= 1 || f->stub.id != f->id)
		return 0;
	shms_tier_resident_name(f->id, name);
	f->what = shms_inodes_find(s->clean, f->stub.inode) ||
				  shms_lookup(f->user->anchors_fd, name) == 0
			  ? SHMS_TIERSCAN_CLEAN
			  : SHMS_TIERSCAN_DEMOTED;
	return 0;
}

static int one_file(struct shms_tierscan *s, const struct shms_tierscan_user *user,
		    const char *name)
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

static int on_user(const struct shms_tierscan_user *user, void *arg)
{
	struct shms_tierscan *s = arg;
	_dir_ DIR *dir = NULL;
	struct dirent *e;
	int r = shms_list_dir(user->files_fd, ".", &dir);

	if (r < 0)
		return shms_fatal(r) ? shms_error(r) : 0;
	while ((e = shms_readdir(dir, &r)) != NULL)
		r = one_file(s, user, e->d_name);
	return r == -EIO ? 0 : r; /* a disk that does not answer is the disk's affair */
}

/* ---- clean/ ---------------------------------------------------------------------------------- */

static int clean_store(const struct shms_walk_store *store, void *arg)
{
	struct shms_inodes *clean = arg;
	_dir_ DIR *dir = NULL;
	struct dirent *e;
	int r = shms_list_dir(store->fd, SHMS_DIR_CLEAN, &dir);

	if (r < 0)
		return shms_fatal(r) ? shms_error(r) : 0;
	while ((e = shms_readdir(dir, &r)) != NULL) {
		if (e->d_type == DT_LNK && !shms_inodes_get(clean, e->d_ino))
			return -ENOMEM;
	}
	return r;
}

int shms_tierscan_clean(struct shmstore_partition *p, struct shms_inodes *clean)
{
	struct shms_walk w = {.store = clean_store, .arg = clean};

	return shms_walk_run(&w, p);
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

/*
 * Opens one user's two directories after the other. A user's files come in runs, so the
 * last one's stay open until the next one's are asked for.
 */

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
	f->tier.dir_fd = tier_fd < 0 ? -1 : open_own(tier_fd, name, uid);
	if (f->tier.dir_fd >= 0 && f->files_root >= 0)
		files = open_own(f->files_root, name, uid);
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
