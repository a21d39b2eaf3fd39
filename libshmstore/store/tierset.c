/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierset.c: gives a partition its disk tier, changes its limits, takes it away.
 *
 * The configuration comes last and goes first: a process that finds it finds the directories too.
 * It is written under another name and renamed. While a tier is taken away it has that name again:
 * a kill leaves it whole, and gc, or the next call, puts it in force. A flock on tier/ is held.
 *
 * Taking a tier away, or moving it to another path, must not remove an object that a process with
 * the old configuration is just demoting. Such a process finds no place for its anchor: rmdir
 * removes the users' directories of anchors first. If the kernel refuses (an anchor is there), the
 * configuration is put back.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "cleanup.h"
#include "detail.h"
#include "gc.h"
#include "page.h"
#include "partition.h"
#include "sys.h"
#include "tier.h"
#include "tiermark.h"
#include "tierscan.h"
#include "walk.h"

#define TEXT_MAX 8192 /* of a configuration */
#define TRIES    3    /* to take a tier away that is being used */
#define LOCK_MS  1000u

struct setting {
	struct shmstore_partition *p;
	struct stat owner; /* of the partition's directory */
	mode_t mode;       /* of the tier's directories */
	int tier_fd;       /* tier/, locked */
	struct shms_tier_config config;
};

/* ---- what is asked --------------------------------------------------------------------------- */

/* Nothing in memory may be a disk tier. */
static int check_disk(const char *path)
{
	struct statfs fs;
	_fd_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 || fstatfs(fd, &fs) < 0)
		return shms_detail(shms_error(errno), path, "%s cannot be used as a disk tier: %s",
				   path, strerror(errno));
	if (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC)
		return shms_detail(-ENOTSUP, path,
				   "%s is in memory itself: a disk tier needs a directory on a "
				   "real file system",
				   path);
	return 0;
}

static int read_config(const struct shmstore_tier_config *from, struct shms_tier_config *ret)
{
	struct shmstore_tier_config c = SHMSTORE_TIER_CONFIG_INIT;
	_free_ char *real = NULL;
	int r = shms_take_sized(&c, sizeof(c), from, SHMS_UPTO(shmstore_tier_config, path),
				"config", "SHMSTORE_TIER_CONFIG_INIT");

	if (r < 0)
		return r;
	if (!c.path || c.path[0] != '/' || strchr(c.path, '\n'))
		return shms_detail(-EINVAL, c.path, "the path of a disk tier must be absolute");
	if (c.level < 0 || c.level > 19)
		return shms_detail(-EINVAL, NULL,
				   "level %d: zstd's levels are 1 to 19, and 0 is not to compress",
				   c.level);
	if (c.high > 100 || c.low >= c.high)
		return shms_detail(-EINVAL, NULL,
				   "watermarks of %u %% and %u %%: low must be below high, and "
				   "high at most 100",
				   c.low, c.high);
	real = realpath(c.path, NULL);
	if (!real)
		return shms_detail(shms_error(errno), c.path,
				   "%s cannot be used as a disk tier: %s", c.path, strerror(errno));
	if (strlen(real) >= sizeof(ret->path) || strchr(real, '\n'))
		return shms_detail(-EINVAL, NULL,
				   "the path of the tier is too long, or has a line feed in it");
	*ret = (struct shms_tier_config){.max = c.max,
					 .min_free = c.min_free,
					 .level = c.level,
					 .fsync = c.fsync,
					 .high = c.high,
					 .low = c.low};
	memcpy(ret->path, real, strlen(real) + 1);
	return check_disk(real);
}

/* ---- directories ----------------------------------------------------------------------------- */

/* Makes the directory, or takes the one that is there if its owner may have made it.
 * Its descriptor, or -errno. */
static int make_directory(const struct setting *s, int parent, const char *name)
{
	bool made = mkdirat(parent, name, 0700) == 0;
	struct stat st;
	int error = errno;
	_fd_ int fd = shms_open_dir(parent, name);

	if (fd < 0)
		return made || error == EEXIST ? fd : -error;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_uid != s->owner.st_uid && st.st_uid != 0 && st.st_uid != geteuid())
		return -EPERM;
	/* Root's hand, the owner's directory; open to others last. */
	if (st.st_uid != s->owner.st_uid && fchown(fd, s->owner.st_uid, (gid_t)-1) < 0)
		return -errno;
	if ((st.st_mode & 07777) != s->mode && fchmod(fd, s->mode) < 0)
		return -errno;
	return shms_take_fd(&fd);
}

static int make_files_directory(const struct setting *s)
{
	const char *path = s->config.path;
	struct shms_tiermark mark;
	_fd_ int disk = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_fd_ int fd = disk < 0 ? -errno : make_directory(s, disk, s->p->uuid);
	int r = fd < 0 ? fd : 0;

	if (r == 0)
		r = shms_tiermark_of(s->p, &mark);
	if (r == 0)
		r = shms_tiermark_write(fd, &mark, s->owner.st_uid);
	if (r == -ENOSPC || r == -EDQUOT)
		return shms_detail(-ENOSPC, path,
				   "disk full: %s: the tier's directory cannot be made: %s", path,
				   strerror(-r));
	if (r < 0)
		return shms_detail(shms_error(r), path, "%s/%s cannot be made: %s", path,
				   s->p->uuid, strerror(-r));
	return 0;
}

static int write_config(const struct setting *s)
{
	char text[TEXT_MAX];
	int r = shms_tier_config_format(&s->config, text, sizeof(text));

	if (r == 0)
		r = shms_textfile_replace(s->tier_fd, SHMS_TIER_CONFIG_NEW, SHMS_TIER_CONFIG, text,
					  s->owner.st_uid);
	return r < 0 ? shms_detail(shms_error(r), s->p->path,
				   "%s/tier/config cannot be written: %s", s->p->path, strerror(-r))
		     : 0;
}

/* ---- taking away ----------------------------------------------------------------------------- */

/* Objects that are in the tier only. */
static int count_demoted(const struct shms_tierscan_file *f, void *arg)
{
	*(unsigned long long *)arg += f->what == SHMS_TIERSCAN_DEMOTED;
	return 0;
}

static int holds_objects(const struct setting *s)
{
	unsigned long long n = 0;
	struct shms_tierscan scan = {.file = count_demoted, .arg = &n};
	int r = shms_tierscan_run(&scan, s->p, &s->config);

	if (r == 0 && n)
		return shms_detail(-EBUSY, s->config.path,
				   "the tier in %s holds %llu objects that are nowhere else: "
				   "promote or delete them first",
				   s->config.path, n);
	return r;
}

/* Removes what is left of one user: on both sides nothing but an eviction's lock. */
static int remove_user(struct shms_tier *user, void *arg)
{
	const struct setting *s = arg;
	char name[16];

	snprintf(name, sizeof(name), "%u", (unsigned)user->uid);
	if (user->dir_fd >= 0) {
		unlinkat(user->dir_fd, SHMS_TIER_LOCK, 0);
		if (unlinkat(s->tier_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
			return -EBUSY;
	}
	return 0;
}

static int remove_files_user(struct shms_tier *user, void *arg)
{
	char name[16];

	snprintf(name, sizeof(name), "%u", (unsigned)user->uid);
	unlinkat(*(int *)arg, name, AT_REMOVEDIR);
	return 0;
}

/* Removes the directories on the disk; files left there are not the tier's. */
static void remove_files_directory(const struct setting *s)
{
	uint64_t n_unreadable = 0;
	_fd_ int disk = open(s->config.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
	_fd_ int root = disk < 0 ? -1 : shms_open_dir(disk, s->p->uuid);

	if (root < 0)
		return;
	shms_tierscan_users(s->p, root, remove_files_user, (int *)&root, &n_unreadable);
	unlinkat(root, SHMS_TIERMARK_FILE, 0);
	unlinkat(root, SHMS_TIERMARK_NEW, 0);
	unlinkat(disk, s->p->uuid, AT_REMOVEDIR);
}

/* ---- clean copies ---------------------------------------------------------------------------- */

static int empty_clean(struct shms_tier *t, int clean_fd)
{
	_names_ struct shms_names d = shms_names(clean_fd, ".");

	if (d.error < 0)
		return -EMFILE;
	while (shms_names_next(&d)) {
		if (d.type == DT_LNK)
			shms_tier_release(t, clean_fd, d.name);
	}
	return d.error;
}

/*
 * Releases the stubs in a store's clean/: their objects are in memory, so that nothing is lost with
 * them. Each is taken under the store's names lock, as who demotes holds it while it is anything
 * else for a moment. Others' stubs, and those of moving objects, stay. 0, -ENOMEM, -EMFILE,
 * -ETIMEDOUT (names are held).
 */
static int drop_clean(const struct shms_walk_store *store, void *arg)
{
	struct shmstore_partition *p = arg;
	_fd_ int clean_fd = store->fd < 0 ? -1 : shms_open_dir(store->fd, SHMS_DIR_CLEAN);
	_locked_ int objects_fd = clean_fd < 0 ? -1 : shms_open_dir(store->fd, SHMS_DIR_OBJECTS);
	struct shms_tier *t = NULL;
	int r;

	if (clean_fd == -EMFILE || objects_fd == -EMFILE)
		return -EMFILE;
	if (objects_fd < 0)
		return 0;
	r = shms_tier_open(p, store->st.st_uid, &t);
	if (r < 0)
		return r == -ENOMEM || r == -EMFILE ? r : 0; /* another user's */
	r = shms_tier_lock_names(objects_fd);
	if (r == 0)
		r = empty_clean(t, clean_fd);
	shms_tier_close(t);
	return r;
}

/* ---- setting and taking away ----------------------------------------------------------------- */

/* Takes the configured tier away, once. -EBUSY: somebody put something there
 * meanwhile, and it is as before. */
static int take_away_once(struct setting *s)
{
	uint64_t n_unreadable = 0;
	int r = holds_objects(s);

	if (r == 0)
		r = shms_walk_stores(s->p, drop_clean, s->p);
	if (r == 0)
		r = shms_gc_tier_only(s->p);
	if (r < 0)
		return r;
	if (renameat(s->tier_fd, SHMS_TIER_CONFIG, s->tier_fd, SHMS_TIER_CONFIG_NEW) < 0)
		return shms_error(errno);
	r = shms_tierscan_users(s->p, -1, remove_user, s, &n_unreadable);
	if (r == 0 && n_unreadable)
		r = -EBUSY;
	if (r < 0) {
		renameat(s->tier_fd, SHMS_TIER_CONFIG_NEW, s->tier_fd, SHMS_TIER_CONFIG);
		return r;
	}
	shms_tierroom_remove(s->tier_fd);
	remove_files_directory(s);
	unlinkat(s->tier_fd, SHMS_TIER_CONFIG_NEW, 0);
	return 0;
}

/* s->config is the one that is there. */
static int take_away(struct setting *s)
{
	int r = -EBUSY;

	shms_detail_clear();
	for (int i = 0; i < TRIES && r == -EBUSY && !*shmstore_error_detail(); i++)
		r = take_away_once(s);
	if (r == -EBUSY && !*shmstore_error_detail())
		return shms_detail(-EBUSY, s->p->path,
				   "the tier in %s is in use: objects are being demoted, or other "
				   "users have some there",
				   s->config.path);
	return r;
}

/* ---- the call -------------------------------------------------------------------------------- */

static int open_tier(struct setting *s, bool make)
{
	int r;

	s->tier_fd = make ? make_directory(s, s->p->fd, SHMS_DIR_TIER)
			  : shms_open_dir(s->p->fd, SHMS_DIR_TIER);
	if (s->tier_fd == -EPERM)
		return shms_detail(-EPERM, s->p->path,
				   "%s/tier was made by somebody whom the partition does not "
				   "belong to: remove it first",
				   s->p->path);
	if (s->tier_fd < 0)
		return shms_error(s->tier_fd);
	r = shms_tier_flock(s->tier_fd, LOCK_MS);
	/* A killed process left it whole: it was in force, or was to be. */
	if (r == 0 && shms_tier_config_read_left(s->p, &s->config) == 0)
		shms_rename_noreplace(s->tier_fd, SHMS_TIER_CONFIG_NEW, s->tier_fd,
				      SHMS_TIER_CONFIG);
	return r == -EBUSY
		       ? shms_detail(-EBUSY, s->p->path,
				     "another process is just setting the tier of %s", s->p->path)
		       : r;
}

static int count_anchors(struct shms_tier *user, void *arg)
{
	_names_ struct shms_names d = shms_names(user->dir_fd, ".");
	struct stat st;
	uint64_t id;

	if (d.error < 0) {
		*(uint64_t *)arg += user->closed;
		return 0;
	}
	while (shms_names_next(&d))
		*(uint64_t *)arg += shms_tier_parse_name(d.name, "stub", &id) == 0 &&
				    fstatat(d.fd, d.name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
				    st.st_nlink > 1;
	return 0;
}

/* The old configuration cannot be read. Are objects in the tier, and their files
 * not where the new one says? */
static int check_lost(const struct setting *s, const struct shms_tier_config *config)
{
	uint64_t n = 0, n_unreadable = 0;
	_fd_ int root = shms_tierscan_root(s->p, config);
	int r = root >= 0 ? 0 : shms_tierscan_users(s->p, -1, count_anchors, &n, &n_unreadable);

	if (r == 0 && n)
		return shms_detail(
			-EBUSY, s->p->path,
			"%s/tier/config cannot be read, and objects are in the tier: set it with "
			"the path where they are, which holds a directory %s",
			s->p->path, s->p->uuid);
	return r;
}

static int set(struct setting *s, const struct shms_tier_config *config)
{
	int r = open_tier(s, true);

	if (r < 0)
		return r;
	r = shms_tier_config_read(s->p, &s->config);
	if (r == 0 && strcmp(s->config.path, config->path) != 0)
		r = take_away(s);
	/* A damaged or foreign configuration is replaced; objects that are there keep the path. */
	if (r == -EBADMSG || r == -EPERM)
		r = check_lost(s, config);
	if (r < 0 && r != -ENOENT)
		return r;
	s->config = *config;
	shms_detail_clear();
	r = make_files_directory(s);
	return r < 0 ? r : write_config(s);
}

static int unset(struct setting *s)
{
	int r = open_tier(s, false);

	if (r == -ENOENT)
		return 0;
	if (r == 0)
		r = shms_tier_config_read(s->p, &s->config);
	if (r == 0)
		r = take_away(s);
	if (r == 0 || r == -ENOENT) {
		unlinkat(s->tier_fd, SHMS_TIER_CONFIG_NEW, 0);
		unlinkat(s->p->fd, SHMS_DIR_TIER, AT_REMOVEDIR);
		r = 0;
	}
	return r;
}

int shmstore_tier_set(struct shmstore_partition *p, const struct shmstore_tier_config *config)
{
	struct setting s = {.p = p, .tier_fd = -1};
	struct shms_tier_config wanted;
	int r;

	if (!p)
		return shms_detail_null("p");
	if (!p->tmpfs)
		return shms_detail(-ENOTSUP, p->path,
				   "%s is on disk already: it has no use for a disk tier", p->path);
	if (fstat(p->fd, &s.owner) < 0)
		return shms_error(errno);
	if (s.owner.st_uid != geteuid() && geteuid() != 0)
		return shms_detail(-EPERM, p->path,
				   "%s is user %u's: only its owner, or root, sets its tier",
				   p->path, (unsigned)s.owner.st_uid);
	s.mode = s.owner.st_mode & S_ISVTX ? 01777 : 0700;
	r = config ? read_config(config, &wanted) : 0;
	if (r == 0)
		r = config ? set(&s, &wanted) : unset(&s);
	shms_unlock_fd(s.tier_fd);
	return r;
}
