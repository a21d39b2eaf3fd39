/* SPDX-License-Identifier: Apache-2.0 */
/* fakearbiter.c: see fakearbiter.h. The core is stepped in the fake's thread, under a lock that the
 * test takes to look at it. */
#include "fakearbiter.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arbcheck.h"
#include "fakearb_private.h"
#include "scratch.h"

#define LISTED  64
#define WAIT_MS 60000u

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- clients ---- */

static struct client *client_of(struct fakearb *a, int fd, bool make)
{
	struct fakearb_private *k = a->private;
	struct client *empty = NULL;

	for (size_t i = 0; i < CLIENTS; i++) {
		if (k->clients[i].fd == fd)
			return &k->clients[i];
		if (k->clients[i].fd < 0 && !empty)
			empty = &k->clients[i];
	}
	if (!make)
		return NULL;
	ENSURE(empty);
	*empty = (struct client){
		.fd = fd, .channel = -1, .number = ++k->last_number, .id = fake_id(a->f, fd)};
	return empty;
}

static struct client *client_numbered(struct fakearb *a, uint64_t number)
{
	for (size_t i = 0; i < CLIENTS; i++) {
		if (a->private->clients[i].fd >= 0 && a->private->clients[i].number == number)
			return &a->private->clients[i];
	}
	return NULL;
}

static uint64_t id(const struct client *c, uint32_t own)
{
	return own ? c->number << 32 | own : 0;
}

uint64_t fakearb_pool_id(const struct client *c, uint32_t pool)
{
	return pool == WIRE_ARB_PARTITION ? 1 : id(c, pool);
}

/* ---- steps ---- */

static void answer(struct fakearb *a, int fd, uint64_t serial, int outcome, const char *text)
{
	struct wire_arbed body = {.outcome = outcome};

	if (!a->mute)
		fake_reply(a->f, fd, WIRE_ARBED, serial, &body, text && *text ? text : NULL);
}

static void completed(struct fakearb *a, const struct arb_reply *r)
{
	struct fakearb_private *k = a->private;
	const struct client *c;

	for (size_t i = 0; i < k->n_calls; i++) {
		if (k->calls[i].context != r->context)
			continue;
		answer(a, k->calls[i].fd, k->calls[i].serial, (int)r->outcome, r->why);
		k->calls[i] = k->calls[--k->n_calls];
		return;
	}
	c = client_numbered(a, r->context >> 32);
	ENSURE(!c || c->leaving); /* nobody waits for a reply that does not come */
}

/* The call ended at once. The step that ended it may have ended others, so it is not where it
 * was. */
static void not_withheld(struct fakearb_private *k, int fd, uint64_t serial)
{
	for (size_t i = 0; i < k->n_calls; i++) {
		if (k->calls[i].fd != fd || k->calls[i].serial != serial)
			continue;
		k->calls[i] = k->calls[--k->n_calls];
		return;
	}
}

int fakearb_step(struct fakearb *a, const struct arb_message *m)
{
	struct fakearb_private *k = a->private;
	const struct arb_reply *replies;
	size_t n;
	int outcome = arb_step(k->core, m, now_ns(), &replies, &n);

	ENSURE(outcome >= 0);
	for (size_t i = 0; i < n; i++) {
		if (replies[i].kind == ARB_REPLY_DONE)
			completed(a, &replies[i]);
		else if (k->n_spills < CALLS)
			k->spills[k->n_spills++] = replies[i].reservation;
	}
	return outcome;
}

/* ---- spills ---- */

static void evict(struct fakearb *a, uint64_t reservation)
{
	struct fakearb_private *k = a->private;
	struct client *c = client_numbered(a, reservation >> 32);
	struct arb_message none = {
		.op = ARB_OP_SPILLED, .flags = ARB_ALL, .reservation = reservation};
	struct wire_arb_call call = {.kind = WIRE_ARB_CALL_EVICT,
				     .reservation = (uint32_t)reservation};
	struct arb_reservation_info r;

	if (!c || c->channel < 0 || k->evict.call || !arb_reservation(k->core, reservation, &r)) {
		fakearb_step(a, &none);
		return;
	}
	call.call = ++k->last_call;
	call.pool = (uint32_t)r.pool;
	call.bytes = r.bytes;
	k->evict.call = call.call;
	k->evict.reservation = reservation;
	a->n_calls++;
	fake_reply(a->f, c->channel, WIRE_ARB_CALL, 0, &call, NULL);
}

static void do_spills(struct fakearb *a)
{
	struct fakearb_private *k = a->private;

	while (k->n_spills) {
		uint64_t r = k->spills[--k->n_spills];
		struct client *c = r & OURS ? client_numbered(a, (r & ~OURS) >> 8) : NULL;

		if (!(r & OURS))
			evict(a, r);
		else if (c)
			fakearb_recall(a, c, (unsigned)(r & 15) >> 1);
	}
}

/* ---- messages ---- */

static uint32_t parse_list(const struct client *c, const char *text, uint64_t *ids,
			   uint64_t *amounts)
{
	uint32_t n = 0;

	while (*text && n < LISTED) {
		char *end;
		uint32_t own = (uint32_t)strtoul(text, &end, 10);

		ids[n] = amounts ? fakearb_pool_id(c, own) : id(c, own);
		if (amounts) {
			ENSURE(*end == ':');
			amounts[n] = strtoull(end + 1, &end, 10);
		}
		n++;
		text = *end == ',' ? end + 1 : end;
	}
	return n;
}

static enum arb_op plain_op(uint16_t op)
{
	static const enum arb_op ops[WIRE_ARB_OP_END] = {
		[WIRE_ARB_POOL_CREATE] = ARB_OP_POOL_CREATE,
		[WIRE_ARB_POOL_RESIZE] = ARB_OP_POOL_RESIZE,
		[WIRE_ARB_POOL_REMOVE] = ARB_OP_POOL_REMOVE,
		[WIRE_ARB_TASK_BEGIN] = ARB_OP_TASK_BEGIN,
		[WIRE_ARB_TASK_END] = ARB_OP_TASK_END,
		[WIRE_ARB_BIND] = ARB_OP_BIND,
		[WIRE_ARB_UNBIND] = ARB_OP_UNBIND,
		[WIRE_ARB_RESERVE] = ARB_OP_RESERVE,
		[WIRE_ARB_RELEASE] = ARB_OP_RELEASE,
		[WIRE_ARB_RESIZE] = ARB_OP_RESIZE,
		[WIRE_ARB_PIN] = ARB_OP_PIN,
		[WIRE_ARB_UNPIN] = ARB_OP_UNPIN,
		[WIRE_ARB_SPILLED] = ARB_OP_SPILLED,
		[WIRE_ARB_READY] = ARB_OP_READY,
		[WIRE_ARB_RETRY_BEGIN] = ARB_OP_RETRY_BEGIN,
		[WIRE_ARB_RETRY_END] = ARB_OP_RETRY_END,
		[WIRE_ARB_WAIT_ON] = ARB_OP_WAIT_ON,
		[WIRE_ARB_WAIT_OFF] = ARB_OP_WAIT_OFF,
		[WIRE_ARB_SPILL_BEGIN] = ARB_OP_SPILL_BEGIN,
		[WIRE_ARB_SPILL_END] = ARB_OP_SPILL_END,
		[WIRE_ARB_CANCEL] = ARB_OP_CANCEL,
		[WIRE_ARB_INJECT] = ARB_OP_INJECT,
	};

	return ops[op];
}

static bool waits(enum arb_op op)
{
	return op == ARB_OP_RESERVE || op == ARB_OP_RESIZE || op == ARB_OP_PIN ||
	       op == ARB_OP_READY;
}

/* Passes on a message that the core understands as it is, but for the ids. */
static int plain(struct fakearb *a, struct client *c, uint64_t serial, const struct wire_arb *w,
		 const char *tail)
{
	struct fakearb_private *k = a->private;
	uint64_t ids[LISTED], amounts[LISTED];
	struct arb_message m = {
		.op = plain_op(w->op),
		.flags = w->flags & (ARB_NONBLOCK | ARB_SPILL | ARB_RELEASE | ARB_ALL),
		.kind = w->kind,
		.context = id(c, w->context),
		.task = id(c, w->task),
		.other = id(c, w->other),
		.pool = w->pool ? fakearb_pool_id(c, w->pool) : 0,
		.reservation = id(c, w->reservation),
		.bytes = w->bytes,
		.value = w->value,
	};
	int outcome;

	ENSURE(m.op);
	if (m.op == ARB_OP_POOL_CREATE) {
		m.kind = ARB_PRIVATE;
		m.extra = (uint64_t)w->extra_kib << 10;
	}
	if (m.op == ARB_OP_INJECT)
		m.extra = w->extra_kib;
	if (m.op == ARB_OP_POOL_CREATE || m.op == ARB_OP_TASK_BEGIN)
		m.name = *tail ? tail : NULL;
	if (m.op == ARB_OP_BIND || m.op == ARB_OP_UNBIND || (m.op == ARB_OP_RESERVE && *tail)) {
		m.n_list = parse_list(c, tail, ids, m.op == ARB_OP_RESERVE ? amounts : NULL);
		m.list = ids;
		m.amounts = m.op == ARB_OP_RESERVE ? amounts : NULL;
	}
	if (m.op == ARB_OP_RESERVE && *tail)
		m.pool = m.bytes = 0;
	if (m.op != ARB_OP_RESERVE && m.op != ARB_OP_POOL_CREATE && m.op != ARB_OP_POOL_RESIZE &&
	    m.op != ARB_OP_POOL_REMOVE && m.op != ARB_OP_INJECT)
		m.pool = 0;
	if (m.op == ARB_OP_RELEASE || m.op == ARB_OP_UNPIN || m.op == ARB_OP_SPILLED)
		m.context = 0;
	if (waits(m.op)) {
		m.deadline_ns =
			now_ns() + (w->timeout_ms ? w->timeout_ms : WAIT_MS) * UINT64_C(1000000);
		ENSURE(k->n_calls < CALLS);
		k->calls[k->n_calls++] = (struct withheld){m.context, serial, c->fd};
	}
	outcome = fakearb_step(a, &m);
	if (waits(m.op) && outcome != ARB_PENDING)
		not_withheld(k, c->fd, serial);
	return outcome;
}

/* The reserved bytes are objects now. */
static int seal(struct fakearb *a, const struct client *c, const struct wire_arb *w)
{
	struct arb_message m = {.op = ARB_OP_RELEASE, .reservation = id(c, w->reservation)};
	int outcome;

	a->private->objects += w->bytes;
	fakearb_set(a, OBJECTS, a->private->objects);
	outcome = fakearb_step(a, &m);
	return outcome;
}

static void look_at_leases(struct fakearb *a, const struct client *c)
{
	/* The daemon says this where a store comes. */
	if (a->lease)
		atomic_store(&fakearb_lease_of(a, c, 0)->max, a->small);
	for (unsigned slot = 0; slot < WIRE_LEASES; slot++)
		fakearb_book_lease(a, c, slot);
}

static int make_stats(struct fakearb *a, const struct client *c, const struct wire_arb *w,
		      char *ret, size_t size)
{
	struct arb *core = a->private->core;
	struct arb_context_info x;
	struct arb_pool_info p;
	struct arb_stats s;

	if (w->op == WIRE_ARB_STATE) {
		if (!arb_context(core, id(c, w->context), &x))
			return ARB_INVALID;
		snprintf(ret, size,
			 "{\"state\":\"%s\",\"since_ms\":%" PRIu64 ",\"held\":%" PRIu64
			 ",\"need\":%" PRIu64 "}",
			 arb_state_name(x.state), (now_ns() - x.since_ns) / 1000000, x.held,
			 x.need);
		return ARB_OK;
	}
	if (!w->task) {
		if (!arb_pool(core, fakearb_pool_id(c, w->pool), &p))
			return ARB_INVALID;
		snprintf(ret, size,
			 "{ \"capacity\" : %" PRIu64 ", \"used\":%" PRIu64
			 ",\"reclaimable\":%" PRIu64 ",\"spilled\":%" PRIu64
			 ",\"max_used\":%" PRIu64 ",\"waiting\":%u,\"level\":0}",
			 p.capacity, p.used, p.reclaimable, p.spilled, p.max_used, p.n_waiting);
		return ARB_OK;
	}
	if (!arb_stats(core, id(c, w->task), w->pool ? fakearb_pool_id(c, w->pool) : 0, now_ns(),
		       w->flags & ARB_RESET, &s))
		return ARB_INVALID;
	snprintf(ret, size,
		 "{\"retries\":%" PRIu64 ",\"splits\":%" PRIu64 ",\"grants\":%" PRIu64
		 ",\"current\":%" PRIu64 ",\"max\":%" PRIu64 "}",
		 s.n_retries, s.n_splits, s.n_grants, s.current, s.max);
	return ARB_OK;
}

static int served(struct fakearb *a, int fd, const struct wire_arb *w)
{
	for (size_t i = 0; i < CLIENTS; i++) {
		struct client *c = &a->private->clients[i];

		if (c->fd >= 0 && c->id == w->reservation) {
			c->channel = fd;
			return ARB_OK;
		}
	}
	return ARB_INVALID;
}

static int evicted(struct fakearb *a, const struct wire_arb *w)
{
	struct fakearb_private *k = a->private;
	struct arb_message m = {
		.op = ARB_OP_SPILLED, .flags = ARB_ALL, .reservation = k->evict.reservation};
	struct arb_reservation_info r;

	if (!k->evict.call || w->other != k->evict.call)
		return ARB_AGAIN;
	k->evict.call = 0;
	if (arb_reservation(k->core, m.reservation, &r))
		fakearb_step(a, &m);
	return ARB_OK;
}

static int dispatch(struct fakearb *a, int fd, uint64_t serial, const struct wire_arb *w,
		    const char *tail, char *text, size_t size)
{
	struct client *c;

	if (w->op == WIRE_ARB_SERVE)
		return served(a, fd, w);
	if (w->op == WIRE_ARB_EVICTED)
		return evicted(a, w);
	ENSURE(fake_page(a->f, fd));
	c = client_of(a, fd, true);
	look_at_leases(a, c);
	switch (w->op) {
	case WIRE_ARB_LEASE:
		return fakearb_raise_lease(a, c, w);
	case WIRE_ARB_LEASE_CALLED:
		return ARB_OK;
	case WIRE_ARB_SEAL:
		return seal(a, c, w);
	case WIRE_ARB_FREED:
		a->private->objects -=
			a->freed < a->private->objects ? a->freed : a->private->objects;
		fakearb_set(a, OBJECTS, a->private->objects);
		return ARB_OK;
	case WIRE_ARB_STATE:
	case WIRE_ARB_STATS:
		return make_stats(a, c, w, text, size);
	default:
		return plain(a, c, serial, w, tail);
	}
}

static bool handler(struct fake *f, int fd, const struct wire_header *h, const void *body,
		    const char *tail, void *arg)
{
	struct wire_refused off = {.error = -ENOTSUP};
	struct fakearb *a = arg;
	struct wire_arb w;
	char text[512] = "";
	int outcome;

	if (h->type == WIRE_PING && a->mute)
		return true;
	if (h->type != WIRE_ARB)
		return false;
	memcpy(&w, body, sizeof(w));
	ENSURE(w.op && w.op < WIRE_ARB_OP_END);
	a->n_ops[w.op]++;
	if (a->off) {
		fake_reply(f, fd, WIRE_REFUSED, h->serial, &off, "the arbiter is off");
		return true;
	}
	pthread_mutex_lock(&a->private->lock);
	outcome = dispatch(a, fd, h->serial, &w, tail, text, sizeof(text));
	if (outcome != ARB_PENDING && (outcome != ARB_OK || !(w.flags & WIRE_ARB_QUIET)))
		answer(a, fd, h->serial, outcome,
		       outcome == ARB_TOOBIG ? "larger than the pool" : text);
	do_spills(a);
	pthread_mutex_unlock(&a->private->lock);
	return true;
}

static void tick(struct fake *f, void *arg)
{
	struct arb_message m = {.op = ARB_OP_TICK};
	struct fakearb *a = arg;

	(void)f;
	pthread_mutex_lock(&a->private->lock);
	for (size_t i = 0; i < CLIENTS; i++) {
		if (a->private->clients[i].fd >= 0)
			look_at_leases(a, &a->private->clients[i]);
	}
	fakearb_step(a, &m);
	do_spills(a);
	pthread_mutex_unlock(&a->private->lock);
}

/* ---- a client's end: its contexts, its tasks, and what it reserved ---- */

struct things {
	uint64_t number, ids[CALLS];
	size_t n;
};

static bool own_context(void *arg, const struct arb_context_info *i)
{
	struct things *t = arg;

	if (i->id >> 32 == t->number && t->n < CALLS)
		t->ids[t->n++] = i->id;
	return true;
}

static bool own_task(void *arg, const struct arb_task_info *i)
{
	struct things *t = arg;

	if (i->id >> 32 == t->number && t->n < CALLS)
		t->ids[t->n++] = i->id;
	return true;
}

static void dropped(struct fake *f, int fd, void *arg)
{
	struct fakearb *a = arg;
	struct fakearb_private *k = a->private;
	struct things t = {0};
	struct client *c;

	(void)f;
	pthread_mutex_lock(&k->lock);
	c = client_of(a, fd, false);
	for (size_t i = 0; i < CLIENTS; i++) {
		if (k->clients[i].channel == fd)
			k->clients[i].channel = -1;
	}
	for (size_t i = 0; c && i < k->n_calls;) {
		if (k->calls[i].fd == fd)
			k->calls[i] = k->calls[--k->n_calls];
		else
			i++;
	}
	if (c) {
		c->leaving = true;
		t.number = c->number;
		arb_each_context(k->core, own_context, &t);
		for (size_t i = 0; i < t.n; i++)
			fakearb_step(a, &(struct arb_message){.op = ARB_OP_UNBIND,
							      .flags = ARB_ALL,
							      .context = t.ids[i]});
		t.n = 0;
		arb_each_task(k->core, own_task, &t);
		for (size_t i = 0; i < t.n; i++)
			fakearb_step(a, &(struct arb_message){.op = ARB_OP_TASK_END,
							      .flags = ARB_RELEASE | ARB_ALL,
							      .task = t.ids[i]});
		for (unsigned slot = 0; slot < WIRE_LEASES; slot++) {
			for (int i = 0; c->has[slot] && i < 2; i++)
				fakearb_step(a,
					     &(struct arb_message){
						     .op = ARB_OP_RELEASE,
						     .reservation = fakearb_lease_id(c, slot, i)});
		}
		c->fd = -1;
	}
	pthread_mutex_unlock(&k->lock);
}

/* ---- for tests ---- */

struct fakearb *fakearb_start(struct shmstore_partition *p, uint64_t capacity, uint64_t lease)
{
	struct fakearb *a = calloc(1, sizeof(*a));
	struct fakearb_private *k = calloc(1, sizeof(*k));
	struct arb_message pool = {.op = ARB_OP_POOL_CREATE,
				   .kind = ARB_PARTITION,
				   .pool = 1,
				   .bytes = capacity,
				   .name = "shm"};
	struct arb_message objects = {
		.op = ARB_OP_RESERVE, .flags = ARB_FORCE, .pool = 1, .reservation = OBJECTS};

	ENSURE(a && k && arb_new(&k->core) == 0);
	a->private = k;
	a->lease = lease;
	a->small = lease / 4;
	pthread_mutex_init(&k->lock, NULL);
	for (size_t i = 0; i < CLIENTS; i++)
		k->clients[i].fd = -1;
	ENSURE(fakearb_step(a, &pool) == ARB_OK && fakearb_step(a, &objects) == ARB_OK);
	pthread_mutex_lock(&k->lock); /* the fake is there before anybody uses it */
	a->f = fake_start(p, true, handler, a);
	atomic_store(&a->f->dropped, dropped);
	atomic_store(&a->f->tick, tick);
	pthread_mutex_unlock(&k->lock);
	fake_give(a->f, 0);
	return a;
}

void fakearb_stop(struct fakearb *a)
{
	fake_stop(a->f);
	ENSURE(!arb_check(a->private->core));
	arb_free(a->private->core);
	pthread_mutex_destroy(&a->private->lock);
	free(a->private);
	free(a);
}

void fakearb_resize(struct fakearb *a, uint64_t capacity)
{
	pthread_mutex_lock(&a->private->lock);
	fakearb_step(a,
		     &(struct arb_message){.op = ARB_OP_POOL_RESIZE, .pool = 1, .bytes = capacity});
	pthread_mutex_unlock(&a->private->lock);
}
