/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gc.c: removes what nobody owns.
 *
 * Model: look first, then act. A walk lists the directories of the partition that are stores or
 * look like one half made; then each is judged and dealt with on its own, the deepest first. A dry
 * run takes the same way, locks included, up to the one call that removes a name: there it notes in
 * a set of inodes what would be gone, so that the bytes it tells are those of a real run also where
 * several dead stores link the same inode.
 *
 * Safety: an owner is dead only if the exclusive lock of its store's page can be had, and the lock
 * is held while the store is dealt with; so of several gc at once, and of gc and a new owner, one
 * acts. Pids are evidence, never a reason. A directory without a page is removed by rmdir alone,
 * which the kernel refuses as soon as there is anything in it; a process that makes a store there
 * finds its directory gone and makes it again (a store's page comes before its parts). Files that
 * we cannot read or do not know stay, and are reported.
 *
 * The disk tier needs no look into stores: a tier file lives as long as the kernel counts a name of
 * its stub besides the anchor (gctier.c).
 *
 * Killed anywhere: teardown.c's order leaves a dead store that is still plainly one, or an empty
 * directory. Peers go before stores, so that what is said of them does not depend on whether their
 * store was removed a moment ago.
 */
#include "gc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <shmstore/inspect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "alloc.h"
#include "cleanup.h"
#include "detail.h"
#include "gcaction.h"
#include "inodes.h"
#include "name.h"
#include "page.h"
#include "partition.h"
#include "segfile.h"
#include "seglook.h"
#include "sys.h"
#include "walk.h"
#include "wire.h"

#define TEMPORARY     ".tmp-" /* a name on its way */
#define TEMPORARY_AGE (60 * 1000000000ll)
#define WAITS         100 /* many times what a killed process's lock outlives it */

/* ---- peers ----------------------------------------------------------------------------------- */

/*
 * Addresses whose store is gone or dead, and temporary names of addresses that were never
 * finished. A live store's address is never touched: between the look and the removal the symlink
 * is looked at again, and a store that lost its address is only not found by it.
 */

/* Is the store that a peer's symlink leads to gone, or dead? 1 with a reason, 0, -errno. */
static int peer_gone(struct shms_gc *g, int peers_fd, const char *name, const char **ret_why)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(peers_fd, name, target, sizeof(target) - 1);
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

static int peer(struct shms_gc *g, int peers_fd, const char *name)
{
	struct shmstore_gc_action a = {.what = SHMSTORE_GC_PEER};
	char below[sizeof(SHMS_DIR_PEERS) + NAME_MAX + 1];
	struct stat st, again;
	const char *why = "";
	int r;

	if (fstatat(peers_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	snprintf(below, sizeof(below), "%s/%s", SHMS_DIR_PEERS, name);
	if (!S_ISLNK(st.st_mode))
		return shms_gc_kept(g, below, "not a name that we make");
	r = peer_gone(g, peers_fd, name, &why);
	if (r >= 0 && strncmp(name, TEMPORARY, sizeof(TEMPORARY) - 1) == 0) {
		a.what = SHMSTORE_GC_TORN;
		a.n_objects = 1;
		if (r == 0 && shms_now_real_ns() - shms_stat_ns(&st.st_mtim) <= TEMPORARY_AGE)
			return shms_gc_kept(
				g, below,
				"an address in the making, not a minute old: its maker may live");
		why = r ? "half an address, whose maker is dead"
			: "half an address, over a minute old";
		r = 1;
	}
	if (r <= 0)
		return r;
	/* A new store may have taken the address over since. */
	if (fstatat(peers_fd, name, &again, AT_SYMLINK_NOFOLLOW) < 0 || again.st_ino != st.st_ino)
		return 0;
	return shms_gc_remove(g, &a, peers_fd, name, below, why);
}

/* The one of a store that is dead: only where it still leads to below. */
static int peer_of(struct shms_gc *g, const char *address, const char *below)
{
	_fd_ int peers_fd = shms_open_dir(g->p->fd, SHMS_DIR_PEERS);
	char name[SHMS_PEER_NAME], target[PATH_MAX];
	ssize_t n;

	shms_peer_name(address, name);
	n = readlinkat(peers_fd, name, target, sizeof(target) - 1);
	if (n < 0)
		return 0;
	target[n] = '\0';
	if (strncmp(target, "../", 3) != 0 || strcmp(target + 3, below) != 0)
		return 0; /* another store has it by now */
	return peer(g, peers_fd, name);
}

/* ---- one directory --------------------------------------------------------------------------- */

/* stores/<name>: nobody but us makes directories there. */
static bool is_default_place(const char *below)
{
	return strncmp(below, SHMS_DIR_STORES "/", sizeof(SHMS_DIR_STORES)) == 0 &&
	       !strchr(below + sizeof(SHMS_DIR_STORES), '/');
}

/* Does fd hold nothing? 1, 0, -errno. */
static int is_empty(int fd)
{
	_names_ struct shms_names d = shms_names_beneath(fd, ".");

	if (shms_names_next(&d))
		return 0;
	return d.error < 0 ? d.error : d.dir != NULL;
}

/* A directory that may be a store and has no page. The page of a store comes first and goes last,
 * so a store half made or half removed is an empty directory. Only rmdir may touch it: a store that
 * is being made there at this moment makes it refuse. A directory with content is not ours, nor is
 * an empty one outside stores/, where others make them too. */
static int torn(struct shms_gc *g, struct shms_gc_target *t)
{
	struct shmstore_gc_action a = {.what = SHMSTORE_GC_TORN};
	int r;

	if (!is_default_place(t->c->below))
		return 0;
	r = is_empty(t->fd);
	if (r < 0)
		return r;
	if (r == 0)
		return shms_gc_kept(g, t->c->below, "it has no page, but holds something");
	if (!g->gone && unlinkat(t->parentfd, t->name, AT_REMOVEDIR) < 0) {
		if (errno == ENOENT || errno == ENOTEMPTY || errno == EEXIST)
			return 0; /* somebody was just removing or making it */
		a.error = shms_error(errno);
	}
	return shms_gc_tell(
		g, &a, t->c->below,
		"an empty directory: who made a store there, or removed it, was killed");
}

static int with_page(struct shms_gc *g, struct shms_gc_target *t)
{
	_locked_ int lock = shms_page_lock(t->fd);

	for (; lock == -EBUSY && g->waits < WAITS && shms_page_read(t->fd, &t->page) == 0 &&
	       shms_page_owner_gone(&t->page);
	     g->waits++) {
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		lock = shms_page_lock(t->fd);
	}
	if (lock == -ENOENT)
		return 0; /* gone, or made anew, meanwhile */
	if (lock == -EMFILE || lock == -ENOMEM)
		return lock;
	if (lock == -EBUSY)
		return shms_gc_live_store(g, t);
	if (lock < 0)
		return shms_gc_unsure(g, t->c->below, t->c->uid, lock, "try its lock");
	return shms_gc_locked_store(g, t, &lock);
}

static int judge(struct shms_gc *g, const struct shms_gc_candidate *c)
{
	struct shms_gc_target t = SHMS_GC_TARGET_NULL;
	int r = shms_gc_target_open(g, c, &t);

	if (r == 0)
		r = c->store ? with_page(g, &t) : torn(g, &t);
	else if (r == -ENOENT)
		r = 0;
	else if (r != -EMFILE && r != -ENOMEM)
		r = shms_gc_unsure(g, c->below, c->uid, r, "look into it");
	shms_gc_target_close(&t);
	return r;
}

/* ---- the run --------------------------------------------------------------------------------- */

/* A store, or (number 0) what may be one half made. */
static int note(const struct shms_walk_store *s, void *arg)
{
	struct shms_gc *g = arg;

	if (SHMS_GROW(g->list, g->list_size, g->n_list, 1) < 0)
		return -ENOMEM;
	g->list[g->n_list] = (struct shms_gc_candidate){
		.below = strdup(s->below), .store = s->number != 0, .uid = s->st.st_uid};
	if (!g->list[g->n_list].below)
		return -ENOMEM;
	g->n_list++;
	return 0;
}

static int note_unreadable(const char *path, const struct stat *st, int error, void *arg)
{
	struct shms_gc *g = arg;
	size_t n = strlen(g->p->path);

	if (strlen(path) <= n)
		return 0;
	if (error == -EXDEV)
		return shms_gc_kept(g, path + n + 1, "something is mounted there");
	return shms_gc_unsure(g, path + n + 1, st->st_uid, error, "look into it");
}

/* Files that their makers put into the partition's own directory for want of O_TMPFILE, and
 * never moved to their places. */
static int half_made(struct shms_gc *g)
{
	_names_ struct shms_names d = shms_names_beneath(g->p->fd, ".");

	while (shms_names_next(&d)) {
		struct shmstore_gc_action a = {.what = SHMSTORE_GC_TORN};

		if (shms_unnamed_is(d.name) && shms_gc_half_made(d.fd, d.name))
			d.error = shms_gc_remove(g, &a, d.fd, d.name, d.name, SHMS_GC_HALF_MADE);
	}
	return d.error;
}

/* Descending, so that what is below a directory comes before it. */
static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct shms_gc_candidate *)b)->below,
		      ((const struct shms_gc_candidate *)a)->below);
}

static int run(struct shms_gc *g)
{
	struct shms_walk w = {
		.store = note, .other = note, .unreadable = note_unreadable, .arg = g};
	_names_ struct shms_names d = shms_names_beneath(g->p->fd, SHMS_DIR_PEERS);
	int r;

	while (shms_names_next(&d))
		d.error = peer(g, d.fd, d.name);
	r = d.error;
	if (r == 0)
		r = half_made(g);
	if (r == 0)
		r = shms_walk_run(&w, g->p);
	if (g->n_list)
		qsort(g->list, g->n_list, sizeof(*g->list), by_path);
	for (size_t i = 0; r == 0 && i < g->n_list; i++)
		r = judge(g, &g->list[i]);
	for (size_t i = 0; i < g->n_list; i++)
		free(g->list[i].below);
	free(g->list);
	/* After the stores: the last names of some tier files went with them. */
	if (r == 0)
		r = shms_gc_tier(g);
	return r ? r : shms_gc_away(g);
}

/* end() is owed in any case. */
static int begin(struct shms_gc *g, unsigned flags)
{
	if (flags & ~(SHMSTORE_GC_DRY_RUN | SHMSTORE_GC_LEASES))
		return shms_detail_flags(flags, SHMSTORE_GC_DRY_RUN | SHMSTORE_GC_LEASES);
	g->end_leases = (flags & SHMSTORE_GC_LEASES) != 0;
	g->gone = flags & SHMSTORE_GC_DRY_RUN ? shms_inodes_new() : NULL;
	return flags & SHMSTORE_GC_DRY_RUN && !g->gone ? -ENOMEM : shms_gc_tier_open(g);
}

static void end(struct shms_gc *g)
{
	shms_tierfind_close(&g->find);
	shms_inodes_free(g->gone);
}

static int plan(struct shms_gc *g, unsigned flags)
{
	int r = g->p ? begin(g, flags) : shms_detail_null("p");

	if (r == 0)
		r = run(g);
	end(g);
	return r;
}

int shmstore_partition_gc_plan(struct shmstore_partition *p, unsigned flags,
			       int (*fn)(const struct shmstore_gc_action *action, void *arg),
			       void *arg, struct shmstore_gc_report *ret)
{
	struct shms_gc g = SHMS_GC_INIT(p, fn, arg);
	int r = plan(&g, flags);

	if (r == 0 && ret)
		*ret = g.report;
	return r;
}

/* Nobody is told of its steps: that one failed must not pass for nothing to do. */
int shmstore_partition_gc(struct shmstore_partition *p, unsigned flags,
			  struct shmstore_gc_report *ret)
{
	struct shms_gc g = SHMS_GC_INIT(p, NULL, NULL);
	int r = plan(&g, flags);

	if (r == 0)
		r = g.error;
	if (r == 0 && ret)
		*ret = g.report;
	return r;
}

/* ---- on the way ------------------------------------------------------------------------------ */

static void sweep_one(struct shmstore_partition *p, int stores_fd, const char *name,
		      uint64_t now_ms)
{
	_fd_ int fd = shms_open_beneath(stores_fd, name, O_RDONLY | O_DIRECTORY);
	_locked_ int lock = fd < 0 ? -1 : shms_page_lock(fd);
	struct shms_teardown t = {.p = p};
	struct shms_page page;

	if (lock < 0 || shms_page_read(fd, &page) < 0 || (page.flags & SHMS_PAGE_KEEP))
		return;
	if (shms_page_leases_over(&page, p->tmpfs, p->fd))
		now_ms = UINT64_MAX;
	t.tier = shms_teardown_own_tier(p, fd);
	shms_teardown_store(stores_fd, name, fd, now_ms, &t);
}

void shms_gc_sweep(struct shmstore_partition *p)
{
	_names_ struct shms_names d = shms_names_beneath(p->fd, SHMS_DIR_STORES);
	uint64_t now_ms = shms_now_boot_ms();

	while (shms_names_next(&d))
		sweep_one(p, d.fd, d.name, now_ms);
}

/* ---- one store ------------------------------------------------------------------------------- */

/* Gc of one store, for a caller that knows that its owner died and where it was: no walk,
 * no look at any other store. Steps, order and locks are those of gc (gc.c, gcstore.c). */

/* how soon a segment with leases is looked at again: it has one end for all of them */
#define LEASED_AGAIN_MS 10000u

/* When the first lease of what the store has left ends; UINT64_MAX: it has none. */
static int first_expiry(struct shms_gc *g, struct shms_gc_target *t, uint64_t *ret)
{
	_names_ struct shms_names leases = shms_names_beneath(t->fd, SHMS_DIR_HANDOFF);
	_names_ struct shms_names segments = shms_names_beneath(t->fd, SHMS_DIR_SEGMENTS);
	uint64_t expiry, again = g->now_ms + LEASED_AGAIN_MS;
	struct shms_seglook l;

	*ret = UINT64_MAX;
	while (shms_names_next(&leases)) {
		if (shms_lease_parse(leases.name, &expiry) && expiry < *ret)
			*ret = expiry;
	}
	while (again < *ret && shms_names_next(&segments)) {
		if (shms_seglook_open(segments.fd, segments.name, false, &l) < 0)
			continue;
		if (shms_segment_promised(&l.segment, g->now_ms))
			*ret = again;
		shms_seglook_close(&l);
	}
	return leases.error ? leases.error : segments.error;
}

static int reap(struct shms_gc *g, struct shms_gc_target *t, uint64_t *ret_expiry_ms)
{
	_locked_ int lock = shms_page_lock(t->fd);
	int r;

	if (lock < 0)
		return lock;
	r = shms_gc_locked_store(g, t, &lock);
	/* Kept or not, nobody answers at its address. */
	if (r == 0 && t->page.address[0])
		r = peer_of(g, t->page.address, t->c->below);
	return r == 0 ? first_expiry(g, t, ret_expiry_ms) : r;
}

/* *ret: the part of path below the partition, to be freed. 0, -EPERM: it is not there, -ENOMEM. */
static int find_below(const struct shmstore_partition *p, const char *path, char **ret)
{
	size_t n = strlen(p->path);

	if (strncmp(path, p->path, n) != 0 || path[n] != '/' || !path[n + 1])
		return shms_detail(-EPERM, NULL, "%.256s is not in the partition %s", path,
				   p->path);
	*ret = strdup(path + n + 1);
	return *ret ? 0 : -ENOMEM;
}

uint64_t shmstore_lease_clock_ms(void)
{
	return shms_now_boot_ms();
}

int shmstore_partition_reap(struct shmstore_partition *p, const char *path, unsigned flags,
			    int (*fn)(const struct shmstore_gc_action *action, void *arg),
			    void *arg, struct shmstore_gc_report *ret, uint64_t *ret_expiry_ms)
{
	struct shms_gc g = SHMS_GC_INIT(p, fn, arg);
	struct shms_gc_target t = SHMS_GC_TARGET_NULL;
	struct shms_gc_candidate c = {.store = true};
	uint64_t expiry_ms = UINT64_MAX;
	int r;

	if (!p || !path)
		return shms_detail_null(!p ? "p" : "path");
	r = begin(&g, flags);
	if (r == 0)
		r = find_below(p, path, &c.below);
	if (r == 0)
		r = shms_gc_target_open(&g, &c, &t);
	if (r == 0)
		r = reap(&g, &t, &expiry_ms);
	shms_gc_target_close(&t);
	end(&g);
	free(c.below);
	if (r == 0 && ret)
		*ret = g.report;
	if (r == 0 && ret_expiry_ms)
		*ret_expiry_ms = shms_boot_ms_here(expiry_ms);
	return r;
}
