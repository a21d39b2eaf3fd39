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
#include <errno.h>
#include <stdlib.h>

#include "candidates.h"
#include "demote.h"
#include "detail.h"

#define BYTES_MAX (256ull << 20) /* under way at once, but for a single one that is larger */

static void copied(struct shms_job *job)
{
	struct shms_pipeline_slot *slot = job->arg;

	slot->copied = true;
}

static void over(struct shms_pipeline *pl, struct shms_pipeline_slot *slot)
{
	shms_demote_end(&slot->d);
	shms_candidates_names_end(pl->c, slot->candidate, &slot->d);
	slot->used = false;
	pl->n--;
	pl->bytes -= pl->c->v[slot->candidate].bytes;
	pl->settle(slot->candidate, &slot->d, pl->arg);
}

/* Where the index-th name of a slot's object is. */
static struct shms_candidate_store *store_of(const struct shms_pipeline *pl,
					     const struct shms_pipeline_slot *slot, size_t index)
{
	const struct shms_candidate_name *n = pl->c->v[slot->candidate].names;

	while (index--)
		n = n->next;
	return &pl->c->stores[n->store];
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
	r = shms_candidates_names(pl->c, candidate, pl->s, d);
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
