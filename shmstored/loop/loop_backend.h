/* SPDX-License-Identifier: Apache-2.0 */
/* loop_backend.h: private to loop*.c, and to the loop of the tests' simulation. */
#ifndef LOOP_BACKEND_H
#define LOOP_BACKEND_H

#include "loop.h"

/* Connections of one listener that are accepted before others get their turn. */
#define LOOP_ACCEPT_MAX 16u

enum loop_kind {
	LOOP_ACCEPT = 1,
	LOOP_POLL,
	LOOP_TIMER,
	LOOP_RECEIVE,
	LOOP_SEND,
};

/* The layout of loop_op.priv. */
struct loop_priv {
	struct loop_op *prev, *next; /* in loop.busy */
	uint8_t kind;                /* enum loop_kind */
	bool once : 1;
	bool canceled : 1;
	bool queued : 1; /* its result stands in value, and waits for its call */
	bool slowed : 1; /* LOOP_RECEIVE: it sent too many, and is read by a timer */
	int fd;
	union {
		const void *data; /* LOOP_SEND */
		uint64_t due_ns;  /* LOOP_TIMER, and what is slowed */
		uint64_t events;  /* LOOP_POLL: poll's */
	};
	union {
		size_t size;          /* LOOP_SEND */
		uint64_t interval_ns; /* LOOP_TIMER */
	};
	struct loop_op *after; /* in the queue of results, or of timers */
	union {
		int64_t value;         /* of a result */
		struct {               /* LOOP_RECEIVE */
			uint32_t turn; /* of the last packet */
			uint32_t n;    /* turns in succession that had one */
		};
	};
};
_Static_assert(sizeof(struct loop_priv) <= sizeof(((struct loop_op *)0)->priv),
	       "loop_op.priv is too small");
_Static_assert(_Alignof(struct loop_priv) <= _Alignof(uint64_t), "loop_op.priv");

static inline struct loop_priv *loop_priv(struct loop_op *op)
{
	return (struct loop_priv *)(void *)op->priv;
}

struct loop_backend {
	const char *name;
	/* priv is filled in. 0; -errno: it was not started. */
	int (*start)(struct loop *l, struct loop_op *op);
	/* Once for each op. */
	void (*cancel)(struct loop *l, struct loop_op *op);
	/* Waits for something, and calls what completed. 0, -errno (fatal). */
	int (*turn)(struct loop *l);
	void (*free)(struct loop *l);
};

struct loop {
	const struct loop_backend *backend;
	void *state;          /* the backend's */
	struct loop_op *busy; /* all that is in flight */
	uint64_t now_ns;
	bool stop, ending;
	struct loop_later *later; /* a list */
	struct loop_packet packet;
};

/* Sets l->backend and state. 0, -errno. */
int loop_epoll_new(struct loop *l);

/* Calls op->fn; without LOOP_MORE op is idle before that, and may be gone after it. */
void loop_call(struct loop *l, struct loop_op *op, int result, unsigned flags);
/*
 * Reads a packet of a LOOP_RECEIVE and calls fn. 0; -EAGAIN: there was none; 1: op has
 * ended (end of stream, an error, a cancel by fn), and the caller has yet to make the
 * last call, with *ret_result.
 */
int loop_read(struct loop *l, struct loop_op *op, int *ret_result);
/* When the timer is next due, after now; false: it was a single one. */
bool loop_next_due(const struct loop *l, struct loop_priv *p);

#endif
