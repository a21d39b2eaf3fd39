/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop_epoll.c: the loop on epoll.
 *
 * epoll knows descriptors, the loop knows operations: slots[fd] has the one that reads (accept,
 * receive, poll) and the one that sends, or a second poll. A poll is edge-triggered; the others are
 * level-triggered and bounded per turn, so that what is left is found again by the next turn, after
 * everybody else's. Results that are known at once (a send that the socket took, a cancel) wait in
 * a queue until the turn's end, since fn is never called from within a start. Timers are a sorted
 * list: the daemon has few.
 *
 * A turn reads one packet of a connection. A connection that had one in PATIENCE turns in
 * succession, and has BURST more at once, is slowed: until its socket is found empty it is read
 * BURST packets each SLOW_NS, so that a client that never stops takes a small and constant part of
 * our time.
 *
 * io_uring in its place answered 2 to 5 % more requests of eight clients at once; a single client's
 * grant took 76 us with it and 71 without. Containers forbid io_uring, so it was a second loop.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "loop_backend.h"

#define N_EVENTS 256
#define PATIENCE 64u
#define BURST    8u
#define SLOW_NS  1000000u

struct slot {
	struct loop_op *in, *out;
	uint32_t events; /* as epoll has them; 0: it does not know the descriptor */
	uint64_t turn;   /* in which the later one of them was started */
};

struct epoll {
	int fd;
	struct slot *slots;
	size_t n_slots;
	uint64_t turn;
	struct loop_op *timers;           /* the next one first */
	struct loop_op *done, **done_end; /* results that wait for their call */
	struct epoll_event events[N_EVENTS];
};

/* ---- what epoll is told ---------------------------------------------------------------------- */

static int slot_get(struct epoll *e, int fd, struct slot **ret)
{
	if (fd < 0)
		return -EBADF;
	if ((size_t)fd >= e->n_slots) {
		size_t n = ((size_t)fd + 256) / 256 * 256;
		struct slot *slots = reallocarray(e->slots, n, sizeof(*slots));

		if (!slots)
			return -ENOMEM;
		memset(slots + e->n_slots, 0, (n - e->n_slots) * sizeof(*slots));
		e->slots = slots;
		e->n_slots = n;
	}
	*ret = &e->slots[fd];
	return 0;
}

/* The events that an operation waits for; NULL: none. */
static uint32_t waited_for(struct loop_op *op)
{
	const struct loop_priv *p = op ? loop_priv(op) : NULL;

	if (!p || p->slowed)
		return 0;
	if (p->kind == LOOP_POLL)
		return (uint32_t)p->events | EPOLLET;
	return p->kind == LOOP_SEND ? EPOLLOUT : EPOLLIN;
}

static int slot_apply(struct epoll *e, int fd, bool again)
{
	struct slot *s = &e->slots[fd];
	struct epoll_event ev = {.events = waited_for(s->in) | waited_for(s->out), .data.fd = fd};
	int how = !s->events ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;

	if (ev.events == s->events && !again)
		return 0;
	if (!ev.events)
		how = EPOLL_CTL_DEL;
	/* Where nobody waits for it a descriptor may be closed already. */
	if (epoll_ctl(e->fd, how, fd, &ev) < 0 && ev.events)
		return -errno;
	s->events = ev.events;
	return 0;
}

static int slot_take(struct epoll *e, struct loop_op *op)
{
	struct loop_priv *p = loop_priv(op);
	struct loop_op **place;
	struct slot *s;
	int r = slot_get(e, p->fd, &s);

	if (r < 0)
		return r;
	place = p->kind == LOOP_SEND || (p->kind == LOOP_POLL && s->in) ? &s->out : &s->in;
	if (*place)
		return -EBUSY;
	*place = op;
	s->turn = e->turn;
	r = slot_apply(e, p->fd, p->kind == LOOP_POLL);
	if (r < 0)
		*place = NULL;
	return r;
}

static void slot_leave(struct epoll *e, struct loop_op *op)
{
	int fd = loop_priv(op)->fd;
	struct slot *s = &e->slots[fd];

	if (s->in == op)
		s->in = NULL;
	else if (s->out == op)
		s->out = NULL;
	slot_apply(e, fd, false);
}

/* ---- timers, and results that wait ----------------------------------------------------------- */

static void timer_insert(struct epoll *e, struct loop_op *op)
{
	struct loop_op **at = &e->timers;

	while (*at && loop_priv(*at)->due_ns <= loop_priv(op)->due_ns)
		at = &loop_priv(*at)->after;
	loop_priv(op)->after = *at;
	*at = op;
}

static void later(struct epoll *e, struct loop_op *op, int64_t value)
{
	struct loop_priv *p = loop_priv(op);

	p->queued = true;
	p->value = value;
	p->after = NULL;
	*e->done_end = op;
	e->done_end = &p->after;
}

/* Those that are in the queue now; what their calls put there waits for the next turn. */
static void call_done(struct loop *l, struct epoll *e)
{
	struct loop_op *op = e->done, *after;

	e->done = NULL;
	e->done_end = &e->done;
	for (; op; op = after) {
		after = loop_priv(op)->after;
		loop_call(l, op, (int)loop_priv(op)->value, 0);
	}
}

/* ---- operations ------------------------------------------------------------------------------ */

static int epoll_start(struct loop *l, struct loop_op *op)
{
	struct epoll *e = l->state;
	struct loop_priv *p = loop_priv(op);

	if (p->kind == LOOP_TIMER) {
		timer_insert(e, op);
		return 0;
	}
	if (p->kind == LOOP_ACCEPT) {
		int flags = fcntl(p->fd, F_GETFL);

		if (flags < 0 || fcntl(p->fd, F_SETFL, flags | O_NONBLOCK) < 0)
			return -errno;
	}
	if (p->kind == LOOP_SEND) {
		ssize_t n = send(p->fd, p->data, p->size, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n >= 0 || errno != EAGAIN) {
			later(e, op, n >= 0 ? n : -errno);
			return 0;
		}
	}
	return slot_take(e, op);
}

static void epoll_cancel(struct loop *l, struct loop_op *op)
{
	struct epoll *e = l->state;
	struct loop_priv *p = loop_priv(op);
	struct loop_op **at = &e->timers;

	if (p->queued)
		return;
	if (p->kind == LOOP_TIMER || p->slowed) {
		while (*at && *at != op)
			at = &loop_priv(*at)->after;
		if (*at)
			*at = p->after;
	}
	if (p->kind != LOOP_TIMER)
		slot_leave(e, op);
	later(e, op, -ECANCELED);
}

static void end(struct loop *l, struct epoll *e, struct loop_op *op, int result)
{
	slot_leave(e, op);
	loop_call(l, op, result, 0);
}

static void accept_some(struct loop *l, struct epoll *e, struct loop_op *op)
{
	struct loop_priv *p = loop_priv(op);

	for (unsigned i = 0; i < LOOP_ACCEPT_MAX && !p->canceled; i++) {
		int fd = accept4(p->fd, NULL, NULL, SOCK_CLOEXEC);

		if (fd >= 0) {
			loop_call(l, op, fd, LOOP_MORE);
			continue;
		}
		if (errno == EAGAIN)
			return;
		if (errno != EINTR && errno != ECONNABORTED) {
			end(l, e, op, -errno);
			return;
		}
	}
}

static void read_some(struct loop *l, struct epoll *e, struct loop_op *op)
{
	struct loop_priv *p = loop_priv(op);
	unsigned most;
	int result, r = 0;

	p->n = p->turn + 1 == (uint32_t)e->turn ? p->n + 1 : 1;
	p->turn = (uint32_t)e->turn;
	most = p->slowed || p->n > PATIENCE ? BURST : 1;
	for (unsigned i = 0; i < most && r == 0; i++)
		r = loop_read(l, op, &result);
	if (r > 0) {
		/* After a cancel from within, the last call is queued. */
		if (!p->canceled)
			end(l, e, op, result);
		return;
	}
	if (r < 0)
		p->n = 0;
	p->slowed = r == 0 && most > 1;
	if (p->slowed) {
		p->due_ns = l->now_ns + SLOW_NS;
		timer_insert(e, op);
	}
	r = slot_apply(e, p->fd, false);
	if (r < 0 && !p->slowed) /* epoll has no memory to wake it again */
		end(l, e, op, r);
}

static void call_timers(struct loop *l, struct epoll *e)
{
	struct loop_op *op;

	while ((op = e->timers) && loop_priv(op)->due_ns <= l->now_ns) {
		struct loop_priv *p = loop_priv(op);

		e->timers = p->after;
		if (p->kind == LOOP_RECEIVE) {
			read_some(l, e, op);
		} else if (loop_next_due(l, p)) {
			timer_insert(e, op);
			loop_call(l, op, 0, LOOP_MORE);
		} else {
			/* one that is started again at once must not keep us here */
			later(e, op, 0);
		}
	}
}

static void send_rest(struct loop *l, struct epoll *e, struct loop_op *op)
{
	struct loop_priv *p = loop_priv(op);
	ssize_t n = send(p->fd, p->data, p->size, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n >= 0 || errno != EAGAIN)
		end(l, e, op, n >= 0 ? (int)n : -errno);
}

/* op NULL: the slot has none. events: of its descriptor. */
static void ready(struct loop *l, struct epoll *e, struct loop_op *op, uint32_t events)
{
	const struct loop_priv *p = op ? loop_priv(op) : NULL;

	if (!p || p->slowed)
		return;
	events &= waited_for(op) | EPOLLERR | EPOLLHUP;
	if (!events)
		return;
	if (p->kind == LOOP_ACCEPT)
		accept_some(l, e, op);
	else if (p->kind == LOOP_RECEIVE)
		read_some(l, e, op);
	else if (p->kind == LOOP_SEND)
		send_rest(l, e, op);
	else if (p->once)
		end(l, e, op, (int)events);
	else
		loop_call(l, op, (int)events, LOOP_MORE);
}

/* Milliseconds that epoll_wait() may take; rounded up, so that the timer is due then. */
static int time_left(const struct epoll *e)
{
	uint64_t now = loop_clock(), due, ms;

	if (e->done)
		return 0;
	if (!e->timers)
		return -1;
	due = loop_priv(e->timers)->due_ns;
	ms = due > now ? (due - now + 999999) / 1000000 : 0;
	return ms > 3600000 ? 3600000 : (int)ms;
}

static int epoll_turn(struct loop *l)
{
	struct epoll *e = l->state;
	int n = epoll_wait(e->fd, e->events, N_EVENTS, time_left(e));

	if (n < 0 && errno != EINTR)
		return -errno;
	l->now_ns = loop_clock();
	e->turn++;
	for (int i = 0; i < n; i++) {
		int fd = e->events[i].data.fd;
		uint32_t events = e->events[i].events;

		/* A descriptor that was closed and made anew by the calls of this
		 * turn: the event is not its. */
		if (e->slots[fd].turn == e->turn)
			continue;
		/* Each call may end the other one, or grow the table. */
		ready(l, e, e->slots[fd].in, events);
		ready(l, e, e->slots[fd].out, events);
	}
	call_timers(l, e);
	call_done(l, e);
	return 0;
}

static void epoll_free(struct loop *l)
{
	struct epoll *e = l->state;

	close(e->fd);
	free(e->slots);
	free(e);
	l->state = NULL;
}

int loop_epoll_new(struct loop *l)
{
	static const struct loop_backend backend = {"epoll", epoll_start, epoll_cancel, epoll_turn,
						    epoll_free};
	struct epoll *e = calloc(1, sizeof(*e));

	if (!e)
		return -ENOMEM;
	e->fd = epoll_create1(EPOLL_CLOEXEC);
	if (e->fd < 0) {
		free(e);
		return -errno;
	}
	e->done_end = &e->done;
	l->backend = &backend;
	l->state = e;
	return 0;
}
