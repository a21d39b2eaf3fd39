/* SPDX-License-Identifier: Apache-2.0 */
/* actorscall.c: calls of actors. Each call is one request of actor.h, and has one answer. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "actorspeers.h"
#include "host.h"

struct actors_call *actors_call_find(const struct actors *a, uint64_t id)
{
	struct actors_call *l;

	HASH_FIND(hh, a->calls, &id, sizeof(id), l);
	return l;
}

static void forget_caller(struct actors_call *l)
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

	forget_caller(l);
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
		actors_guest_send(l->from, WIRE_ACTOR_ANSWER, l->serial, &body, sizeof(body), data,
				  n);
	actors_call_free(l);
}

void actors_call_orphan(struct actors_guest *g)
{
	while (g->calls)
		forget_caller(g->calls);
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

int actors_call(struct actors *a, struct conn *c, uint64_t serial, const char *name,
		const char *data, size_t n)
{
	struct actors_one *k = actors_one_find(a, conn_peer(c)->uid, name);
	struct actors_guest *g;
	struct actors_call *l;
	int r;

	if (!k || (!k->core && !*k->far && !actors_far_may_come(k)))
		return -ENOENT;
	g = actors_guest_get(a, c);
	if (!g)
		return -ENOMEM;
	if (g->n_calls == ACTORS_CALLS)
		return -EMFILE;
	l = actors_call_new(k, data, n);
	if (!l)
		return -ENOMEM;
	l->serial = serial;
	l->from = g;
	DL_APPEND(g->calls, l);
	g->n_calls++;
	r = k->core ? actor_request(k->core, l->id) : actors_far_call(k, l);
	if (r < 0)
		actors_call_free(l);
	else
		actors_one_settle(k);
	return r == -EAGAIN ? -EMFILE : r == -EPIPE ? -ENOENT : r;
}

bool actors_cancel(struct actors *a, struct conn *c, uint64_t serial)
{
	struct actors_guest *g = actors_guest_find(c);
	struct actors_one *k, *next;

	if (!g)
		return false;
	for (struct actors_call *l = g->calls; l; l = l->next) {
		if (l->serial != serial)
			continue;
		forget_caller(l);
		return true;
	}
	HASH_ITER(hh, a->all, k, next)
	{
		if (k->mover != g || k->mover_serial != serial)
			continue;
		k->mover = NULL;
		return true;
	}
	return false;
}
