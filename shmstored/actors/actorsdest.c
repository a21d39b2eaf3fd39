/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actorsdest.c: where an actor may go: another daemon, a place of another partition, another process of its own partition.
 */
#include <string.h>

#include "account.h"
#include "actorsbook.h"
#include "actorspeers.h"
#include "host.h"
#include "member.h"

static const struct account *account_of(const struct actors_guest *g)
{
	const struct member *m = g ? conn_member(g->conn) : NULL;

	return m ? m->account : NULL;
}

size_t actors_places(const struct actors_one *k, bool other, struct ckpt_peer ret[CKPT_PEERS])
{
	const struct actors_guest *g, *next;
	size_t n = 0;

	HASH_ITER(hh, k->of->guests, g, next)
	{
		if (!*g->place || g == k->at || conn_peer(g->conn)->uid != k->key.uid || !g->room || n == CKPT_PEERS ||
		    (k->at && conn_peer(g->conn)->pid == conn_peer(k->at->conn)->pid) ||
		    (other && account_of(g) == account_of(k->at)))
			continue;
		memcpy(ret[n].name, g->place, sizeof(g->place));
		ret[n].free = actors_guest_room(g);
		ret[n].down = false;
		n++;
	}
	return n;
}

bool actors_one_has_family(const struct actors_one *k)
{
	const struct actors_one *child, *next;

	HASH_ITER(hh, k->of->all, child, next)
	{
		if (child->core && child->key.uid == k->key.uid && strcmp(child->parent, k->key.name) == 0)
			return true;
	}
	return *k->parent != '\0';
}

const char *actors_destination(const struct actors_one *k, const struct actors_want *want, bool *ret_far)
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

bool actors_one_may_leave(const struct actors_one *k, const struct actors_want *want)
{
	bool far;

	return k->core && k->at && (actor_state(k->core) == ACTOR_ACTIVE || actor_stays(k->core)) &&
	       actors_one_level(k) > ACTOR_NEVER &&
	       (actors_destination(k, want, &far) || actors_far_stale(k, CKPT_NONE));
}
