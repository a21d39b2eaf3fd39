/* SPDX-License-Identifier: Apache-2.0 */
/*
 * books.c: du. One walk; every name adds to its store, every inode once to the totals.
 *
 * An inode with one link is met once and needs no memory: it is added at once. Only inodes with
 * several links go into a set, which remembers the best kind of name that was met (linked before
 * metadata before pool before foreign) and how many of its names the store at hand has. A store's
 * names come in one run, objects before pool before leases, so that one counter per inode tells
 * whether all its links are in this store (its uss), and whether a lease or a recycled file is
 * linked as an object too. The disk tier's names come before all stores': a link that the tier
 * keeps to an object is no store's share of it.
 *
 * Stubs take no memory: they are counted by name, and the set of the clean ones says afterwards
 * which tier files belong to objects that are in memory as well (tierscan.h).
 */
#include "books.h"

#include <errno.h>
#include <string.h>

#include "alloc.h"
#include "cleanup.h"
#include "detail.h"
#include "holders.h"
#include "inodes.h"
#include "page.h"
#include "partition.h"
#include "seglook.h"
#include "sys.h"
#include "tier.h"
#include "walk.h"

#define PROGRESS_NAMES 4096u /* a power of 2 */

struct taking {
	struct shmstore_usage sum;
	const struct shms_books_ask *ask;
	struct shms_inodes *shared;         /* inodes with several links */
	struct shms_inodes *segments;       /* the same of segments */
	struct shmstore_user_books no_user; /* where nobody asks for users */
	uint64_t n_names;
	uint32_t segments_of; /* the number of the store whose uuid is in owner */
	uint8_t owner[16];
	/* of the store at hand */
	struct shms_page page;
	struct shmstore_store_info info;
	struct shmstore_store_books books;
	uint64_t pss;
};

static void cleanup_inodes(struct shms_inodes **s)
{
	shms_inodes_free(*s);
}

static void shms_books_info(const struct shms_walk_store *s, struct shms_page *page,
			    struct shmstore_store_info *ret)
{
	int alive;

	*ret = (struct shmstore_store_info){
		.size = sizeof(*ret),
		.name = s->name,
		.path = s->path,
		.label = "",
		.address = "",
		.uid = s->st.st_uid,
		.alive = SHMSTORE_ALIVE_UNKNOWN,
	};
	if (s->fd < 0)
		return;
	alive = shms_page_alive(s->fd);
	if (alive >= 0)
		ret->alive = (enum shmstore_alive)alive;
	if (shms_page_read(s->fd, page) < 0 ||
	    (shms_move_begun(page) && shms_tier_settle_names(s->fd) &&
	     shms_page_read(s->fd, page) < 0))
		return;
	ret->readable = true;
	/* In stores/ the directory's name is the store's name; elsewhere the directory is
	 * called as it pleases its user. */
	if (page->name[0] && strncmp(s->below, SHMS_DIR_STORES "/", sizeof(SHMS_DIR_STORES)) != 0)
		ret->name = page->name;
	ret->label = page->label;
	ret->address = page->address;
	ret->pid = (pid_t)page->pid;
	ret->keep = page->flags & SHMS_PAGE_KEEP;
	ret->created_ns = page->created_ns;
	shms_page_counters(page, &ret->counters);
}

/* ---- one name -------------------------------------------------------------------------------- */

/* The books of a user. NULL: no memory. */
static struct shmstore_user_books *user_of(struct taking *t, uid_t uid)
{
	return t->ask->users ? shms_users_get(t->ask->users, uid) : &t->no_user;
}

/* Books an inode that was not booked before. */
static int add_total(struct taking *t, enum shms_inode_kind kind, uint64_t bytes, uid_t uid)
{
	struct shmstore_user_books *user;

	if (kind == SHMS_INODE_FOREIGN) {
		t->sum.foreign += bytes;
		return 0;
	}
	user = user_of(t, uid);
	if (!user)
		return -ENOMEM;
	if (kind == SHMS_INODE_POOL) {
		t->sum.pool += bytes;
		user->pool += bytes;
		return 0;
	}
	if (kind == SHMS_INODE_METADATA)
		t->sum.metadata += bytes;
	t->sum.linked += bytes;
	user->linked += bytes;
	return 0;
}

/* Adds a name to the totals. ret_inode: its entry in the set, NULL where this
 * is the inode's only name. */
static int add(struct taking *t, const struct stat *st, enum shms_inode_kind kind,
	       struct shms_inode **ret_inode)
{
	struct shms_inode *i;

	*ret_inode = NULL;
	if (st->st_nlink <= 1 || S_ISDIR(st->st_mode) || st->st_blocks == 0)
		return add_total(t, kind, shms_blocks(st), st->st_uid);
	i = shms_inodes_get(t->shared, st->st_ino);
	if (!i)
		return -ENOMEM;
	if (i->kind < kind)
		i->kind = (uint8_t)kind;
	i->bytes = shms_blocks(st);
	i->uid = st->st_uid;
	*ret_inode = i;
	return 0;
}

/* Notes one more name in the store at hand. Returns true on the first one. */
static bool here(struct taking *t, struct shms_inode *i, uint32_t number, const struct stat *st)
{
	bool first = i->store != number;

	if (first) {
		i->store = number;
		i->n_here = 0;
	}
	i->n_here++;
	if (i->n_here == st->st_nlink && i->kind == SHMS_INODE_LINKED)
		t->books.uss += i->bytes;
	return first;
}

static int add_entry(struct taking *t, const struct shms_walk_entry *e, enum shms_inode_kind kind,
		     uint64_t *io_bytes)
{
	uint64_t bytes = shms_blocks(e->st);
	struct shms_inode *i;
	int r = add(t, e->st, kind, &i);

	if (r < 0)
		return r;
	if (kind == SHMS_INODE_LINKED) {
		uint64_t links = e->st->st_nlink - (i ? i->n_residents : 0);
		t->pss += (bytes << SHMS_SHARE_SHIFT) / (links ? links : 1);
	}
	if (!i) {
		*io_bytes += bytes;
		if (kind == SHMS_INODE_LINKED)
			t->books.uss += bytes;
	} else if (here(t, i, e->store->number, e->st)) {
		*io_bytes += bytes;
	}
	return 0;
}

static int add_demoted(struct taking *t, const struct shms_walk_entry *e)
{
	struct shmstore_user_books *user = user_of(t, e->store->st.st_uid);
	struct shms_inode *i;

	if (!user)
		return -ENOMEM;
	t->sum.n_objects++;
	t->sum.n_demoted++;
	t->books.n_objects++;
	t->books.n_demoted++;
	t->books.demoted += e->stub->header_size + e->stub->buffer_size;
	user->n_demoted++;
	return add(t, e->st, SHMS_INODE_METADATA, &i);
}

/* A name that the disk tier made. */
static int add_tier(struct taking *t, const struct shms_walk_entry *e)
{
	struct shms_inode *i = NULL;
	int r;

	if (e->place == SHMS_PLACE_STUB)
		return add_demoted(t, e);
	if (e->place == SHMS_PLACE_MOVING)
		return add_entry(t, e, SHMS_INODE_LINKED, &t->books.linked);
	if (e->place == SHMS_PLACE_CLEAN) {
		t->books.n_clean++;
		if (t->ask->clean && !shms_inodes_get(t->ask->clean, e->st->st_ino))
			return -ENOMEM;
	}
	r = add(t, e->st, e->place == SHMS_PLACE_RESIDENT ? SHMS_INODE_LINKED : SHMS_INODE_METADATA,
		&i);
	if (r == 0 && i && e->place == SHMS_PLACE_RESIDENT)
		i->n_residents++;
	return r;
}

/* Does the error say that there is nothing of ours, and not that it could not be read now? That
 * must not pass for none: a store is opened by its books. */
static bool is_none(int error)
{
	return error == -EBADMSG || error == -ENOTSUP || error == -EPERM || error == -EACCES;
}

/* Finds out the uuid of the store at hand: whose a place in a segment is. 0; -errno. */
static int find_uuid(struct taking *t, const struct shms_walk_store *s)
{
	struct shms_page page;
	int r;

	if (t->segments_of == s->number)
		return 0;
	memset(t->owner, 0, sizeof(t->owner));
	r = shms_page_read(s->fd, &page);
	if (r == 0)
		memcpy(t->owner, page.uuid, sizeof(t->owner));
	else if (r != -ENOENT && !is_none(r))
		return r;
	t->segments_of = s->number;
	return 0;
}

/* The segment's memory by what it is used for; the first link that is met counts for the totals. l:
 * NULL: it cannot be looked into. */
static int add_segment_total(struct taking *t, const struct stat *st,
			     const struct shms_segsurvey *s, const struct shms_seglook *l)
{
	struct shms_inode *i;
	int r = 0;

	if (st->st_nlink > 1) {
		i = shms_inodes_get(t->segments, st->st_ino);
		if (!i)
			return -ENOMEM;
		if (i->n_here++)
			return 0;
	}
	t->sum.n_leases += s->n_leases;
	t->sum.stranded += s->stranded_bytes;
	t->sum.ghosts += s->ghosts_bytes;
	t->sum.inflight += s->inflight_bytes;
	if (t->ask->holders) {
		struct shmstore_user_books *user = user_of(t, st->st_uid);
		if (!user)
			return -ENOMEM;
		user->ghosts += s->ghosts_bytes;
		user->inflight += s->inflight_bytes;
	}
	if (t->ask->holders && (s->n_ghosts || s->inflight_bytes))
		r = shms_packedholds_segment(t->ask->holders, l, shms_now_boot_ms());
	if (r == 0)
		r = add_total(t, SHMS_INODE_LINKED, s->linked_bytes, st->st_uid);
	return r < 0 ? r : add_total(t, SHMS_INODE_POOL, s->pool_bytes, st->st_uid);
}

/* A link of a segment. An unreadable one, damaged or foreign, counts as a file in the pool. */
static int add_segment(struct taking *t, const struct shms_walk_entry *e)
{
	struct shms_segsurvey s = {.is_owner = true};
	struct stat st = *e->st;
	struct shms_seglook l;
	int r = find_uuid(t, e->store);

	if (r < 0)
		return r;
	r = shms_seglook_open(e->dirfd, e->name, false, &l);
	if (r == -ENOENT)
		return 0;
	if (r < 0 && !is_none(r))
		return shms_error(r);
	if (r < 0)
		s.pool_bytes = shms_blocks(&st);
	else
		shms_segsurvey(&l, t->owner, shms_now_boot_ms(), &s);
	t->sum.n_objects += s.n_named;
	t->books.n_objects += s.n_named;
	t->books.linked += s.named_bytes;
	t->books.uss += s.own_bytes;
	t->books.pool += s.is_owner ? s.pool_bytes : 0;
	t->books.stranded += s.is_owner ? s.stranded_bytes : 0;
	t->pss += s.shared;
	if (r < 0)
		return add_segment_total(t, &st, &s, NULL);
	r = add_segment_total(t, &st, &s, &l);
	shms_seglook_close(&l);
	return r;
}

/* A file that is being made, named for want of O_TMPFILE; or a leftover of a killed process. */
static int add_half_made(struct taking *t, const struct stat *st)
{
	struct shmstore_user_books *user = user_of(t, st->st_uid);

	if (!user)
		return -ENOMEM;
	t->sum.inflight += shms_blocks(st);
	user->inflight += shms_blocks(st);
	return 0;
}

static int on_entry(const struct shms_walk_entry *e, void *arg)
{
	struct taking *t = arg;
	struct shms_holders *holders = t->ask->holders;
	struct shms_inode *i;

	t->n_names++;
	if (t->ask->progress && (t->n_names & (PROGRESS_NAMES - 1)) == 0 &&
	    t->ask->progress(t->n_names, t->ask->arg))
		return -ECANCELED;
	if (holders)
		shms_holders_named(holders, e->st->st_ino);
	switch (e->place) {
	case SHMS_PLACE_OBJECT:
		t->sum.n_objects++;
		t->books.n_objects++;
		return add_entry(t, e, SHMS_INODE_LINKED, &t->books.linked);
	case SHMS_PLACE_LEASE:
		t->sum.n_leases++;
		t->books.n_leases++;
		return add_entry(t, e, SHMS_INODE_LINKED, &t->books.leased);
	case SHMS_PLACE_POOL:
		if (e->st->st_nlink == 1 && shms_unnamed_is(e->name))
			return add_half_made(t, e->st);
		if (holders && e->st->st_nlink == 1 && shms_holders_pooled(holders, e->st))
			return 0;
		t->books.n_pool++;
		return add_entry(t, e, SHMS_INODE_POOL, &t->books.pool);
	case SHMS_PLACE_SEGMENT:
		return add_segment(t, e);
	case SHMS_PLACE_INDEX:
		return add_entry(t, e, SHMS_INODE_POOL, &t->books.pool);
	case SHMS_PLACE_PAGE:
	case SHMS_PLACE_SIDECAR:
		t->books.metadata += shms_blocks(e->st);
		return add(t, e->st, SHMS_INODE_METADATA, &i);
	case SHMS_PLACE_MARKER:
	case SHMS_PLACE_PEER:
	case SHMS_PLACE_DIRECTORY:
		return add(t, e->st, SHMS_INODE_METADATA, &i);
	case SHMS_PLACE_STUB:
	case SHMS_PLACE_CLEAN:
	case SHMS_PLACE_MOVING:
	case SHMS_PLACE_TIER:
	case SHMS_PLACE_ANCHOR:
	case SHMS_PLACE_RESIDENT:
		return add_tier(t, e);
	case SHMS_PLACE_FOREIGN:
	default:
		return add(t, e->st, SHMS_INODE_FOREIGN, &i);
	}
}

/* ---- the walk -------------------------------------------------------------------------------- */

static int report(const struct shms_walk_store *s, void *arg)
{
	struct taking *t = arg;

	(void)s;
	t->books.store = &t->info;
	t->books.pss = t->pss >> SHMS_SHARE_SHIFT;
	return t->ask->store ? t->ask->store(&t->books, t->ask->arg) : 0;
}

static int on_store(const struct shms_walk_store *s, void *arg)
{
	struct taking *t = arg;
	struct shmstore_user_books *user = user_of(t, s->st.st_uid);

	if (!user)
		return -ENOMEM;
	t->sum.n_stores++;
	t->books = (struct shmstore_store_books){.size = sizeof(t->books)};
	t->pss = 0;
	if (t->ask->store)
		shms_books_info(s, &t->page, &t->info);
	user->n_stores++;
	return s->fd < 0 ? report(s, t) : 0;
}

int shms_books_take(struct shmstore_partition *p, const struct shms_books_ask *ask,
		    struct shmstore_usage *ret)
{
	shms_cleanup(cleanup_inodes) struct shms_inodes *shared = shms_inodes_new();
	shms_cleanup(cleanup_inodes) struct shms_inodes *segments = shms_inodes_new();
	struct taking t = {.ask = ask, .shared = shared, .segments = segments};
	struct shms_walk w = {
		.flags = SHMS_WALK_ENTRIES | (ask->flags & SHMS_BOOKS_REST ? SHMS_WALK_REST : 0),
		.store = on_store,
		.store_end = report,
		.entry = on_entry,
		.arg = &t,
	};
	const struct shms_inode *i;
	uint64_t cursor = 0;
	int r;

	if (!shared || !segments)
		return -ENOMEM;
	r = shms_walk_run(&w, p);
	while (r == 0 && (i = shms_inodes_next(shared, &cursor)) != NULL)
		r = add_total(&t, (enum shms_inode_kind)i->kind, i->bytes, i->uid);
	if (r != 0)
		return r;
	t.sum.n_unreadable = w.n_unreadable;
	*ret = t.sum;
	return 0;
}

int shms_books_store(int storefd, struct shmstore_store_books *ret)
{
	shms_cleanup(cleanup_inodes) struct shms_inodes *shared = shms_inodes_new();
	static const struct shms_books_ask nothing = {0};
	shms_cleanup(cleanup_inodes) struct shms_inodes *segments = shms_inodes_new();
	struct taking t = {.ask = &nothing,
			   .shared = shared,
			   .segments = segments,
			   .books.size = sizeof(t.books)};
	struct shms_walk w = {.entry = on_entry, .arg = &t};
	int r;

	if (!shared || !segments)
		return -ENOMEM;
	r = shms_walk_one(&w, storefd);
	if (r < 0)
		return r;
	t.books.pss = t.pss >> SHMS_SHARE_SHIFT;
	*ret = t.books;
	return 0;
}

int shmstore_partition_books(struct shmstore_partition *p,
			     int (*fn)(const struct shmstore_store_books *books, void *arg),
			     void *arg, struct shmstore_books_total *ret)
{
	struct shmstore_usage sum;
	int r;

	if (!p)
		return shms_detail_null("p");
	r = shms_books_take(p, &(struct shms_books_ask){.store = fn, .arg = arg}, &sum);
	if (r == 0 && ret) {
		*ret = (struct shmstore_books_total){
			.size = sizeof(*ret),
			.linked = sum.linked,
			.n_stores = sum.n_stores,
			.n_objects = sum.n_objects,
		};
	}
	return r;
}

struct listing {
	int (*fn)(const struct shmstore_store_info *info, void *arg);
	void *arg;
	struct shms_page page;
};

static int list_store(const struct shms_walk_store *s, void *arg)
{
	struct listing *l = arg;
	struct shmstore_store_info info;

	shms_books_info(s, &l->page, &info);
	return l->fn(&info, l->arg);
}

int shmstore_partition_stores(struct shmstore_partition *p,
			      int (*fn)(const struct shmstore_store_info *info, void *arg),
			      void *arg)
{
	struct listing l = {.fn = fn, .arg = arg};

	if (!p || !fn)
		return shms_detail_null(!p ? "p" : "fn");
	return shms_walk_stores(p, list_store, &l);
}

/* ---- users ----------------------------------------------------------------------------------- */

/*
 * Books by user. A store's files have one owner and come in one run, so the user of the
 * last question is nearly always the one of the next: it is tried first, then all. Rejected: a hash
 * table, for the handful of users that share a host's partition.
 */

struct shmstore_user_books *shms_users_get(struct shms_users *u, uid_t uid)
{
	if (u->last < u->n && u->list[u->last].uid == uid)
		return &u->list[u->last];
	for (size_t i = 0; i < u->n; i++) {
		if (u->list[i].uid == uid) {
			u->last = i;
			return &u->list[i];
		}
	}
	if (SHMS_GROW(u->list, u->size, u->n, 1) < 0)
		return NULL;
	u->last = u->n++;
	u->list[u->last] = (struct shmstore_user_books){.size = sizeof(*u->list), .uid = uid};
	return &u->list[u->last];
}
