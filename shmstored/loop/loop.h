/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.h: the daemon's one thread of events, on epoll. It knows descriptors and time, and nothing
 * of requests.
 *
 * An operation is embedded in what it serves. It is idle, or in flight: from its start until its fn
 * was called without LOOP_MORE. While it is in flight it must not be freed, nor what it points to:
 * loop_cancel() asks for its end, and fn is called one last time, with -ECANCELED or the result
 * that came first. fn may start its own operation again, start and cancel others, and free its own
 * embedding object where no other operation of it is in flight. Events are handled in batches.
 */
#ifndef LOOP_H
#define LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "macros.h"

struct loop;

#define LOOP_MORE (1u << 0) /* flags of fn: the operation is still in flight, more calls follow */

struct loop_op {
	/* result: as the system call's, or -errno. */
	void (*fn)(struct loop_op *op, int result, unsigned flags);
	bool busy; /* in flight; the loop's to write */
	/* loop_release_all()'s: those of one object in a ring */
	struct loop_op *other;
	void (*gone)(void *object);
	void *object;
	uint64_t priv[8]; /* the loop's */
};

/* 0, -errno. */
int loop_new(struct loop **ret);
/* Ends what is in flight first: each fn is called, and can start nothing any more (-ECANCELED). */
struct loop *loop_free(struct loop *l);
/* Runs until loop_stop(). 0, -errno (fatal). */
int loop_run(struct loop *l);
void loop_stop(struct loop *l);
/* A call that is put off; zeros, but for fn. It may be gone after the call. */
struct loop_later {
	void (*fn)(struct loop_later *later);
	bool waits; /* the rest is the loop's */
	struct loop_later *prev, *next;
};
/* Calls it once, after the fn that runs now has returned, in the order of these calls. */
void loop_after(struct loop *l, struct loop_later *later);
void loop_after_none(struct loop *l, struct loop_later *later); /* it is not called */
/* Makes the calls that were put off now: for who is called by no fn of the loop. */
void loop_settle(struct loop *l);
/* CLOCK_MONOTONIC in ns, read once per batch; loop_clock() reads it now. */
uint64_t loop_now(const struct loop *l);
uint64_t loop_clock(void);
/* In ms. */
static inline uint64_t loop_clock_ms(void)
{
	return loop_clock() / 1000000;
}
/* The backend, for status and logs: "epoll". */
const char *loop_backend(const struct loop *l);

/* Each start: 0; -EBUSY (op is in flight), -ECANCELED (the loop ends), -ENOMEM, …
 * Nothing is in flight then. */

/* Multishot: fn(fd of a new connection); -errno ends it. Sets fd's O_NONBLOCK. */
int loop_accept(struct loop *l, struct loop_op *op, int fd);
/*
 * Multishot: fn(poll's revents) at the start where it is so already, then each time that
 * it becomes so: unread data causes no second call. once: a single shot; started anew it
 * looks at the state as it is.
 */
int loop_poll(struct loop *l, struct loop_op *op, int fd, short events, bool once);
/* fn(0) at first_ns (CLOCK_MONOTONIC), then every interval_ns (0: once). A late loop skips
 * the calls that it missed. */
int loop_timer(struct loop *l, struct loop_op *op, uint64_t first_ns, uint64_t interval_ns);
/* fn once, at due_ns at the latest: a timer that runs to a later time is cancelled, and its fn
 * starts it anew. */
int loop_timer_by(struct loop *l, struct loop_op *op, uint64_t due_ns);
/*
 * Multishot: fn(bytes of one packet). During the call loop_packet() gives the packet: valid
 * until fn returns, aligned to 8. At most LOOP_PACKET_MAX bytes of it: `truncated` says that
 * there was more. Descriptors that came with it are closed by the kernel; `fds` says that there
 * were some. 0 bytes: end of stream (or an empty packet), and the last call. A connection that
 * sends without end is called for a bounded number of packets, then others get their turn.
 */
#define LOOP_PACKET_MAX 4224u
int loop_receive(struct loop *l, struct loop_op *op, int fd);
struct loop_packet {
	const void *data;
	bool fds, truncated;
};
const struct loop_packet *loop_packet(const struct loop *l);
/* fn(bytes sent), when the socket took them. data stays valid until fn. */
int loop_send(struct loop *l, struct loop_op *op, int fd, const void *data, size_t n);
/* Asks for the end of op; an idle one is left alone. fn is not called from within. */
void loop_cancel(struct loop *l, struct loop_op *op);
/* Ends op for good: its fn is not called any more, and memory, of which op is a part, is freed as
 * soon as op is not in flight. */
void loop_release(struct loop *l, struct loop_op *op, void *memory);
/* The same of all of an object's: gone() is called once none is in flight. A connection that is
 * accepted meanwhile is closed. */
void loop_release_all(struct loop *l, struct loop_op *const *ops, size_t n,
		      void (*gone)(void *object), void *object);

/*
 * How late the loop is: a timer of one second, and by how much each call of it came too
 * late. Anything that keeps the loop from its work shows here.
 */
#define LATENESS_BUCKETS 8u  /* the last one is "more" */
#define LATENESS_RECENT  10u /* seconds of which the worst is kept */

struct lateness {
	uint64_t interval_ns;
	uint64_t expected_ns; /* the next call; CLOCK_MONOTONIC */
	uint64_t counts[LATENESS_BUCKETS];
	uint64_t n, sum_ns;
	uint64_t recent_ns[LATENESS_RECENT];
};

/* The upper bounds of the buckets but for the last one, in ns. */
extern const uint64_t lateness_bounds[LATENESS_BUCKETS - 1];

/* The first call is expected at first_ns. */
void lateness_init(struct lateness *l, uint64_t first_ns, uint64_t interval_ns);
/* A call came at now_ns. Calls that were left out meanwhile are not counted: the one
 * that came is that much later. */
void lateness_note(struct lateness *l, uint64_t now_ns);
/* Of the last LATENESS_RECENT calls. */
uint64_t lateness_worst(const struct lateness *l);

#endif
