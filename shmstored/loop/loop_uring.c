/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop_uring.c: the loop on io_uring. Each turn is one system call, which submits all that the last
 * turn's callbacks started and waits.
 *
 * An SQE's user_data is its loop_op; 0 marks those that nobody waits for (cancels). The kernel is
 * done with an operation at the CQE that has no F_MORE; where that was not the operation's own end
 * (a multishot that the kernel gave up, a timer's interval, a single shot of an old kernel), it is
 * armed again here and its owner notices nothing.
 *
 * Packets arrive in buffers that the kernel takes from a ring of ours (N_BUFFERS for all
 * connections) and that go back as soon as fn has returned, so a turn handles at most N_BUFFERS
 * packets. A connection that sends more than BURST of them in one turn is slowed: its multishot
 * ends, and until its socket is found empty it is read BURST packets each SLOW_NS, so that a client
 * that never stops takes a small and constant part of our time. With no room given for control
 * messages, descriptors never reach our table: the flags say that there were some.
 *
 * Not used: IORING_OP_SENDMSG_ZC and registered files (packets are small and connections come
 * and go), SQPOLL (burns a CPU). Deferred task work comes before cooperative because then
 * callbacks are never interrupted by completions; which of the two costs less a request could
 * not be told apart on a busy machine.
 * Multishot accept is older than multishot receive by one kernel (5.19, 6.0); a kernel that lacks
 * one is treated as lacking both.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "loop_backend.h"

#define N_BUFFERS   128u
#define BUFFER_SIZE (sizeof(struct io_uring_recvmsg_out) + LOOP_PACKET_MAX)
#define GROUP       0
#define BURST       8u
#define SLOW_NS     800000

static const struct __kernel_timespec SLOW = {.tv_nsec = SLOW_NS};

struct uring {
	struct io_uring ring;
	uint32_t turn;
	struct io_uring_buf_ring *buffers; /* NULL: single shots */
	char *memory;                      /* the ring's buffers */
	struct msghdr msg; /* of every multishot receive: no name, no control messages */
};

/* ---- arming ---------------------------------------------------------------------------------- */

static int get_sqe(struct uring *u, struct io_uring_sqe **ret)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

	if (!sqe) {
		int r = io_uring_submit(&u->ring);

		if (r < 0 && r != -EINTR && r != -EAGAIN && r != -EBUSY)
			return r;
		sqe = io_uring_get_sqe(&u->ring);
		if (!sqe)
			return -EBUSY;
	}
	*ret = sqe;
	return 0;
}

/* From now on: an absolute time would be the host's, whose clock need not be
 * that of our time namespace. */
static void prepare_timer(struct io_uring_sqe *sqe, struct loop_priv *p)
{
	uint64_t now = loop_clock(), ns = p->due_ns > now ? p->due_ns - now : 0;

	p->ts = (struct __kernel_timespec){(int64_t)(ns / 1000000000u),
					   (long long)(ns % 1000000000u)};
	io_uring_prep_timeout(sqe, &p->ts, 0, 0);
}

static int arm(struct loop *l, struct loop_op *op)
{
	struct uring *u = l->state;
	struct loop_priv *p = loop_priv(op);
	struct io_uring_sqe *sqe;
	int r = get_sqe(u, &sqe);

	if (r < 0)
		return r;
	switch ((enum loop_kind)p->kind) {
	case LOOP_ACCEPT:
		io_uring_prep_accept(sqe, p->fd, NULL, NULL, SOCK_CLOEXEC);
		if (u->buffers)
			sqe->ioprio |= IORING_ACCEPT_MULTISHOT;
		break;
	case LOOP_POLL:
		io_uring_prep_poll_add(sqe, p->fd, (unsigned)p->events);
		if (!p->once)
			sqe->len |= IORING_POLL_ADD_MULTI;
		break;
	case LOOP_TIMER:
		prepare_timer(sqe, p);
		break;
	case LOOP_RECEIVE:
		p->plain = !u->buffers || p->slowed;
		if (!p->plain) {
			io_uring_prep_recvmsg_multishot(sqe, p->fd, &u->msg, 0);
			sqe->flags |= IOSQE_BUFFER_SELECT;
			sqe->buf_group = GROUP;
		} else if (p->slowed) {
			io_uring_prep_timeout(sqe, (struct __kernel_timespec *)(uintptr_t)&SLOW, 0,
					      0);
		} else {
			io_uring_prep_poll_add(sqe, p->fd, POLLIN);
		}
		break;
	case LOOP_SEND:
		io_uring_prep_send(sqe, p->fd, p->data, p->size, MSG_NOSIGNAL);
		break;
	}
	sqe->user_data = (uintptr_t)op;
	return 0;
}

static int uring_start(struct loop *l, struct loop_op *op)
{
	struct loop_priv *p = loop_priv(op);

	if (p->kind == LOOP_ACCEPT) {
		/* On an O_NONBLOCK socket io_uring answers -EAGAIN rather than wait. */
		int flags = fcntl(p->fd, F_GETFL);

		if (flags < 0 || fcntl(p->fd, F_SETFL, flags & ~O_NONBLOCK) < 0)
			return -errno;
	}
	return arm(l, op);
}

static void arm_again(struct loop *l, struct loop_op *op)
{
	int r = loop_priv(op)->canceled ? -ECANCELED : arm(l, op);

	if (r < 0)
		loop_call(l, op, r, 0);
}

static void uring_cancel(struct loop *l, struct loop_op *op)
{
	struct io_uring_sqe *sqe;

	/* SQEs are taken in order: this one reaches the kernel after op's own, and before
	 * that of an op that is later made at the same address. Without room for it op
	 * goes on until loop_free(). */
	if (get_sqe(l->state, &sqe) < 0)
		return;
	io_uring_prep_cancel(sqe, op, 0);
	sqe->user_data = 0;
}

/* ---- completions ----------------------------------------------------------------------------- */

static void return_buffer(struct uring *u, unsigned id)
{
	io_uring_buf_ring_add(u->buffers, u->memory + id * BUFFER_SIZE, BUFFER_SIZE,
			      (unsigned short)id, io_uring_buf_ring_mask(N_BUFFERS), 0);
	io_uring_buf_ring_advance(u->buffers, 1);
}

/* A packet of op has come. */
static void count(struct loop *l, struct loop_op *op)
{
	const struct uring *u = l->state;
	struct loop_priv *p = loop_priv(op);

	if (p->turn != u->turn) {
		p->turn = u->turn;
		p->n = 0;
	}
	if (++p->n == BURST && !p->slowed) {
		p->slowed = true;
		uring_cancel(l, op); /* what is in flight; op goes on by timer */
	}
}

/* A multishot's CQE. */
static void received(struct loop *l, struct loop_op *op, const struct io_uring_cqe *cqe)
{
	struct uring *u = l->state;
	bool more = cqe->flags & IORING_CQE_F_MORE, buffer = cqe->flags & IORING_CQE_F_BUFFER;
	unsigned id = cqe->flags >> IORING_CQE_BUFFER_SHIFT;
	int result = cqe->res;

	if (buffer && result >= (int)sizeof(struct io_uring_recvmsg_out)) {
		const void *at = u->memory + id * BUFFER_SIZE;
		const struct io_uring_recvmsg_out *out = at;

		result -= (int)sizeof(*out);
		if (result > 0) {
			l->packet = out + 1;
			l->packet_fds = out->flags & MSG_CTRUNC;
			l->packet_truncated = out->flags & MSG_TRUNC;
			loop_call(l, op, result, LOOP_MORE);
			if (more)
				count(l, op);
		}
	}
	if (buffer)
		return_buffer(u, id);
	if (more)
		return;
	if (result > 0 || (result == -ECANCELED && loop_priv(op)->slowed) || result == -ENOBUFS ||
	    result == -EINTR || result == -EAGAIN)
		arm_again(l, op);
	else
		loop_call(l, op, result, 0);
}

/* Time to read, or something is there to be read. */
static void readable(struct loop *l, struct loop_op *op, int result)
{
	struct loop_priv *p = loop_priv(op);
	unsigned most = p->slowed ? BURST : 1;
	int r = 0;

	if (p->canceled)
		result = -ECANCELED;
	if (result < 0 && result != -EINTR && result != -ETIME)
		r = 1;
	for (unsigned i = 0; i < most && r == 0; i++)
		r = loop_read(l, op, &result);
	if (r == -EAGAIN)
		p->slowed = false;
	if (r > 0)
		loop_call(l, op, result, 0);
	else
		arm_again(l, op);
}

static void accepted(struct loop *l, struct loop_op *op, const struct io_uring_cqe *cqe)
{
	if (cqe->res >= 0) {
		loop_call(l, op, cqe->res, LOOP_MORE);
		if (!(cqe->flags & IORING_CQE_F_MORE))
			arm_again(l, op);
	} else if (cqe->res == -EINTR || cqe->res == -EAGAIN || cqe->res == -ECONNABORTED) {
		arm_again(l, op);
	} else {
		loop_call(l, op, cqe->res, 0);
	}
}

static void completed(struct loop *l, struct loop_op *op, const struct io_uring_cqe *cqe)
{
	struct loop_priv *p = loop_priv(op);

	switch ((enum loop_kind)p->kind) {
	case LOOP_ACCEPT:
		accepted(l, op, cqe);
		return;
	case LOOP_RECEIVE:
		if (!p->plain)
			received(l, op, cqe);
		else
			readable(l, op, cqe->res);
		return;
	case LOOP_POLL:
		if (p->once || cqe->res < 0) {
			loop_call(l, op, cqe->res, 0);
			return;
		}
		loop_call(l, op, cqe->res, LOOP_MORE);
		if (!(cqe->flags & IORING_CQE_F_MORE))
			arm_again(l, op);
		return;
	case LOOP_TIMER:
		if (cqe->res != -ETIME || !p->interval_ns) {
			loop_call(l, op, cqe->res == -ETIME ? 0 : cqe->res, 0);
			return;
		}
		loop_call(l, op, 0, LOOP_MORE);
		loop_next_due(l, p);
		arm_again(l, op);
		return;
	case LOOP_SEND:
		loop_call(l, op, cqe->res, 0);
		return;
	}
}

static int uring_turn(struct loop *l)
{
	struct uring *u = l->state;
	int r = io_uring_submit_and_wait(&u->ring, 1);
	unsigned n;

	/* -EBUSY: completions must be taken before more can be submitted. */
	if (r < 0 && r != -EINTR && r != -EAGAIN && r != -EBUSY)
		return r;
	l->now_ns = loop_clock();
	u->turn++;
	n = io_uring_cq_ready(&u->ring);
	for (unsigned i = 0; i < n; i++) {
		struct io_uring_cqe *next, cqe;

		if (io_uring_peek_cqe(&u->ring, &next) < 0)
			break;
		cqe = *next;
		io_uring_cqe_seen(&u->ring, next);
		if (cqe.user_data)
			completed(l, (struct loop_op *)(uintptr_t)cqe.user_data, &cqe);
	}
	return 0;
}

/* ---- making ---------------------------------------------------------------------------------- */

static void uring_free(struct loop *l)
{
	struct uring *u = l->state;

	if (!u)
		return;
	io_uring_queue_exit(&u->ring);
	if (u->buffers)
		munmap(u->buffers, N_BUFFERS * sizeof(struct io_uring_buf));
	if (u->memory)
		munmap(u->memory, N_BUFFERS * BUFFER_SIZE);
	free(u);
	l->state = NULL;
}

static void *map(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	/* A child's first write would part us from the pages that the kernel writes to. */
	madvise(p, size, MADV_DONTFORK);
	return p;
}

/* Whether the kernel has multishot receive: it came with the operation SEND_ZC (6.0). */
static bool has_multishot(struct uring *u)
{
	struct io_uring_probe *probe = io_uring_get_probe_ring(&u->ring);
	bool has = probe && io_uring_opcode_supported(probe, IORING_OP_SEND_ZC);

	io_uring_free_probe(probe);
	return has;
}

static int make_buffers(struct uring *u)
{
	struct io_uring_buf_reg reg = {.ring_entries = N_BUFFERS, .bgid = GROUP};
	struct io_uring_buf_ring *buffers;
	int r;

	u->memory = map(N_BUFFERS * BUFFER_SIZE);
	buffers = map(N_BUFFERS * sizeof(struct io_uring_buf));
	if (!u->memory || !buffers)
		return -ENOMEM;
	reg.ring_addr = (uintptr_t)buffers;
	r = io_uring_register_buf_ring(&u->ring, &reg, 0);
	if (r < 0) {
		munmap(buffers, N_BUFFERS * sizeof(struct io_uring_buf));
		return r;
	}
	io_uring_buf_ring_init(buffers);
	u->buffers = buffers;
	for (unsigned i = 0; i < N_BUFFERS; i++)
		return_buffer(u, i);
	return 0;
}

/* The best ring that the kernel has. *ret_how: what it was made with. */
static int make_ring(struct uring *u, unsigned n_clients, bool single, const char **ret_how)
{
	static const struct {
		unsigned flags;
		const char *how;
	} ways[] = {
		/* 6.1 */
		{IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, "deferred task work"},
		{IORING_SETUP_COOP_TASKRUN, "cooperative task work"}, /* 5.19 */
		{0, "interrupting task work"},
	};
	const unsigned needed =
		IORING_FEAT_NODROP | IORING_FEAT_SUBMIT_STABLE | IORING_FEAT_FAST_POLL;
	unsigned entries = n_clients < 256 ? 256 : n_clients > 4096 ? 4096 : n_clients;
	int r = -EINVAL;

	for (size_t i = single ? 2 : 0; r == -EINVAL && i < sizeof(ways) / sizeof(ways[0]); i++) {
		struct io_uring_params p = {.flags = ways[i].flags | IORING_SETUP_CQSIZE |
						     IORING_SETUP_CLAMP,
					    .cq_entries = entries * 4};

		r = io_uring_queue_init_params(entries, &u->ring, &p);
		*ret_how = ways[i].how;
	}
	if (r < 0)
		return r;
	if ((u->ring.features & needed) != needed) {
		io_uring_queue_exit(&u->ring);
		return -ENOTSUP;
	}
	io_uring_ring_dontfork(&u->ring);
	/* Saves a look at our table of descriptors in each turn; 5.18. */
	if (!single)
		io_uring_register_ring_fd(&u->ring);
	return 0;
}

int loop_uring_new(struct loop *l, unsigned n_clients, bool single)
{
	static const struct loop_backend backend = {uring_start, uring_cancel, uring_turn,
						    uring_free};
	struct uring *u = calloc(1, sizeof(*u));
	const char *how;
	int r;

	if (!u)
		return -ENOMEM;
	r = make_ring(u, n_clients, single, &how);
	if (r < 0) {
		free(u);
		return r;
	}
	l->backend = &backend;
	l->state = u;
	/* A filter may let us make a ring and not use it. */
	r = io_uring_enter((unsigned)u->ring.ring_fd, 0, 0, 0, NULL);
	if (r >= 0)
		r = !single && has_multishot(u) ? make_buffers(u) : 0;
	if (r < 0) {
		uring_free(l);
		return r;
	}
	snprintf(l->name, sizeof(l->name), "io_uring (%s, %s)",
		 u->buffers ? "multishot" : "single shots: multishot is not to be had", how);
	return 0;
}
