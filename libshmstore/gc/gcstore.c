/* SPDX-License-Identifier: Apache-2.0 */
/* gcstore.c: what becomes of a store: a live one loses its expired leases only; a dead one that is
 * to be kept also what only its owner could use; any other dead one goes whole, but for leases that
 * have not ended. A store that stays keeps foreign files; they are reported. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "alloc.h"
#include "cleanup.h"
#include "format.h"
#include "gc.h"
#include "gcaction.h"
#include "name.h"
#include "partition.h"
#include "recycle.h"
#include "seglook.h"
#include "sys.h"
#include "wire.h"

/* Takes the name at hand of a store's part away and tells it. 0, fn's value, -ENOMEM. */
static int take_one(struct shms_gc *g, struct shms_gc_target *t, const char *part,
		    const struct shms_names *d, enum shmstore_gc_what what, const char *evidence)
{
	struct shmstore_gc_action a = {.what = what, .n_objects = 1};
	_free_ char *below = shms_printed("%s/%s/%s", t->c->below, part, d->name);

	return below ? shms_gc_remove(g, &a, d->fd, d->name, below, evidence) : -ENOMEM;
}

/* ---- a dead store that nobody keeps ---------------------------------------------------------- */

static int dead_store(struct shms_gc *g, struct shms_gc_target *t)
{
	struct shms_teardown d = {.p = g->p, .gone = g->gone};
	struct shmstore_gc_action a = {.what = SHMSTORE_GC_STORE};
	unsigned long long left;
	struct stat st;

	d.tier = fstat(t->fd, &st) == 0 ? shms_tierfind_user(&g->find, st.st_uid) : NULL;
	shms_teardown_store(t->parentfd, t->name, t->fd, t->now_ms, &d);
	if (g->gone && d.error == -ENOMEM)
		return d.error;
	left = d.n_left;
	if (left && !d.n_objects && !d.n_leases && !d.error)
		return shms_gc_kept(g, t->c->below,
				    "its owner (pid %u) is dead and its objects are gone, but %llu "
				    "of its leases have not ended",
				    t->page.pid, left);
	g->report.n_objects += d.n_objects;
	g->report.n_leases += d.n_leases;
	g->report.n_tier += d.freed.n_files;
	if (d.error) { /* what went, went */
		g->report.freed += d.freed.memory;
		g->report.tier_freed += d.freed.disk;
	} else if (!left) {
		g->report.n_stores++;
	}
	a.bytes = d.freed.memory;
	a.tier_bytes = d.freed.disk;
	a.n_objects = d.n_objects + d.n_leases;
	a.error = d.error;
	if (left)
		return shms_gc_tell(g, &a, t->c->below,
				    "its owner (pid %u) is dead: the lock is free; not kept; the "
				    "directory stays for %llu leases that have not ended",
				    t->page.pid, left);
	return shms_gc_tell(g, &a, t->c->below,
			    "its owner (pid %u) is dead: the lock is free; not kept", t->page.pid);
}

/* ---- stores that stay ------------------------------------------------------------------------ */

static int expired_leases(struct shms_gc *g, struct shms_gc_target *t)
{
	_names_ struct shms_names d = shms_names_beneath(t->fd, SHMS_DIR_HANDOFF);
	uint64_t expiry;

	while (shms_names_next(&d)) {
		if (!shms_lease_parse(d.name, &expiry) || expiry > t->now_ms)
			continue;
		d.error = take_one(g, t, SHMS_DIR_HANDOFF, &d, SHMSTORE_GC_LEASE,
				   g->end_leases ? "the lease is to end before its time"
				   : t->now_ms == UINT64_MAX
					   ? "the lease is of another boot"
					   : "the lease has ended, and nobody took it");
	}
	return d.error;
}

static int pool_files(struct shms_gc *g, struct shms_gc_target *t)
{
	_names_ struct shms_names d = shms_names_beneath(t->fd, SHMS_DIR_RECYCLE);

	while (shms_names_next(&d))
		d.error = take_one(
			g, t, SHMS_DIR_RECYCLE, &d, SHMSTORE_GC_POOL,
			"kept for the next put of an owner that is dead: the lock is free");
	return d.error;
}

static int orphan_sidecars(struct shms_gc *g, struct shms_gc_target *t)
{
	_names_ struct shms_names d = shms_names_beneath(t->fd, SHMS_DIR_OBJECTS);
	unsigned char key[SHMS_NAME_SIZE];
	char hashed[SHMS_NAME_SIZE];
	size_t n;

	while (shms_names_next(&d)) {
		if (shms_name_decode(d.name, key, &n) != SHMS_NAME_SIDECAR)
			continue;
		snprintf(hashed, sizeof(hashed), "%%h%s", d.name + 2);
		if (shms_lookup(d.fd, hashed) < 0 && errno == ENOENT)
			d.error = take_one(g, t, SHMS_DIR_OBJECTS, &d, SHMSTORE_GC_TORN,
					   "the key of an object that is gone, in a store whose "
					   "owner is dead");
	}
	return d.error;
}

/* Files for the owner's next puts, which are counted; and those that were to get a name elsewhere,
 * whose maker, not always the owner, may be gone. */
static int recycled_files(struct shms_gc *g, struct shms_gc_target *t, unsigned long long *io_n)
{
	_names_ struct shms_names d = shms_names_beneath(t->fd, SHMS_DIR_RECYCLE);

	while (shms_names_next(&d)) {
		if (!shms_unnamed_is(d.name))
			++*io_n;
		else if (shms_gc_half_made(d.fd, d.name))
			d.error = take_one(g, t, SHMS_DIR_RECYCLE, &d, SHMSTORE_GC_TORN,
					   SHMS_GC_HALF_MADE);
	}
	return d.error;
}

/* Tells of names in a part of the store that are neither leases nor those of objects. */
static int odd_names(struct shms_gc *g, struct shms_gc_target *t, const char *part, bool leases)
{
	unsigned char key[SHMS_NAME_SIZE];
	struct shms_gc_odd odd = {.n = 0};
	_free_ char *below = NULL;
	uint64_t expiry;
	size_t n;

	if (!g->fn)
		return 0;
	_names_ struct shms_names d = shms_names_beneath(t->fd, part);

	while (shms_names_next(&d)) {
		if (leases ? !shms_lease_parse(d.name, &expiry)
			   : shms_name_decode(d.name, key, &n) == SHMS_NAME_FOREIGN)
			shms_gc_odd_note(&odd, d.name);
	}
	if (d.error < 0 || !odd.n)
		return d.error;
	below = shms_printed("%s/%s", t->c->below, part);
	return below ? shms_gc_odd_tell(g, &odd, below) : -ENOMEM;
}

static int strange_names(struct shms_gc *g, struct shms_gc_target *t)
{
	int r = odd_names(g, t, SHMS_DIR_OBJECTS, false);

	if (r == 0)
		r = odd_names(g, t, SHMS_DIR_CLEAN, false);
	return r ? r : odd_names(g, t, SHMS_DIR_HANDOFF, true);
}

static int tell_leases(struct shms_gc *g, struct shms_gc_target *t, const char *name, uint32_t n)
{
	struct shmstore_gc_action a = {.what = SHMSTORE_GC_LEASE, .n_objects = n};
	_free_ char *below = shms_printed("%s/" SHMS_DIR_SEGMENTS "/%s", t->c->below, name);

	g->report.n_leases += n;
	if (!below)
		return -ENOMEM;
	return shms_gc_tell(g, &a, below,
			    "leases of packed objects have ended, and nobody took them: %u", n);
}

/* In segments that this store has a link of, dead stores' places are given back, and leases that
 * have ended; nothing of the store's own goes. */
static int segment_places(struct shms_gc *g, struct shms_gc_target *t)
{
	_names_ struct shms_names d = shms_names_beneath(t->fd, SHMS_DIR_SEGMENTS);
	struct shms_segrescued done;
	struct shms_seglook l;
	uint32_t n_leases;

	while (!g->gone && shms_names_next(&d)) {
		if (shms_seglook_open(d.fd, d.name, true, &l) < 0)
			continue; /* what is damaged verify tells of */
		n_leases = shms_segrescue_leases(&l, g->now_ms);
		if (shms_segrescue(&l, NULL, g->now_ms, &done) == 0)
			g->report.freed += done.freed;
		shms_seglook_close(&l);
		d.error = n_leases ? tell_leases(g, t, d.name, n_leases) : 0;
	}
	return d.error;
}

/* ---- clean/ ---------------------------------------------------------------------------------- */

/*
 * Between the two exchanges of a stub and an object there is an instant at which clean/ holds the
 * object's file; who is killed then leaves it there, and with it memory that is no object's. A
 * clean copy is one only as long as the object beside it is the one that it was made of: a delete
 * or a replacement that was killed half-way leaves one that is not.
 *
 * Both are seen for an instant while others work too: what looks like garbage is looked
 * at again with the store's names locked, and only then removed. Where nothing looks
 * so, the lock is not asked for.
 */

/* The generation of the object in the regular file called name. False: it cannot be told now. */
static bool generation_of(int dirfd, const char *name, uint64_t *ret)
{
	struct shms_superblock sb;
	_fd_ int fd = shms_open_file(dirfd, name, O_RDONLY);

	if (fd < 0 || shms_pread_all(fd, &sb, sizeof(sb), 0) != sizeof(sb))
		return false;
	*ret = sb.generation;
	return true;
}

/* Why the name in clean/ is garbage; NULL: it is not, as far as can be told. */
static const char *judge_clean(struct shms_gc *g, int objects_fd, int clean_fd, const char *name)
{
	unsigned char key[SHMS_NAME_SIZE];
	struct shms_stub stub;
	uint64_t generation;
	struct stat st, object;
	enum shms_name_kind kind;
	const char *why;
	size_t n;

	kind = shms_name_decode(name, key, &n);
	if ((kind != SHMS_NAME_PLAIN && kind != SHMS_NAME_HASHED) ||
	    fstatat(clean_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return NULL;
	if (S_ISREG(st.st_mode))
		return "an object's second file: who moved it into the disk tier, or out of it, "
		       "was killed";
	if (!S_ISLNK(st.st_mode) || shms_stub_read(clean_fd, name, &stub, NULL) < 0)
		return NULL;
	if (fstatat(objects_fd, name, &object, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? "a clean copy of an object that is gone" : NULL;
	if (S_ISLNK(object.st_mode))
		return "a clean copy of an object that is not in memory";
	if (shms_tierfind_stub(&g->find, &stub, &why) == -EBADMSG)
		return "a clean copy without its tier file";
	if (generation_of(objects_fd, name, &generation) && generation != stub.generation)
		return "a clean copy of an earlier object of that key";
	return NULL;
}

static int clean(struct shms_gc *g, struct shms_gc_target *t)
{
	_names_ struct shms_names d = shms_names_beneath(t->fd, SHMS_DIR_CLEAN);
	/* of our own, for the lock */
	_locked_ int objects_fd = shms_open_dir(t->fd, SHMS_DIR_OBJECTS);
	bool locked = false;
	const char *why;

	if (objects_fd < 0)
		return shms_fatal(objects_fd) ? shms_error(objects_fd) : 0;
	while (shms_names_next(&d)) {
		why = judge_clean(g, objects_fd, d.fd, d.name);
		if (why && !locked) {
			if (shms_tier_lock_names(objects_fd) < 0)
				return shms_gc_kept(g, t->c->below,
						    "something in its clean/ may be garbage, but "
						    "another process holds its names");
			locked = true;
			why = judge_clean(g, objects_fd, d.fd, d.name);
		}
		if (why)
			d.error = take_one(g, t, SHMS_DIR_CLEAN, &d, SHMSTORE_GC_TORN, why);
	}
	return d.error;
}

/* ---- a store --------------------------------------------------------------------------------- */

int shms_gc_live_store(struct shms_gc *g, struct shms_gc_target *t)
{
	unsigned long long n_pool = 0;
	_free_ char *below = NULL;
	int r = expired_leases(g, t);

	if (r == 0)
		r = clean(g, t);
	if (r == 0)
		r = strange_names(g, t);
	if (r == 0)
		r = segment_places(g, t);
	if (r == 0 && !g->gone)
		g->report.freed += shms_pool_take_one(t->fd, SHMS_RECYCLE_AGE_NS);
	if (r == 0)
		r = recycled_files(g, t, &n_pool);
	if (r < 0 || r > 0 || n_pool == 0)
		return r;
	below = shms_printed("%s/%s", t->c->below, SHMS_DIR_RECYCLE);
	if (!below)
		return -ENOMEM;
	return shms_gc_kept(
		g, below, "%llu files for the next puts of an owner that lives: it holds the lock",
		n_pool);
}

/* Steps that may run beside a new owner come last, unlocked: slow, they must keep nobody out. */
static int kept_store(struct shms_gc *g, struct shms_gc_target *t, int *io_lock)
{
	int r = expired_leases(g, t);

	if (r == 0)
		r = pool_files(g, t);
	if (r == 0)
		r = orphan_sidecars(g, t);
	*io_lock = shms_unlock_fd(*io_lock);
	if (r == 0)
		r = clean(g, t);
	if (r == 0)
		r = segment_places(g, t);
	if (r == 0)
		r = strange_names(g, t);
	if (r == 0)
		r = shms_gc_kept(g, t->c->below,
				 "its owner (pid %u) is dead, but asked that the store be kept",
				 t->page.pid);
	return r;
}

/* ---- a store at hand ------------------------------------------------------------------------- */

/* Opens the directory that below lies in; *ret_name is its last component. */
static int open_parent(struct shms_gc *g, const char *below, const char **ret_name)
{
	const char *slash = strrchr(below, '/');
	_free_ char *parent = slash ? strndup(below, (size_t)(slash - below)) : strdup(".");

	*ret_name = slash ? slash + 1 : below;
	return parent ? shms_open_beneath(g->p->fd, parent, O_RDONLY | O_DIRECTORY) : -ENOMEM;
}

int shms_gc_target_open(struct shms_gc *g, const struct shms_gc_candidate *c,
			struct shms_gc_target *ret)
{
	struct shms_gc_target t = {.c = c, .now_ms = g->now_ms, .fd = -1};

	t.parentfd = open_parent(g, c->below, &t.name);
	t.fd = t.parentfd < 0 ? t.parentfd
			      : shms_open_beneath(t.parentfd, t.name, O_RDONLY | O_DIRECTORY);
	if (t.fd < 0) {
		shms_close_fd(t.parentfd);
		return t.fd == -ENOTDIR || t.fd == -ELOOP ? -ENOENT : shms_error(t.fd);
	}
	*ret = t;
	return 0;
}

void shms_gc_target_close(struct shms_gc_target *t)
{
	t->fd = shms_close_fd(t->fd);
	t->parentfd = shms_close_fd(t->parentfd);
}

int shms_gc_locked_store(struct shms_gc *g, struct shms_gc_target *t, int *io_lock)
{
	int r = shms_page_read(t->fd, &t->page);

	if (r == -EMFILE || r == -ENOMEM)
		return r;
	if (r < 0)
		return shms_gc_kept(g, t->c->below,
				    "its owner is dead, but its page cannot be read (%s): it may "
				    "have been meant to be kept",
				    r == -ENOTSUP ? "another version" : "damaged");
	if (g->end_leases || shms_page_leases_over(&t->page, g->p->tmpfs, g->p->fd))
		t->now_ms = UINT64_MAX;
	return t->page.flags & SHMS_PAGE_KEEP ? kept_store(g, t, io_lock) : dead_store(g, t);
}
