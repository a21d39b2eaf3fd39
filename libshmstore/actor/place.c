/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.c: a store's process as a place for actors: it asks the daemon for orders, and says how they ended.
 *
 * One question (ACTOR_NEXT) is under way all the time; its answer comes when there is an order. What needs nothing of the program is done here: the object of a state is fetched, and
 * deleted when it is of no use; KEEP is answered.
 *
 * For the next daemon it is kept which actors are here, as which version, and whether this is sure to be the only place that has it: it is not from SAVE, or FETCH, on,
 * until it runs something again. What was fetched and not loaded is of no use to anybody: another place has it still.
 *
 * Threads: one asks, many answer; the list has a lock, which is not held while anything is sent that is waited for.
 */
#include <errno.h>
#include <pthread.h>
#include <shmstore/actor.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "acting.h"
#include "cancel.h"
#include "detail.h"
#include "sys.h"

#define LEASE_MS  600000u /* of a saved state, where a step may take as long as it takes */
#define AGAIN_MS  UINT64_C(20)
#define TRY_NS    (UINT64_C(1000) * SHMS_ACTING_MS)
#define FLAGS     (SHMSTORE_ACTOR_CAN_SAVE | SHMSTORE_ACTOR_CAN_LOAD | SHMSTORE_ACTOR_STRICT)
#define LEVEL_MAX 4u

_Static_assert((int)SHMSTORE_ACTOR_RUN == (int)WIRE_ACTOR_RUN && (int)SHMSTORE_ACTOR_STOP == (int)WIRE_ACTOR_STOP &&
		       (int)SHMSTORE_ACTOR_SAVE == (int)WIRE_ACTOR_SAVE,
	       "the public numbers are the protocol's");

enum stage {
	FETCHED,
	LOADED,
	LIVE,
};

struct entry {
	struct entry *next;
	char name[WIRE_ACTOR_NAME + 1], parent[WIRE_ACTOR_NAME + 1];
	struct wire_actor_born said; /* version, and flags with SURE, as they are now */
	uint64_t object;             /* the version whose object is in the store; 0: none is */
	enum stage stage;
};

struct shmstore_place {
	struct shmstore *s;
	char name[WIRE_ACTOR_NAME + 1];
	uint64_t room;
	pthread_mutex_t lock; /* the list */
	struct entry *entries;
	atomic_bool asking;  /* a thread is in shmstore_actor_next() */
	bool asked;          /* q is under way */
	uint64_t generation; /* that was told what is here */
	struct shms_request q;
	struct shms_reply reply;
	char data[WIRE_TEXT_MAX + 1]; /* of the last order */
};

static const char *key_of(const char *name, uint64_t version, char ret[SHMSTORE_ACTOR_NAME + 33])
{
	snprintf(ret, SHMSTORE_ACTOR_NAME + 33, "ckpt/%s/%llu", name, (unsigned long long)version);
	return ret;
}

/* ---- the list; its lock is held ------------------------------------------------------------------------------------ */

static struct entry *find(const struct shmstore_place *p, const char *name)
{
	struct entry *e = p->entries;

	while (e && strcmp(e->name, name) != 0)
		e = e->next;
	return e;
}

static struct entry *add(struct shmstore_place *p, const char *name, const char *parent)
{
	struct entry *e = find(p, name);

	if (e)
		return e;
	e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	snprintf(e->name, sizeof(e->name), "%s", name);
	snprintf(e->parent, sizeof(e->parent), "%s", parent);
	e->next = p->entries;
	p->entries = e;
	return e;
}

static void drop_object(struct shmstore_place *p, struct entry *e)
{
	char key[SHMSTORE_ACTOR_NAME + 33];

	if (e->object) {
		key_of(e->name, e->object, key);
		(void)shmstore_delete(p->s, key, strlen(key));
	}
	e->object = 0;
}

static void del(struct shmstore_place *p, struct entry *e)
{
	struct entry **at = &p->entries;

	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	drop_object(p, e);
	free(e);
}

/* ---- what is told the daemon --------------------------------------------------------------------------------------- */

static int tail_of(const struct entry *e, char tail[WIRE_TEXT_MAX])
{
	return snprintf(tail, WIRE_TEXT_MAX, *e->parent ? "%s\n%s" : "%s", e->name, e->parent);
}

/* A request that is answered at once. */
static int tell(struct shmstore_place *p, uint16_t type, const void *body, const char *tail, size_t n)
{
	const struct shms_call call = {
		.type = type, .answer = WIRE_DONE, .body = body, .tail = n ? tail : NULL, .tail_size = n};
	struct shms_reply reply;
	int r = shms_attach_call(&p->s->attach, &call, &reply);

	if (r < 0)
		return r == -ENOTCONN ? r : shms_error(r);
	return reply.type == WIRE_REFUSED ? shms_acting_refused(&reply) : 0;
}

static int tell_place(struct shmstore_place *p)
{
	const struct wire_actor_place m = {.free = p->room};

	return tell(p, WIRE_ACTOR_PLACE, &m, p->name, strlen(p->name));
}

/* How a step, or a call, ended. Nobody waits for the answer: one that came too late is no failure of ours. */
static void tell_done(struct shmstore_place *p, const char *name, struct wire_actor_done m, const void *data, size_t n)
{
	char tail[WIRE_TEXT_MAX];
	int size = shms_acting_tail(name, data, n, tail, &m.name);

	if (size > 0)
		(void)shms_request_post(&p->s->attach,
					&(struct shms_call){.type = WIRE_ACTOR_DONE,
							    .answer = WIRE_DONE,
							    .body = &m,
							    .tail = tail,
							    .tail_size = (size_t)size},
					NULL);
}

/* To a daemon that does not know us so far: what is here. 0; -ENOTCONN; -errno: it refused. */
static int introduce(struct shmstore_place *p, uint64_t generation)
{
	char tail[WIRE_TEXT_MAX];
	struct entry *e;
	int r = tell_place(p), n;

	if (r < 0)
		return r;
	pthread_mutex_lock(&p->lock);
	for (e = p->entries; e && r == 0; e = e->next) {
		if (e->stage == FETCHED)
			continue;
		n = tail_of(e, tail);
		r = shms_request_post(&p->s->attach,
				      &(struct shms_call){.type = WIRE_ACTOR_BORN,
							  .answer = WIRE_DONE,
							  .body = &e->said,
							  .tail = tail,
							  .tail_size = (size_t)n,
							  .generation = generation},
				      NULL);
	}
	pthread_mutex_unlock(&p->lock);
	if (r == 0)
		p->generation = generation;
	return r;
}

static int ask(struct shmstore_place *p)
{
	static const struct wire_actor_next m = {0};
	int r = shms_request_post(
		&p->s->attach,
		&(struct shms_call){
			.type = WIRE_ACTOR_NEXT, .answer = WIRE_ACTOR_ORDER, .body = &m, .generation = p->generation},
		&p->q);

	p->asked = r == 0;
	return r;
}

/* ---- orders -------------------------------------------------------------------------------------------------------- */

/* The order's text after the name begins with the parent's, and a line break. */
static void fetch(struct shmstore_place *p, const struct wire_actor_order *o, const char *name, char *text)
{
	struct wire_actor_done done = {.step = o->step, .how = WIRE_ACTOR_FAILED};
	char *end = strchr(text, '\n'), key[SHMSTORE_ACTOR_NAME + 33];
	struct entry *e;
	int r = -EBADMSG;

	if (end && end - text <= (ptrdiff_t)WIRE_ACTOR_NAME) {
		*end = '\0';
		r = shms_state_fetch(p->s, key_of(name, o->version, key), end + 1);
	}
	pthread_mutex_lock(&p->lock);
	e = r == 0 ? add(p, name, text) : NULL;
	if (e) {
		drop_object(p, e);
		e->object = o->version;
		e->stage = FETCHED;
		e->said = (struct wire_actor_born){.version = o->version,
						   .step_ms = o->step_ms,
						   .suspend_ms = o->suspend_ms,
						   .at_once = o->at_once,
						   .level = o->level,
						   .flags = o->flags};
		done.how = WIRE_ACTOR_OK;
	} else if (r == 0) {
		(void)shmstore_delete(p->s, key, strlen(key));
	}
	pthread_mutex_unlock(&p->lock);
	tell_done(p, name, done, NULL, 0);
}

static void keep(struct shmstore_place *p, const struct wire_actor_order *o, const char *name)
{
	struct wire_actor_done done = {.step = o->step, .how = WIRE_ACTOR_OK};
	struct entry *e;

	pthread_mutex_lock(&p->lock);
	e = find(p, name);
	if (e && e->stage != FETCHED) {
		e->said.version = o->version;
		e->said.flags &= (uint16_t)~WIRE_ACTOR_SURE;
		e->stage = LIVE;
		drop_object(p, e);
	} else {
		done.how = WIRE_ACTOR_FAILED;
	}
	pthread_mutex_unlock(&p->lock);
	if (o->step)
		tell_done(p, name, done, NULL, 0);
}

/* For the program? Then 1, as it is in the list now. */
static int note(struct shmstore_place *p, const struct wire_actor_order *o, const char *name)
{
	struct entry *e;
	int r = 1;

	pthread_mutex_lock(&p->lock);
	e = find(p, name);
	if (!e)
		r = 0;
	else if (o->what == WIRE_ACTOR_RUN)
		e->said.flags |= WIRE_ACTOR_SURE;
	else if (o->what == WIRE_ACTOR_SAVE)
		e->said.flags &= (uint16_t)~WIRE_ACTOR_SURE;
	else if (o->what == WIRE_ACTOR_DROP)
		del(p, e);
	pthread_mutex_unlock(&p->lock);
	return r;
}

/* 1: *ret is an order for the program; 0: it was none; -EBADMSG. */
static int take_order(struct shmstore_place *p, struct shmstore_actor_order *ret)
{
	static const uint32_t whats[] = {[WIRE_ACTOR_RUN] = SHMSTORE_ACTOR_RUN,
					 [WIRE_ACTOR_STOP] = SHMSTORE_ACTOR_STOP,
					 [WIRE_ACTOR_SAVE] = SHMSTORE_ACTOR_SAVE,
					 [WIRE_ACTOR_LOAD] = SHMSTORE_ACTOR_LOAD,
					 [WIRE_ACTOR_DROP] = SHMSTORE_ACTOR_DROP};
	struct wire_actor_order o;

	memcpy(&o, p->reply.body.bytes, sizeof(o));
	if (o.what < WIRE_ACTOR_RUN || o.what >= WIRE_ACTOR_WHAT_END || !o.name || o.name > WIRE_ACTOR_NAME ||
	    o.name > p->reply.tail_size)
		return -EBADMSG;
	*ret = (struct shmstore_actor_order){.request = o.request, .step = o.step, .version = o.version};
	memcpy(ret->name, p->reply.tail, o.name);
	memcpy(p->data, p->reply.tail + o.name, p->reply.tail_size - o.name + 1);
	if (o.what == WIRE_ACTOR_FETCH) {
		fetch(p, &o, ret->name, p->data);
		return 0;
	}
	if (o.what == WIRE_ACTOR_KEEP) {
		keep(p, &o, ret->name);
		return 0;
	}
	ret->what = whats[o.what];
	ret->data = p->data;
	ret->data_size = p->reply.tail_size - o.name;
	key_of(ret->name, o.version, ret->key);
	return note(p, &o, ret->name);
}

/* Of what the last daemon had begun, and this one knows nothing: a state that was fetched only. */
static bool take_left_over(struct shmstore_place *p, struct shmstore_actor_order *ret)
{
	struct entry *e;

	pthread_mutex_lock(&p->lock);
	for (e = p->entries; e && e->stage != FETCHED; e = e->next)
		;
	if (e) {
		*ret = (struct shmstore_actor_order){.what = SHMSTORE_ACTOR_DROP, .version = e->said.version};
		memcpy(ret->name, e->name, sizeof(ret->name));
		del(p, e);
	}
	pthread_mutex_unlock(&p->lock);
	return e != NULL;
}

/* The daemon that serves us now has our question. 1: *ret is what is to be dropped first; 0; -ENOTCONN: there is none; -errno. */
static int prepare(struct shmstore_place *p, struct shmstore_actor_order *ret)
{
	uint64_t generation;
	int r;

	if (!shms_acting_attached(p->s))
		return -ENOTCONN;
	generation = atomic_load_explicit(&p->s->attach.generation, memory_order_relaxed);
	if (generation && generation != p->generation) {
		if (take_left_over(p, ret))
			return 1;
		r = introduce(p, generation);
		if (r < 0)
			return r;
	}
	return p->asked ? 0 : ask(p);
}

/* Nobody is there: a moment. False: the time is over. */
static bool pause_until(struct shmstore_place *p, uint64_t until_ns)
{
	uint64_t now = shms_now_mono_ns(), left = until_ns > now ? until_ns - now : 0;

	if (!left)
		return false;
	left = left < AGAIN_MS * SHMS_ACTING_MS ? left : AGAIN_MS * SHMS_ACTING_MS;
	nanosleep(&(struct timespec){.tv_nsec = (long)left}, NULL);
	(void)shms_attach_hurry(&p->s->attach);
	return true;
}

static int next_order(struct shmstore_place *p, uint64_t until_ns, struct shmstore_actor_order *ret)
{
	int r;

	for (;;) {
		r = prepare(p, ret);
		if (r == -ENOTCONN && pause_until(p, until_ns))
			continue;
		if (r != 0)
			return r == -ENOTCONN ? 0 : r;
		shms_request_look(&p->s->attach);
		if (!shms_request_wait_until(&p->s->attach, &p->q, until_ns) &&
		    !shms_request_wait_until(&p->s->attach, &p->q, 0))
			return 0;
		p->asked = false;
		if (p->q.error < 0)
			continue;
		if (p->reply.type == WIRE_REFUSED)
			return shms_acting_refused(&p->reply);
		r = take_order(p, ret);
		if (r != 0)
			return r;
	}
}

int shmstore_actor_next(struct shmstore_place *p, uint64_t timeout_ms, struct shmstore_actor_order *ret)
{
	SHMS_NO_CANCEL;
	int r;

	if (!p || !ret)
		return shms_detail_null(p ? "ret" : "p");
	r = shms_store_usable(p->s, true);
	if (r < 0)
		return r;
	if (atomic_exchange(&p->asking, true))
		return shms_detail(-EBUSY, NULL, "another thread asks for orders of place %s: one at a time", p->name);
	r = next_order(p, shms_acting_until(timeout_ms), ret);
	atomic_store(&p->asking, false);
	return r;
}

int shmstore_actor_fd(struct shmstore_place *p)
{
	int r;

	if (!p)
		return shms_detail_null("p");
	r = shms_store_usable(p->s, true);
	return r < 0 ? r : shms_request_fd(&p->s->attach);
}

/* The state is an object now. Its ticket, in text; or -errno. */
static int send_state(struct shmstore_place *p, const struct shmstore_actor_order *o, char *text, size_t size,
		      uint64_t *ret_bytes)
{
	uint64_t lease_ms = LEASE_MS;
	struct entry *e;

	pthread_mutex_lock(&p->lock);
	e = find(p, o->name);
	if (e) {
		e->object = o->version;
		if (e->said.step_ms && e->said.suspend_ms && e->said.suspend_ms < LEASE_MS &&
		    e->said.step_ms < LEASE_MS)
			lease_ms = e->said.step_ms + e->said.suspend_ms + 1000;
	}
	pthread_mutex_unlock(&p->lock);
	return shms_state_send(p->s, o->key, lease_ms, text, size, ret_bytes);
}

static void note_loaded(struct shmstore_place *p, const struct shmstore_actor_order *o)
{
	struct entry *e;

	pthread_mutex_lock(&p->lock);
	e = find(p, o->name);
	if (e && e->stage == FETCHED && e->said.version == o->version)
		e->stage = LOADED;
	pthread_mutex_unlock(&p->lock);
}

int shmstore_actor_done(struct shmstore_place *p, const struct shmstore_actor_order *order, enum shmstore_actor_how how,
			const void *data, size_t size)
{
	SHMS_NO_CANCEL;
	struct wire_actor_done m = {.how = how};
	char text[SHMSTORE_ACTOR_DATA];
	int r;

	if (!p || !order)
		return shms_detail_null(p ? "order" : "p");
	r = shms_store_usable(p->s, true);
	if (r < 0)
		return r;
	if (how < SHMSTORE_ACTOR_OK || how > SHMSTORE_ACTOR_STOPPED)
		return shms_detail(-EINVAL, NULL, "an order ends OK, FAILED or STOPPED, not %d", (int)how);
	if (size > SHMSTORE_ACTOR_DATA || (size && !data))
		return shms_detail(size ? -EFBIG : -EINVAL, NULL, "an answer has at most %u bytes, not %zu",
				   SHMSTORE_ACTOR_DATA, size);
	if (order->what == SHMSTORE_ACTOR_RUN) {
		m.request = order->request;
		tell_done(p, order->name, m, data, size);
		return 0;
	}
	if (order->what != SHMSTORE_ACTOR_SAVE && order->what != SHMSTORE_ACTOR_LOAD)
		return 0;
	m.step = order->step;
	r = 0;
	if (how == SHMSTORE_ACTOR_OK && order->what == SHMSTORE_ACTOR_SAVE)
		r = send_state(p, order, text, sizeof(text), &m.bytes);
	else if (how == SHMSTORE_ACTOR_OK)
		note_loaded(p, order);
	if (r < 0)
		m.how = WIRE_ACTOR_FAILED;
	tell_done(p, order->name, m, r > 0 ? text : NULL, r > 0 ? (size_t)r : 0);
	return r < 0 ? r : 0;
}

/* ---- actors and places --------------------------------------------------------------------------------------------- */

static int take_options(const struct shmstore_actor_options *from, struct shmstore_actor_options *ret)
{
	static const struct shmstore_actor_options init = SHMSTORE_ACTOR_OPTIONS_INIT;

	*ret = init;
	if (from && from->size < sizeof(init))
		return shms_detail(-EINVAL, NULL, "options.size is wrong: begin with SHMSTORE_ACTOR_OPTIONS_INIT");
	if (from)
		memcpy(ret, from, sizeof(*ret));
	if (ret->level > LEVEL_MAX)
		return shms_detail(-EINVAL, NULL, "there is no level %u: 0 (never) to 4 (always)", ret->level);
	if (ret->flags & ~FLAGS)
		return shms_detail_flags(ret->flags, FLAGS);
	return 0;
}

int shmstore_actor_begin(struct shmstore_place *p, const char *name, const struct shmstore_actor_options *options)
{
	SHMS_NO_CANCEL;
	struct shmstore_actor_options o;
	struct wire_actor_born m;
	char tail[WIRE_TEXT_MAX];
	struct entry *e;
	int r, n;

	if (!p || !name)
		return shms_detail_null(p ? "name" : "p");
	r = shms_store_usable(p->s, true);
	if (r == 0)
		r = take_options(options, &o);
	if (r < 0)
		return r;
	if (!shms_acting_is_name(name) || (o.parent && !shms_acting_is_name(o.parent)))
		return shms_acting_wrong_name();
	n = snprintf(tail, sizeof(tail), o.parent ? "%s\n%s" : "%s", name, o.parent);
	m = (struct wire_actor_born){.step_ms = o.step_ms,
				     .suspend_ms = o.suspend_ms,
				     .at_once = o.at_once,
				     .level = (uint16_t)o.level,
				     .flags = (uint16_t)(o.flags | WIRE_ACTOR_NEW)};
	/* First: an order for it may come before the answer is read. */
	pthread_mutex_lock(&p->lock);
	e = find(p, name) ? NULL : add(p, name, o.parent ? o.parent : "");
	if (e) {
		e->said = m;
		e->said.version = 1;
		e->said.flags =
			(uint16_t)((o.flags & (SHMSTORE_ACTOR_CAN_SAVE | SHMSTORE_ACTOR_CAN_LOAD)) | WIRE_ACTOR_SURE);
		e->stage = LIVE;
	}
	pthread_mutex_unlock(&p->lock);
	if (!e)
		return shms_detail(-EEXIST, NULL, "actor %s is at place %s already, or memory is out", name, p->name);
	r = tell(p, WIRE_ACTOR_BORN, &m, tail, (size_t)n);
	if (r == 0)
		return 0;
	pthread_mutex_lock(&p->lock);
	e = find(p, name);
	if (e)
		del(p, e);
	pthread_mutex_unlock(&p->lock);
	return r == -ENOTCONN ? shms_acting_gone(p->s) : r;
}

int shmstore_actor_end(struct shmstore_place *p, const char *name)
{
	SHMS_NO_CANCEL;
	const struct wire_actor_done m = {.how = WIRE_ACTOR_ENDED};
	struct wire_actor_done body = m;
	char tail[WIRE_TEXT_MAX];
	struct entry *e;
	int r, n;

	if (!p)
		return shms_detail_null("p");
	r = shms_store_usable(p->s, true);
	n = r < 0 ? r : shms_acting_tail(name, NULL, 0, tail, &body.name);
	if (n < 0)
		return n;
	pthread_mutex_lock(&p->lock);
	e = find(p, name);
	if (e)
		del(p, e);
	pthread_mutex_unlock(&p->lock);
	if (!e)
		return shms_detail(-ENOENT, NULL, "no actor %s is at place %s", name, p->name);
	r = tell(p, WIRE_ACTOR_DONE, &body, tail, (size_t)n);
	return r == -ENOTCONN ? 0 : r; /* the next daemon is not told of it */
}

int shmstore_place_open(struct shmstore *s, const char *name, uint64_t room, struct shmstore_place **ret)
{
	SHMS_NO_CANCEL;
	struct shmstore_place *p;
	int r = shms_store_usable(s, true);

	if (r < 0)
		return r;
	if (!name || !ret)
		return shms_detail_null(name ? "ret" : "name");
	if (!shms_acting_is_name(name))
		return shms_acting_wrong_name();
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->s = s;
	snprintf(p->name, sizeof(p->name), "%s", name);
	p->room = room;
	p->q.reply = &p->reply;
	r = shms_acting_attached(s) ? 0 : -ENOTCONN;
	if (r == 0) {
		p->generation = atomic_load_explicit(&s->attach.generation, memory_order_relaxed);
		r = tell_place(p);
	}
	if (r < 0) {
		free(p);
		return r == -ENOTCONN ? shms_acting_gone(s) : r;
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
			shms_request_withdraw(&p->s->attach, &p->q);
		(void)tell(p, WIRE_ACTOR_PLACE, &m, NULL, 0);
	}
	while (p->entries) {
		if (!usable)
			p->entries->object = 0;
		del(p, p->entries);
	}
	pthread_mutex_destroy(&p->lock);
	shms_store_unref(p->s);
	free(p);
	return NULL;
}
