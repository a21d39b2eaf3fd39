/* SPDX-License-Identifier: Apache-2.0 */
/* ring.h: reads, writes and fsyncs that are under way while the caller does something else; plain
 * calls where io_uring is not to be had. */
#ifndef SHMS_RING_H
#define SHMS_RING_H

#include <liburing.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define SHMS_RING_DEPTH 64u /* operations under way at most */

enum shms_ring_kind {
	SHMS_RING_READ,
	SHMS_RING_WRITE,
	SHMS_RING_FSYNC
};

/* The caller's, with what it points to, until it has been reaped. */
struct shms_ring_op {
	enum shms_ring_kind kind;
	int fd;
	unsigned char *bytes;
	size_t size;
	uint64_t offset;
	unsigned char *head; /* write: bytes that come before them, at offset; NULL: none */
	size_t head_size;
	/* when reaped */
	int result;  /* 0: all of it; -ENODATA: the file ended before; -errno */
	size_t done; /* bytes, the head's included */
	struct iovec iov[2];
	struct shms_ring_op *prev, *next;
};

struct shms_ring {
	struct io_uring uring;
	bool on;                    /* else plain calls */
	const unsigned char *fixed; /* the registered buffer; NULL = none */
	size_t fixed_size;          /* bytes */
	unsigned short priority;    /* of the I/O; 0 = the caller's */
	struct shms_ring_op *over;  /* done by plain calls, to be reaped */
};

/* Plain calls. */
void shms_ring_init(struct shms_ring *r);
/* io_uring from now on. why: for people, size bytes, where it is not or not all of what was asked,
 * else "". memory: to be registered; NULL: none. */
void shms_ring_begin(struct shms_ring *r, const void *memory, size_t memory_size, char *ret_why,
		     size_t size);
/* inherited: in a child of fork(): only what it holds is let go. */
void shms_ring_deinit(struct shms_ring *r, bool inherited);
/* Takes the operation. At most SHMS_RING_DEPTH. */
void shms_ring_submit(struct shms_ring *r, struct shms_ring_op *op);
/* Returns an operation that is over, or NULL. */
struct shms_ring_op *shms_ring_reap(struct shms_ring *r);
/* To poll() for POLLIN: then there may be one to reap. -1: nothing is ever waited for. */
int shms_ring_fd(const struct shms_ring *r);

#endif
