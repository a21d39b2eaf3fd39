/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.c: orders of the daemon to a place. The place asks for them, and says how they ended.
 *
 * One question (ACTOR_NEXT) is under way all the time; the daemon answers it when there is an
 * order. An order that needs nothing of the program is carried out here: FETCH puts a state's
 * object into the store, KEEP deletes it. A state that was fetched and never loaded is useless
 * under the next daemon, because another place still has the actor: such an entry is dropped.
 *
 * Threads: one asks, many answer. The list's lock is not held during a request that waits for its
 * answer.
 */
#include <errno.h>
#include <pthread.h>
#include <shmstore/actor.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "acting.h"
#include "cleanup.h"
#include "detail.h"
#include "parts.h"
#include "publish.h"
#include "sys.h"

#define LEASE_MS 600000u /* of a saved state whose move has no time limit */
#define AGAIN_NS UINT64_C(20000000)

_Static_assert((int)SHMSTORE_ACTOR_RUN == (int)WIRE_ACTOR_RUN &&
		       (int)SHMSTORE_ACTOR_STOP == (int)WIRE_ACTOR_STOP &&
		       (int)SHMSTORE_ACTOR_SAVE == (int)WIRE_ACTOR_SAVE,
	       "the public numbers are the protocol's");

/* ---- what the daemon is told ----------------------------------------------------------------- */

/*
 * Says how a step or a call ended. The answer is not waited for: the daemon may have given the step
 * up meanwhile, which is no failure of this place.
 */
static void tell_done(struct shmstore_place *p, const char *name, struct wire_actor_done m,
		      const void *data, size_t n)
{
	char tail[WIRE_TEXT_MAX];
	int size = shms_acting_tail(name, data, n, tail, &m.name);
	const struct shms_call call =
		shms_acting_call(WIRE_ACTOR_DONE, WIRE_DONE, &m, tail, (size_t)size);

	if (size > 0)
		(void)shms_request_post(shms_attach_of(p->s), &call, NULL);
}

/*
 * Tells a daemon that does not know this place yet which actors are here. 0; -ENOTCONN; -errno: it
 * refused.
 */
static int introduce(struct shmstore_place *p, uint64_t generation)
{
	char tail[WIRE_TEXT_MAX];
	struct shms_placed *e;
	struct shms_call call;
	int r = shms_placed_announce(p), n;

	if (r < 0)
		return r;
	SHMS_HELD(&p->lock);
	for (e = p->entries; e && r == 0; e = e->next) {
		if (e->stage == SHMS_PLACED_FETCHED)
			continue;
		n = shms_placed_tail(p, e, tail);
		call = shms_acting_call(WIRE_ACTOR_BORN, WIRE_DONE, &e->said, tail, (size_t)n);
		call.generation = generation;
		r = shms_request_post(shms_attach_of(p->s), &call, NULL);
	}
	if (r == 0)
		p->generation = generation;
	return r;
}

static int ask(struct shmstore_place *p)
{
	static const struct wire_actor_next m = {0};
	int r = shms_request_post(shms_attach_of(p->s),
				  &(struct shms_call){.type = WIRE_ACTOR_NEXT,
						      .answer = WIRE_ACTOR_ORDER,
						      .body = &m,
						      .generation = p->generation},
				  &p->q);

	p->asked = r == 0;
	return r;
}

/* ---- an actor's state, from one store to another --------------------------------------------- */

/*
 * An object goes from one store of this user to another, in any partition of the host. The text
 * that is sent has the donor's partition, and the ticket of a lease there. If the partition is
 * another one, a store is opened there for the time of the copy, and takes the lease. If its
 * process is killed meanwhile, the store is dead, and gc removes it.
 */

/*
 * Hands the object of this key to another store: writes to ret_text, which has size bytes, what
 * fetch_state() takes, and the object's bytes to ret_bytes. The donor may delete the key, or die;
 * the lease ends after lease_ms. Returns the text's length, or -errno.
 */
static int lease_state(struct shmstore *s, const char *key, uint64_t lease_ms, char *ret_text,
		       size_t size, uint64_t *ret_bytes)
{
	size_t n = strlen(s->p->path);
	struct shmstore_ticket ticket;
	char text[SHMSTORE_TICKET_TEXT];
	struct shms_keyname k;
	int r = shms_keyname_init(&k, key, strlen(key));

	/* The daemon, which copies it to others, reads files alone. */
	if (r == 0)
		r = shms_put_as_file(s, &k);
	if (r == 0)
		r = shmstore_handoff(s, key, strlen(key), lease_ms, &ticket);
	if (r == 0)
		r = shmstore_ticket_format(&ticket, text, sizeof(text));
	if (r < 0)
		return r;
	if (n + 1 + strlen(text) >= size)
		return shms_detail(-EFBIG, s->p->path,
				   "the path of partition %s is too long for an actor to be moved",
				   s->p->path);
	*ret_bytes = ticket.header_size + ticket.buffer_size;
	return snprintf(ret_text, size, "%s\n%s", s->p->path, text);
}

/* Puts a copy of what a view shows into s. */
static int copy_view(struct shmstore *s, const char *key, const struct shmstore_view *v)
{
	size_t n = shmstore_view_n_buffers(v), n_header;
	struct iovec *buffers = calloc(n ? n : 1, sizeof(*buffers));
	const void *header = shmstore_view_header(v, &n_header);
	uint64_t bytes;
	int r;

	if (!buffers)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		buffers[i].iov_base = shmstore_view_buffer(v, i, &bytes);
		buffers[i].iov_len = bytes;
	}
	r = shmstore_put(s, key, strlen(key), header, n_header, buffers, n, SHMSTORE_REPLACE);
	free(buffers);
	return r;
}

static int copy_through(struct shmstore *s, struct shmstore *there, const char *key,
			const struct shmstore_ticket *ticket)
{
	struct shmstore_view *v;
	int r = shmstore_adopt(there, key, strlen(key), ticket, 0);

	if (r == 0)
		r = shmstore_get(there, key, strlen(key), 0, &v);
	if (r < 0)
		return r;
	r = copy_view(s, key, v);
	shmstore_view_unref(v);
	return r;
}

static int copy(struct shmstore *s, const char *key, const char *partition,
		const struct shmstore_ticket *ticket)
{
	static _Atomic unsigned n_copies;
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p;
	struct shmstore *there;
	char name[64];
	int r = shmstore_partition_open(partition, 0, &p);

	if (r < 0)
		return r;
	options.daemon = SHMSTORE_DAEMON_OFF;
	options.label = "an actor's state on its way";
	snprintf(name, sizeof(name), "actor-%d-%u", (int)getpid(), atomic_fetch_add(&n_copies, 1u));
	r = shmstore_open(p, name, &options, &there);
	if (r == 0) {
		r = copy_through(s, there, key, ticket);
		shmstore_close(there);
	}
	shmstore_partition_unref(p);
	return r;
}

/*
 * Takes the object of that text under this key, in place of what the key held: by a link where both
 * stores are of one partition, by a copy elsewhere. 0, -errno.
 */
static int fetch_state(struct shmstore *s, const char *key, const char *text)
{
	const char *end = strchr(text, '\n');
	char partition[SHMSTORE_TICKET_PATH];
	struct shmstore_ticket ticket;
	int r;

	if (!end || (size_t)(end - text) >= sizeof(partition))
		return -EBADMSG;
	memcpy(partition, text, (size_t)(end - text));
	partition[end - text] = '\0';
	r = shmstore_ticket_parse(end + 1, &ticket);
	if (r < 0)
		return r;
	if (strcmp(partition, s->p->path) == 0)
		return shmstore_adopt(s, key, strlen(key), &ticket, SHMSTORE_REPLACE);
	return copy(s, key, partition, &ticket);
}

/* ---- orders ---------------------------------------------------------------------------------- */

/*
 * Behind the actor's name the order's text has the parent's name, a line break, and the state's
 * text.
 */
static void fetch(struct shmstore_place *p, const struct wire_actor_order *o, const char *name,
		  char *text)
{
	struct wire_actor_done done = {.step = o->step, .how = WIRE_ACTOR_FAILED};
	char *end = strchr(text, '\n'), key[SHMS_PLACED_KEY];
	struct shms_placed *e;
	int r = -EBADMSG;

	if (end && end - text <= (ptrdiff_t)WIRE_ACTOR_NAME) {
		*end = '\0';
		r = fetch_state(p->s, shms_placed_key(name, o->version, key), end + 1);
	}
	pthread_mutex_lock(&p->lock);
	e = r == 0 ? shms_placed_add(p, name, text) : NULL;
	if (e) {
		shms_placed_drop_object(p, e);
		e->object = o->version;
		e->stage = SHMS_PLACED_FETCHED;
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
	struct shms_placed *e;

	pthread_mutex_lock(&p->lock);
	e = shms_placed_find(p, name);
	if (e && e->stage != SHMS_PLACED_FETCHED) {
		e->said.version = o->version;
		e->said.flags &= (uint16_t)~WIRE_ACTOR_SURE;
		e->stage = SHMS_PLACED_LIVE;
		shms_placed_drop_object(p, e);
	} else {
		done.how = WIRE_ACTOR_FAILED;
	}
	pthread_mutex_unlock(&p->lock);
	if (o->step)
		tell_done(p, name, done, NULL, 0);
}

/* Brings the list up to date with an order. Returns 1 if the program has to be told of it. */
static int note(struct shmstore_place *p, const struct wire_actor_order *o, const char *name)
{
	struct shms_placed *e;
	int r = 1;

	SHMS_HELD(&p->lock);
	e = shms_placed_find(p, name);
	if (!e)
		r = 0;
	else if (o->what == WIRE_ACTOR_RUN)
		e->said.flags |= WIRE_ACTOR_SURE;
	else if (o->what == WIRE_ACTOR_SAVE)
		e->said.flags &= (uint16_t)~WIRE_ACTOR_SURE;
	else if (o->what == WIRE_ACTOR_LOAD)
		snprintf(e->more, sizeof(e->more), "%.*s", (int)WIRE_ACTOR_OPTIONS, p->data);
	else if (o->what == WIRE_ACTOR_DROP)
		shms_placed_del(p, e);
	return r;
}

/* Returns 1: *ret is an order for the program; 0: the order was carried out here; -EBADMSG. */
static int take_order(struct shmstore_place *p, struct shmstore_actor_order *ret)
{
	static const uint32_t whats[] = {[WIRE_ACTOR_RUN] = SHMSTORE_ACTOR_RUN,
					 [WIRE_ACTOR_STOP] = SHMSTORE_ACTOR_STOP,
					 [WIRE_ACTOR_SAVE] = SHMSTORE_ACTOR_SAVE,
					 [WIRE_ACTOR_LOAD] = SHMSTORE_ACTOR_LOAD,
					 [WIRE_ACTOR_DROP] = SHMSTORE_ACTOR_DROP};
	struct wire_actor_order o;

	memcpy(&o, p->reply.body.bytes, sizeof(o));
	if (o.what < WIRE_ACTOR_RUN || o.what >= WIRE_ACTOR_WHAT_END || !o.name ||
	    o.name > WIRE_ACTOR_NAME || o.name > p->reply.tail_size)
		return -EBADMSG;
	*ret = (struct shmstore_actor_order){
		.request = o.request, .step = o.step, .version = o.version};
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
	shms_placed_key(ret->name, o.version, ret->key);
	return note(p, &o, ret->name);
}

/*
 * Takes a state off the list that the last daemon had sent, and that was not loaded. This daemon
 * does not know of it.
 */
static bool take_left_over(struct shmstore_place *p, struct shmstore_actor_order *ret)
{
	struct shms_placed *e;

	SHMS_HELD(&p->lock);
	for (e = p->entries; e && e->stage != SHMS_PLACED_FETCHED; e = e->next)
		;
	if (e) {
		*ret = (struct shmstore_actor_order){.what = SHMSTORE_ACTOR_DROP,
						     .version = e->said.version};
		memcpy(ret->name, e->name, sizeof(ret->name));
		shms_placed_del(p, e);
	}
	return e != NULL;
}

/*
 * Sees to it that the daemon has our question. 1: *ret names an actor that the program has to drop
 * first; 0; -ENOTCONN: there is no daemon; -errno.
 */
static int prepare(struct shmstore_place *p, struct shmstore_actor_order *ret)
{
	uint64_t generation;
	int r;

	if (!shms_attach_registered(shms_attach_of(p->s)))
		return -ENOTCONN;
	generation = shms_attach_generation(shms_attach_of(p->s));
	if (generation && generation != p->generation) {
		if (take_left_over(p, ret))
			return 1;
		r = introduce(p, generation);
		if (r < 0)
			return r;
	}
	return p->asked ? 0 : ask(p);
}

/* Waits a moment for a daemon. False: the time is over. */
static bool pause_until(struct shmstore_place *p, uint64_t until_ns)
{
	uint64_t now = shms_now_mono_ns(), left = shms_minus(until_ns, now);

	if (!left)
		return false;
	left = left < AGAIN_NS ? left : AGAIN_NS;
	nanosleep(&(struct timespec){.tv_nsec = (long)left}, NULL);
	(void)shms_attach_hurry(shms_attach_of(p->s));
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
		shms_request_look(shms_attach_of(p->s));
		if (!shms_request_wait_until(shms_attach_of(p->s), &p->q, until_ns) &&
		    !shms_request_wait_until(shms_attach_of(p->s), &p->q, 0))
			return 0;
		p->asked = false;
		if (p->q.error < 0)
			continue;
		if (p->reply.type == WIRE_REFUSED)
			return shms_reply_error(&p->reply);
		r = take_order(p, ret);
		if (r != 0)
			return r;
	}
}

int shmstore_actor_next(struct shmstore_place *p, uint64_t timeout_ms,
			struct shmstore_actor_order *ret)
{
	int r;

	if (!p || !ret)
		return shms_detail_null(p ? "ret" : "p");
	r = shms_store_usable(p->s, true);
	if (r < 0)
		return r;
	if (atomic_exchange(&p->asking, true))
		return shms_detail(-EBUSY, NULL,
				   "another thread asks for orders of place %s: one at a time",
				   p->name);
	r = next_order(p, shms_until_ns(timeout_ms), ret);
	atomic_store(&p->asking, false);
	return r;
}

int shmstore_actor_fd(struct shmstore_place *p)
{
	int r;

	if (!p)
		return shms_detail_null("p");
	r = shms_store_usable(p->s, true);
	return r < 0 ? r : shms_request_fd(shms_attach_of(p->s));
}

/*
 * Hands on the state, which the program has put into the store. Returns the length of its text, or
 * -errno.
 */
static int send_state(struct shmstore_place *p, const struct shmstore_actor_order *o, char *text,
		      size_t size, uint64_t *ret_bytes)
{
	uint64_t lease_ms = LEASE_MS;
	struct shms_placed *e;

	pthread_mutex_lock(&p->lock);
	e = shms_placed_find(p, o->name);
	if (e) {
		e->object = o->version;
		if (e->said.step_ms && e->said.suspend_ms && e->said.suspend_ms < LEASE_MS &&
		    e->said.step_ms < LEASE_MS)
			lease_ms = e->said.step_ms + e->said.suspend_ms + 1000;
	}
	pthread_mutex_unlock(&p->lock);
	return lease_state(p->s, o->key, lease_ms, text, size, ret_bytes);
}

static void note_loaded(struct shmstore_place *p, const struct shmstore_actor_order *o)
{
	struct shms_placed *e;

	SHMS_HELD(&p->lock);
	e = shms_placed_find(p, o->name);
	if (e && e->stage == SHMS_PLACED_FETCHED && e->said.version == o->version)
		e->stage = SHMS_PLACED_LOADED;
}

int shmstore_actor_done(struct shmstore_place *p, const struct shmstore_actor_order *order,
			enum shmstore_actor_how how, const void *data, size_t size)
{
	struct wire_actor_done m = {.how = how};
	char text[SHMSTORE_ACTOR_DATA];
	int r;

	if (!p || !order)
		return shms_detail_null(p ? "order" : "p");
	r = shms_store_usable(p->s, true);
	if (r < 0)
		return r;
	if (how < SHMSTORE_ACTOR_OK || how > SHMSTORE_ACTOR_STOPPED)
		return shms_detail(-EINVAL, NULL, "an order ends OK, FAILED or STOPPED, not %d",
				   (int)how);
	if (size > SHMSTORE_ACTOR_DATA || (size && !data))
		return shms_detail(size ? -EFBIG : -EINVAL, NULL,
				   "an answer has at most %u bytes, not %zu", SHMSTORE_ACTOR_DATA,
				   size);
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
