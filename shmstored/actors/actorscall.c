/* SPDX-License-Identifier: Apache-2.0 */
/* actorscall.c: calls of actors. Each call is one request of actor.h, and has one answer. */
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "actorspeers.h"
#include "host.h"

void actors_call_orphan(struct actors_call *l)
{
	if (!l->from)
		return;
	DL_DELETE(l->from->calls, l);
	l->from->n_calls--;
	l->from = NULL;
}

void actors_call_free(struct actors_call *l)
{
	struct actors *a = l->of->of;

	actors_call_orphan(l);
	HASH_DEL(a->calls, l);
	a->books.n_calls--;
	free(l);
}

/* If another daemon asked, it gets the answer, which its caller waits for. */
static void answer_asker(const struct actors_call *l, enum wire_actor_how how, const char *data,
			 size_t n)
{
	struct actors_say_answer m = {.id = l->asker_id, .how = how};
	struct peer *p = *l->asker ? peers_find(l->of->of->host->peers, l->asker) : NULL;

	if (p)
		peer_send(p, ACTORS_ANSWER,
			  (struct iovec[]){{&m, sizeof(m)}, {(void *)(uintptr_t)data, n}}, 2);
}

void actors_call_answer(struct actors_call *l, enum wire_actor_how how, const char *data, size_t n)
{
	const struct wire_actor_answer body = {.how = how};
	struct actors *a = l->of->of;

	a->books.n_answered += how != WIRE_ACTOR_LOST;
	a->books.n_lost += how == WIRE_ACTOR_LOST;
	answer_asker(l, how, data, n);
	if (l->from)
		conn_send(l->from->conn, WIRE_ACTOR_ANSWER, l->serial, &body, data, n);
	actors_call_free(l);
}

struct actors_call *actors_call_new(struct actors_one *k, const char *data, size_t n)
{
	struct actors *a = k->of;
	struct actors_call *l = malloc(sizeof(*l) + n);

	if (!l)
		return NULL;
	*l = (struct actors_call){.id = ++a->last_call, .of = k, .n = n};
	memcpy(l->data, data, n);
	HASH_ADD(hh, a->calls, id, sizeof(l->id), l);
	if (!l->hh.tbl) {
		free(l);
		return NULL;
	}
	a->books.n_calls++;
	return l;
}
