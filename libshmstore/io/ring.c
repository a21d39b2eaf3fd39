/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring.c: a thin layer over liburing with three operations. A short one is gone on with here, so
 * that who asked for it sees it whole or failed.
 *
 * Where the kernel, a container's seccomp filter or the limit on locked memory refuse (EPERM,
 * ENOSYS, ENOMEM), we do with preadv, pwritev and fsync, done at once and reaped as if they had
 * been under way.
 *
 * Rejected: registered buffers (the usual limit on locked memory forbids them, and they stay in
 * memory for good), SQPOLL (a kernel thread that spins, for a few hundred operations a second),
 * preallocation with fallocate (appending writes are serialised by the kernel's own workers anyway,
 * and two of them keep the disk as busy as eight).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utlist.h>

#include "enginejob.h"
#include "sys.h"
#include "tierformat.h"

void shms_ring_init(struct shms_ring *r)
{
	memset(r, 0, sizeof(*r));
	r->uring.ring_fd = -1;
}

void shms_ring_begin(struct shms_ring *r, char *ret_why, size_t size)
{
	int e = io_uring_queue_init(SHMS_RING_DEPTH, &r->uring, 0);

	ret_why[0] = '\0';
	if (e < 0) {
		snprintf(ret_why, size, "io_uring is refused: %s", strerror(-e));
		return;
	}
	/* A filter may let us make a ring and not use it. */
	if (syscall(SYS_io_uring_enter, r->uring.ring_fd, 0, 0, 0, NULL, 0) < 0) {
		e = errno;
		io_uring_queue_exit(&r->uring);
		snprintf(ret_why, size, "io_uring_enter is refused: %s", strerror(e));
		return;
	}
	/* A child must not have the rings: it would share our queues. */
	e = io_uring_ring_dontfork(&r->uring);
	if (e < 0) {
		io_uring_queue_exit(&r->uring);
		snprintf(ret_why, size, "io_uring's queues cannot be kept from children: %s",
			 strerror(-e));
		return;
	}
	r->on = true;
}

void shms_ring_deinit(struct shms_ring *r, bool inherited)
{
	if (r->on && inherited)
		close(r->uring.ring_fd);
	else if (r->on)
		io_uring_queue_exit(&r->uring);
	shms_ring_init(r);
}

int shms_ring_fd(const struct shms_ring *r)
{
	return r->on ? r->uring.ring_fd : -1;
}

/* ---- one step of an operation ---------------------------------------------------------------- */

/* Books the kernel's answer to a step, a count or -errno. True: the operation is over. */
static bool stepped(struct shms_ring_op *op, ssize_t answer)
{
	if (answer == -EINTR || answer == -EAGAIN)
		return false;
	if (answer < 0) {
		op->result = (int)answer;
		return true;
	}
	if (op->kind == SHMS_RING_FSYNC)
		return true;
	op->done += (size_t)answer;
	if (op->done == op->head_size + op->size)
		return true;
	/* Short. O_DIRECT goes on at whole blocks only; a file of ours that
	 * ends elsewhere has been cut. */
	if (op->kind == SHMS_RING_READ && (answer == 0 || op->done % SHMS_TIER_ALIGN))
		op->result = -ENODATA;
	else if (answer == 0)
		op->result = -EIO;
	return op->result != 0;
}

/* Sets op->iov to the bytes still to move; returns the number of pieces. */
static unsigned left_of(struct shms_ring_op *op)
{
	size_t past_head = op->done > op->head_size ? op->done - op->head_size : 0;
	unsigned n = 0;

	if (op->done < op->head_size)
		op->iov[n++] = (struct iovec){op->head + op->done, op->head_size - op->done};
	op->iov[n++] = (struct iovec){op->bytes + past_head, op->size - past_head};
	return n;
}

static ssize_t plain_step(struct shms_ring_op *op)
{
	int n_iov = op->kind == SHMS_RING_FSYNC ? 0 : (int)left_of(op);
	off_t at = (off_t)(op->offset + op->done);
	ssize_t n;

	if (op->kind == SHMS_RING_FSYNC)
		n = fsync(op->fd);
	else if (op->kind == SHMS_RING_READ)
		n = preadv(op->fd, op->iov, n_iov, at);
	else
		n = pwritev(op->fd, op->iov, n_iov, at);
	return n < 0 ? -errno : n;
}

static void prepare_rw(const struct shms_ring *r, struct shms_ring_op *op, struct io_uring_sqe *sqe)
{
	unsigned n = left_of(op);
	uint64_t at = op->offset + op->done;

	if (op->kind == SHMS_RING_READ)
		io_uring_prep_readv(sqe, op->fd, op->iov, n, at);
	else
		io_uring_prep_writev(sqe, op->fd, op->iov, n, at);
	sqe->ioprio = r->priority;
}

static void ring_step(struct shms_ring *r, struct shms_ring_op *op)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);

	/* As many entries as operations: one is free as soon as the kernel has taken the others. */
	while (!sqe) {
		io_uring_submit(&r->uring);
		sqe = io_uring_get_sqe(&r->uring);
	}
	if (op->kind == SHMS_RING_FSYNC)
		io_uring_prep_fsync(sqe, op->fd, 0);
	else
		prepare_rw(r, op, sqe);
	io_uring_sqe_set_data(sqe, op);
	io_uring_submit(&r->uring); /* what it does not take now is taken with the next reaping */
}

/* ---- operations ------------------------------------------------------------------------------ */

void shms_ring_submit(struct shms_ring *r, struct shms_ring_op *op)
{
	op->result = op->kind == SHMS_RING_WRITE
			     ? shms_file_size_allowed(op->offset + op->head_size + op->size)
			     : 0;
	op->done = 0;
	if (op->result == 0 && r->on) {
		ring_step(r, op);
		return;
	}
	while (op->result == 0 && !stepped(op, plain_step(op)))
		;
	DL_APPEND(r->over, op);
}

struct shms_ring_op *shms_ring_reap(struct shms_ring *r)
{
	struct shms_ring_op *op = r->over;
	struct io_uring_cqe *cqe;

	if (op) {
		DL_DELETE(r->over, op);
		return op;
	}
	if (!r->on)
		return NULL;
	if (io_uring_sq_ready(&r->uring))
		io_uring_submit(&r->uring);
	while (io_uring_peek_cqe(&r->uring, &cqe) == 0 && cqe) {
		int answer = cqe->res;

		op = io_uring_cqe_get_data(cqe);
		io_uring_cqe_seen(&r->uring, cqe);
		if (stepped(op, answer))
			return op;
		ring_step(r, op);
	}
	return NULL;
}
