/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbserve.c: see arbitrate.h.
 *
 * A connection of its own, so that no reply waits behind a call. The serving thread holds no lock;
 * a thread that closes the channel wakes it, and it closes its descriptor itself.
 *
 * A call-back's releases go over the store's connection, which is not in order with this one: a
 * round trip there precedes the message that the call is done.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "arbcontext.h"
#include "arbitrate.h"
#include "cleanup.h"
#include "socketpath.h"
#include "sys.h"

#define CONNECT_MS 200u
#define REPLY_MS   5000
#define PACKET_MAX (sizeof(struct wire_header) + 64 + WIRE_TEXT_MAX)
/* call-backs for one call: one who gives a byte at a time must come to an end */
#define EVICTS_MAX 1000
/* tries in a row that give nothing, after which another one is made all the same */
#define EMPTY_MAX  2

void shms_arb_channel_init(struct shms_arb_channel *c)
{
	*c = (struct shms_arb_channel){.fd = -1, .stop_fd = -1};
	pthread_mutex_init(&c->lock, NULL);
}

void shms_arb_channel_deinit(struct shms_arb_channel *c)
{
	c->fd = shms_close_fd(c->fd);
	c->stop_fd = shms_close_fd(c->stop_fd);
	pthread_mutex_destroy(&c->lock);
}

void shms_arb_channel_fork_child(struct shms_arb_channel *c)
{
	shms_close_fd(c->fd);
	shms_close_fd(c->stop_fd);
	shms_arb_channel_init(c);
}

/* ---- packets --------------------------------------------------------------------------------- */

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
	pthread_mutex_lock(&c->lock);
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
	pthread_mutex_unlock(&c->lock);
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

/* Waits for a call; 0: the time is over, or it is to stop. */
static bool await_call(const struct shms_arb_channel *c, int fd, int timeout_ms)
{
	struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = c->stop_fd, .events = POLLIN}};

	return poll(p, 2, timeout_ms) > 0 && !p[1].revents;
}

int shmstore_arb_serve(struct shmstore *s, int timeout_ms)
{
	struct shms_arb_channel *c = &s->arb->channel;
	uint64_t n;
	int r, fd;

	pthread_mutex_lock(&c->lock);
	r = c->fd < 0 ? -ENOTSUP : c->serving ? -EBUSY : 0;
	fd = c->fd;
	c->serving |= r == 0;
	pthread_mutex_unlock(&c->lock);
	if (r < 0)
		return r;
	r = serve_all(s, fd);
	if (r == 0 && timeout_ms != 0 && await_call(c, fd, timeout_ms))
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
