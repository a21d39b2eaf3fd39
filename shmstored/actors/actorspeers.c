/* SPDX-License-Identifier: Apache-2.0 */
/* actorspeers.c: see actorsbook.h: messages of other daemons; actors for reports. */
#include <string.h>

#include "actorsbook.h"
#include "host.h"

/* ---- messages -------------------------------------------------------------------------------- */

static void handle(struct actors_one *k, struct peer *p, uint16_t type, const struct actors_say *m)
{
	switch (type) {
	case ACTORS_LIVE:
		if (!actors_one_departed(k, p, m->version))
			actors_far_live(k, p, m->version);
		break;
	case ACTORS_DEAD:
		actors_far_dead(k, p, m->ended != 0);
		break;
	case ACTORS_COPY:
		actors_take_copy(k, p, m);
		break;
	case ACTORS_GONE:
		actors_advert_remove(k, peer_name(p));
		actors_one_refused(k, p);
		if (k->recovering && strcmp(k->asked, peer_name(p)) == 0)
			actors_far_ask(k);
		break;
	case ACTORS_RECOVER:
		if (!actors_keep_recover(k, m->version))
			actors_say(k->of, p, ACTORS_GONE, k, NULL);
		break;
	default:
		break;
	}
}

static bool take_say(struct actors *a, struct peer *p, uint16_t type, const char *body, size_t n)
{
	struct actors_say m;
	struct actors_one *k;

	if (n != sizeof(m))
		return false;
	memcpy(&m, body, sizeof(m));
	if (!memchr(m.name, '\0', sizeof(m.name)) || !actors_is_name(m.name))
		return false;
	if (!peer_speaks_for(p, m.uid))
		return true;
	k = type == ACTORS_LIVE || type == ACTORS_COPY ? actors_one_heard(a, m.uid, m.name)
						       : actors_one_find(a, m.uid, m.name);
	if (!k) {
		if (type == ACTORS_RECOVER)
			peer_send(p, ACTORS_GONE, &(struct iovec){&m, sizeof(m)}, 1);
		return true;
	}
	handle(k, p, type, &m);
	actors_touch(k);
	return true;
}

static bool on_message(struct peers_service *s, struct peer *p, uint16_t type, const char *body,
		       size_t n)
{
	struct actors *a = CONTAINER_OF(s, actors, service);

	if (a->host->draining)
		return true;
	switch (type) {
	case ACTORS_FREE:
		return actors_take_free(a, p, body, n);
	case ACTORS_CALL:
		return actors_far_asked(a, p, body, n);
	case ACTORS_ANSWER:
		return actors_far_answered(a, p, body, n);
	default:
		return type < ACTORS_STATE && take_say(a, p, type, body, n);
	}
}

static void on_up(struct peers_service *s, struct peer *p)
{
	struct actors *a = CONTAINER_OF(s, actors, service);
	struct actors_one *k, *next;

	if (a->host->draining)
		return;
	actors_say_room(a, p);
	HASH_ITER(hh, a->all, k, next)
	{
		if (!peer_speaks_for(p, k->key.uid))
			continue;
		if (k->core)
			actors_say(a, p, ACTORS_LIVE, k,
				   &(struct actors_say){.version = k->version});
		if (k->kept && k->kept->version)
			actors_say(a, p, ACTORS_COPY, k,
				   &(struct actors_say){.version = k->kept->version,
							.bytes = k->kept->bytes});
	}
}

static void on_down(struct peers_service *s, struct peer *p)
{
	struct actors *a = CONTAINER_OF(s, actors, service);
	struct actors_one *k, *next;

	if (a->host->draining)
		return;
	actors_forget_frees(a, p, 0);
	HASH_ITER(hh, a->all, k, next)
	{
		actors_advert_remove(k, peer_name(p));
		actors_one_refused(k, p);
		actors_far_down(k, p);
		actors_touch(k);
	}
}

void actors_peers_begin(struct actors *a)
{
	a->service = (struct peers_service){.first = PEERS_ACTORS,
					    .last = ACTORS_TYPES_END - 1,
					    .up = on_up,
					    .down = on_down,
					    .message = on_message,
					    .begin = actors_keep_begin,
					    .arrived = actors_keep_arrived};
	peers_add(a->host->peers, &a->service);
}

void actors_peers_end(struct actors *a)
{
	peers_remove(a->host->peers, &a->service);
	actors_forget_frees(a, NULL, UINT64_MAX);
}
