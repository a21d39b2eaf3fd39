/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conn.c: a client from its accept to its last completion.
 *
 *   open     received packets go to dispatch(); replies wait in the output, of which one packet is
 *            in flight, or none. While more than PAUSE_BYTES wait nothing is received: who reads no
 *            answers gets no further with its questions, and costs nothing
 *   dropped  nothing is sent to it any more; it ends when the handler that runs has returned
 *   ending   what hangs on it was told (conn_end); nothing is dispatched any more; an
 *            ERROR may still be on its way out
 *   closed   the socket is shut down and both operations are canceled;
 *            freed when neither is in flight
 *
 * A receive is in flight for as long as a connection is open, or a send while it pauses: only one
 * that ends is ever freed, and that by the last completion, never from within a handler.
 * A lone reply is an operation of the loop, which sends it at once. Where more than one waits (a
 * client that asks ahead, a document), they go by one sendmmsg(), which never blocks; only what the
 * socket does not take is left to the loop.
 * Rejected: several sends in flight, for which the loop would need a queue of its own.
 */
#include "conn.h"

#include <errno.h>
#include <json-c/json.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "config.h"
#include "host.h"
#include "jsonmake.h"
#include "log.h"
#include "socket.h"
#include "wire.h"

#define LINGER_NS         UINT64_C(1000000000) /* that an ERROR may take to go out */
#define PAUSE_BYTES       16384u               /* of output */
#define BATCH             32u
#define DRAIN             32u
#define ALL_DOCUMENTS_MAX (64u << 20)
#define PREEMPT_WAITS_MAX (64u << 10) /* bytes of output beside which no TASK_PREEMPT is left */

static void flush(struct conn *c);
static void finish(struct conn *c, enum conn_outcome why);
static void resume(struct conn *c);

bool conn_is_admin(const struct conn *c)
{
	return c->peer.uid == 0 || c->peer.uid == geteuid();
}

int conn_pidfd(const struct conn *c)
{
	return c->dropped || c->ending ? -ESRCH : peerpid_open(c->fd, c->peer.pid, c->since_ns);
}

/* ---- sending --------------------------------------------------------------------------------- */

int conn_send(struct conn *c, uint16_t type, uint64_t serial, const void *body, const void *tail,
	      size_t tail_size)
{
	int r;

	if (c->dropped || c->ending)
		return CONN_E_GONE;
	if (type == WIRE_ASK && !output_empty(&c->output))
		return CONN_OK;
	if (type == WIRE_TASK_PREEMPT && output_waits(&c->output) > PREEMPT_WAITS_MAX)
		return CONN_OK;
	r = output_add(&c->output, c->host->config->output_max, type, serial, body, tail,
		       tail_size);
	if (r == -EMSGSIZE) {
		log_say(LOG_ERR, LOG_FIELDS(.conn = c->name, .error = r),
			"a message of type %u with %zu bytes of text is longer than the protocol "
			"has it; not sent",
			type, tail_size);
		return CONN_OK;
	}
	if (r < 0) {
		conn_drop(c, CONN_E_SLOW, "it does not read: more than %u bytes wait for it",
			  c->host->config->output_max);
		return CONN_E_SLOW;
	}
	flush(c);
	return CONN_OK;
}

size_t conn_waiting(const struct conn *c)
{
	return output_waits(&c->output);
}

int conn_refuse_limit(struct conn *c, uint64_t serial, int error, uint32_t limit, uint64_t hard,
		      uint64_t used, const char *format, ...)
{
	struct wire_refused body = {.error = error, .limit = limit, .hard = hard, .used = used};
	char text[WIRE_TEXT_MAX + 1];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (n < 0)
		n = 0;
	return conn_send(c, WIRE_REFUSED, serial, &body, text,
			 (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1);
}

int conn_send_document(struct conn *c, uint64_t serial, const char *json, size_t n)
{
	size_t waiting = 0; /* bytes of documents, of all clients */
	int r;

	if (c->dropped || c->ending)
		return CONN_E_GONE;
	if (n > OUTPUT_DOCUMENTS_MAX)
		return conn_refuse(c, serial, -EMFILE,
				   "the answer has %zu bytes, which is too long to be sent; ask "
				   "for one partition",
				   n);
	for (const struct conn *other = c->host->conns; other; other = other->next)
		waiting += other->output.documents_size;
	if (waiting + n > ALL_DOCUMENTS_MAX)
		return conn_refuse(c, serial, -ENOMEM,
				   "too many answers wait to be read by others; ask again later");
	r = output_add_document(&c->output, serial, json, n);
	if (r < 0) {
		conn_drop(c, CONN_E_SLOW, "it does not read its answers: %zu bytes of them wait",
			  c->output.documents_size);
		return CONN_E_SLOW;
	}
	flush(c);
	return CONN_OK;
}

int conn_send_done(struct conn *c, uint64_t serial)
{
	static const struct wire_done done = {0};

	return conn_send(c, WIRE_DONE, serial, &done, NULL, 0);
}

int conn_send_object(struct conn *c, uint64_t serial, struct json_object *o, const char *why)
{
	size_t n = 0;
	const char *json =
		o ? json_object_to_json_string_length(
			    o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &n)
		  : NULL;
	int r = json ? conn_send_document(c, serial, json, n)
		     : conn_refuse(c, serial, -ENOMEM, "%s", why);

	json_object_put(o);
	return r;
}

const char *conn_why(const struct conn_why *list, int error)
{
	while (list->error && list->error != error)
		list++;
	return list->text ? list->text : "the daemon is out of memory";
}

int conn_refuse_user(struct conn *c, uint64_t serial, const char *what)
{
	return conn_refuse(c, serial, -EPERM, "%s root and the daemon's own user; you are user %u",
			   what, (unsigned)c->peer.uid);
}

static void on_sent(struct loop_op *op, int result, unsigned flags);
static void close_now(struct conn *c);

/* Those of the n packets that the socket takes at once; how many. */
static unsigned send_many(struct conn *c, struct iovec *packets, unsigned n)
{
	struct mmsghdr messages[BATCH] = {0};
	int r;

	for (unsigned i = 0; i < n; i++)
		messages[i].msg_hdr = (struct msghdr){.msg_iov = &packets[i], .msg_iovlen = 1};
	r = sendmmsg(c->fd, messages, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (r <= 0)
		return 0; /* full, or broken: the loop finds out which */
	output_sent(&c->output, (unsigned)r);
	c->progress_ns = loop_now(c->host->loop);
	return (unsigned)r;
}

static void flush(struct conn *c)
{
	struct iovec packets[BATCH];
	unsigned n;
	int r = 0;

	if (c->send_op.busy || c->closed)
		return;
	n = output_next(&c->output, packets, BATCH);
	if (n > 1 && send_many(c, packets, n) > 0)
		n = output_next(&c->output, packets, 1);
	if (n)
		r = loop_send(c->host->loop, &c->send_op, c->fd, packets->iov_base,
			      packets->iov_len);
	else if (c->ending)
		close_now(c);
	else if (c->paused)
		resume(c);
	if (r < 0 && r != -ECANCELED)
		log_say(LOG_ERR, LOG_FIELDS(.conn = c->name, .error = r),
			"an answer cannot be sent now; tried again with the next one");
}

/* ---- the end --------------------------------------------------------------------------------- */

/* c is gone after it, where it ends and nothing of it is in flight. */
static void free_if_idle(struct conn *c)
{
	if (!c->ending || c->receive_op.busy || c->send_op.busy)
		return;
	DL_DELETE(c->host->conns, c);
	c->host->n_conns--;
	if (c->host->listener)
		listener_left(c->host->listener, c->peer.uid, c->reason[0]);
	close(c->fd);
	output_deinit(&c->output);
	free(c);
}

static void close_now(struct conn *c)
{
	if (c->closed)
		return;
	c->closed = true;
	shutdown(c->fd, SHUT_RDWR);
	loop_cancel(c->host->loop, &c->receive_op);
	loop_cancel(c->host->loop, &c->send_op);
}

/*
 * Discards the client's unread input and lets it send no more: else the kernel would send a
 * reset before our ERROR. A client that filled its socket gets the reset: emptying it would
 * be work that it makes for us.
 */
static void drain(struct conn *c)
{
	char byte;

	shutdown(c->fd, SHUT_RD);
	for (unsigned i = 0; i < DRAIN && recv(c->fd, &byte, 1, MSG_DONTWAIT | MSG_TRUNC) > 0; i++)
		;
}

static void say_error(struct conn *c, enum conn_outcome why)
{
	struct wire_error body = {.error = why == CONN_E_LIMIT  ? -EMFILE
					   : why == CONN_E_SLOW ? -ETIMEDOUT
								: -EBADMSG};

	if (c->host->draining)
		body.error = -ECANCELED;
	output_forget_documents(&c->output); /* ERROR is the last that is said */
	output_add(&c->output, 0, WIRE_ERROR, 0, &body, c->reason, strlen(c->reason));
}

static void tell(const struct conn *c)
{
	struct json_object *fields = jsonmake_new();
	char key[24];

	jsonmake_u64(fields, "pid", (uint64_t)c->peer.pid);
	jsonmake_u64(fields, "uid", c->peer.uid);
	jsonmake_text(fields, "why", c->reason);
	/* Limited per user: one that comes back under ever new pids is still one. */
	snprintf(key, sizeof(key), "uid %u", c->peer.uid);
	events_emit(c->host->events, EVENT_CLIENT_DROPPED, key, fields);
	log_say(LOG_WARNING, LOG_FIELDS(.conn = c->name), "client dropped: %s", c->reason);
}

static void finish(struct conn *c, enum conn_outcome why)
{
	struct conn_end *e;

	if (c->ending)
		return;
	c->ending = true;
	c->since_ns = loop_now(c->host->loop);
	while ((e = c->ends)) {
		c->ends = e->next;
		e->next = NULL;
		e->fn(e, c);
	}
	c->member = NULL;
	if (why == CONN_E_GONE) {
		close_now(c);
		return;
	}
	if (!c->reason[0])
		snprintf(c->reason, sizeof(c->reason), "a handler refused it (%d)", why);
	if (!c->host->draining) {
		c->host->counters.n_dropped++;
		tell(c);
	}
	say_error(c, why);
	drain(c);
	flush(c);
}

int conn_fault(struct conn *c, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(c->reason, sizeof(c->reason), format, args);
	va_end(args);
	return CONN_E_PROTOCOL;
}

static void end_dropped(struct loop_later *later)
{
	struct conn *c = CONTAINER_OF(later, conn, end);

	finish(c, c->why);
	free_if_idle(c);
}

void conn_drop(struct conn *c, enum conn_outcome why, const char *format, ...)
{
	va_list args;

	if (c->dropped || c->ending)
		return;
	va_start(args, format);
	vsnprintf(c->reason, sizeof(c->reason), format, args);
	va_end(args);
	c->dropped = true;
	c->why = why;
	c->end.fn = end_dropped;
	loop_after(c->host->loop, &c->end);
}

void conn_on_end(struct conn *c, struct conn_end *e)
{
	LL_APPEND(c->ends, e);
}

void conn_off_end(struct conn *c, struct conn_end *e)
{
	if (c->ends)
		LL_DELETE(c->ends, e);
}

struct conn_end *conn_find_end(const struct conn *c, void (*fn)(struct conn_end *e, struct conn *c))
{
	struct conn_end *e;

	LL_SEARCH_SCALAR(c->ends, e, fn, fn);
	return e;
}

void conn_drop_all(struct host *h, const char *why)
{
	for (struct conn *c = h->conns; c; c = c->next)
		conn_drop(c, CONN_E_LIMIT, "%s", why);
	loop_settle(h->loop);
}

void conn_tick(struct host *h, bool late)
{
	uint64_t now = loop_now(h->loop);

	for (struct conn *c = h->conns, *next; c; c = next) {
		next = c->next;
		if (late || (!c->output.documents && !c->paused))
			c->progress_ns = now;
		if (late)
			continue;
		if (c->ending && now - c->since_ns > LINGER_NS) {
			close_now(c);
			free_if_idle(c);
		} else if (!c->greeted && now - c->since_ns > h->config->hello_timeout_ns) {
			conn_drop(c, CONN_E_PROTOCOL, "no HELLO within %.3g s",
				  (double)h->config->hello_timeout_ns / 1e9);
		} else if (now - c->progress_ns > h->config->hello_timeout_ns) {
			conn_drop(c, CONN_E_SLOW, "it does not read its answers");
		}
	}
}

/* ---- completions ----------------------------------------------------------------------------- */

static void on_sent(struct loop_op *op, int result, UNUSED unsigned flags)
{
	struct conn *c = CONTAINER_OF(op, conn, send_op);

	if (result >= 0) {
		output_sent(&c->output, 1);
		c->progress_ns = loop_now(c->host->loop);
		flush(c);
	} else { /* the client closed its end */
		finish(c, CONN_E_GONE);
		close_now(c);
	}
	free_if_idle(c);
}

static void resume(struct conn *c)
{
	/* Its last call is yet to come where busy: on_received() goes on from there. */
	if (c->receive_op.busy)
		return;
	c->paused = false;
	if (loop_receive(c->host->loop, &c->receive_op, c->fd) < 0)
		conn_drop(c, CONN_E_LIMIT, "the daemon cannot receive from it any more");
}

static int take(struct conn *c, size_t n)
{
	const struct loop_packet *packet = loop_packet(c->host->loop);

	c->host->counters.n_requests++;
	if (packet->fds)
		return conn_fault(c, "descriptors came with a message: none takes any");
	if (packet->truncated)
		return conn_fault(c, "a packet larger than any message");
	return c->host->dispatch(c, packet->data, n);
}

/* The stream ended, or an empty packet was sent: receiving looks the same. */
static bool is_end_of_stream(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLRDHUP};

	return poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL);
}

static void on_received(struct loop_op *op, int result, unsigned flags)
{
	struct conn *c = CONTAINER_OF(op, conn, receive_op);
	int r;

	if (flags & LOOP_MORE) {
		r = c->dropped || c->ending ? CONN_OK : take(c, (size_t)result);
		if (r < 0) {
			log_say(LOG_CRIT, LOG_FIELDS(.conn = c->name, .error = r),
				"the daemon cannot go on");
			c->host->failed = r;
			loop_stop(c->host->loop);
		} else if (r > 0 && !c->dropped) {
			finish(c, (enum conn_outcome)r);
		} else if (!c->paused && output_waits(&c->output) > PAUSE_BYTES) {
			c->paused = true;
			c->progress_ns = loop_now(c->host->loop);
			loop_cancel(c->host->loop, op);
		}
		return;
	}
	if (c->paused && result == -ECANCELED && !c->ending) {
		if (output_empty(&c->output))
			resume(c);
		return;
	}
	if (result == 0 && !c->ending && !is_end_of_stream(c->fd))
		conn_drop(c, CONN_E_PROTOCOL, "an empty packet is no message");
	else if (result < 0 && result != -ECANCELED && result != -ECONNRESET)
		conn_drop(c, CONN_E_PROTOCOL, "its packets cannot be received: %s",
			  strerror(-result));
	else
		finish(c, CONN_E_GONE);
	free_if_idle(c);
}

struct conn *conn_new(struct host *h, int fd, const struct conn_peer *peer)
{
	struct conn *c = calloc(1, sizeof(*c));

	if (c) {
		c->receive_op.fn = on_received;
		c->send_op.fn = on_sent;
	}
	if (!c || loop_receive(h->loop, &c->receive_op, fd) < 0) {
		free(c);
		close(fd);
		return NULL;
	}
	c->host = h;
	c->fd = fd;
	c->peer = *peer;
	c->since_ns = c->progress_ns = loop_now(h->loop);
	snprintf(c->name, sizeof(c->name), "pid %d uid %u", peer->pid, peer->uid);
	DL_PREPEND(h->conns, c);
	h->n_conns++;
	h->counters.n_connections++;
	return c;
}
