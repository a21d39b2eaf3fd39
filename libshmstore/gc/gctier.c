/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gctier.c: tier files that no object has any more.
 *
 * An anchor whose stub has no other name is garbage for ever: nobody links from an anchor. With it
 * go the tier file and the resident, in the order of tier.h, the anchor last. Files without an
 * anchor are garbage too: the anchor is made first.
 *
 * A user's files without a directory of anchors, which is made before them and removed by nobody
 * but who finds it empty, are not judged: somebody meddled. Neither is anything where the disk's
 * side may not be read. Where the disk is away the anchors go all the same; the files are found
 * without them when it is back.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alloc.h"
#include "cleanup.h"
#include "gc.h"
#include "gcaction.h"
#include "inodes.h"
#include "mount.h"
#include "partition.h"
#include "sys.h"
#include "tiermark.h"
#include "tierscan.h"

/* Without a configuration: was it just being taken away, or set, by somebody who was killed? Then
 * it is put back, and gc does its work on that tier. */
static int put_back(struct shms_gc *g)
{
	static const char path[] = SHMS_DIR_TIER "/" SHMS_TIER_CONFIG_NEW;
	struct shmstore_gc_action a = {.what = SHMSTORE_GC_TORN};
	struct shms_tier_config config;
	_locked_ int fd = shms_open_dir(g->p->fd, SHMS_DIR_TIER);
	int r;

	if (fd < 0 || shms_tier_flock(fd, 0) < 0 || shms_tier_config_read_left(g->p, &config) < 0)
		return 0;
	r = g->gone ? 0 : shms_rename_noreplace(fd, SHMS_TIER_CONFIG_NEW, fd, SHMS_TIER_CONFIG);
	if (r == -EEXIST || r == -ENOENT)
		return 0; /* somebody was faster */
	a.error = r < 0 ? shms_error(r) : 0;
	if (r == 0)
		r = shms_tierfind_use(&g->find, &config);
	return r == -ENOMEM || r == -EMFILE ? r
					    : shms_gc_tell(g, &a, path,
							   "who set the disk tier, or took it "
							   "away, was killed: it is put in force");
}

int shms_gc_tier_open(struct shms_gc *g)
{
	int r = shms_tierfind_open(&g->find);

	if (r == 0 && !g->find.config)
		return put_back(g);
	if (r == 0 || r == -ENOMEM || r == -EMFILE)
		return r;
	return shms_gc_kept(g, SHMS_DIR_TIER "/" SHMS_TIER_CONFIG,
			    "the disk tier's configuration cannot be believed: %s",
			    r == -EPERM ? "it is not the partition's owner's" : "it is damaged");
}

/* ---- one user -------------------------------------------------------------------------------- */

struct tiering {
	struct shms_gc *g;
	const char *side; /* path of the directory at hand: below the partition, or absolute */
	struct shms_gc_odd odd;
};

/* Tells what became of the name in the directory at hand. */
static int tell(struct tiering *t, struct shmstore_gc_action *a, const char *name,
		const struct shms_tierdrop *freed, const char *evidence)
{
	_free_ char *path = shms_printed("%s/%s", t->side, name);

	return path ? shms_gc_freed(t->g, a, freed, path, evidence) : -ENOMEM;
}

/* Is the anchor's stub named by nothing else, in a dry run after what was planned? */
static bool alone(const struct shms_gc *g, const struct stat *anchor)
{
	const struct shms_inode *i = g->gone ? shms_inodes_find(g->gone, anchor->st_ino) : NULL;

	return anchor->st_nlink - (i ? i->n_gone : 0) == 1;
}

static int one_anchor(struct tiering *t, struct shms_tier *user, const char *name, uint64_t id)
{
	struct shmstore_gc_action a = {.what = SHMSTORE_GC_ANCHOR};
	struct shms_tierdrop freed = {0};
	struct stat st;

	if (fstatat(user->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISLNK(st.st_mode) ||
	    !alone(t->g, &st))
		return 0;
	a.error = shms_tierdrop_forget(user, id, t->g->gone, &freed);
	return tell(t, &a, name, &freed, "no store names the object any more");
}

/* A resident beside whose name there is no anchor. */
static int one_resident(struct tiering *t, struct shms_tier *user, const char *name, uint64_t id)
{
	struct shmstore_gc_action a = {.what = SHMSTORE_GC_TORN, .n_objects = 1};
	char anchor[SHMS_TIER_NAME];
	_free_ char *path = NULL;

	shms_tier_anchor_name(id, anchor);
	if (shms_lookup(user->dir_fd, anchor) == 0 || errno != ENOENT)
		return 0;
	path = shms_printed("%s/%s", t->side, name);
	return path ? shms_gc_remove(t->g, &a, user->dir_fd, name, path,
				     "a promoted object of which no store holds a stub any more")
		    : -ENOMEM;
}

static int one_of_anchors(struct tiering *t, struct shms_tier *user, const char *name)
{
	uint64_t id;

	if (shms_tier_parse_name(name, "stub", &id) == 0)
		return one_anchor(t, user, name, id);
	if (shms_tier_parse_name(name, "object", &id) == 0)
		return one_resident(t, user, name, id);
	if (strcmp(name, SHMS_TIER_LOCK) != 0)
		shms_gc_odd_note(&t->odd, name);
	return 0;
}

static int one_of_files(struct tiering *t, struct shms_tier *user, const char *name)
{
	struct shmstore_gc_action a = {.what = SHMSTORE_GC_TIER};
	const char *evidence = "a tier file without an anchor: no store names it";
	struct shms_tierdrop freed;
	char anchor[SHMS_TIER_NAME];
	bool writing = false;
	uint64_t id;

	if (shms_tier_parse_name(name, NULL, &id) == 0) {
		shms_tier_anchor_name(id, anchor);
		if (shms_lookup(user->dir_fd, anchor) == 0 || errno != ENOENT)
			return 0;
	} else if (shms_tierscan_tmp(user->files_fd, name, &writing)) {
		evidence = "half a tier file: its writer is dead";
	} else {
		shms_gc_odd_note(&t->odd, name);
		return 0;
	}
	if (writing)
		return 0;
	a.error = shms_gc_take_file(t->g, user->files_fd, name, &freed);
	return tell(t, &a, name, &freed, evidence);
}

static int each_name(struct tiering *t, struct shms_tier *user, int fd,
		     int (*fn)(struct tiering *t, struct shms_tier *user, const char *name))
{
	if (fd < 0)
		return 0;
	_names_ struct shms_names d = shms_names_beneath(fd, ".");

	t->odd.n = 0;
	while (shms_names_next(&d))
		d.error = fn(t, user, d.name);
	return d.error ? d.error : shms_gc_odd_tell(t->g, &t->odd, t->side);
}

static int on_user(struct shms_tier *user, void *arg)
{
	struct shms_gc *g = arg;
	char below[32];
	_free_ char *files = NULL;
	struct tiering t = {.g = g, .side = below};
	int r;

	snprintf(below, sizeof(below), SHMS_DIR_TIER "/%u", (unsigned)user->uid);
	if (user->closed)
		return shms_gc_kept(
			g, below,
			"user %u's part of the disk tier may not be looked into, or is not his",
			(unsigned)user->uid);
	files = shms_printed("%s/%s/%u", g->find.config->path, g->p->uuid, (unsigned)user->uid);
	if (!files)
		return -ENOMEM;
	if (user->dir_fd < 0)
		return shms_gc_kept(
			g, files,
			"the anchors of these tier files are not where they should be: %s/%s",
			g->p->path, below);
	r = each_name(&t, user, user->dir_fd, one_of_anchors);
	t.side = files;
	if (r == 0)
		r = each_name(&t, user, user->files_fd, one_of_files);
	/* A killed process left the user's count too high. */
	if (r == 0 && !g->gone)
		shms_tierroom_recount(user);
	return r;
}

/* ---- the tier -------------------------------------------------------------------------------- */

/* A configuration or mark half written, unless somebody is just at it. */
static int torn_text(struct shms_gc *g, int dirfd, const char *name, const char *path)
{
	struct shmstore_gc_action a = {.what = SHMSTORE_GC_TORN, .n_objects = 1};
	struct shms_tierdrop freed;

	if (dirfd < 0 || shms_lookup(dirfd, name) < 0)
		return 0;
	a.error = shms_gc_take(g, dirfd, name, &freed);
	/* The mark is on the disk, the configuration in memory. */
	if (path[0] == '/')
		freed = (struct shms_tierdrop){.disk = freed.memory};
	return shms_gc_freed(g, &a, &freed, path, "half written: who set the tier was killed");
}

static int torn_texts(struct shms_gc *g)
{
	_free_ char *mark =
		shms_printed("%s/%s/" SHMS_TIERMARK_NEW, g->find.config->path, g->p->uuid);
	_locked_ int fd = shms_open_dir(g->p->fd, SHMS_DIR_TIER);
	int r = 0;

	if (!mark)
		return -ENOMEM;
	if (fd < 0 || shms_tier_flock(fd, 0) < 0)
		return 0;
	/* Beside the one in force it is nothing; alone and whole it was put back,
	 * or in a dry run would be. */
	if (shms_lookup(fd, SHMS_TIER_CONFIG) == 0)
		r = torn_text(g, fd, SHMS_TIER_CONFIG_NEW, SHMS_DIR_TIER "/" SHMS_TIER_CONFIG_NEW);
	return r ? r : torn_text(g, g->find.files_root, SHMS_TIERMARK_NEW, mark);
}

int shms_gc_tier(struct shms_gc *g)
{
	uint64_t n_unreadable = 0;
	int r;

	if (!g->find.config)
		return 0;
	if (g->find.files_root == SHMS_TIERFIND_CLOSED)
		return shms_gc_kept(g, g->find.config->path,
				    "the disk tier's directory may not be looked into");
	r = shms_tierscan_users(g->p, g->find.files_root, on_user, g, &n_unreadable);
	return r ? r : torn_texts(g);
}

int shms_gc_tier_only(struct shmstore_partition *p)
{
	struct shms_gc g = SHMS_GC_INIT(p, NULL, NULL);
	int r = shms_gc_tier_open(&g);

	if (r == 0)
		r = shms_gc_tier(&g);
	shms_tierfind_close(&g.find);
	return r;
}

/* ---- tiers of partitions that are gone ------------------------------------------------------- */

/*
 * Several partitions may have their tiers below one directory. A partition lives in
 * memory: when the host went down, or its file system was unmounted, its tier files stay behind,
 * and no gc of its own will ever run. So gc looks at its neighbours as well. tiermark.c proves that
 * one is gone; without proof it stays, and is reported.
 *
 * Of a directory whose partition is gone only what we make goes: users' directories with tier
 * files, and the mark, which goes last, so that the next gc finishes a killed one. Other files
 * stay, and the directory too.
 */

struct away {
	struct shms_gc *g;
	int root_fd; /* the directory at hand */
	uint64_t n_left;
	struct shms_tierdrop freed;
	int error;
};

/* Takes a file of the directory fd, or counts it as left. */
static int take(struct away *a, int fd, const char *name)
{
	struct shms_tierdrop freed;
	int r = shms_gc_take_file(a->g, fd, name, &freed);

	if (r == -ENOMEM)
		return r;
	if (r < 0 && r != -ENOENT) {
		a->n_left++;
		a->error = a->error ? a->error : r;
		return 0;
	}
	a->freed.disk += freed.disk;
	a->freed.n_files += freed.n_files;
	return 0;
}

static int empty_user(struct away *a, const char *name)
{
	_names_ struct shms_names d = shms_names_beneath(a->root_fd, name);
	uint64_t left = a->n_left, id;
	bool writing;

	if (!d.dir) {
		a->n_left++;
		return d.error;
	}
	while (shms_names_next(&d)) {
		if (shms_tier_parse_name(d.name, NULL, &id) == 0 ||
		    (shms_tierscan_tmp(d.fd, d.name, &writing) && !writing))
			d.error = take(a, d.fd, d.name);
		else
			a->n_left++;
	}
	if (d.error == 0 && a->n_left == left && !a->g->gone &&
	    unlinkat(a->root_fd, name, AT_REMOVEDIR) < 0)
		a->n_left += errno != ENOENT;
	return d.error;
}

static int empty_root(struct away *a)
{
	_names_ struct shms_names d = shms_names_beneath(a->root_fd, ".");
	uid_t uid;

	while (shms_names_next(&d)) {
		if (strcmp(d.name, SHMS_TIERMARK_FILE) == 0)
			continue;
		if (shms_tier_uid(d.name, &uid))
			d.error = empty_user(a, d.name);
		else if (strcmp(d.name, SHMS_TIERMARK_NEW) == 0)
			d.error = take(a, a->root_fd, d.name);
		else
			a->n_left++;
	}
	return d.error;
}

static int remove_root(struct shms_gc *g, int disk_fd, const char *name, int root_fd,
		       const char *path, const char *why)
{
	struct shmstore_gc_action action = {.what = SHMSTORE_GC_TIER_OF};
	struct away a = {.g = g, .root_fd = root_fd};
	int r = empty_root(&a);

	if (r < 0)
		return r;
	g->report.n_tier += a.freed.n_files;
	if (!a.n_left) {
		r = take(&a, root_fd, SHMS_TIERMARK_FILE);
		if (r == 0 && !g->gone && unlinkat(disk_fd, name, AT_REMOVEDIR) < 0 &&
		    errno != ENOENT)
			a.error = shms_error(errno);
	}
	if (r < 0)
		return r;
	action.error = a.error;
	action.tier_bytes = a.freed.disk;
	if (a.error)
		g->report.tier_freed += a.freed.disk; /* what went, went */
	if (a.n_left)
		return shms_gc_tell(
			g, &action, path,
			"%s; the directory stays: not all in it is tier files, or may go", why);
	return shms_gc_tell(g, &action, path, "%s", why);
}

static int one_partition(struct shms_gc *g, int disk_fd, const char *name)
{
	struct shms_tiermark_facts facts = {.whole = false};
	struct shms_tiermark mark;
	_free_ char *path = NULL;
	const char *why;
	int r;
	_fd_ int fd = shms_open_dir(disk_fd, name);

	if (fd < 0)
		return fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM ? shms_error(fd) : 0;
	path = shms_printed("%s/%s", g->find.config->path, name);
	if (!path)
		return -ENOMEM;
	r = shms_tiermark_read(fd, &mark);
	if (r == -EMFILE || r == -ENOMEM)
		return r;
	if (r < 0 || strcmp(mark.uuid, name) != 0)
		return shms_gc_kept(
			g, path,
			"it looks like the tier of another partition, but does not say of which");
	r = shms_tiermark_of(g->p, &facts.here);
	if (r < 0)
		return shms_gc_kept(
			g, path,
			"the tier of another partition: which host this is cannot be told");
	if (strcmp(mark.boot, facts.here.boot) == 0) {
		r = shms_mount_anywhere((dev_t)mark.device, &facts.whole);
		if (r < 0)
			return r;
		facts.mounted = r > 0;
	}
	if (!shms_tiermark_gone(&mark, &facts, &why))
		return shms_gc_kept(g, path, "%s", why);
	return remove_root(g, disk_fd, name, fd, path, why);
}

int shms_gc_away(struct shms_gc *g)
{
	int fd = g->find.config ? open(g->find.config->path,
				       O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK)
				: -1;

	if (fd < 0)
		return 0;
	_names_ struct shms_names d = shms_names_of(fd);

	d.error = shms_error(d.error);
	while (shms_names_next(&d)) {
		/* By a uuid's name. */
		if (strlen(d.name) == 36 && strspn(d.name, "0123456789abcdef-") == 36 &&
		    strcmp(d.name, g->p->uuid) != 0)
			d.error = one_partition(g, d.fd, d.name);
	}
	return d.error == -EIO ? 0 : d.error;
}
