/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline.c: several demotions under way.
 *
 * A slot holds one: begun, then copied by the engine, then finished. The engine says that a
 * copy is done from within a call on it; names are not changed there but in the next step of
 * ours, so that nothing of the engine's is held while a store's names are locked, and names are
 * changed for one object at a time.
 *
 * A store whose names somebody holds and does not let go is waited for once: its
 * other objects are not tried.
 */
#include "pipeline.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "detail.h"
#include "page.h"
#include "partition.h"
#include "sys.h"

#define BYTES_MAX (256ull << 20) /* under way at once, but for a single one that is larger */

static void copied(struct shms_job *job)
{
	struct shms_pipeline_slot *slot = job->arg;

	slot->copied = true;
}

static void over(struct shms_pipeline *pl, struct shms_pipeline_slot *slot)
{
	const struct shms_candidate *o = &pl->c->v[slot->candidate];
	uint32_t at = o->first;

	shms_demote_end(&slot->d);
	for (size_t i = 0; i < slot->d.n_names; i++, at = pl->c->names[at - 1].next)
		shms_storefds_back(pl->fds, pl->c->names[at - 1].store);
	free(slot->d.names);
	slot->d.names = NULL;
	slot->used = false;
	pl->n--;
	pl->bytes -= o->bytes;
	pl->settle(slot->candidate, &slot->d, pl->arg);
}

/* Where the index-th name of a slot's object is. */
static struct shms_storefds_one *store_of(const struct shms_pipeline *pl,
					  const struct shms_pipeline_slot *slot, size_t index)
{
	uint32_t at = pl->c->v[slot->candidate].first;

	while (index--)
		at = pl->c->names[at - 1].next;
	return &pl->fds->v[pl->c->names[at - 1].store];
}

static bool is_stuck(const struct shms_pipeline *pl, const struct shms_pipeline_slot *slot)
{
	for (size_t i = 0; i < slot->d.n_names; i++) {
		if (store_of(pl, slot, i)->stuck)
			return true;
	}
	return false;
}

static void finish(struct shms_pipeline *pl, struct shms_pipeline_slot *slot)
{
	struct shms_demote *d = &slot->d;

	shms_detail_clear();
	if (pl->canceled)
		d->error = -ECANCELED;
	else if (is_stuck(pl, slot))
		d->error = -ETIMEDOUT;
	else if (shms_demote_finish(d) == -ETIMEDOUT)
		store_of(pl, slot, d->first < 0 ? 0 : (size_t)d->first)->stuck = true;
	over(pl, slot);
}

static void finish_copied(struct shms_pipeline *pl)
{
	for (unsigned i = 0; i < SHMS_PIPELINE_SLOTS; i++) {
		struct shms_pipeline_slot *slot = &pl->slots[i];

		if (slot->used && slot->copied)
			finish(pl, slot);
	}
}

void shms_pipeline_wait(struct shms_pipeline *pl)
{
	if (!pl->n)
		return;
	shms_engine_wait(pl->engine);
	finish_copied(pl);
}

void shms_pipeline_drain(struct shms_pipeline *pl)
{
	if (!pl->n)
		return;
	shms_engine_drain(pl->engine);
	finish_copied(pl);
}

/* A slot, and room for bytes more under way. */
static struct shms_pipeline_slot *free_slot(struct shms_pipeline *pl, uint64_t bytes)
{
	while (pl->n == SHMS_PIPELINE_SLOTS || (pl->n && pl->bytes + bytes > BYTES_MAX))
		shms_pipeline_wait(pl);
	for (unsigned i = 0; i < SHMS_PIPELINE_SLOTS; i++) {
		if (!pl->slots[i].used)
			return &pl->slots[i];
	}
	abort();
}

/* Where the names of an object are: opens the stores. */
static int open_names(struct shms_pipeline *pl, struct shms_pipeline_slot *slot)
{
	const struct shms_candidate *o = &pl->c->v[slot->candidate];
	struct shms_demote *d = &slot->d;
	const struct shms_storefds_one *fds;
	int r;

	d->names = calloc(o->n_names, sizeof(*d->names));
	if (!d->names)
		return -ENOMEM;
	for (uint32_t at = o->first; at; at = pl->c->names[at - 1].next) {
		const struct shms_candidate_name *n = &pl->c->names[at - 1];
		bool own = pl->s && pl->c->stores[n->store].own;

		r = shms_storefds_take(pl->fds, n->store, &fds);
		if (r < 0)
			return r;
		d->names[d->n_names++] =
			(struct shms_demote_name){.objects_fd = fds->objects_fd,
						  .clean_fd = fds->clean_fd,
						  .name = shms_candidates_text(pl->c, n->name),
						  .s = own ? pl->s : NULL};
	}
	return 0;
}

void shms_pipeline_put(struct shms_pipeline *pl, uint32_t candidate, bool mapped)
{
	const struct shms_candidate *o = &pl->c->v[candidate];
	struct shms_pipeline_slot *slot = free_slot(pl, o->bytes);
	struct shms_demote *d = &slot->d;
	int r;

	*slot = (struct shms_pipeline_slot){.candidate = candidate, .used = true};
	*d = (struct shms_demote){
		.t = pl->users[o->user].t, .mapped = mapped, .fd = -1, .tier_fd = -1};
	d->job.done = copied;
	d->job.arg = slot;
	pl->n++;
	pl->bytes += o->bytes;
	shms_detail_clear();
	r = open_names(pl, slot);
	if (r == 0 && is_stuck(pl, slot))
		r = -ETIMEDOUT;
	if (r < 0)
		d->error = r;
	else
		r = shms_demote_begin(d);
	if (r == 0)
		shms_engine_store(pl->engine, &d->job);
	else if (r > 0)
		finish(pl, slot);
	else
		over(pl, slot);
	finish_copied(pl);
}

/* ---- stores ---------------------------------------------------------------------------------- */

/* Opened when first needed; where many are open, those that nobody uses
 * at the moment are closed. */

#define OPEN_MAX 64u /* stores */

int shms_storefds_init(struct shms_storefds *f, struct shmstore_partition *p,
		       const struct shms_candidates *c)
{
	*f = (struct shms_storefds){.p = p, .c = c, .v = calloc(c->n_stores + 1, sizeof(*f->v))};
	if (!f->v)
		return -ENOMEM;
	for (size_t i = 0; i < c->n_stores; i++)
		f->v[i].objects_fd = f->v[i].clean_fd = -1;
	return 0;
}

static void close_one(struct shms_storefds *f, struct shms_storefds_one *one)
{
	if (one->objects_fd < 0)
		return;
	one->objects_fd = shms_close_fd(one->objects_fd);
	one->clean_fd = shms_close_fd(one->clean_fd);
	f->n_open--;
}

static void close_idle(struct shms_storefds *f)
{
	for (size_t i = 0; i < f->c->n_stores; i++) {
		if (!f->v[i].n_use)
			close_one(f, &f->v[i]);
	}
}

void shms_storefds_deinit(struct shms_storefds *f)
{
	if (f->v)
		close_idle(f);
	free(f->v);
	*f = (struct shms_storefds){0};
}

/* The directory that the walk met, and no other that stands in its place now. */
static int open_one(struct shms_storefds *f, uint32_t store, struct shms_storefds_one *one)
{
	const struct shms_candidate_store *s = &f->c->stores[store];
	_fd_ int dir = shms_open_beneath(f->p->fd, shms_candidates_text(f->c, s->below),
					 O_RDONLY | O_DIRECTORY);
	_fd_ int objects = -1, clean = -1;
	struct stat st;

	if (dir < 0)
		return dir;
	if (fstat(dir, &st) < 0 || st.st_ino != s->inode)
		return -ENOENT;
	objects = shms_open_dir(dir, SHMS_DIR_OBJECTS);
	if (objects < 0)
		return objects;
	clean = shms_open_dir(dir, SHMS_DIR_CLEAN);
	if (clean < 0)
		return clean;
	one->objects_fd = shms_take_fd(&objects);
	one->clean_fd = shms_take_fd(&clean);
	f->n_open++;
	return 0;
}

int shms_storefds_take(struct shms_storefds *f, uint32_t store,
		       const struct shms_storefds_one **ret)
{
	struct shms_storefds_one *one = &f->v[store];
	int r = 0;

	if (one->objects_fd < 0) {
		if (f->n_open >= OPEN_MAX)
			close_idle(f);
		r = open_one(f, store, one);
	}
	if (r < 0)
		return r;
	one->n_use++;
	*ret = one;
	return 0;
}

void shms_storefds_back(struct shms_storefds *f, uint32_t store)
{
	f->v[store].n_use--;
}
