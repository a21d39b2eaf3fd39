/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage.c: the df equation: used = linked + ghosts + pool + inflight + foreign + residual; and with
 * it stores, users and holders of one moment.
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
 *
 * Reports on stores are copied first: only the last try counts, and the asker is called when it is
 * over, so that it hears of each store once and nothing of a try that was given up.
 */
#include <errno.h>
#include <shmstore/inspect.h>
#include <shmstore/shmstore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "alloc.h"
#include "books.h"
#include "cleanup.h"
#include "detail.h"
#include "handle.h"
#include "holders.h"
#include "inodes.h"
#include "mount.h"
#include "partition.h"
#include "sys.h"
#include "tierformat.h"
#include "tierscan.h"

#define TRIES 3

struct noted {
	struct shmstore_store_books books;
	struct shmstore_store_info info;
	char *text; /* name, path, label and address in one allocation */
};

struct surveying {
	const struct shmstore_survey *survey;
	bool scan; /* of /proc; else ghosts and writers are left in the residual */
	struct noted *stores;
	size_t n_stores, stores_size;
	struct shms_users users;
	struct shms_holders *holders;
	struct shmstore_usage usage;
};

/* A try's results go. */
static void forget(struct surveying *s)
{
	for (size_t i = 0; i < s->n_stores; i++)
		free(s->stores[i].text);
	s->n_stores = 0;
	free(s->users.list);
	s->users = (struct shms_users){0};
	s->holders = shms_holders_free(s->holders);
}

/* Puts a copy of *io_string at *io_at, and lets it point there. */
static void move_string(const char **io_string, char **io_at)
{
	size_t n = strlen(*io_string) + 1;

	memcpy(*io_at, *io_string, n);
	*io_string = *io_at;
	*io_at += n;
}

static int note_store(const struct shmstore_store_books *books, void *arg)
{
	struct surveying *s = arg;
	struct noted *to;
	char *at;

	if (SHMS_GROW(s->stores, s->stores_size, s->n_stores, 1) < 0)
		return -ENOMEM;
	to = &s->stores[s->n_stores];
	to->books = *books;
	to->info = *books->store;
	to->text = malloc(strlen(to->info.name) + strlen(to->info.path) + strlen(to->info.label) +
			  strlen(to->info.address) + 4);
	if (!to->text)
		return -ENOMEM;
	at = to->text;
	move_string(&to->info.name, &at);
	move_string(&to->info.path, &at);
	move_string(&to->info.label, &at);
	move_string(&to->info.address, &at);
	s->n_stores++;
	return 0;
}

static int progress(uint64_t n_names, void *arg)
{
	const struct surveying *s = arg;

	return s->survey->progress ? s->survey->progress(n_names, s->survey->arg) : 0;
}

/* ---- one try --------------------------------------------------------------------------------- */

/* io has the terms that names, holders and tier files tell. */
static void fill(const struct shmstore_partition *p, const struct statvfs *fs, bool scanned,
		 struct shmstore_usage *io)
{
	uint64_t known;

	io->size = (uint64_t)fs->f_blocks * fs->f_frsize;
	io->used = (uint64_t)(fs->f_blocks - fs->f_bfree) * fs->f_frsize;
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
	io->n_unreadable += scanned && io->residual > 0 && !shms_sees_all_pids();
}

static int add_tier_file(const struct shms_tierscan_file *f, void *arg)
{
	struct surveying *s = arg;
	uint64_t bytes = shms_blocks(f->st);
	struct shmstore_user_books *user;

	s->usage.tier += bytes;
	if (f->what == SHMS_TIERSCAN_DEMOTED)
		s->usage.tier_demoted += bytes;
	else if (f->what == SHMS_TIERSCAN_CLEAN)
		s->usage.tier_clean += bytes;
	else
		s->usage.tier_orphans += bytes;
	if (!s->survey->user)
		return 0;
	user = shms_users_get(&s->users, f->user->uid);
	if (!user)
		return -ENOMEM;
	user->tier += bytes;
	return 0;
}

/* The tier's terms; none where there is no tier, or nothing of it can be read. */
static int take_tier(struct shmstore_partition *p, struct surveying *s,
		     const struct shms_inodes *clean)
{
	struct shms_tierscan scan = {.clean = clean, .file = add_tier_file, .arg = s};
	struct shms_tier_config config;
	int r = shms_tier_config_read(p, &config);

	if (r == 0)
		r = shms_tierscan_run(&scan, p, &config);
	else
		scan.n_unreadable = r != -ENOENT;
	s->usage.n_unreadable += scan.n_unreadable;
	return r == -EMFILE || r == -ENOMEM ? r : 0;
}

/* One walk, and one scan of processes and of the tier. */
static int take(struct shmstore_partition *p, struct surveying *s)
{
	struct shms_books_ask books = {
		.flags = p->tmpfs ? SHMS_BOOKS_REST : 0,
		.store = s->survey->store ? note_store : NULL,
		.progress = progress,
		.arg = s,
		.users = s->survey->user ? &s->users : NULL,
		.clean = shms_inodes_new(),
	};
	int r = books.clean ? 0 : -ENOMEM;

	forget(s);
	if (r == 0 && s->scan)
		r = shms_holders_new(p, s->survey->holder != NULL, &s->holders);
	books.holders = s->holders;
	if (r == 0)
		r = shms_books_take(p, &books, &s->usage);
	if (r == 0)
		r = take_tier(p, s, books.clean);
	shms_inodes_free(books.clean);
	return r == 0 && s->holders ? shms_holders_add(s->holders, &s->usage, books.users) : r;
}

static int take_quiet(struct shmstore_partition *p, struct surveying *s)
{
	struct statvfs before, after;
	int64_t last = 0;
	bool quiet;
	int r;

	for (int i = 0; i < TRIES; i++) {
		if (fstatvfs(p->fd, &before) < 0)
			return shms_error(errno);
		r = take(p, s);
		if (r != 0)
			return r;
		if (fstatvfs(p->fd, &after) < 0)
			return shms_error(errno);
		fill(p, &after, s->scan, &s->usage);
		quiet = before.f_bfree == after.f_bfree && before.f_ffree == after.f_ffree;
		if (quiet && (s->usage.residual == last || !s->scan))
			break;
		last = quiet ? s->usage.residual : 0;
	}
	return 0;
}

/* ---- the calls ------------------------------------------------------------------------------- */

static int tell(struct surveying *s)
{
	const struct shmstore_survey *v = s->survey;
	int r = 0;

	for (size_t i = 0; r == 0 && i < s->n_stores; i++) {
		s->stores[i].books.store = &s->stores[i].info; /* not before: the array moved */
		r = v->store(&s->stores[i].books, v->arg);
	}
	for (size_t i = 0; r == 0 && i < s->users.n; i++)
		r = v->user(&s->users.list[i], v->arg);
	if (r == 0 && v->holder)
		r = shms_holders_each(s->holders, v->holder, v->arg);
	return r;
}

static int survey_all(struct shmstore_partition *p, const struct shmstore_survey *survey, bool scan,
		      struct shmstore_usage *ret)
{
	struct surveying s = {.survey = survey, .scan = scan};
	int r = take_quiet(p, &s);

	if (r == 0)
		r = tell(&s);
	forget(&s);
	free(s.stores);
	if (r == 0 && ret)
		*ret = s.usage;
	return r;
}

int shmstore_partition_survey(struct shmstore_partition *p, const struct shmstore_survey *survey,
			      struct shmstore_usage *ret)
{
	if (!p || !survey || survey->size < sizeof(*survey) || survey->flags)
		return !p || !survey ? shms_detail_null(!p ? "p" : "survey")
				     : shms_detail(-EINVAL, NULL,
						   "survey.size is %zu and survey.flags 0x%x: "
						   "sizeof and 0 are right",
						   survey->size, survey->flags);
	return survey_all(p, survey, true, ret);
}

int shmstore_partition_reconcile(struct shmstore_partition *p,
				 int (*fn)(const struct shmstore_holder *holder, void *arg),
				 void *arg, struct shmstore_usage *ret)
{
	struct shmstore_survey survey = {.size = sizeof(survey), .holder = fn, .arg = arg};

	return shmstore_partition_survey(p, &survey, ret);
}

int shmstore_partition_usage(struct shmstore_partition *p, unsigned flags,
			     struct shmstore_usage *ret)
{
	static const struct shmstore_survey nothing = {.size = sizeof(nothing)};

	if (!p || !ret || (flags & ~SHMSTORE_USAGE_FULL))
		return !p || !ret ? shms_detail_null(!p ? "p" : "ret")
				  : shms_detail_flags(flags, SHMSTORE_USAGE_FULL);
	return survey_all(p, &nothing, (flags & SHMSTORE_USAGE_FULL) != 0, ret);
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
		.mapped = atomic_load_explicit(&shms_handle(s)->mapped, memory_order_relaxed),
		.n_objects = b.n_objects,
		.n_views = atomic_load_explicit(&shms_handle(s)->n_views, memory_order_relaxed),
	};
	return 0;
}

/* ---- the disk tier --------------------------------------------------------------------------- */

/* The directories of stubs and of tier files and one statfs say what it holds and what room it has.
 * No object is read. */

static uint64_t object_size(const struct shms_stub *stub)
{
	return stub->header_size + stub->buffer_size;
}

static int add_info(const struct shms_tierscan_file *f, void *arg)
{
	struct shmstore_tier_info *info = arg;
	uint64_t bytes = shms_blocks(f->st);
	int64_t age_ns = shms_now_real_ns() - shms_stat_ns(&f->st->st_mtim);

	info->used += bytes;
	info->last_minute += age_ns < 60 * (int64_t)1000000000 ? bytes : 0;
	switch (f->what) {
	case SHMS_TIERSCAN_DEMOTED:
		info->demoted += bytes;
		info->n_demoted++;
		info->original += object_size(&f->stub);
		break;
	case SHMS_TIERSCAN_CLEAN:
		info->clean += bytes;
		info->n_clean++;
		break;
	case SHMS_TIERSCAN_ORPHAN:
	default:
		info->orphans += bytes;
		info->n_orphans++;
		return 0;
	}
	/* A raw one is at least a page of header and the object's bytes, padded: no
	 * header has to be read to tell. */
	if ((uint64_t)f->st->st_size < SHMS_TIER_ALIGN + shms_tier_pad(object_size(&f->stub)))
		info->n_codec_zstd++;
	else
		info->n_codec_raw++;
	return 0;
}

static int fill_disk(const struct shmstore_partition *p, const struct shms_tier_config *config,
		     struct shmstore_tier_info *info)
{
	struct shms_space space;
	_fd_ int root = shms_tierscan_root(p, config);
	int r = root < 0 ? root : shms_space(root, &space);

	snprintf(info->path, sizeof(info->path), "%.4000s/%s", config->path, p->uuid);
	if (r < 0)
		return shms_detail(
			shms_error(r), info->path,
			"the tier's directory %s cannot be used: %s; is its file system mounted?",
			info->path, strerror(-r));
	info->disk_size = space.size;
	info->disk_free = space.available;
	return 0;
}

static void fill_config(const struct shms_tier_config *from, struct shmstore_tier_info *info)
{
	info->config = (struct shmstore_tier_config){
		.size = sizeof(info->config),
		.max = from->max,
		.min_free = from->min_free,
		.level = from->level,
		.fsync = from->fsync,
		.high = from->high,
		.low = from->low,
	};
	memcpy(info->config_path, from->path, sizeof(info->config_path));
}

int shmstore_tier_info(struct shmstore_partition *p, struct shmstore_tier_info *ret)
{
	struct shmstore_tier_info info = {.size = sizeof(info)};
	struct shms_tierscan scan = {.file = add_info, .arg = &info};
	struct shms_tier_config config;
	int r;

	if (!p || !ret)
		return shms_detail_null(!p ? "p" : "ret");
	r = shms_tier_config_read(p, &config);
	/* Without a path: no file is about nothing. */
	if (r == -ENOENT)
		return shms_detail(r, NULL,
				   "%s has no disk tier; shmstore-admin tier --set gives it one",
				   p->path);
	if (r < 0)
		return r;
	fill_config(&config, &info);
	r = fill_disk(p, &config, &info);
	if (r < 0)
		return r;
	r = shms_tierscan_run(&scan, p, &config);
	if (r < 0)
		return r;
	*ret = info;
	ret->config.path = ret->config_path;
	return 0;
}
