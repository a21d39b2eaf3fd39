/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actorsleave.c: an actor leaves its process for memory's sake: where it may go, and in
 * which state it goes on there.
 *
 * It may go to another daemon, to a place of another partition, or to another
 * process of its own partition.
 */
#include <string.h>

#include "actorspeers.h"

const char *actors_destination(const struct actors_one *k, const struct actord_want *want,
			       bool *ret_far)
{
	static struct ckpt_peer peers[CKPT_PEERS]; /* the loop's thread only */
	const struct ckpt_peer *to = NULL;
	uint64_t bytes = k->bytes ? k->bytes : 1; /* as far as it was saved before */

	if (want->memory && k->copy && !actors_one_has_family(k))
		to = ckpt_destination(peers, actors_peers_list(k->of, k->key.uid, peers), bytes);
	*ret_far = to != NULL;
	if (!to && want->memory && !want->daemons)
		to = ckpt_destination(peers, actors_places(k, true, peers), bytes);
	if (!to && !want->daemons && (!want->memory || want->private / 2 >= bytes))
		to = ckpt_destination(peers, actors_places(k, false, peers), bytes);
	return to ? to->name : NULL;
}

bool actors_one_may_leave(const struct actors_one *k, const struct actord_want *want)
{
	bool far;

	return k->core && k->at && (k->core->state == ACTOR_ACTIVE || k->core->stays) &&
	       actors_one_level(k) > ACTOR_NEVER &&
	       (actors_destination(k, want, &far) || actors_far_stale(k, CKPT_NONE));
}

/* The copy goes on in its place, at the daemon that keeps it. */
static void use_copy(struct actors_one *k, const struct actors_advert *copy)
{
	k->stale_ms = UINT64_MAX;
	k->goes_far = true;
	k->copy_version = copy->version;
	strcpy(k->to_daemon, copy->peer); /* of one size */
	if (actor_use_copy(k->core, copy->peer, loop_clock_ms()) < 0)
		k->copy_version = k->goes_far = false;
}

void actors_one_leave(struct actors_one *k, struct actord_want want)
{
	const struct ckpt_stale *s = &actors_options(k)->stale;
	bool far, fresh = actors_destination(k, &want, &far) != NULL;
	const struct actors_advert *copy = actors_far_stale(k, fresh ? 0 : CKPT_NONE);

	k->want = want;
	if (copy) {
		use_copy(k, copy);
	} else if (actor_preempt(k->core, NULL, loop_clock_ms()) == 0 &&
		   s->policy == CKPT_TIMEOUT) {
		k->stale_ms = s->ms < UINT64_MAX / 2 ? loop_clock_ms() + s->ms : UINT64_MAX;
	}
	actors_touch(k);
}

void actors_one_want_copy(struct actors_one *k)
{
	const struct actors_advert *copy = actors_far_stale(k, CKPT_NONE);

	k->stale_ms = UINT64_MAX;
	if (copy && k->core->state <= ACTOR_SERIALIZING)
		use_copy(k, copy);
}
