/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listener.c: accepts, refuses, and makes a pause where too many come (conn.h).
 *
 * While it pauses, connections wait in the kernel's backlog, which is short on purpose: with a long
 * one, a flood would keep others waiting behind it. It is freed when its operations have ended:
 * listener_free() only asks for that.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config.h"
#include "conn.h"
#include "host.h"
#include "jsonmake.h"
#include "log.h"
#include "loop.h"
#include "socket.h"
#include "wire.h"

/*
 * There are as many users as people and services on a host, and never more than connections. Tokens
 * are kept as the time at which the bucket would be full, so that they come back without a timer.
 */
#define SECOND_NS UINT64_C(1000000000)
#define TOKEN_NS  (SECOND_NS / CROWD_RATE)

struct crowd_user {
	struct crowd_user *next;
	uid_t uid;
	uint32_t n;
};

void crowd_deinit(struct crowd *c)
{
	struct crowd_user *u;

	while ((u = c->users)) {
		c->users = u->next;
		free(u);
	}
}

/* Where uid's entry hangs; *NULL: it has none. */
static struct crowd_user **find(struct crowd *c, uid_t uid)
{
	struct crowd_user **at = &c->users;

	while (*at && (*at)->uid != uid)
		at = &(*at)->next;
	return at;
}

static enum crowd_verdict judge(struct crowd *c, uid_t uid, const struct crowd_limits *limits)
{
	struct crowd_user **at = find(c, uid), *u = *at;
	/* Places that only administrators get, so that they can look when others have filled the
	 * rest. */
	uint32_t kept_back = limits->admin ? 0 : MIN(limits->all / 16, 16);

	if (c->n >= limits->all - kept_back)
		return CROWD_FULL;
	if (u && u->n >= limits->user)
		return CROWD_USER_FULL;
	if (u) {
		*at = u->next;
	} else {
		u = calloc(1, sizeof(*u));
		if (!u)
			return CROWD_NO_MEMORY;
		u->uid = uid;
	}
	u->next = c->users;
	c->users = u;
	u->n++;
	c->n++;
	return CROWD_WELCOME;
}

static void pay(struct crowd *c, uint64_t tokens, uint64_t now_ns)
{
	if (c->full_ns < now_ns)
		c->full_ns = now_ns;
	c->full_ns += tokens * TOKEN_NS;
}

enum crowd_verdict crowd_enter(struct crowd *c, uid_t uid, const struct crowd_limits *limits,
			       uint64_t now_ns)
{
	enum crowd_verdict verdict = judge(c, uid, limits);

	pay(c, 1, now_ns);
	if (verdict != CROWD_WELCOME)
		crowd_fault(c, now_ns);
	return verdict;
}

void crowd_fault(struct crowd *c, uint64_t now_ns)
{
	pay(c, CROWD_FAULT, now_ns);
}

void crowd_leave(struct crowd *c, uid_t uid)
{
	struct crowd_user **at = find(c, uid), *u = *at;

	if (!u)
		return;
	c->n--;
	if (--u->n)
		return;
	*at = u->next;
	free(u);
}

uint64_t crowd_ready_ns(const struct crowd *c)
{
	const uint64_t burst_ns = CROWD_BURST * TOKEN_NS;

	return c->full_ns > burst_ns ? c->full_ns - burst_ns : 0;
}

#define TICK_NS  UINT64_C(250000000)
#define PAUSE_NS UINT64_C(100000000) /* when descriptors or memory have run out */

struct listener {
	struct host *host;
	struct socket socket;
	struct crowd crowd;
	struct loop_op accept_op, pause_op, tick_op;
	uint64_t ticked_ns;
};

static void accept_again(struct listener *l, uint64_t when_ns);

/* ---- refusing -------------------------------------------------------------------------------- */

static void refuse(struct listener *l, int fd, const struct conn_peer *peer,
		   enum crowd_verdict verdict)
{
	const struct config *c = l->host->config;
	struct wire_error body = {.error = -EMFILE};
	struct json_object *fields;
	char packet[sizeof(struct wire_header) + sizeof(body) + 200], why[180], key[24], byte;
	size_t n;

	if (verdict == CROWD_USER_FULL)
		snprintf(why, sizeof(why),
			 "user %u has %u connections, as many as one may have "
			 "(max-clients-per-user)",
			 peer->uid, c->max_clients_per_user);
	else if (verdict == CROWD_FULL)
		snprintf(why, sizeof(why),
			 "%u clients are connected, as many as there may be (max-clients)",
			 l->host->n_conns);
	else
		snprintf(why, sizeof(why), "the daemon is out of memory");
	/* It is told why if the socket takes it at once. Its input is read first, lest the kernel
	 * send a reset in place of our message. */
	n = wire_pack(packet, sizeof(packet), WIRE_ERROR, 0, &body, why, strlen(why));
	send(fd, packet, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	shutdown(fd, SHUT_RDWR);
	for (unsigned i = 0; i < 8 && recv(fd, &byte, 1, MSG_DONTWAIT | MSG_TRUNC) > 0; i++)
		;
	close(fd);
	l->host->counters.n_refused++;
	snprintf(key, sizeof(key), "refused %u", peer->uid);
	log_say(LOG_WARNING, LOG_FIELDS(.conn = key), "a connection was refused: %s", why);
	fields = jsonmake_new();
	jsonmake_u64(fields, "pid", (uint64_t)peer->pid);
	jsonmake_u64(fields, "uid", peer->uid);
	jsonmake_text(fields, "why", why);
	events_emit(l->host->events, EVENT_CLIENT_DROPPED, key, fields);
}

/* ---- accepting ------------------------------------------------------------------------------- */

static void welcome(struct listener *l, int fd)
{
	const struct config *c = l->host->config;
	uint64_t now = loop_now(l->host->loop);
	struct ucred cred;
	socklen_t size = sizeof(cred);
	struct conn_peer peer;
	struct crowd_limits limits;
	enum crowd_verdict verdict;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0) {
		log_say(LOG_ERR, LOG_FIELDS(.error = -errno),
			"a client was sent away: who it is cannot be told");
		close(fd);
		return;
	}
	peer = (struct conn_peer){cred.pid, cred.uid, cred.gid};
	limits = (struct crowd_limits){.all = c->max_clients,
				       .user = peer.uid == 0 ? UINT32_MAX : c->max_clients_per_user,
				       .admin = peer.uid == 0 || peer.uid == geteuid()};
	verdict = crowd_enter(&l->crowd, peer.uid, &limits, now);
	if (verdict != CROWD_WELCOME)
		refuse(l, fd, &peer, verdict);
	else if (!conn_new(l->host, fd, &peer))
		crowd_leave(&l->crowd, peer.uid);
}

static void gone(void *object)
{
	struct listener *l = object;

	crowd_deinit(&l->crowd);
	socket_close(&l->socket);
	free(l);
}

static void on_accept(struct loop_op *op, int result, unsigned flags)
{
	struct listener *l = CONTAINER_OF(op, listener, accept_op);

	if (result >= 0)
		welcome(l, result);
	if (flags & LOOP_MORE) {
		if (crowd_ready_ns(&l->crowd) > loop_now(l->host->loop))
			loop_cancel(l->host->loop, op);
		return;
	}
	if (result == -ECANCELED || result >= 0) {
		accept_again(l, crowd_ready_ns(&l->crowd));
	} else {
		log_say(LOG_ERR, LOG_FIELDS(.error = result),
			"no connection can be accepted; tried again in %g s",
			(double)PAUSE_NS / 1e9);
		accept_again(l, loop_now(l->host->loop) + PAUSE_NS);
	}
}

static void on_pause_end(struct loop_op *op, int result, UNUSED unsigned flags)
{
	struct listener *l = CONTAINER_OF(op, listener, pause_op);

	if (result >= 0)
		accept_again(l, 0);
}

/* Now where when_ns has passed, else then. */
static void accept_again(struct listener *l, uint64_t when_ns)
{
	struct loop *loop = l->host->loop;
	uint64_t now = loop_now(loop);
	int r = when_ns > now ? loop_timer(loop, &l->pause_op, when_ns, 0)
			      : loop_accept(loop, &l->accept_op, l->socket.fd);

	if (r < 0 && when_ns <= now && r != -ECANCELED)
		r = loop_timer(loop, &l->pause_op, now + PAUSE_NS, 0);
	if (r < 0 && r != -ECANCELED) {
		log_say(LOG_CRIT, LOG_FIELDS(.error = r),
			"no connection can be accepted any more; the daemon ends");
		l->host->failed = r;
		loop_stop(loop);
	}
}

static void on_tick(struct loop_op *op, int result, unsigned flags)
{
	struct listener *l = CONTAINER_OF(op, listener, tick_op);
	uint64_t now = loop_now(l->host->loop);

	if (!(flags & LOOP_MORE) || result < 0)
		return;
	/* After we stood still (SIGSTOP, a paused machine) nobody is late before what came
	 * meanwhile was handled. */
	conn_tick(l->host, now - l->ticked_ns > 4 * TICK_NS);
	l->ticked_ns = now;
}

/* ---- making ---------------------------------------------------------------------------------- */

int listener_new(struct host *h, struct listener **ret)
{
	struct listener *l = calloc(1, sizeof(*l));
	socklen_t size = sizeof(struct ucred);
	struct ucred own;
	int r;

	if (!l)
		return -ENOMEM;
	l->host = h;
	l->accept_op.fn = on_accept;
	l->pause_op.fn = on_pause_end;
	l->tick_op.fn = on_tick;
	l->socket = SOCKET_NULL;
	l->ticked_ns = loop_now(h->loop);
	r = socket_open(&l->socket, h->config->socket, h->config->socket_mode,
			h->config->socket_group);
	/* It is asked of each client. Here of ourselves, who listen. */
	if (r == 0 && getsockopt(l->socket.fd, SOL_SOCKET, SO_PEERCRED, &own, &size) < 0) {
		r = -EPERM;
		log_say(LOG_ERR, LOG_FIELDS(.object = h->config->socket, .error = r),
			"nobody can be served: who a client is cannot be told");
	}
	if (r == 0)
		r = loop_timer(h->loop, &l->tick_op, loop_clock() + TICK_NS, TICK_NS);
	if (r == 0)
		r = loop_accept(h->loop, &l->accept_op, l->socket.fd);
	if (r < 0) {
		listener_free(l);
		return r;
	}
	*ret = l;
	return 0;
}

struct listener *listener_free(struct listener *l)
{
	if (!l)
		return NULL;
	socket_remove(&l->socket);
	loop_release_all(l->host->loop,
			 (struct loop_op *const[]){&l->accept_op, &l->pause_op, &l->tick_op}, 3,
			 gone, l);
	return NULL;
}

void listener_left(struct listener *l, uid_t uid, bool dropped)
{
	crowd_leave(&l->crowd, uid);
	if (dropped)
		crowd_fault(&l->crowd, loop_now(l->host->loop));
}
