/* SPDX-License-Identifier: Apache-2.0 */
/* arbitrate.c: a store's state of the arbiter: messages, calls that complete later, and calls of
 * the daemon. */
#include "arbitrate.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "cleanup.h"
#include "detail.h"
#include "socketpath.h"
#include "sys.h"

#define WHY_MAX 1024
#define INVALID 12 /* of the daemon's outcomes: our fault */

static _Thread_local char why[WHY_MAX];

const char *shmstore_arb_outcome_name(int outcome)
{
	static const char *const names[] = {"OK",       "PENDING", "RETRY", "SPLIT",
					    "NOMEM",    "TOOBIG",  "AGAIN", "TIMEDOUT",
					    "CANCELED", "REMOVED", "DOWN",  "ERROR"};

	return outcome >= 0 && (size_t)outcome < sizeof(names) / sizeof(names[0]) ? names[outcome]
										  : "UNKNOWN";
}

const char *shmstore_arb_why(void)
{
	return why;
}

int shms_arb_say(int outcome, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(why, sizeof(why), format, ap);
	va_end(ap);
	return outcome;
}

struct shms_arb *shms_arb_unref(struct shms_arb *a)
{
	/* Pairs with itself: the last one sees all that the others did. */
	if (a && atomic_fetch_sub_explicit(&a->n_ref, 1, memory_order_acq_rel) == 1) {
		pthread_mutex_destroy(&a->lock);
		free(a);
	}
	return NULL;
}

/* ---- ids ---- */

uint32_t shms_arb_next_ids(_Atomic uint32_t *last, uint32_t n)
{
	uint32_t first;

	/* After four milliards it begins anew, without 0. */
	do {
		first = atomic_fetch_add_explicit(last, n, memory_order_relaxed) + 1;
	} while (!first || first + n < first);
	return first;
}

uint32_t shms_arb_new_id(struct shms_arb *a, struct shms_arb_ids *ids, uint64_t generation)
{
	SHMS_HELD(&a->lock);
	if (ids->generation != generation) {
		ids->stale = ids->last;
		ids->generation = generation;
	}
	return ++ids->last;
}

bool shms_arb_knows(struct shms_arb *a, const struct shms_arb_ids *ids, uint32_t id,
		    uint64_t generation)
{
	SHMS_HELD(&a->lock);
	return ids->generation == generation && id > ids->stale;
}

uint64_t shms_arb_generation(struct shmstore *s)
{
	SHMS_NO_CANCEL;
	uint64_t generation = shms_attach_generation(shms_attach_of(s));

	if (generation || !shms_attach_needed(shms_attach_of(s)))
		return generation;
	return shms_attach_generation(shms_attach_of(s));
}

/* ---- messages ---- */

int shms_arb_judge(int r, const struct shms_reply *reply, int lost)
{
	int outcome;

	if (r == -ENOTCONN && lost == SHMSTORE_ARB_DOWN)
		return shms_arb_say(lost, "the daemon went away");
	if (r < 0)
		return r == -ENOTCONN ? lost : shms_error(r);
	if (reply->type == WIRE_REFUSED) {
		shms_arb_say(0, "%s", reply->tail);
		return shms_error(reply->body.refused.error);
	}
	outcome = reply->body.arbed.outcome;
	if (outcome == SHMSTORE_ARB_OK)
		return 0;
	shms_arb_say(0, "%s", reply->tail);
	/* INVALID, or what no daemon says. */
	if (outcome < 0 || outcome == SHMSTORE_ARB_PENDING || outcome >= INVALID)
		return shms_detail(-EINVAL, NULL, "%s",
				   reply->tail_size ? reply->tail : "shmstored does not take that");
	return outcome;
}

struct shms_call shms_arb_make_call(const struct wire_arb *m, const char *tail, uint64_t generation)
{
	return (struct shms_call){.type = WIRE_ARB,
				  .answer = WIRE_ARBED,
				  .body = m,
				  .tail = tail,
				  .tail_size = tail ? strlen(tail) : 0,
				  .generation = generation};
}

int shms_arb_call(struct shmstore *s, const struct wire_arb *m, const char *tail,
		  uint64_t generation, struct shms_reply *ret)
{
	SHMS_NO_CANCEL;
	struct shms_call call = shms_arb_make_call(m, tail, generation);
	struct shms_reply own, *reply = ret ? ret : &own;
	/* Not shms_attach_call(): who is bound to a daemon that is late
	 * must not take it for dead. */
	int r = shms_request_ask(shms_attach_of(s), &call, reply);

	return shms_arb_judge(r, reply, generation ? SHMSTORE_ARB_DOWN : -ENOTSUP);
}

void shms_arb_post(struct shmstore *s, const struct wire_arb *m, uint64_t generation)
{
	SHMS_NO_CANCEL;
	struct shms_call call = shms_arb_make_call(m, NULL, generation);

	/* Where that fails, the connection ends, and with it all that the daemon had of ours. */
	shms_request_post(shms_attach_of(s), &call, NULL);
}

/* ---- its life -------------------------------------------------------------------------------- */

/*
 * How a store's state of the arbiter (arbitrate.h) begins, forks and ends.
 *
 * The state is of its own, counted: a thread that ends after the store was closed, or in a forked
 * child, finds there that nothing is to be said to anybody. It does not hold the store's memory:
 * that would keep a partition open for as long as any thread lives that ever waited there.
 */

/* No queue and no channel yet: at first, and in a forked child. */
static void init_parts(struct shms_arb *a)
{
	a->events = (struct shms_arb_events){.bell = SHMS_BELL_NULL};
	pthread_mutex_init(&a->events.lock, NULL);
	a->channel = (struct shms_arb_channel){.fd = -1, .stop_fd = -1};
	pthread_mutex_init(&a->channel.lock, NULL);
}

static void close_parts(struct shms_arb *a)
{
	shms_bell_deinit(&a->events.bell);
	shms_close_fd(a->channel.fd);
	shms_close_fd(a->channel.stop_fd);
}

struct shms_arb *shms_arb_new(struct shmstore *s)
{
	struct shms_arb *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	atomic_init(&a->n_ref, 1);
	pthread_mutex_init(&a->lock, NULL);
	a->s = s;
	a->pools.last = SHMSTORE_ARB_PARTITION;
	init_parts(a);
	return a;
}

void shms_arb_close(struct shmstore *s)
{
	struct shms_arb *a = s->arb;

	if (!a)
		return;
	/* Under the lock: a thread that ends just now is either done with the
	 * store or does not find it. */
	pthread_mutex_lock(&a->lock);
	a->s = NULL;
	pthread_mutex_unlock(&a->lock);
	shms_contexts_close(a); /* which empties the queue */
	close_parts(a);
	pthread_mutex_destroy(&a->events.lock);
	pthread_mutex_destroy(&a->channel.lock);
	s->arb = shms_arb_unref(a);
}

void shms_arb_fork_child(struct shms_arb *a)
{
	pthread_mutex_unlock(&a->lock);
	a->s = NULL;
	close_parts(a);
	init_parts(a);
}

/* ---- calls that complete later --------------------------------------------------------------- */

void shms_arb_ended(struct shms_request *q)
{
	struct shms_later *later = q->arg;
	struct shms_arb_events *e = later->events;

	SHMS_HELD(&e->lock);
	DL_APPEND(e->first, later);
	shms_bell_ring(&e->bell);
}

/* The first of the queue; NULL: there is none. */
static struct shms_later *take_first(struct shms_arb_events *e)
{
	struct shms_later *later;

	SHMS_HELD(&e->lock);
	later = e->first;
	if (later)
		DL_DELETE(e->first, later);
	if (!e->first)
		shms_bell_quiet(&e->bell);
	return later;
}

void shms_arb_forget(struct shmstore *s, struct shms_arb_events *e, struct shms_later *later)
{
	const struct shms_later *at;

	shms_request_withdraw(shms_attach_of(s), &later->request);
	SHMS_HELD(&e->lock);
	for (at = e->first; at && at != later; at = at->next)
		;
	if (at)
		DL_DELETE(e->first, later);
	free(later);
}

int shmstore_arb_fd(struct shmstore *s)
{
	struct shms_arb_events *e = &s->arb->events;
	int fd = shms_request_fd(shms_attach_of(s));

	if (fd < 0)
		return fd;
	SHMS_HELD(&e->lock);
	return shms_bell_fd(&e->bell, fd, e->first);
}

int shmstore_arb_next(struct shmstore *s, struct shmstore_arb_done *ret)
{
	struct shms_later *later;
	int r;

	if (!ret)
		return shms_detail_null("ret");
	shms_request_look(shms_attach_of(s));
	later = take_first(&s->arb->events);
	if (!later)
		return 0;
	*ret = (struct shmstore_arb_done){.context = later->context,
					  .reservation = later->reservation};
	later->context->later = NULL;
	r = shms_arb_judge(later->request.error, &later->reply, SHMSTORE_ARB_DOWN);
	ret->outcome = shms_context_told(later->context, r);
	if (ret->outcome != 0)
		ret->reservation = (struct shmstore_arb_reservation){0};
	free(later);
	return 1;
}

/* ---- the channel on which the daemon calls --------------------------------------------------- */

/*
 * A connection of its own, so that no reply waits behind a call. The serving thread holds no lock;
 * a thread that closes the channel wakes it, and it closes its descriptor itself.
 *
 * A call-back's releases go over the store's connection, which is not in order with this one: a
 * round trip there precedes the message that the call is done.
 */

#define CONNECT_MS 200u
#define REPLY_MS   5000
#define PACKET_MAX (sizeof(struct wire_header) + 64 + WIRE_TEXT_MAX)
/* call-backs for one call: one who gives a byte at a time must come to an end */
#define EVICTS_MAX 1000
/* tries in a row that give nothing, after which another one is made all the same */
#define EMPTY_MAX  2

/* 0, -ENOTCONN. Waits for a daemon that reads slowly, for a time. */
static int send_on(int fd, uint64_t serial, uint16_t type, const void *body)
{
	unsigned char packet[PACKET_MAX];
	size_t n = wire_pack(packet, sizeof(packet), type, serial, body, NULL, 0);

	for (;;) {
		if (send(fd, packet, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n)
			return 0;
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN ||
		    poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, REPLY_MS) <= 0)
			return -ENOTCONN;
	}
}

/* The next packet, without waiting. Its type; 0: there is none; -ENOTCONN: the channel is over. */
static int receive(int fd, struct wire_header *ret_h, unsigned char ret_body[64])
{
	unsigned char packet[PACKET_MAX + 1];
	const char *reason;
	ssize_t n;

	do {
		n = recv(fd, packet, sizeof(packet), MSG_DONTWAIT | MSG_TRUNC);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n <= 0 || (size_t)n > PACKET_MAX || wire_check(packet, (size_t)n, false, &reason) < 0)
		return -ENOTCONN;
	memcpy(ret_h, packet, sizeof(*ret_h));
	memset(ret_body, 0, 64);
	memcpy(ret_body, packet + sizeof(*ret_h), (size_t)n - sizeof(*ret_h) - ret_h->tail);
	return ret_h->type == WIRE_ERROR ? -ENOTCONN : ret_h->type;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Waits for the answer to SERVE. 0, -ENOTSUP, -ETIMEDOUT. */
static int await_served(int fd, uint64_t serial)
{
	uint64_t until = shms_now_mono_ns() + REPLY_MS * 1000000ull, now;
	unsigned char body[64];
	struct wire_header h;
	struct wire_arbed arbed;

	while ((now = shms_now_mono_ns()) < until) {
		int r = receive(fd, &h, body);

		if (r < 0 || (r && r != WIRE_WELCOME && h.serial != serial))
			return -ENOTSUP;
		if (r == 0)
			poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1,
			     (int)((until - now) / 1000000 + 1));
		if (r == 0 || r == WIRE_WELCOME)
			continue;
		memcpy(&arbed, body, sizeof(arbed));
		return r == WIRE_ARBED && arbed.outcome == SHMSTORE_ARB_OK ? 0 : -ENOTSUP;
	}
	return -ETIMEDOUT;
}

/* The channel of the store that the daemon knows by that id. The descriptor, or -errno. */
static int open_channel(const char *partition, uint64_t id)
{
	struct wire_hello hello = {.version_min = WIRE_VERSION, .version_max = WIRE_VERSION};
	struct wire_arb serve = {.op = WIRE_ARB_SERVE, .reservation = (uint32_t)id};
	char path[SHMS_SOCKET_PATH];
	int r = shms_socket_path(NULL, partition, path);
	_fd_ int fd = r < 0 ? -1 : shms_socket_connect(path, CONNECT_MS);

	if (r == 0 && fd < 0)
		r = fd == -EMFILE || fd == -ENFILE ? -EMFILE : -ENOTSUP;
	if (r == 0)
		r = send_on(fd, 1, WIRE_HELLO, &hello);
	if (r == 0)
		r = send_on(fd, 2, WIRE_ARB, &serve);
	if (r == 0)
		r = await_served(fd, 2);
	if (r < 0)
		return r == -ENOTCONN ? -ENOTSUP : r;
	return shms_take_fd(&fd);
}

/* The lock is held. */
static void close_channel(struct shms_arb_channel *c)
{
	uint64_t one = 1;

	if (c->fd < 0)
		return;
	if (!c->serving) {
		c->fd = shms_close_fd(c->fd);
		return;
	}
	c->closed = true;
	if (write(c->stop_fd, &one, sizeof(one)) < 0)
		return; /* as full as it gets: readable */
}

int shmstore_arb_set_upcalls(struct shmstore *s, const struct shmstore_arb_upcalls *u)
{
	struct shms_arb_channel *c = &s->arb->channel;
	uint64_t id;
	int r = 0, fd = -1;

	if (u && !shms_arb_generation(s))
		return -ENOTSUP;
	if (u) {
		pthread_mutex_lock(&shms_attach_of(s)->lock);
		id = shms_attach_of(s)->id;
		pthread_mutex_unlock(&shms_attach_of(s)->lock);
		fd = open_channel(s->p->path, id);
		if (fd < 0)
			return fd;
	}
	SHMS_HELD(&c->lock);
	close_channel(c);
	/* The thread that serves the old channel is not back yet: it closes the descriptor. */
	if (c->closed && u) {
		r = -EBUSY;
	} else if (u) {
		c->stop_fd = c->stop_fd >= 0 ? c->stop_fd : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		r = c->stop_fd < 0 ? shms_error(errno) : 0;
	}
	if (u && r == 0) {
		c->upcalls = *u;
		c->fd = fd;
		c->serial = 2;
		fd = -1;
	}
	shms_close_fd(fd);
	return r;
}

int shmstore_arb_serve_fd(struct shmstore *s)
{
	SHMS_HELD(&s->arb->channel.lock);
	return s->arb->channel.fd >= 0 && !s->arb->channel.closed ? s->arb->channel.fd : -ENOTSUP;
}

/* ---- serving --------------------------------------------------------------------------------- */

/* Asks the program for room, until there is enough or it has no more. Returns the bytes that it
 * gave, without those that somebody else took meanwhile. */
static uint64_t evict(const struct shmstore_arb_upcalls *u, const struct wire_arb_call *call)
{
	uint64_t total = 0, got;
	int n_empty = 0;

	for (int i = 0; u->evict && i < EVICTS_MAX && n_empty <= EMPTY_MAX && total < call->bytes;
	     i++) {
		got = u->evict(u->ctx, call->pool, call->bytes - total, call->reservation);
		got = got <= INT64_MAX ? got : 0; /* a negative error, by mistake */
		n_empty = got ? 0 : n_empty + 1;
		total += got;
	}
	return total;
}

/* One call of the daemon's. true: it was one. */
static bool serve_call(struct shmstore *s, int fd, uint64_t serial,
		       const struct wire_arb_call *call)
{
	struct shmstore_arb_upcalls *u = &s->arb->channel.upcalls;
	struct wire_arb evicted = {
		.op = WIRE_ARB_EVICTED, .flags = WIRE_ARB_QUIET, .pool = call->pool};
	struct shmstore_arb_pool_info look;

	switch (call->kind) {
	case WIRE_ARB_CALL_EVICT:
		evicted.other = call->call;
		evicted.bytes = evict(u, call);
		/* the round trip; what it says is of no interest */
		shmstore_arb_pool_info(s, call->pool, &look);
		send_on(fd, serial, WIRE_ARB, &evicted);
		return true;
	case WIRE_ARB_CALL_PRESSURE:
		if (u->pressure)
			u->pressure(u->ctx, call->pool, call->level);
		return true;
	default:
		return false;
	}
}

/* Serves what has come. Calls served, or -ENOTCONN. */
static int serve_all(struct shmstore *s, int fd)
{
	struct shms_arb_channel *c = &s->arb->channel;
	struct wire_arb_call call;
	unsigned char body[64];
	struct wire_header h;
	int n = 0, r;

	while ((r = receive(fd, &h, body)) > 0) {
		memcpy(&call, body, sizeof(call));
		if (r == WIRE_ARB_CALL && serve_call(s, fd, ++c->serial, &call))
			n++;
	}
	return r < 0 && !n ? r : n;
}

int shmstore_arb_serve(struct shmstore *s, int timeout_ms)
{
	struct shms_arb_channel *c = &s->arb->channel;
	struct pollfd p[2] = {{.events = POLLIN}, {.events = POLLIN}};
	uint64_t n;
	int r, fd;

	pthread_mutex_lock(&c->lock);
	r = c->fd < 0 ? -ENOTSUP : c->serving ? -EBUSY : 0;
	fd = c->fd;
	p[0].fd = fd;
	p[1].fd = c->stop_fd;
	c->serving |= r == 0;
	pthread_mutex_unlock(&c->lock);
	if (r < 0)
		return r;
	r = serve_all(s, fd);
	/* Waits for a call, until the time is over, or it is to stop. */
	if (r == 0 && timeout_ms != 0 && poll(p, 2, timeout_ms) > 0 && !p[1].revents)
		r = serve_all(s, fd);
	pthread_mutex_lock(&c->lock);
	c->serving = false;
	if (c->closed || r < 0)
		c->fd = shms_close_fd(c->fd);
	if (c->closed && read(c->stop_fd, &n, sizeof(n)) < 0)
		n = 0; /* it was not rung */
	c->closed = false;
	pthread_mutex_unlock(&c->lock);
	return r < 0 ? -ENOTSUP : r;
}
