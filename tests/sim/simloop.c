/* SPDX-License-Identifier: Apache-2.0 */
#include "simloop.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "loop_backend.h"
#include "simclock.h"
#include "simtrace.h"
#include "twister.h"

#define OPS_MAX  1024u
#define MS       UINT64_C(1000000)
#define STEP_NS  50000u /* that a call takes, at most */
#define READ_MAX 8u     /* packets of one connection in a turn */

static struct {
	struct twister *random;
	int (*accept)(void *arg);
	void *arg;
	int waiting; /* what accept() gave and nobody has taken yet; -EAGAIN: nothing */
} sim;

/* Of an operation: where it is queued, its result; of a timer: when it comes; of a poll: the
 * state of which fn knows. */
static int64_t *value_of(struct loop_op *op)
{
	return &loop_priv(op)->value;
}

static uint64_t below(uint64_t n)
{
	return twister_below(sim.random, n);
}

static uint64_t lateness(void)
{
	uint64_t dice = below(100);

	return dice < 85 ? 0 : dice < 98 ? below(20 * MS) : below(300 * MS);
}

static int start(struct loop *l, struct loop_op *op)
{
	struct loop_priv *p = loop_priv(op);

	(void)l;
	p->queued = false;
	*value_of(op) = 0;
	if (p->kind == LOOP_TIMER)
		*value_of(op) = (int64_t)(p->due_ns + lateness());
	return 0;
}

/* The result that came first may be another one than -ECANCELED. */
static void cancel(struct loop *l, struct loop_op *op)
{
	struct loop_priv *p = loop_priv(op);

	(void)l;
	if (p->queued)
		return;
	if (p->kind == LOOP_TIMER && !p->interval_ns && simclock_now() >= p->due_ns && below(2))
		*value_of(op) = 0;
	else
		*value_of(op) = -ECANCELED;
	p->queued = true;
}

/* A poll is told of a state once: of further bytes as of another state. */
static int64_t state_of(const struct loop_op *op, short revents)
{
	const struct loop_priv *p = loop_priv((struct loop_op *)(uintptr_t)op);
	int n = 0;

	if (!revents)
		return 0;
	if (!p->once)
		(void)ioctl(p->fd, FIONREAD, &n);
	return (int64_t)n << 16 | (unsigned short)revents;
}

static short events_of(const struct loop_priv *p)
{
	switch ((enum loop_kind)p->kind) {
	case LOOP_POLL:
		return (short)p->events;
	case LOOP_SEND:
		return POLLOUT;
	case LOOP_RECEIVE:
		return POLLIN;
	case LOOP_ACCEPT:
	case LOOP_TIMER:
		break;
	}
	return 0;
}

struct ready {
	struct loop_op *ops[OPS_MAX];
	struct pollfd fds[OPS_MAX];
	unsigned n;
};

static bool is_ready(struct loop_op *op, short revents)
{
	struct loop_priv *p = loop_priv(op);
	int64_t state;

	if (p->queued)
		return true;
	switch ((enum loop_kind)p->kind) {
	case LOOP_TIMER:
		return (int64_t)simclock_now() >= *value_of(op);
	case LOOP_ACCEPT:
		if (sim.waiting == -EAGAIN)
			sim.waiting = sim.accept(sim.arg);
		return sim.waiting != -EAGAIN;
	case LOOP_POLL:
		state = state_of(op, revents);
		if (state && state != *value_of(op))
			return true;
		*value_of(op) = state;
		return false;
	case LOOP_RECEIVE:
	case LOOP_SEND:
		break;
	}
	return revents != 0;
}

static void look(struct loop *l, struct ready *r)
{
	unsigned n = 0;

	r->n = 0;
	for (struct loop_op *op = l->busy; op; op = loop_priv(op)->next) {
		const struct loop_priv *p = loop_priv(op);
		bool file = !p->queued && p->kind != LOOP_TIMER && p->kind != LOOP_ACCEPT;

		SIM_ENSURE(n < OPS_MAX);
		r->ops[n] = op;
		r->fds[n++] = (struct pollfd){.fd = file ? p->fd : -1, .events = events_of(p)};
	}
	if (n)
		SIM_ENSURE(poll(r->fds, n, 0) >= 0);
	for (unsigned i = 0; i < n; i++) {
		if (!is_ready(r->ops[i], r->fds[i].revents))
			continue;
		r->ops[r->n] = r->ops[i];
		r->fds[r->n++] = r->fds[i];
	}
}

static void shuffle(struct ready *r)
{
	for (unsigned i = r->n; i > 1; i--) {
		unsigned k = (unsigned)below(i);
		struct loop_op *op = r->ops[k];
		struct pollfd fd = r->fds[k];

		r->ops[k] = r->ops[i - 1];
		r->fds[k] = r->fds[i - 1];
		r->ops[i - 1] = op;
		r->fds[i - 1] = fd;
	}
}

static bool is_busy(const struct loop *l, const struct loop_op *op)
{
	const struct loop_op *at = l->busy;

	while (at && at != op)
		at = loop_priv((struct loop_op *)(uintptr_t)at)->next;
	return at;
}

static void timer(struct loop *l, struct loop_op *op)
{
	if (loop_next_due(l, loop_priv(op))) {
		*value_of(op) = (int64_t)(loop_priv(op)->due_ns + lateness());
		loop_call(l, op, 0, LOOP_MORE);
	} else {
		loop_call(l, op, 0, 0);
	}
}

static void receive(struct loop *l, struct loop_op *op)
{
	uint64_t n = 1 + below(READ_MAX);
	int result = 0, r = 0;

	while (n-- && r == 0)
		r = loop_read(l, op, &result);
	/* After a cancel from within, the last call is queued. */
	if (r > 0 && !loop_priv(op)->canceled)
		loop_call(l, op, result, 0);
}

static void send_it(struct loop *l, struct loop_op *op)
{
	const struct loop_priv *p = loop_priv(op);
	ssize_t n = send(p->fd, p->data, p->size, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n >= 0 || errno != EAGAIN)
		loop_call(l, op, n >= 0 ? (int)n : -errno, 0);
}

static void call(struct loop *l, struct loop_op *op, short revents)
{
	struct loop_priv *p = loop_priv(op);
	int fd;

	if (p->queued) {
		p->queued = false;
		loop_call(l, op, (int)*value_of(op), 0);
		return;
	}
	switch ((enum loop_kind)p->kind) {
	case LOOP_TIMER:
		timer(l, op);
		return;
	case LOOP_ACCEPT:
		fd = sim.waiting;
		sim.waiting = -EAGAIN;
		loop_call(l, op, fd, fd < 0 ? 0 : LOOP_MORE);
		return;
	case LOOP_POLL:
		if (!p->once)
			*value_of(op) = state_of(op, revents);
		loop_call(l, op, revents, p->once ? 0 : LOOP_MORE);
		return;
	case LOOP_RECEIVE:
		receive(l, op);
		return;
	case LOOP_SEND:
		send_it(l, op);
		return;
	}
}

static bool turn_once(struct loop *l)
{
	static struct ready r;
	unsigned n;

	l->now_ns = simclock_now();
	look(l, &r);
	if (!r.n)
		return false;
	shuffle(&r);
	n = l->ending ? r.n : 1 + (unsigned)below(r.n);
	for (unsigned i = 0; i < n; i++) {
		/* The calls before it may have ended it, or have made another one in its place. */
		if (!is_busy(l, r.ops[i]) || !is_ready(r.ops[i], r.fds[i].revents))
			continue;
		simclock_pass(below(STEP_NS));
		call(l, r.ops[i], r.fds[i].revents);
	}
	return true;
}

static int turn(struct loop *l)
{
	/* While the loop ends, all that is in flight is cancelled, and so is ready. */
	if (!turn_once(l) && l->ending)
		return -EIO;
	loop_stop(l);
	return 0;
}

static void end(struct loop *l)
{
	(void)l;
}

int loop_epoll_new(struct loop *l)
{
	static const struct loop_backend backend = {"simulation", start, cancel, turn, end};

	l->backend = &backend;
	return 0;
}

void simloop_begin(struct twister *random, int (*accept)(void *arg), void *arg)
{
	sim.random = random;
	sim.accept = accept;
	sim.arg = arg;
	sim.waiting = -EAGAIN;
}

bool simloop_turn(struct loop *l)
{
	return turn_once(l);
}

uint64_t simloop_next_ns(const struct loop *l)
{
	uint64_t next = UINT64_MAX;

	for (struct loop_op *op = l->busy; op; op = loop_priv(op)->next) {
		if (loop_priv(op)->kind == LOOP_TIMER && (uint64_t)*value_of(op) < next)
			next = (uint64_t)*value_of(op);
	}
	return next;
}

struct simloop_counts simloop_counts(const struct loop *l)
{
	struct simloop_counts n = {0};

	for (struct loop_op *op = l->busy; op; op = loop_priv(op)->next) {
		enum loop_kind kind = (enum loop_kind)loop_priv(op)->kind;

		n.n_accepts += kind == LOOP_ACCEPT;
		n.n_polls += kind == LOOP_POLL;
		n.n_timers += kind == LOOP_TIMER;
		n.n_receives += kind == LOOP_RECEIVE;
		n.n_sends += kind == LOOP_SEND;
	}
	return n;
}
