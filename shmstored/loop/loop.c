/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.c: the operations in flight, as a list, and the calls to their owners. loop_epoll.c runs
 * them; the simulation of the tests has a loop of its own in its place.
 */
#include "loop.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#include "loop_backend.h"

uint64_t loop_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t loop_now(const struct loop *l)
{
	return l->now_ns;
}

const char *loop_backend(const struct loop *l)
{
	return l->backend->name;
}

int loop_new(struct loop **ret)
{
	struct loop *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	l->now_ns = loop_clock();
	r = loop_epoll_new(l);
	if (r < 0) {
		free(l);
		return r;
	}
	*ret = l;
	return 0;
}

struct loop *loop_free(struct loop *l)
{
	if (!l)
		return NULL;
	l->ending = true;
	while (l->busy) {
		for (struct loop_op *op = l->busy; op; op = loop_priv(op)->next)
			loop_cancel(l, op);
		if (l->backend->turn(l) < 0)
			break;
	}
	l->backend->free(l);
	free(l);
	return NULL;
}

int loop_run(struct loop *l)
{
	int r = 0;

	l->stop = false;
	while (!l->stop && r >= 0)
		r = l->backend->turn(l);
	return r;
}

void loop_stop(struct loop *l)
{
	l->stop = true;
}

/* ---- operations ------------------------------------------------------------------------------ */

static int start(struct loop *l, struct loop_op *op, struct loop_priv p)
{
	int r;

	if (op->busy)
		return -EBUSY;
	if (l->ending)
		return -ECANCELED;
	*loop_priv(op) = p;
	r = l->backend->start(l, op);
	if (r < 0)
		return r;
	op->busy = true;
	loop_priv(op)->prev = NULL;
	loop_priv(op)->next = l->busy;
	if (l->busy)
		loop_priv(l->busy)->prev = op;
	l->busy = op;
	return 0;
}

void loop_call(struct loop *l, struct loop_op *op, int result, unsigned flags)
{
	struct loop_priv *p = loop_priv(op);

	if (!(flags & LOOP_MORE)) {
		if (p->next)
			loop_priv(p->next)->prev = p->prev;
		if (p->prev)
			loop_priv(p->prev)->next = p->next;
		else
			l->busy = p->next;
		op->busy = false;
	}
	op->fn(op, result, flags);
	loop_settle(l);
}

void loop_after(struct loop *l, struct loop_later *later)
{
	if (!later->waits)
		DL_APPEND(l->later, later);
	later->waits = true;
}

void loop_after_none(struct loop *l, struct loop_later *later)
{
	if (later->waits)
		DL_DELETE(l->later, later);
	later->waits = false;
}

void loop_settle(struct loop *l)
{
	struct loop_later *later;

	while ((later = l->later) != NULL) {
		loop_after_none(l, later);
		later->fn(later);
	}
}

int loop_accept(struct loop *l, struct loop_op *op, int fd)
{
	return start(l, op, (struct loop_priv){.kind = LOOP_ACCEPT, .fd = fd});
}

int loop_poll(struct loop *l, struct loop_op *op, int fd, short events, bool once)
{
	return start(l, op,
		     (struct loop_priv){.kind = LOOP_POLL,
					.fd = fd,
					.events = (unsigned short)events,
					.once = once});
}

int loop_timer(struct loop *l, struct loop_op *op, uint64_t first_ns, uint64_t interval_ns)
{
	return start(l, op,
		     (struct loop_priv){.kind = LOOP_TIMER,
					.fd = -1,
					.due_ns = first_ns,
					.interval_ns = interval_ns});
}

int loop_timer_by(struct loop *l, struct loop_op *op, uint64_t due_ns)
{
	if (!op->busy)
		return loop_timer(l, op, due_ns, 0);
	if (due_ns < loop_priv(op)->due_ns)
		loop_cancel(l, op);
	return 0;
}

int loop_receive(struct loop *l, struct loop_op *op, int fd)
{
	return start(l, op, (struct loop_priv){.kind = LOOP_RECEIVE, .fd = fd});
}

int loop_send(struct loop *l, struct loop_op *op, int fd, const void *data, size_t n)
{
	return start(l, op,
		     (struct loop_priv){.kind = LOOP_SEND, .fd = fd, .data = data, .size = n});
}

void loop_cancel(struct loop *l, struct loop_op *op)
{
	if (!op->busy || loop_priv(op)->canceled)
		return;
	loop_priv(op)->canceled = true;
	l->backend->cancel(l, op);
}

static void on_released(struct loop_op *op, int result, unsigned flags)
{
	const struct loop_op *o = op->other;

	if (loop_priv(op)->kind == LOOP_ACCEPT && result >= 0)
		close(result);
	while (o != op && !o->busy)
		o = o->other;
	if (o == op && !(flags & LOOP_MORE))
		op->gone(op->object);
}

void loop_release_all(struct loop *l, struct loop_op *const *ops, size_t n,
		      void (*gone)(void *object), void *object)
{
	bool busy = false;

	for (size_t i = 0; i < n; i++) {
		ops[i]->fn = on_released;
		ops[i]->other = ops[(i + 1) % n];
		ops[i]->gone = gone;
		ops[i]->object = object;
		busy |= ops[i]->busy;
	}
	for (size_t i = 0; busy && i < n; i++)
		loop_cancel(l, ops[i]);
	if (!busy)
		gone(object);
}

void loop_release(struct loop *l, struct loop_op *op, void *memory)
{
	loop_release_all(l, &op, 1, free, memory);
}

bool loop_next_due(const struct loop *l, struct loop_priv *p)
{
	if (!p->interval_ns)
		return false;
	p->due_ns += p->interval_ns;
	if (p->due_ns <= l->now_ns)
		p->due_ns +=
			(l->now_ns - p->due_ns) / p->interval_ns * p->interval_ns + p->interval_ns;
	return true;
}

/* ---- packets --------------------------------------------------------------------------------- */

const struct loop_packet *loop_packet(const struct loop *l)
{
	return &l->packet;
}

int loop_read(struct loop *l, struct loop_op *op, int *ret_result)
{
	struct loop_priv *p = loop_priv(op);
	uint64_t buffer[LOOP_PACKET_MAX / sizeof(uint64_t)];
	struct iovec v = {buffer, sizeof(buffer)};
	/* Without room for control messages the kernel keeps descriptors from
	 * us, and says so: MSG_CTRUNC. */
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
	ssize_t n = recvmsg(p->fd, &m, MSG_DONTWAIT);

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return -EAGAIN;
	if (n <= 0) {
		*ret_result = n < 0 ? -errno : 0;
		return 1;
	}
	l->packet = (struct loop_packet){buffer, m.msg_flags & MSG_CTRUNC, m.msg_flags & MSG_TRUNC};
	loop_call(l, op, (int)n, LOOP_MORE);
	*ret_result = -ECANCELED;
	return p->canceled;
}

/* ---- how late it is -------------------------------------------------------------------------- */

const uint64_t lateness_bounds[LATENESS_BUCKETS - 1] = {100000,   1000000,   5000000,   10000000,
							50000000, 100000000, 1000000000};

void lateness_init(struct lateness *l, uint64_t first_ns, uint64_t interval_ns)
{
	*l = (struct lateness){.interval_ns = interval_ns, .expected_ns = first_ns};
}

void lateness_note(struct lateness *l, uint64_t now_ns)
{
	uint64_t late = now_ns > l->expected_ns ? now_ns - l->expected_ns : 0;
	unsigned bucket = 0;

	while (bucket < LATENESS_BUCKETS - 1 && late > lateness_bounds[bucket])
		bucket++;
	l->counts[bucket]++;
	l->recent_ns[l->n++ % LATENESS_RECENT] = late;
	l->sum_ns += late;
	l->expected_ns += (late / l->interval_ns + 1) * l->interval_ns;
}

uint64_t lateness_worst(const struct lateness *l)
{
	uint64_t worst = 0;

	for (unsigned i = 0; i < LATENESS_RECENT; i++)
		if (l->recent_ns[i] > worst)
			worst = l->recent_ns[i];
	return worst;
}
