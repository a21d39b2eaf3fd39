/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage.c: the df equation: used = linked + ghosts + pool + inflight + foreign + residual.
 *
 * The left side is one statfs, the right side a walk over all names and a scan of /proc: different
 * moments. The same statfs before and after says that nothing came or went in between (not that
 * nothing changed hands: a name deleted under a view moves from linked to ghosts); so a residual on
 * an unchanged file system is looked at again too, until it is the same twice: then it is none of
 * the moment (what we may not read, a file that only a socket's queue holds). After three tries the
 * numbers are given as they are.
 *
 * The disk tier has an equation of its own, tier = demoted + clean + orphans, in bytes
 * of its disk. Its directories are read when the names are known: the walk has noted
 * which stubs are clean copies.
 */
#include <errno.h>
#include <sys/statvfs.h>

#include "books.h"
#include "cleanup.h"
#include "detail.h"
#include "handle.h"
#include "holders.h"
#include "inodes.h"
#include "mount.h"
#include "partition.h"
#include "sys.h"
#include "tierscan.h"

#define TRIES 3

/* io has the terms that names and tier files tell. */
static void fill(const struct shmstore_partition *p, const struct statvfs *fs,
		 const struct shms_holders *h, struct shmstore_usage *io)
{
	uint64_t known;

	io->size = (uint64_t)fs->f_blocks * fs->f_frsize;
	io->used = (uint64_t)(fs->f_blocks - fs->f_bfree) * fs->f_frsize;
	if (h)
		shms_holders_add(h, io);
	known = io->linked + io->pool + io->ghosts + io->inflight;
	/* On disk others' files are not walked (they may be a whole system's), and a file system's
	 * own structures count too. */
	if (!p->tmpfs)
		io->foreign = io->used > known ? io->used - known : 0;
	/* Without a limit a tmpfs does not count its blocks. */
	if (io->size == 0)
		io->used = known + io->foreign;
	io->residual = (int64_t)(io->used - known - io->foreign);
	/* Processes that are not shown here may hold it. */
	io->n_unreadable += h && io->residual > 0 && !shms_sees_all_pids();
}

struct tiering {
	struct shmstore_usage *usage;
	struct shms_users *users;
};

static int add_tier_file(const struct shms_tierscan_file *f, void *arg)
{
	struct tiering *t = arg;
	uint64_t bytes = shms_blocks(f->st);
	struct shmstore_user_books *user;

	t->usage->tier += bytes;
	if (f->what == SHMS_TIERSCAN_DEMOTED)
		t->usage->tier_demoted += bytes;
	else if (f->what == SHMS_TIERSCAN_CLEAN)
		t->usage->tier_clean += bytes;
	else
		t->usage->tier_orphans += bytes;
	if (!t->users)
		return 0;
	user = shms_users_get(t->users, f->user->uid);
	if (!user)
		return -ENOMEM;
	user->tier += bytes;
	return 0;
}

/* The tier's terms; none where there is no tier, or nothing of it can be read. */
static int take_tier(struct shmstore_partition *p, const struct shms_inodes *clean,
		     struct shms_users *users, struct shmstore_usage *io)
{
	struct tiering t = {.usage = io, .users = users};
	struct shms_tierscan scan = {.clean = clean, .file = add_tier_file, .arg = &t};
	struct shms_tier_config config;
	int r;

	r = shms_tier_config_read(p, &config);
	if (r == 0)
		r = shms_tierscan_run(&scan, p, &config);
	else
		scan.n_unreadable = r != -ENOENT;
	io->n_unreadable += scan.n_unreadable;
	return r == -EMFILE || r == -ENOMEM ? r : 0;
}

/* One walk, and one scan of processes and of the tier. Of ret the terms that they tell; ret_holders
 * is written on success only. */
static int take(struct shmstore_partition *p, const struct shms_usage_ask *ask,
		struct shmstore_usage *ret, struct shms_holders **ret_holders)
{
	struct shms_books_ask books = ask->books;
	int r;

	books.flags = p->tmpfs ? SHMS_BOOKS_REST : 0;
	books.clean = shms_inodes_new();
	r = books.clean ? 0 : -ENOMEM;
	if (ask->begin)
		ask->begin(books.arg);
	if (books.users)
		shms_users_clear(books.users);
	if (r == 0 && ask->holders)
		r = shms_holders_new(p, ask->keys, &books.holders);
	if (r == 0)
		r = shms_books_take(p, &books, ret);
	if (r == 0)
		r = take_tier(p, books.clean, books.users, ret);
	shms_inodes_free(books.clean);
	if (r == 0 && books.holders && books.users)
		r = shms_holders_users(books.holders, books.users);
	if (r == 0)
		*ret_holders = books.holders;
	else
		shms_holders_free(books.holders);
	return r;
}

int shms_usage_take(struct shmstore_partition *p, const struct shms_usage_ask *ask,
		    struct shmstore_usage *ret, struct shms_holders **ret_holders)
{
	struct shms_holders *holders = NULL;
	struct shmstore_usage u;
	struct statvfs before, after;
	int64_t last = 0;
	bool quiet;

	for (int i = 0; i < TRIES; i++) {
		int r;

		holders = shms_holders_free(holders);
		if (fstatvfs(p->fd, &before) < 0)
			return shms_error(errno);
		r = take(p, ask, &u, &holders);
		if (r != 0)
			return r;
		if (fstatvfs(p->fd, &after) < 0) {
			shms_holders_free(holders);
			return shms_error(errno);
		}
		fill(p, &after, holders, &u);
		quiet = before.f_bfree == after.f_bfree && before.f_ffree == after.f_ffree;
		if (quiet && (u.residual == last || !ask->holders))
			break;
		last = quiet ? u.residual : 0;
	}
	*ret = u;
	*ret_holders = holders;
	return 0;
}

int shmstore_partition_usage(struct shmstore_partition *p, unsigned flags,
			     struct shmstore_usage *ret)
{
	struct shms_holders *holders = NULL;
	int r;

	if (!p || !ret || (flags & ~SHMSTORE_USAGE_FULL))
		return !p || !ret ? shms_detail_null(!p ? "p" : "ret")
				  : shms_detail_flags(flags, SHMSTORE_USAGE_FULL);
	r = shms_usage_take(p, &(struct shms_usage_ask){.holders = flags & SHMSTORE_USAGE_FULL},
			    ret, &holders);
	shms_holders_free(holders);
	return r;
}

int shmstore_usage(struct shmstore *s, struct shmstore_store_usage *ret)
{
	struct shmstore_store_books b;
	int r;

	if (!ret)
		return shms_detail_null("ret");
	_fd_ int dir_fd = shms_open_dir(s->objects_fd, "..");
	r = dir_fd < 0 ? shms_error(dir_fd) : shms_books_store(dir_fd, &b);
	if (r < 0)
		return r;
	*ret = (struct shmstore_store_usage){
		.linked = b.linked,
		.pss = b.pss,
		.uss = b.uss,
		.mapped = atomic_load_explicit(&s->mapped, memory_order_relaxed),
		.n_objects = b.n_objects,
		.n_views = atomic_load_explicit(&s->n_views, memory_order_relaxed),
	};
	return 0;
}
