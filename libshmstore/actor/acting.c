/* SPDX-License-Identifier: Apache-2.0 */
/*
 * acting.c: sends calls of actors, and moves, and takes their answers, which the daemon withholds
 * until the call has run; opens and closes a place, and begins and ends actors there.
 */
#include "acting.h"

#include <errno.h>
#include <pthread.h>
#include <shmstore/actor.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "cleanup.h"
#include "detail.h"
#include "sys.h"

_Static_assert((int)SHMSTORE_ACTOR_OK == (int)WIRE_ACTOR_OK &&
		       (int)SHMSTORE_ACTOR_FAILED == (int)WIRE_ACTOR_FAILED &&
		       (int)SHMSTORE_ACTOR_STOPPED == (int)WIRE_ACTOR_STOPPED &&
		       (int)SHMSTORE_ACTOR_LOST == (int)WIRE_ACTOR_LOST &&
		       SHMSTORE_ACTOR_NAME == WIRE_ACTOR_NAME &&
		       SHMSTORE_ACTOR_DATA == WIRE_TEXT_MAX - WIRE_ACTOR_NAME,
	       "the public numbers are the protocol's");

struct shmstore_actor_call {
	struct shmstore *s;
	struct shms_request q;
	struct shms_reply reply;
};

/* A line break would make two names of it. The daemon checks the other rules. */
static bool is_name(const char *name)
{
	return name && *name && strlen(name) <= WIRE_ACTOR_NAME && !strchr(name, '\n');
}

static int wrong_name(void)
{
	return shms_detail(-EINVAL, NULL,
			   "a name of an actor or of a place has 1 to %u printable bytes, no "
			   "blank, no slash, and no dot in front",
			   WIRE_ACTOR_NAME);
}

int shms_acting_tail(const char *name, const void *data, size_t n, char tail[WIRE_TEXT_MAX],
		     uint32_t *ret_name)
{
	size_t length;

	if (!is_name(name))
		return wrong_name();
	length = strlen(name);
	if (n > SHMSTORE_ACTOR_DATA)
		return shms_detail(-EFBIG, NULL,
				   "%zu bytes for, or of, actor %s are more than the %u of a "
				   "message: put them into the store, and send a ticket",
				   n, name, SHMSTORE_ACTOR_DATA);
	if (n && !data)
		return shms_detail_null("data");
	memcpy(tail, name, length);
	if (n)
		memcpy(tail + length, data, n);
	*ret_name = (uint32_t)length;
	return (int)(length + n);
}

/*
 * Sends a request that the daemon answers at once. 0; -ENOTCONN: there is no daemon, or it ended;
 * -errno: it refused.
 */
static int tell(struct shmstore *s, uint16_t type, const void *body, const char *tail, size_t n)
{
	const struct shms_call call = shms_acting_call(type, WIRE_DONE, body, tail, n);
	struct shms_reply reply;
	int r = shms_attach_call(shms_attach_of(s), &call, &reply);

	if (r < 0)
		return r == -ENOTCONN ? r : shms_error(r);
	return shms_reply_error(&reply);
}

static int gone(struct shmstore *s)
{
	return shms_attach_absent(shms_attach_of(s), "actors need shmstore-actord");
}

/* Sends a request whose answer the daemon withholds. */
static int post(struct shmstore *s, struct shms_call what, struct shmstore_actor_call **ret)
{
	struct shmstore_actor_call *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->s = s;
	c->q.reply = &c->reply;
	r = shms_request_begin(shms_attach_of(s), &what, &c->q);
	if (r < 0) {
		free(c);
		return r == -ENOTCONN ? gone(s) : shms_error(r);
	}
	shms_store_ref(s);
	*ret = c;
	return 0;
}

int shmstore_actor_call(struct shmstore *s, const char *name, const void *data, size_t size,
			struct shmstore_actor_call **ret)
{
	struct wire_actor_call m = {0};
	char tail[WIRE_TEXT_MAX];
	int n;

	if (!ret)
		return shms_detail_null("ret");
	n = shms_acting_tail(name, data, size, tail, &m.name);
	return n < 0 ? n
		     : post(s,
			    shms_acting_call(WIRE_ACTOR_CALL, WIRE_ACTOR_ANSWER, &m, tail,
					     (size_t)n),
			    ret);
}

int shmstore_actor_move(struct shmstore *s, const char *name, const char *place,
			struct shmstore_actor_call **ret)
{
	static const struct wire_actor_move m = {0};
	char tail[WIRE_TEXT_MAX];
	uint32_t n_name;
	int n;

	if (!ret)
		return shms_detail_null("ret");
	n = shms_acting_tail(name, NULL, 0, tail, &n_name);
	if (n < 0)
		return n;
	if (place && !is_name(place))
		return wrong_name();
	if (place)
		n += snprintf(tail + n, sizeof(tail) - (size_t)n, "\n%s", place);
	return post(s, shms_acting_call(WIRE_ACTOR_MOVE, WIRE_DONE, &m, tail, (size_t)n), ret);
}

int shmstore_actor_answer(struct shmstore_actor_call *c, uint64_t timeout_ms,
			  struct shmstore_actor_answer *ret)
{
	struct wire_actor_answer m;
	int r;

	if (!c || !ret)
		return shms_detail_null(c ? "ret" : "c");
	r = shms_store_usable(c->s, true);
	if (r < 0)
		return r;
	if (!shms_request_wait_until(shms_attach_of(c->s), &c->q, shms_until_ns(timeout_ms))) {
		shms_request_look(shms_attach_of(c->s));
		if (!shms_request_wait_until(shms_attach_of(c->s), &c->q, 0))
			return 0;
	}
	if (c->q.error < 0)
		return gone(c->s);
	if (c->reply.type == WIRE_REFUSED)
		return shms_reply_error(&c->reply);
	*ret = (struct shmstore_actor_answer){.how = SHMSTORE_ACTOR_OK};
	if (c->reply.type == WIRE_DONE) /* of a move */
		return 1;
	memcpy(&m, c->reply.body.bytes, sizeof(m));
	*ret = (struct shmstore_actor_answer){
		.how = m.how, .data = c->reply.tail, .data_size = c->reply.tail_size};
	return 1;
}

struct shmstore_actor_call *shmstore_actor_forget(struct shmstore_actor_call *c)
{
	if (!c)
		return NULL;
	if (shms_store_usable(c->s, true) == 0)
		shms_request_withdraw(shms_attach_of(c->s), &c->q);
	shms_store_unref(c->s);
	free(c);
	return NULL;
}

/* ---- the list -------------------------------------------------------------------------------- */

#define FLAGS     (SHMSTORE_ACTOR_CAN_SAVE | SHMSTORE_ACTOR_CAN_LOAD | SHMSTORE_ACTOR_STRICT)
#define LEVEL_MAX 4u

const char *shms_placed_key(const char *name, uint64_t version, char ret[SHMS_PLACED_KEY])
{
	snprintf(ret, SHMS_PLACED_KEY, "ckpt/%s/%llu", name, (unsigned long long)version);
	return ret;
}

struct shms_placed *shms_placed_find(const struct shmstore_place *p, const char *name)
{
	struct shms_placed *e = p->entries;

	while (e && strcmp(e->name, name) != 0)
		e = e->next;
	return e;
}

struct shms_placed *shms_placed_add(struct shmstore_place *p, const char *name, const char *parent)
{
	struct shms_placed *e = shms_placed_find(p, name);

	if (e)
		return e;
	e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	snprintf(e->name, sizeof(e->name), "%s", name);
	snprintf(e->parent, sizeof(e->parent), "%s", parent);
	LL_PREPEND(p->entries, e);
	return e;
}

/* Does the daemon know options of an actor? */
static bool knows_options(const struct shmstore_place *p)
{
	return atomic_load_explicit(&shms_attach_of(p->s)->features, memory_order_relaxed) &
	       WIRE_FEATURE_ACTOR_OPTIONS;
}

int shms_placed_tail(const struct shmstore_place *p, const struct shms_placed *e,
		     char tail[WIRE_TEXT_MAX])
{
	bool more = *e->more && knows_options(p);

	return snprintf(tail, WIRE_TEXT_MAX, "%s%s%s%s%s", e->name, *e->parent || more ? "\n" : "",
			e->parent, more ? "\n" : "", more ? e->more : "");
}

void shms_placed_drop_object(struct shmstore_place *p, struct shms_placed *e)
{
	char key[SHMS_PLACED_KEY];

	if (e->object) {
		shms_placed_key(e->name, e->object, key);
		(void)shmstore_delete(p->s, key, strlen(key));
	}
	e->object = 0;
}

void shms_placed_del(struct shmstore_place *p, struct shms_placed *e)
{
	LL_DELETE(p->entries, e);
	shms_placed_drop_object(p, e);
	free(e);
}

int shms_placed_announce(struct shmstore_place *p)
{
	const struct wire_actor_place m = {.free = p->room};

	return tell(p->s, WIRE_ACTOR_PLACE, &m, p->name, strlen(p->name));
}

/* ---- actors that begin and end ---- */

static int take_options(const struct shmstore_actor_options *from,
			struct shmstore_actor_options *ret)
{
	static const struct shmstore_actor_options init = SHMSTORE_ACTOR_OPTIONS_INIT;

	int r;

	*ret = init;
	r = shms_take_sized(ret, sizeof(*ret), from,
			    offsetof(struct shmstore_actor_options, copies), "options",
			    "SHMSTORE_ACTOR_OPTIONS_INIT");
	if (r < 0)
		return r;
	if (ret->level > LEVEL_MAX)
		return shms_detail(-EINVAL, NULL, "there is no level %u: 0 (never) to 4 (always)",
				   ret->level);
	if (ret->flags & ~FLAGS)
		return shms_detail_flags(ret->flags, FLAGS);
	if (ret->copies &&
	    (strlen(ret->copies) > SHMSTORE_ACTOR_COPIES || strchr(ret->copies, '\n')))
		return shms_detail(-EINVAL, NULL, "options.copies is one line of at most %u bytes",
				   SHMSTORE_ACTOR_COPIES);
	return 0;
}

/* False: the place has no such actor. */
static bool remove_entry(struct shmstore_place *p, const char *name)
{
	struct shms_placed *e;

	SHMS_HELD(&p->lock);
	e = shms_placed_find(p, name);
	if (e)
		shms_placed_del(p, e);
	return e != NULL;
}

int shmstore_actor_begin(struct shmstore_place *p, const char *name,
			 const struct shmstore_actor_options *options)
{
	struct shmstore_actor_options o;
	struct wire_actor_born m;
	char tail[WIRE_TEXT_MAX], more[WIRE_ACTOR_OPTIONS + 1] = "";
	struct shms_placed *e;
	int r, n;

	if (!p || !name)
		return shms_detail_null(p ? "name" : "p");
	r = shms_store_usable(p->s, true);
	if (r == 0)
		r = take_options(options, &o);
	if (r < 0)
		return r;
	if (!is_name(name) || (o.parent && !is_name(o.parent)))
		return wrong_name();
	if (o.max_restarts || (o.copies && *o.copies))
		snprintf(more, sizeof(more), "%u %s", o.max_restarts, o.copies ? o.copies : "");
	if (*more && shms_attach_needed(shms_attach_of(p->s)) && !knows_options(p))
		return shms_detail(-ENOTSUP, NULL,
				   "shmstored is older than max_restarts and copies of an actor: "
				   "upgrade it, or begin actor %s without them",
				   name);
	m = (struct wire_actor_born){.step_ms = o.step_ms,
				     .suspend_ms = o.suspend_ms,
				     .at_once = o.at_once,
				     .level = (uint16_t)o.level,
				     .flags = (uint16_t)(o.flags | WIRE_ACTOR_NEW)};
	/* The entry comes first: an order for the actor may arrive before the answer is read. */
	pthread_mutex_lock(&p->lock);
	e = shms_placed_find(p, name) ? NULL : shms_placed_add(p, name, o.parent ? o.parent : "");
	if (e) {
		memcpy(e->more, more, sizeof(e->more));
		e->said = m;
		e->said.version = 1;
		e->said.flags =
			(uint16_t)((o.flags & (SHMSTORE_ACTOR_CAN_SAVE | SHMSTORE_ACTOR_CAN_LOAD)) |
				   WIRE_ACTOR_SURE);
		e->stage = SHMS_PLACED_LIVE;
	}
	n = e ? shms_placed_tail(p, e, tail) : 0;
	pthread_mutex_unlock(&p->lock);
	if (!e)
		return shms_detail(-EEXIST, NULL,
				   "actor %s is at place %s already, or memory is out", name,
				   p->name);
	r = tell(p->s, WIRE_ACTOR_BORN, &m, tail, (size_t)n);
	if (r == 0)
		return 0;
	remove_entry(p, name);
	return r == -ENOTCONN ? gone(p->s) : r;
}

int shmstore_actor_end(struct shmstore_place *p, const char *name)
{
	struct wire_actor_done body = {.how = WIRE_ACTOR_ENDED};
	char tail[WIRE_TEXT_MAX];
	int r, n;

	if (!p)
		return shms_detail_null("p");
	r = shms_store_usable(p->s, true);
	n = r < 0 ? r : shms_acting_tail(name, NULL, 0, tail, &body.name);
	if (n < 0)
		return n;
	if (!remove_entry(p, name))
		return shms_detail(-ENOENT, NULL, "no actor %s is at place %s", name, p->name);
	r = tell(p->s, WIRE_ACTOR_DONE, &body, tail, (size_t)n);
	return r == -ENOTCONN ? 0 : r; /* the next daemon is not told of it */
}

/* ---- the place ---- */

int shmstore_place_open(struct shmstore *s, const char *name, uint64_t room,
			struct shmstore_place **ret)
{
	struct shmstore_place *p;
	int r;

	if (!name || !ret)
		return shms_detail_null(name ? "ret" : "name");
	if (!is_name(name))
		return wrong_name();
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->s = s;
	snprintf(p->name, sizeof(p->name), "%s", name);
	p->room = room;
	p->q.reply = &p->reply;
	r = shms_attach_needed(shms_attach_of(s)) ? 0 : -ENOTCONN;
	if (r == 0) {
		p->generation = shms_attach_generation(shms_attach_of(s));
		r = shms_placed_announce(p);
	}
	if (r < 0) {
		free(p);
		return r == -ENOTCONN ? gone(s) : r;
	}
	pthread_mutex_init(&p->lock, NULL);
	shms_store_ref(s);
	*ret = p;
	return 0;
}

struct shmstore_place *shmstore_place_close(struct shmstore_place *p)
{
	SHMS_NO_CANCEL;
	const struct wire_actor_place m = {.flags = WIRE_ACTOR_LEAVES};
	bool usable = p && shms_store_usable(p->s, true) == 0;

	if (!p)
		return NULL;
	if (usable) {
		if (p->asked)
			shms_request_withdraw(shms_attach_of(p->s), &p->q);
		(void)tell(p->s, WIRE_ACTOR_PLACE, &m, NULL, 0);
	}
	while (p->entries) {
		if (!usable)
			p->entries->object = 0;
		shms_placed_del(p, p->entries);
	}
	pthread_mutex_destroy(&p->lock);
	shms_store_unref(p->s);
	free(p);
	return NULL;
}
