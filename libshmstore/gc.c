/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gc.c: removes what nobody owns.
 *
 * Model: look first, then act. A walk lists the directories of the partition that are stores or look like one half made; then each
 * is judged and dealt with on its own, the deepest first. A dry run takes the same way, locks included, up to the one call that
 * removes a name: there it notes in a set of inodes what would be gone, so that the bytes it tells are those of a real run
 * also where several dead stores link the same inode.
 *
 * What makes it safe: an owner is dead only if the exclusive lock of its store's page can be had, and the lock is held while the
 * store is dealt with; so of several gc at once, and of gc and a new owner, one acts. Pids are evidence, never a reason. A
 * directory without a page is removed by rmdir alone, which the kernel refuses as soon as there is anything in it; who is
 * just making a store there finds its directory gone and makes it again. What we may not look into, cannot read, or do not
 * know, stays, and is said.
 *
 * Killed anywhere: teardown.h's order leaves a dead store that is still plainly one, or an empty directory. Peers go before stores,
 * so that what is said of them does not depend on whether their store was removed a moment ago.
 */
#include "gc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <shmstore/inspect.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "inodes.h"
#include "lease.h"
#include "name.h"
#include "page.h"
#include "partition.h"
#include "sys.h"
#include "teardown.h"
#include "walk.h"

#define TEMPORARY     ".tmp-" /* a name in peers/ on its way */
#define TEMPORARY_AGE (60 * 1000000000ll)

struct candidate {
	char *below; /* path below the partition */
	bool store;  /* it has a page */
	uid_t uid;
};

struct gc {
	struct shmstore_partition *p;
	struct shms_inodes *gone; /* dry run: names that would be gone; NULL: remove them */
	int (*fn)(const struct shmstore_gc_action *action, void *arg);
	void *arg;
	struct shmstore_gc_report report;
	uint64_t now_ms;
	uint8_t boot[16];
	struct candidate *list;
	size_t n_list, list_size;
};

/* A store at hand. */
struct target {
	const struct candidate *c;
	int parentfd, fd;
	const char *name;
	struct shms_page page;
	uint64_t now_ms; /* UINT64_MAX: all its leases are of another boot */
};

/* ---- telling ------------------------------------------------------------------------------------------------------- */

static int tell(struct gc *g, struct shmstore_gc_action *a, const char *below, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* Reports a; its path is the partition's with below. */
static int tell(struct gc *g, struct shmstore_gc_action *a, const char *below, const char *format, ...)
{
	char evidence[512];
	_free_ char *path = NULL;
	va_list args;

	if (!a->error)
		g->report.freed += a->bytes;
	if (!g->fn)
		return 0;
	va_start(args, format);
	vsnprintf(evidence, sizeof(evidence), format, args);
	va_end(args);
	if (asprintf(&path, "%s/%s", g->p->path, below) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	a->size = sizeof(*a);
	a->path = path;
	a->evidence = evidence;
	return g->fn(a, g->arg);
}

#define kept(g, below, ...) tell((g), &(struct shmstore_gc_action){.what = SHMSTORE_GC_KEPT}, (below), __VA_ARGS__)

/* ---- taking away --------------------------------------------------------------------------------------------------- */

/* The one place where a name goes, or in a dry run would. ret_bytes: what that frees. 0, -ENOENT (gone already), -errno. */
static int take_away(struct gc *g, int dirfd, const char *name, uint64_t *ret_bytes)
{
	struct shms_inode *i;
	struct stat st;

	*ret_bytes = 0;
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return shms_error(errno);
	if (!g->gone) {
		if (unlinkat(dirfd, name, 0) < 0)
			return shms_error(errno);
		if (st.st_nlink == 1)
			*ret_bytes = shms_blocks(&st);
		return 0;
	}
	if (S_ISDIR(st.st_mode))
		return shms_error(EISDIR);
	i = shms_inodes_get(g->gone, st.st_ino);
	if (!i)
		return -ENOMEM;
	if (++i->n_gone == st.st_nlink)
		*ret_bytes = shms_blocks(&st);
	return 0;
}

static bool dot(const char *name)
{
	return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

/* Opens the directory name of fd for reading its names. *ret is NULL where there is none, or none that we may read. */
static int open_names(int fd, const char *name, DIR **ret)
{
	int dir = shms_open_beneath(fd, name, O_RDONLY | O_DIRECTORY);

	*ret = NULL;
	if (dir < 0)
		return dir == -EMFILE || dir == -ENFILE || dir == -ENOMEM ? shms_error(dir) : 0;
	*ret = fdopendir(dir);
	if (!*ret) {
		shms_close_fd(dir);
		return -ENOMEM;
	}
	return 0;
}

/* Calls fn for each name in a part of a store. */
static int each_name(struct gc *g, struct target *t, const char *part,
		     int (*fn)(struct gc *g, struct target *t, int dirfd, const char *name, void *arg), void *arg)
{
	_dir_ DIR *dir = NULL;
	struct dirent *e;
	int r = open_names(t->fd, part, &dir);

	while (r == 0 && dir && (e = shms_readdir(dir, &r)) != NULL) {
		if (!dot(e->d_name))
			r = fn(g, t, dirfd(dir), e->d_name, arg);
	}
	return r;
}

/* Takes one file of a store away and tells it. below: the store's path, part, name. */
static int take_one(struct gc *g, struct target *t, int dirfd, const char *part, const char *name,
		    enum shmstore_gc_what what, const char *evidence)
{
	struct shmstore_gc_action a = {.what = what, .n_objects = 1};
	_free_ char *below = NULL;

	if (asprintf(&below, "%s/%s/%s", t->c->below, part, name) < 0) {
		below = NULL;
		return -ENOMEM;
	}
	a.error = take_away(g, dirfd, name, &a.bytes);
	if (a.error == -ENOENT)
		return 0; /* its receiver, owner or another gc was faster */
	if (a.error == -ENOMEM)
		return a.error;
	if (!a.error && what == SHMSTORE_GC_LEASE)
		g->report.n_leases++;
	else if (!a.error)
		g->report.n_objects++;
	return tell(g, &a, below, "%s", evidence);
}

/* ---- a dead store that nobody keeps -------------------------------------------------------------------------------- */

struct dry {
	struct shms_teardown *t;
	bool leases;
};

/* What shms_teardown_store() does with one name, in a dry run. */
static int dry_name(struct gc *g, struct target *t, int dirfd, const char *name, void *arg)
{
	struct dry *d = arg;
	uint64_t expiry, bytes;
	int r;

	if (d->leases && shms_lease_parse(name, &expiry) && expiry > t->now_ms) {
		d->t->n_left++;
		return 0;
	}
	r = take_away(g, dirfd, name, &bytes);
	if (r == -ENOMEM)
		return r;
	d->t->freed += bytes;
	if (r == 0 && d->leases)
		d->t->n_leases++;
	else if (r == 0)
		d->t->n_objects++;
	else if (r != -ENOENT && !d->t->error)
		d->t->error = r;
	return 0;
}

static int dry_teardown(struct gc *g, struct target *t, struct shms_teardown *io)
{
	uint64_t bytes = 0;
	int r = each_name(g, t, SHMS_DIR_RECYCLE, dry_name, &(struct dry){io, false});

	if (r == 0)
		r = each_name(g, t, SHMS_DIR_OBJECTS, dry_name, &(struct dry){io, false});
	if (r == 0)
		r = each_name(g, t, SHMS_DIR_HANDOFF, dry_name, &(struct dry){io, true});
	if (r == 0 && !io->n_left && !io->error) {
		take_away(g, t->fd, SHMS_PAGE_FILE, &bytes);
		io->freed += bytes;
	}
	return r;
}

static int dead_store(struct gc *g, struct target *t)
{
	struct shms_teardown d = {0};
	struct shmstore_gc_action a = {.what = SHMSTORE_GC_STORE};
	unsigned long long left;
	int r = 0;

	if (g->gone)
		r = dry_teardown(g, t, &d);
	else
		shms_teardown_store(t->parentfd, t->name, t->fd, t->now_ms, &d);
	if (r < 0)
		return r;
	left = d.n_left;
	if (left && !d.n_objects && !d.n_leases && !d.error)
		return kept(
			g, t->c->below,
			"its owner (pid %u) is dead and its objects are gone, but %llu of its leases have not ended",
			t->page.pid, left);
	g->report.n_objects += d.n_objects;
	g->report.n_leases += d.n_leases;
	if (d.error)
		g->report.freed += d.freed; /* what went, went */
	else if (!left)
		g->report.n_stores++;
	a.bytes = d.freed;
	a.n_objects = d.n_objects + d.n_leases;
	a.error = d.error;
	if (left)
		return tell(g, &a, t->c->below,
			    "its owner (pid %u) is dead: the lock is free; not kept; the directory stays for %llu "
			    "leases that have not ended",
			    t->page.pid, left);
	return tell(g, &a, t->c->below, "its owner (pid %u) is dead: the lock is free; not kept", t->page.pid);
}

/* ---- stores that stay ---------------------------------------------------------------------------------------------- */

static int expired_lease(struct gc *g, struct target *t, int dirfd, const char *name, void *arg)
{
	uint64_t expiry;

	(void)arg;
	if (!shms_lease_parse(name, &expiry) || expiry > t->now_ms)
		return 0;
	return take_one(g, t, dirfd, SHMS_DIR_HANDOFF, name, SHMSTORE_GC_LEASE,
			t->now_ms == UINT64_MAX ? "the lease is of another boot"
						: "the lease has ended, and nobody took it");
}

static int pool_file(struct gc *g, struct target *t, int dirfd, const char *name, void *arg)
{
	(void)arg;
	return take_one(g, t, dirfd, SHMS_DIR_RECYCLE, name, SHMSTORE_GC_POOL,
			"kept for the next put of an owner that is dead: the lock is free");
}

static int orphan_sidecar(struct gc *g, struct target *t, int dirfd, const char *name, void *arg)
{
	unsigned char key[SHMS_NAME_SIZE];
	char hashed[SHMS_NAME_SIZE];
	size_t n;

	(void)arg;
	if (shms_name_decode(name, key, &n) != SHMS_NAME_SIDECAR)
		return 0;
	snprintf(hashed, sizeof(hashed), "%%h%s", name + 2);
	if (faccessat(dirfd, hashed, F_OK, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
		return 0;
	return take_one(g, t, dirfd, SHMS_DIR_OBJECTS, name, SHMSTORE_GC_TORN,
			"the key of an object that is gone, in a store whose owner is dead");
}

struct strange {
	bool leases;
	unsigned long long n;
	char name[SHMS_NAME_SIZE];
};

static int count_strange(struct gc *g, struct target *t, int dirfd, const char *name, void *arg)
{
	struct strange *s = arg;
	unsigned char key[SHMS_NAME_SIZE];
	uint64_t expiry;
	size_t n;

	(void)g;
	(void)t;
	(void)dirfd;
	if (s->leases ? shms_lease_parse(name, &expiry) : shms_name_decode(name, key, &n) != SHMS_NAME_FOREIGN)
		return 0;
	if (s->n++ == 0)
		snprintf(s->name, sizeof(s->name), "%s", name);
	return 0;
}

static int count_files(struct gc *g, struct target *t, int dirfd, const char *name, void *arg)
{
	(void)g;
	(void)t;
	(void)dirfd;
	(void)name;
	++*(unsigned long long *)arg;
	return 0;
}

static int say_strange(struct gc *g, struct target *t, const char *part, bool leases)
{
	struct strange s = {.leases = leases};
	_free_ char *below = NULL;
	int r = each_name(g, t, part, count_strange, &s);

	if (r < 0 || r > 0 || s.n == 0)
		return r;
	if (asprintf(&below, "%s/%s/%s", t->c->below, part, s.name) < 0) {
		below = NULL;
		return -ENOMEM;
	}
	if (s.n > 1)
		return kept(g, below, "not a name that we make, nor are %llu others beside it", s.n - 1);
	return kept(g, below, "not a name that we make");
}

static int strange_names(struct gc *g, struct target *t)
{
	int r = g->fn ? say_strange(g, t, SHMS_DIR_OBJECTS, false) : 0;

	return r == 0 && g->fn ? say_strange(g, t, SHMS_DIR_HANDOFF, true) : r;
}

static int live_store(struct gc *g, struct target *t)
{
	unsigned long long n_pool = 0;
	_free_ char *below = NULL;
	int r = each_name(g, t, SHMS_DIR_HANDOFF, expired_lease, NULL);

	if (r == 0)
		r = strange_names(g, t);
	if (r == 0)
		r = each_name(g, t, SHMS_DIR_RECYCLE, count_files, &n_pool);
	if (r < 0 || r > 0 || n_pool == 0)
		return r;
	if (asprintf(&below, "%s/%s", t->c->below, SHMS_DIR_RECYCLE) < 0) {
		below = NULL;
		return -ENOMEM;
	}
	return kept(g, below, "%llu files for the next puts of an owner that lives: it holds the lock", n_pool);
}

static int kept_store(struct gc *g, struct target *t)
{
	int r = each_name(g, t, SHMS_DIR_HANDOFF, expired_lease, NULL);

	if (r == 0)
		r = each_name(g, t, SHMS_DIR_RECYCLE, pool_file, NULL);
	if (r == 0)
		r = each_name(g, t, SHMS_DIR_OBJECTS, orphan_sidecar, NULL);
	if (r == 0)
		r = strange_names(g, t);
	if (r == 0)
		r = kept(g, t->c->below, "its owner (pid %u) is dead, but asked that the store be kept", t->page.pid);
	return r;
}

/* ---- one directory ------------------------------------------------------------------------------------------------- */

/* Opens the directory that below lies in; *ret_name is its last component. */
static int open_parent(struct gc *g, const char *below, const char **ret_name)
{
	const char *slash = strrchr(below, '/');
	char parent[PATH_MAX];

	*ret_name = slash ? slash + 1 : below;
	if (!slash)
		return shms_open_beneath(g->p->fd, ".", O_RDONLY | O_DIRECTORY);
	if ((size_t)(slash - below) >= sizeof(parent))
		return -ENAMETOOLONG;
	memcpy(parent, below, (size_t)(slash - below));
	parent[slash - below] = '\0';
	return shms_open_beneath(g->p->fd, parent, O_RDONLY | O_DIRECTORY);
}

static bool is_part(const char *name)
{
	return strcmp(name, SHMS_DIR_OBJECTS) == 0 || strcmp(name, SHMS_DIR_HANDOFF) == 0 ||
	       strcmp(name, SHMS_DIR_RECYCLE) == 0;
}

static int directory_empty(int fd, const char *name)
{
	_dir_ DIR *dir = NULL;
	struct dirent *e;
	int r = open_names(fd, name, &dir);

	if (r < 0 || !dir)
		return r;
	while ((e = shms_readdir(dir, &r)) != NULL) {
		if (!dot(e->d_name))
			return 0;
	}
	return r < 0 ? r : 1;
}

/* Does fd hold nothing but empty parts of a store? 1, 0, -errno. ret_n: how many. */
static int only_parts(int fd, unsigned *ret_n)
{
	_dir_ DIR *dir = NULL;
	struct dirent *e;
	int r = open_names(fd, ".", &dir);

	*ret_n = 0;
	if (r < 0 || !dir)
		return r;
	while ((e = shms_readdir(dir, &r)) != NULL) {
		if (dot(e->d_name))
			continue;
		if (!is_part(e->d_name))
			return 0;
		r = directory_empty(fd, e->d_name);
		if (r != 1)
			return r;
		++*ret_n;
	}
	return r < 0 ? r : 1;
}

/* stores/<name>: nobody but us makes directories there. */
static bool is_default_place(const char *below)
{
	return strncmp(below, SHMS_DIR_STORES "/", sizeof(SHMS_DIR_STORES)) == 0 &&
	       !strchr(below + sizeof(SHMS_DIR_STORES), '/');
}

/* A directory that may be a store and has no page. */
static int torn(struct gc *g, struct target *t)
{
	static const char *const parts[] = {SHMS_DIR_RECYCLE, SHMS_DIR_OBJECTS, SHMS_DIR_HANDOFF};
	struct shmstore_gc_action a = {.what = SHMSTORE_GC_TORN};
	bool in_stores = is_default_place(t->c->below);
	unsigned n = 0;
	int r = only_parts(t->fd, &n);

	if (r < 0)
		return r;
	/* Elsewhere directories are made by others too: an empty one is not ours, and one that holds things is none of ours. */
	if (r == 0)
		return in_stores ? kept(g, t->c->below, "it has no page, but holds something") : 0;
	if (n == 0 && !in_stores)
		return 0;
	/* A part of a store is its store's to deal with, also of one whose page came after the walk had passed. */
	if (is_part(t->name) && !(in_stores && !strchr(t->c->below + sizeof(SHMS_DIR_STORES), '/')))
		return 0;
	/* We never leave parts without a page; who makes some just now has linked it by then, or is told to begin again. */
	if (n && !g->gone && shms_page_alive(t->fd) != -ENOENT)
		return 0;
	for (size_t i = 0; !g->gone && i < sizeof(parts) / sizeof(parts[0]); i++)
		unlinkat(t->fd, parts[i], AT_REMOVEDIR); /* refused where there is something by now */
	if (!g->gone && unlinkat(t->parentfd, t->name, AT_REMOVEDIR) < 0) {
		if (errno == ENOENT || errno == ENOTEMPTY || errno == EEXIST)
			return 0; /* somebody was just making or removing it */
		a.error = shms_error(errno);
	}
	return tell(g, &a, t->c->below,
		    "a store's directory without a page or anything else: who made or removed it was killed");
}

static int with_page(struct gc *g, struct target *t)
{
	_fd_ int lock = shms_page_lock(t->fd);
	int r;

	if (lock == -ENOENT)
		return 0; /* gone, or made anew, meanwhile */
	if (lock == -EMFILE || lock == -ENOMEM)
		return lock;
	if (lock == -EBUSY)
		return live_store(g, t);
	if (lock < 0)
		return kept(g, t->c->below, "it belongs to user %u: we may not try its lock", (unsigned)t->c->uid);
	r = shms_page_read(t->fd, &t->page);
	if (r == -EMFILE || r == -ENOMEM)
		return r;
	if (r < 0)
		return kept(g, t->c->below,
			    "its owner is dead, but its page cannot be read (%s): it may have been meant to be kept",
			    r == -ENOTSUP ? "another version" : "damaged");
	/* Another boot's leases: its clock is gone. */
	if (memcmp(t->page.boot_id, g->boot, sizeof(g->boot)) != 0)
		t->now_ms = UINT64_MAX;
	return t->page.flags & SHMS_PAGE_KEEP ? kept_store(g, t) : dead_store(g, t);
}

static int judge(struct gc *g, const struct candidate *c)
{
	struct target t = {.c = c, .now_ms = g->now_ms};
	_fd_ int parentfd = open_parent(g, c->below, &t.name);
	_fd_ int fd = parentfd < 0 ? parentfd : shms_open_beneath(parentfd, t.name, O_RDONLY | O_DIRECTORY);

	if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM)
		return shms_error(fd);
	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
		return 0;
	if (fd < 0)
		return kept(g, c->below, "it belongs to user %u: we may not look into it", (unsigned)c->uid);
	t.parentfd = parentfd;
	t.fd = fd;
	return c->store ? with_page(g, &t) : torn(g, &t);
}

/* ---- peers/ -------------------------------------------------------------------------------------------------------- */

/* Is the store that a peer's symlink leads to gone, or dead? 1 with a reason, 0, -errno. */
static int peer_gone(struct gc *g, const char *name, const char **ret_why)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(g->p->peers_fd, name, target, sizeof(target) - 1);
	int alive;

	if (n < 0)
		return 0;
	target[n] = '\0';
	if (strncmp(target, "../", 3) != 0)
		return 0; /* not as we make them */
	_fd_ int fd = shms_open_beneath(g->p->fd, target + 3, O_RDONLY | O_DIRECTORY);
	if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM)
		return shms_error(fd);
	*ret_why = "an address whose store is gone";
	if (fd == -ENOENT || fd == -ENOTDIR)
		return 1;
	if (fd < 0)
		return 0;
	alive = shms_page_alive(fd);
	if (alive == SHMSTORE_DEAD)
		*ret_why = "an address whose store's owner is dead: the lock is free";
	return alive == SHMSTORE_DEAD || alive == -ENOENT;
}

static int peer(struct gc *g, const char *name)
{
	struct shmstore_gc_action a = {.what = SHMSTORE_GC_PEER};
	const char *why = "";
	struct stat st, again;
	char below[sizeof(SHMS_DIR_PEERS) + NAME_MAX + 1];
	int r = 1;

	if (fstatat(g->p->peers_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	snprintf(below, sizeof(below), "%s/%s", SHMS_DIR_PEERS, name);
	if (!S_ISLNK(st.st_mode))
		return kept(g, below, "not a name that we make");
	if (strncmp(name, TEMPORARY, sizeof(TEMPORARY) - 1) == 0) {
		if (shms_now_real_ns() - ((int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec) < TEMPORARY_AGE)
			return kept(g, below, "not a minute old: its maker may live");
		a.what = SHMSTORE_GC_TORN;
		a.n_objects = 1;
		why = "half an address, over a minute old: its maker was killed";
	} else {
		r = peer_gone(g, name, &why);
	}
	if (r <= 0)
		return r;
	/* A new store may have taken the address over since. */
	if (fstatat(g->p->peers_fd, name, &again, AT_SYMLINK_NOFOLLOW) < 0 || again.st_ino != st.st_ino)
		return 0;
	a.error = take_away(g, g->p->peers_fd, name, &a.bytes);
	if (a.error == -ENOENT)
		return 0;
	if (!a.error)
		g->report.n_objects += a.n_objects;
	return tell(g, &a, below, "%s", why);
}

static int peers(struct gc *g)
{
	_dir_ DIR *dir = NULL;
	struct dirent *e;
	int r = open_names(g->p->peers_fd, ".", &dir);

	while (r == 0 && dir && (e = shms_readdir(dir, &r)) != NULL) {
		if (!dot(e->d_name))
			r = peer(g, e->d_name);
	}
	return r;
}

/* ---- the run ------------------------------------------------------------------------------------------------------- */

static int note(struct gc *g, const struct shms_walk_store *s, bool store)
{
	if (g->n_list == g->list_size) {
		size_t size = g->list_size ? 2 * g->list_size : 64;
		struct candidate *list = reallocarray(g->list, size, sizeof(*list));
		if (!list)
			return -ENOMEM;
		g->list = list;
		g->list_size = size;
	}
	g->list[g->n_list] = (struct candidate){.below = strdup(s->below), .store = store, .uid = s->st.st_uid};
	if (!g->list[g->n_list].below)
		return -ENOMEM;
	g->n_list++;
	return 0;
}

static int note_store(const struct shms_walk_store *s, void *arg)
{
	return note(arg, s, true);
}

static int note_other(const struct shms_walk_store *s, void *arg)
{
	return note(arg, s, false);
}

static int note_unreadable(const char *path, const struct stat *st, int error, void *arg)
{
	struct gc *g = arg;
	size_t n = strlen(g->p->path);

	if (strlen(path) <= n)
		return 0;
	return kept(g, path + n + 1,
		    error == -EXDEV ? "something is mounted there" : "it belongs to user %u: we may not look into it",
		    (unsigned)st->st_uid);
}

/* Descending, so that what is below a directory comes before it. */
static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct candidate *)b)->below, ((const struct candidate *)a)->below);
}

static int run(struct gc *g)
{
	struct shms_walk w = {.store = note_store, .other = note_other, .unreadable = note_unreadable, .arg = g};
	int r = peers(g);

	if (r == 0)
		r = shms_walk_run(&w, g->p);
	if (g->n_list)
		qsort(g->list, g->n_list, sizeof(*g->list), by_path);
	for (size_t i = 0; r == 0 && i < g->n_list; i++)
		r = judge(g, &g->list[i]);
	for (size_t i = 0; i < g->n_list; i++)
		free(g->list[i].below);
	free(g->list);
	return r;
}

int shmstore_partition_gc_plan(struct shmstore_partition *p, unsigned flags,
			       int (*fn)(const struct shmstore_gc_action *action, void *arg), void *arg,
			       struct shmstore_gc_report *ret)
{
	struct gc g = {.p = p, .fn = fn, .arg = arg, .now_ms = shms_now_boot_ms()};
	int r;

	if (!p || (flags & ~SHMSTORE_GC_DRY_RUN))
		return -EINVAL;
	shms_boot_id(g.boot);
	if (flags & SHMSTORE_GC_DRY_RUN) {
		g.gone = shms_inodes_new();
		if (!g.gone)
			return -ENOMEM;
	}
	r = run(&g);
	shms_inodes_free(g.gone);
	if (r == 0 && ret)
		*ret = g.report;
	return r;
}

int shmstore_partition_gc(struct shmstore_partition *p, unsigned flags, struct shmstore_gc_report *ret)
{
	return shmstore_partition_gc_plan(p, flags, NULL, NULL, ret);
}

/* ---- on the way ---------------------------------------------------------------------------------------------------- */

static void sweep_one(struct shmstore_partition *p, const char *name, uint64_t now_ms, const uint8_t boot[16])
{
	_fd_ int fd = shms_open_beneath(p->stores_fd, name, O_RDONLY | O_DIRECTORY);
	_fd_ int lock = fd < 0 ? -1 : shms_page_lock(fd);
	struct shms_teardown t = {0};
	struct shms_page page;

	if (lock < 0 || shms_page_read(fd, &page) < 0 || (page.flags & SHMS_PAGE_KEEP))
		return;
	if (memcmp(page.boot_id, boot, sizeof(page.boot_id)) != 0)
		now_ms = UINT64_MAX;
	shms_teardown_store(p->stores_fd, name, fd, now_ms, &t);
}

void shms_gc_sweep(struct shmstore_partition *p)
{
	_dir_ DIR *dir = NULL;
	uint64_t now_ms = shms_now_boot_ms();
	uint8_t boot[16];
	struct dirent *e;

	if (open_names(p->stores_fd, ".", &dir) < 0 || !dir)
		return;
	shms_boot_id(boot);
	while ((e = readdir(dir)) != NULL) {
		if (!dot(e->d_name))
			sweep_one(p, e->d_name, now_ms, boot);
	}
}
