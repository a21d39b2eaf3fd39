/* SPDX-License-Identifier: Apache-2.0 */
/* actorsbook.c: actors by their names, what is known of one, its options, and calls of it. */
#include "actorsbook.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "configkey.h"
#include "events.h"
#include "host.h"
#include "jsonmake.h"

bool actors_is_name(const char *name)
{
	size_t n = 0;

	for (; name[n]; n++)
		if ((unsigned char)name[n] <= ' ' || (unsigned char)name[n] == 0x7f ||
		    name[n] == '/')
			return false;
	return n > 0 && n <= WIRE_ACTOR_NAME && name[0] != '.';
}

static struct actors_key key_of(uint32_t uid, const char *name)
{
	struct actors_key key;

	memset(&key, 0, sizeof(key));
	key.uid = uid;
	snprintf(key.name, sizeof(key.name), "%s", name);
	return key;
}

struct actors_one *actors_one_find(const struct actors *a, uint32_t uid, const char *name)
{
	struct actors_key key = key_of(uid, name);
	struct actors_one *k;

	HASH_FIND(hh, a->all, &key, sizeof(key), k);
	return k;
}

struct actors_one *actors_one_new(struct actors *a, uint32_t uid, const char *name)
{
	struct actors_one *k = calloc(1, sizeof(*k));

	if (!k)
		return NULL;
	k->of = a;
	k->key = key_of(uid, name);
	k->settle_ms = k->stale_ms = UINT64_MAX;
	HASH_ADD(hh, a->all, key, sizeof(k->key), k);
	if (!k->hh.tbl) {
		free(k);
		return NULL;
	}
	return k;
}

struct actors_one *actors_one_heard(struct actors *a, uint32_t uid, const char *name)
{
	struct actors_one *k = actors_one_find(a, uid, name);

	return k || HASH_COUNT(a->all) >= ACTORS_HEARD ? k : actors_one_new(a, uid, name);
}

void actors_touch(struct actors_one *k)
{
	struct actors *a = k->of;

	if (a->closing || a->host->draining) /* what is here is here for the next daemon */
		return;
	if (!k->touched)
		DL_APPEND2(a->touched, k, tprev, tnext);
	k->touched = true;
	loop_after(a->host->loop, &a->after);
}

int actors_one_level(const struct actors_one *k)
{
	return actor_level((int)k->said.level, (k->said.flags & WIRE_ACTOR_CAN_SAVE) != 0,
			   (k->said.flags & WIRE_ACTOR_CAN_LOAD) != 0, false);
}

bool actors_one_has_family(const struct actors_one *k)
{
	for (const struct actors_one *child = k->of->all; child; child = child->hh.next)
		if (child->core && child->key.uid == k->key.uid &&
		    strcmp(child->parent, k->key.name) == 0)
			return true;
	return *k->parent != '\0';
}

/* to: the place; daemon: another one, where it went. */
void actors_tell(const struct actors_one *k, enum event what, const char *to, const char *daemon)
{
	struct json_object *o = jsonmake_new();

	jsonmake_text(o, "actor", k->key.name);
	jsonmake_u64(o, "uid", k->key.uid);
	jsonmake_text(o, "from", k->at ? k->at->place : k->home);
	jsonmake_i64(o, "pid", k->at ? k->at->conn->peer.pid : 0);
	jsonmake_text(o, "to", to);
	jsonmake_text(o, "daemon", daemon);
	jsonmake_u64(o, "bytes", k->bytes);
	events_emit(k->of->host->events, what, NULL, o);
}

void actors_one_lost(const struct actors_one *k)
{
	k->of->books.n_died++;
	actors_tell(k, EVENT_ACTOR_LOST, NULL, NULL);
}

/* ---- options --------------------------------------------------------------------------------- */

/*
 * How often it is begun again, and how copies of it are made where its program said so. As text
 * they are what ACTOR_BORN and LOAD have, and what goes to other daemons with its state.
 */
const struct config_copies *actors_options(const struct actors_one *k)
{
	return k->own ? k->own : &k->of->host->config->peers.copies;
}

void actors_options_free(struct actors_one *k)
{
	if (k->own)
		config_copies_clear(k->own);
	free(k->own);
	free(k->words);
	k->own = NULL;
	k->words = NULL;
}

static int set_words(struct actors_one *k, const char *words, char why[CONFIG_WHY])
{
	struct config_copies *own = calloc(1, sizeof(*own));
	char *copy = strdup(words);
	int r = own && copy
			? config_copies_read(words, &k->of->host->config->peers.copies, own, why)
			: -ENOMEM;

	if (r < 0) {
		free(own);
		free(copy);
		return r;
	}
	actors_options_free(k);
	k->own = own;
	k->words = copy;
	return 0;
}

int actors_options_read(struct actors_one *k, const char *text, char why[CONFIG_WHY])
{
	char number[16] = "";
	size_t n = strcspn(text, " ");
	uint64_t restarts = 0;
	int r;

	if (n < sizeof(number))
		memcpy(number, text, n);
	if (*text && (strlen(text) > WIRE_ACTOR_OPTIONS ||
		      configkey_number(number, 10, 0, UINT32_MAX, &restarts) < 0)) {
		snprintf(why, CONFIG_WHY,
			 "options of an actor begin with the number of its restarts, and have %u "
			 "bytes at most",
			 WIRE_ACTOR_OPTIONS);
		return -EINVAL;
	}
	text += n + strspn(text + n, " ");
	if (!*text)
		actors_options_free(k);
	r = *text ? set_words(k, text, why) : 0;
	if (r == 0)
		k->restarts = (uint32_t)restarts;
	return r;
}

int actors_options_write(const struct actors_one *k, char ret[WIRE_ACTOR_OPTIONS + 1])
{
	if (!k->restarts && !k->words)
		ret[0] = '\0';
	else
		snprintf(ret, WIRE_ACTOR_OPTIONS + 1, "%u %s", k->restarts,
			 k->words ? k->words : "");
	return (int)strlen(ret);
}

/* ---- calls: each is one request of actor.h, and has one answer ------------------------------- */

struct actors_call *actors_call_find(const struct actors *a, uint64_t id)
{
	struct actors_call *l;

	HASH_FIND(hh, a->calls, &id, sizeof(id), l);
	return l;
}

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
