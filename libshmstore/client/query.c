/* SPDX-License-Identifier: Apache-2.0 */
/*
 * query.c: the client of shmstore/daemon.h: one connection, one request at a time.
 *
 * The answering process is not trusted: each packet is checked as a whole (wire_check), its serial
 * must be the request's, an answer has a bound in bytes and each call a deadline. A connection over
 * which something went wrong is closed, so that no late answer can be taken for the next request's;
 * a refusal leaves it open. The descriptor does not block; poll() waits.
 * Rejected: sharing attach.c's connection. A store's threads share that one and wait on
 * conditions; here one thread asks.
 */
#include "query.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <shmstore/daemon.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alloc.h"
#include "cleanup.h"
#include "detail.h"
#include "socketpath.h"
#include "sys.h"
#include "wire.h"

#define TIMEOUT_MAX_MS 86400000u

_Static_assert((int)SHMSTORE_QUERY_STATUS == (int)WIRE_QUERY_STATUS &&
		       (int)SHMSTORE_QUERY_WORKERS == (int)WIRE_QUERY_WORKERS &&
		       (int)SHMSTORE_QUERY_QUOTA == (int)WIRE_QUERY_QUOTA &&
		       (int)SHMSTORE_QUERY_HOLDERS == (int)WIRE_QUERY_HOLDERS &&
		       (int)SHMSTORE_QUERY_EVENTS == (int)WIRE_QUERY_EVENTS &&
		       (int)SHMSTORE_QUERY_HISTORY == (int)WIRE_QUERY_HISTORY &&
		       (int)SHMSTORE_QUERY_RECONCILE == (int)WIRE_QUERY_RECONCILE &&
		       (int)SHMSTORE_QUERY_ARBITER == (int)WIRE_QUERY_ARBITER &&
		       (int)SHMSTORE_QUERY_ARB_LOG == (int)WIRE_QUERY_ARB_LOG &&
		       (int)SHMSTORE_QUERY_MEMORY == (int)WIRE_QUERY_MEMORY &&
		       (int)SHMSTORE_QUERY_GATE == (int)WIRE_QUERY_GATE &&
		       (int)SHMSTORE_QUERY_STAGES == (int)WIRE_QUERY_STAGES &&
		       (int)SHMSTORE_QUERY_ACTORS == (int)WIRE_QUERY_ACTORS,
	       "the public questions are the protocol's");

struct shmstore_client {
	char *given; /* the socket as asked for; NULL = the default */
	char path[SHMS_SOCKET_PATH];
	int fd; /* -1 = not connected */
	uint32_t timeout_ms;
	bool watching;
	uint64_t serial; /* of the last request */
	char reason[WIRE_TEXT_MAX + 1];
	unsigned char packet[WIRE_PACKET_MAX + 1]; /* the last one; a NUL fits behind its tail */
};

/* A packet, checked. body and tail lie in the client; the tail ends in a NUL. */
struct message {
	struct wire_header h;
	const unsigned char *body;
	char *tail;
};

struct answer {
	char *text;
	size_t n, room;
};

static __attribute__((format(printf, 3, 4))) int failed(struct shmstore_client *c, int error,
							const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(c->reason, sizeof(c->reason), format, args);
	va_end(args);
	return error;
}

static void hang_up(struct shmstore_client *c)
{
	c->fd = shms_close_fd(c->fd);
	c->watching = false;
}

/* The connection is of no use any more. */
static int broken(struct shmstore_client *c, int error, const char *why)
{
	hang_up(c);
	return failed(c, error, "%s", why);
}

static uint64_t deadline_of(const struct shmstore_client *c)
{
	return shms_now_mono_ns() + (uint64_t)c->timeout_ms * 1000000;
}

/* ---- packets ---- */

/* 1: readable; 0: the deadline (UINT64_MAX = none) passed, or a signal came
 * and signals are to be told. */
static int wait_readable(struct shmstore_client *c, uint64_t deadline_ns, bool tell_signals)
{
	struct pollfd p = {.fd = c->fd, .events = POLLIN};

	while (true) {
		uint64_t now = shms_now_mono_ns(), left = shms_minus(deadline_ns, now);
		struct timespec t = shms_timespec(left);
		int r = ppoll(&p, 1, deadline_ns == UINT64_MAX ? NULL : &t, NULL);

		if (r > 0)
			return 1;
		if (r == 0 || (errno == EINTR && tell_signals))
			return 0;
		if (errno != EINTR)
			return broken(c, shms_error(errno), "poll() failed");
	}
}

/* The packet that is there. 1; 0: there is none after all. */
static int receive(struct shmstore_client *c, struct message *ret)
{
	const struct wire_kind *kind;
	const char *why;
	ssize_t n;

	do {
		n = recv(c->fd, c->packet, WIRE_PACKET_MAX, MSG_DONTWAIT | MSG_TRUNC);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n < 0 && errno == ENOMEM)
		return broken(c, -ENOMEM, "out of memory");
	if (n <= 0)
		return broken(c, -ENOENT, "the daemon ended the connection");
	if ((size_t)n > WIRE_PACKET_MAX)
		return broken(c, -EBADMSG, "it sent a packet larger than any of this protocol");
	if (wire_check(c->packet, (size_t)n, false, &why) < 0)
		return broken(c, -EBADMSG, why);
	memcpy(&ret->h, c->packet, sizeof(ret->h));
	kind = wire_kind(ret->h.type);
	ret->body = c->packet + sizeof(ret->h);
	ret->tail = (char *)c->packet + sizeof(ret->h) + kind->body;
	ret->tail[ret->h.tail] = '\0';
	return 1;
}

/* The daemon's word for what went wrong: one of our codes, never success. */
static int error_of(int32_t error)
{
	return error >= 0 || error < -4095 ? -EBADMSG : shms_error(error);
}

/* ERROR: it ends the connection, and says why. */
static int take_error(struct shmstore_client *c, const struct message *m)
{
	struct wire_error e;

	memcpy(&e, m->body, sizeof(e));
	return broken(c, error_of(e.error), m->tail);
}

static int send_request(struct shmstore_client *c, uint16_t type, const void *body,
			const char *tail, size_t tail_size)
{
	unsigned char packet[sizeof(struct wire_header) + 64 + WIRE_TEXT_MAX];
	size_t n = wire_pack(packet, sizeof(packet), type, ++c->serial, body, tail, tail_size);
	ssize_t sent;

	if (!n)
		return failed(c, -EINVAL, "longer than %u bytes, which no request may be",
			      WIRE_TEXT_MAX);
	do {
		sent = send(c->fd, packet, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	if (sent == (ssize_t)n)
		return 0;
	if (sent < 0 && errno == EAGAIN) /* its queue is full of what we sent: it has stopped */
		return broken(c, -ETIMEDOUT, "the daemon does not read what is sent to it");
	return 0; /* it closed: an ERROR that says why may be there to be read */
}

/* The next message about our request. */
static int reply(struct shmstore_client *c, uint64_t deadline_ns, struct message *ret)
{
	struct wire_refused refused;

	while (true) {
		int r = wait_readable(c, deadline_ns, false);

		if (r == 0) {
			hang_up(c);
			return failed(c, -ETIMEDOUT, "the daemon did not answer within %u ms",
				      c->timeout_ms);
		}
		if (r > 0)
			r = receive(c, ret);
		if (r < 0)
			return r;
		if (r == 0)
			continue;
		if (ret->h.type == WIRE_ERROR)
			return take_error(c, ret);
		if (ret->h.serial != c->serial)
			return broken(c, -EBADMSG, "it answered what was not asked");
		if (ret->h.type != WIRE_REFUSED)
			return 0;
		memcpy(&refused, ret->body, sizeof(refused));
		r = error_of(refused.error);
		return failed(c, r, "%s", ret->h.tail ? ret->tail : shmstore_strerror(r));
	}
}

/* ---- connecting ---- */

static int explain_connect(struct shmstore_client *c, int r)
{
	switch (-r) {
	case ENOENT:
		return failed(c, -ENOENT, "there is no such socket");
	case ECONNREFUSED:
		return failed(c, -ENOENT, "nobody listens at the socket");
	case EPROTOTYPE:
	case ENOTSOCK:
		return failed(c, -EBADMSG, "this is no socket of shmstored's");
	case EACCES:
	case EPERM:
		return failed(c, -EPERM, "you may not use the socket");
	case EAGAIN:
	case ETIMEDOUT:
		return failed(c, -ETIMEDOUT, "the daemon does not take connections");
	default:
		return failed(c, shms_error(r), "connecting failed: errno %d", -r);
	}
}

static int greet(struct shmstore_client *c, uint64_t deadline_ns)
{
	struct wire_hello hello = {.version_min = WIRE_VERSION, .version_max = WIRE_VERSION};
	struct wire_welcome w;
	struct message m;
	int r = send_request(c, WIRE_HELLO, &hello, NULL, 0);

	if (r == 0)
		r = reply(c, deadline_ns, &m);
	if (r < 0)
		return r;
	if (m.h.type != WIRE_WELCOME)
		return broken(c, -EBADMSG, "it did not greet back");
	memcpy(&w, m.body, sizeof(w));
	if (w.version != WIRE_VERSION)
		return broken(c, -ENOTSUP, "it speaks another version of the protocol");
	return 0;
}

/* The socket that is meant now: who starts a daemon between two calls means it. */
static int find_socket(struct shmstore_client *c)
{
	char partition[PATH_MAX];
	struct stat st;

	if (c->given && stat(c->given, &st) == 0 && S_ISDIR(st.st_mode))
		return shms_socket_path(NULL, c->given, c->path);
	return shms_socket_path(
		c->given,
		!c->given && shmstore_default_path(partition, sizeof(partition)) == 0 ? partition
										      : NULL,
		c->path);
}

static int connected(struct shmstore_client *c, uint64_t deadline_ns)
{
	struct pollfd p = {.fd = c->fd, .events = POLLIN};
	int r;

	c->reason[0] = '\0';
	if (c->watching)
		return failed(c, -EINVAL, "this connection watches");
	/* Between requests nothing is due: what is there to be read is the end, or an ERROR before
	 * it. */
	if (c->fd >= 0 && poll(&p, 1, 0) == 0)
		return 0;
	hang_up(c);
	r = find_socket(c);
	if (r < 0)
		return failed(c, r, "$SHMSTORE_SOCKET is too long for a socket's path");
	r = shms_socket_connect(c->path, c->timeout_ms);
	if (r < 0)
		return explain_connect(c, r);
	c->fd = r;
	c->serial = 0;
	r = greet(c, deadline_ns);
	if (r < 0)
		hang_up(c);
	return r;
}

/* ---- answers ---- */

static int append(struct shmstore_client *c, struct answer *a, const struct message *m)
{
	size_t n = m->h.tail;

	if (memchr(m->tail, '\0', n))
		return broken(c, -EBADMSG, "a NUL in the document");
	if (n > SHMSTORE_CLIENT_JSON_MAX - a->n)
		return broken(c, -EBADMSG, "the document has no end");
	if (SHMS_GROW(a->text, a->room, a->n, n + 1) < 0)
		return broken(c, -ENOMEM, "out of memory");
	memcpy(a->text + a->n, m->tail, n);
	a->n += n;
	a->text[a->n] = '\0';
	return 0;
}

/* The document that answers the request just sent. */
static int document(struct shmstore_client *c, uint64_t deadline_ns, char **ret_json,
		    size_t *ret_size)
{
	struct answer a = {0};
	struct wire_data data;
	struct message m;
	int r;

	do {
		r = reply(c, deadline_ns, &m);
		if (r == 0 && m.h.type != WIRE_DATA)
			r = broken(c, -EBADMSG, "it answered with something else than a document");
		if (r == 0) {
			memcpy(&data, m.body, sizeof(data));
			if (data.flags & ~WIRE_DATA_MORE)
				r = broken(c, -EBADMSG, "unknown flags in a document");
		}
		if (r == 0)
			r = append(c, &a, &m);
		if (r < 0) {
			free(a.text);
			return r;
		}
	} while (data.flags & WIRE_DATA_MORE);
	*ret_json = a.text;
	if (ret_size)
		*ret_size = a.n;
	return 0;
}

static int done(struct shmstore_client *c, uint64_t deadline_ns)
{
	struct message m;
	int r = reply(c, deadline_ns, &m);

	if (r == 0 && m.h.type != WIRE_DONE)
		r = broken(c, -EBADMSG, "it answered with something else than that it is done");
	return r;
}

int shms_client_ask(struct shmstore_client *c, uint16_t type, const void *body, const char *tail,
		    size_t tail_size, char **ret_text, size_t *ret_size)
{
	uint64_t deadline_ns = deadline_of(c);
	int r = connected(c, deadline_ns);

	if (r == 0)
		r = send_request(c, type, body, tail, tail_size);
	if (r < 0)
		return r;
	return ret_text ? document(c, deadline_ns, ret_text, ret_size) : done(c, deadline_ns);
}

/* ---- the API ---- */

static int check_timeout(uint32_t timeout_ms)
{
	if (timeout_ms && timeout_ms <= TIMEOUT_MAX_MS)
		return 0;
	return shms_detail(-EINVAL, NULL, "a timeout is 1 to %u ms, not %u",
			   (unsigned)TIMEOUT_MAX_MS, timeout_ms);
}

int shmstore_client_new(const char *socket, uint32_t timeout_ms, struct shmstore_client **ret)
{
	struct shmstore_client *c;
	int r = ret ? check_timeout(timeout_ms) : shms_detail_null("ret");

	if (r < 0)
		return r;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->fd = -1;
	c->timeout_ms = timeout_ms;
	if (socket && *socket)
		c->given = strdup(socket);
	if (socket && *socket && !c->given) {
		shmstore_client_free(c);
		return -ENOMEM;
	}
	if (find_socket(c) < 0) {
		shmstore_client_free(c);
		return shms_detail(-EINVAL, NULL, "the path of a socket has %u bytes at most",
				   (unsigned)SHMS_SOCKET_PATH - 1);
	}
	*ret = c;
	return 0;
}

struct shmstore_client *shmstore_client_free(struct shmstore_client *c)
{
	if (c) {
		hang_up(c);
		free(c->given);
		free(c);
	}
	return NULL;
}

int shmstore_client_set_timeout(struct shmstore_client *c, uint32_t timeout_ms)
{
	int r = c ? check_timeout(timeout_ms) : shms_detail_null("c");

	if (r == 0)
		c->timeout_ms = timeout_ms;
	return r;
}

const char *shmstore_client_path(const struct shmstore_client *c)
{
	return c->path;
}

const char *shmstore_client_reason(const struct shmstore_client *c)
{
	return c->reason;
}

int shmstore_client_connect(struct shmstore_client *c)
{
	return c ? connected(c, deadline_of(c)) : -EINVAL;
}

static bool is_question(unsigned what)
{
	return (what >= SHMSTORE_QUERY_STATUS && what <= SHMSTORE_QUERY_ARB_LOG) ||
	       (what >= SHMSTORE_QUERY_MEMORY && what <= SHMSTORE_QUERY_GATE) ||
	       what == SHMSTORE_QUERY_STAGES || what == SHMSTORE_QUERY_ACTORS;
}

int shmstore_client_query(struct shmstore_client *c, enum shmstore_query what,
			  const char *partition, char **ret_json, size_t *ret_size)
{
	struct wire_query body = {.what = (uint32_t)what};

	if (!c || !ret_json || !is_question(what))
		return !c || !ret_json ? shms_detail_null(!c ? "c" : "ret_json")
				       : shms_detail(-EINVAL, NULL, "%d is no question", (int)what);
	return shms_client_ask(c, WIRE_QUERY, &body, partition, partition ? strlen(partition) : 0,
			       ret_json, ret_size);
}

int shmstore_client_set(struct shmstore_client *c, const char *assignment)
{
	struct wire_set body = {0};

	if (!c || !assignment)
		return shms_detail_null(!c ? "c" : "assignment");
	return shms_client_ask(c, WIRE_SET, &body, assignment, strlen(assignment), NULL, NULL);
}

_Static_assert((int)SHMSTORE_ARB_ORDER_KNOB == (int)WIRE_ARB_ADMIN_KNOB &&
		       (int)SHMSTORE_ARB_ORDER_INJECT == (int)WIRE_ARB_ADMIN_INJECT &&
		       (int)SHMSTORE_ARB_ORDER_CANCEL == (int)WIRE_ARB_ADMIN_CANCEL,
	       "the public orders are the protocol's");

int shmstore_client_arbiter(struct shmstore_client *c, const char *partition,
			    const struct shmstore_client_arb *what)
{
	struct wire_arb_admin body = {0};

	if (!c || !partition || !what || what->order < SHMSTORE_ARB_ORDER_KNOB ||
	    what->order > SHMSTORE_ARB_ORDER_CANCEL || what->kind > UINT16_MAX)
		return !c || !partition || !what
			       ? shms_detail_null(!c           ? "c"
						  : !partition ? "partition"
							       : "what")
			       : shms_detail(-EINVAL, NULL, "%u of kind %u is no order",
					     what->order, what->kind);
	body.op = (uint16_t)what->order;
	body.kind = (uint16_t)what->kind;
	body.flags = what->task ? WIRE_ARB_ADMIN_TASK : 0;
	body.target = what->target;
	body.value = what->value;
	body.skip = what->skip;
	body.pool = what->pool;
	return shms_client_ask(c, WIRE_ARB_ADMIN, &body, partition, strlen(partition), NULL, NULL);
}

int shmstore_client_reap(struct shmstore_client *c, const char *path, char **ret_json,
			 size_t *ret_size)
{
	struct wire_reap body = {0};

	if (!c || !path || !ret_json)
		return shms_detail_null(!c ? "c" : !path ? "path" : "ret_json");
	return shms_client_ask(c, WIRE_REAP, &body, path, strlen(path), ret_json, ret_size);
}

int shmstore_client_watch(struct shmstore_client *c, uint64_t since, const char *events)
{
	struct wire_watch body = {.since = since};
	int r;

	if (!c)
		return shms_detail_null("c");
	r = shms_client_ask(c, WIRE_WATCH, &body, events, events ? strlen(events) : 0, NULL, NULL);
	if (r == 0)
		c->watching = true;
	return r;
}

int shmstore_client_event(struct shmstore_client *c, int timeout_ms, uint64_t *ret_sequence,
			  const char **ret_json)
{
	struct wire_event event;
	struct message m;
	uint64_t deadline_ns;
	int r;

	if (!c || !ret_json)
		return shms_detail_null(!c ? "c" : "ret_json");
	if (!c->watching)
		return failed(c, -EINVAL, "this client does not watch");
	deadline_ns =
		timeout_ms < 0 ? UINT64_MAX : shms_now_mono_ns() + (uint64_t)timeout_ms * 1000000;
	r = wait_readable(c, deadline_ns, true);
	if (r == 1)
		r = receive(c, &m);
	if (r <= 0)
		return r;
	if (m.h.type == WIRE_ERROR)
		return take_error(c, &m);
	if (m.h.type != WIRE_EVENT || m.h.serial)
		return broken(c, -EBADMSG, "it sent something else than an event");
	memcpy(&event, m.body, sizeof(event));
	if (ret_sequence)
		*ret_sequence = event.sequence;
	*ret_json = m.tail;
	return 1;
}

int shmstore_client_fd(const struct shmstore_client *c)
{
	return c && c->fd >= 0 ? c->fd : -ENOENT;
}
