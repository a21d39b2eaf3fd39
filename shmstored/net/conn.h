/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conn.h: one client's connection: who it is, what it sends, what waits to be sent to it; and the
 * listener, through which they come.
 *
 * Everything that a client controls is bounded: packets that wait to be sent (a client that does
 * not read is dropped), requests that wait for an answer, the time until HELLO. No memory is
 * allocated per message: each connection has one output buffer.
 */
#ifndef CONN_H
#define CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "loop.h"

/*
 * Packets that wait to be sent to one client, whole and in the order of their making, and
 * documents, of which a packet is cut whenever nothing else waits. Bounded. Pure: sends nothing.
 *
 * Two buffers: one fills while packets of the other are being sent, so a packet handed out stays
 * where it is until output_sent(). Nothing is allocated per packet: buffers grow when they must,
 * and go back to OUTPUT_SMALL when all was sent.
 */

#define OUTPUT_SMALL         1024u
#define OUTPUT_DOCUMENTS_MAX (16u << 20) /* bytes of documents that may wait for one client */

struct output_document {
	struct output_document *next;
	uint64_t serial;
	size_t size, at;
	char text[];
};

struct output {
	struct output_side {
		char *data;
		size_t size, used, at; /* at: bytes that were sent */
	} fills, goes;
	struct output_document *documents; /* the first one is being cut */
	size_t documents_size;
};

void output_deinit(struct output *o);
/* Appends a packet. 0, -ENOBUFS (limit bytes would be passed; 0 = no limit), -ENOMEM, -EMSGSIZE
 * (the tail is longer than its type has). */
int output_add(struct output *o, size_t limit, uint16_t type, uint64_t serial, const void *body,
	       const void *tail, size_t tail_size);
/* Copies a document. 0, -ENOBUFS, -ENOMEM. */
int output_add_document(struct output *o, uint64_t serial, const char *text, size_t n);
/* Drops the parts of documents that are not cut into packets yet. */
void output_forget_documents(struct output *o);
/* The next packets, at most max; how many. They stay where they are until output_sent(). */
unsigned output_next(struct output *o, struct iovec *ret, unsigned max);
/* The first n of them were sent (or are given up). */
void output_sent(struct output *o, unsigned n);
/* Bytes of packets; what is left of documents is not among them. */
size_t output_waits(const struct output *o);
bool output_empty(const struct output *o);

#define CONN_REASON_MAX 200u

struct json_object;

/* A handler's return: 0, or a named outcome that ends this client; <0 is fatal for the daemon. */
enum conn_outcome {
	CONN_OK = 0,
	CONN_E_PROTOCOL, /* the client broke the protocol; conn_reason() was set */
	CONN_E_SLOW,     /* its output is full */
	CONN_E_LIMIT,    /* it asked for more than it may have */
	CONN_E_GONE,     /* it closed, or died */
};

struct conn_peer {
	pid_t pid;
	uid_t uid;
	gid_t gid;
};

struct conn {
	struct host *host;
	struct conn_peer peer;
	char name[40];         /* "pid 4711 uid 1000", for logs and reasons */
	bool greeted;          /* HELLO came */
	struct member *member; /* the store that it registered; NULL = none */
	/* conn.c's: */
	struct conn *next, *prev;
	int fd;
	bool dropped, ending, closed, paused;
	enum conn_outcome why; /* dropped */
	struct loop_later end; /* of one that is dropped */
	struct loop_op receive_op, send_op;
	struct output output;
	struct conn_end *ends;
	uint64_t since_ns;    /* accepted, then: ending */
	uint64_t progress_ns; /* the socket took something, or nothing waited */
	char reason[CONN_REASON_MAX];
};

/* May it change limits and see everybody? Root, or the daemon's own user. */
bool conn_is_admin(const struct conn *c);

/* A descriptor of the process at its other end (socket.h), to be closed; -errno. */
int conn_pidfd(const struct conn *c);

/*
 * Queues a message. An ASK that would have to wait is left out: the page says the same, and a
 * client that does not look at its socket for an hour must not be dropped for it; nor for a
 * TASK_PREEMPT, which is left out where much waits already. CONN_OK; CONN_E_SLOW: too much waits
 * for it, and it is dropped; CONN_E_GONE: it is ending. A handler may return these; whoever sends
 * unasked need not look.
 */
int conn_send(struct conn *c, uint16_t type, uint64_t serial, const void *body, const void *tail,
	      size_t tail_size);
/* Bytes of messages that wait until the client reads. For who has more to send
 * than the bound lets wait. */
size_t conn_waiting(const struct conn *c);
/* REFUSED with a sentence, and with the limit that is in the way, if there is one. error:
 * -errno. */
int conn_refuse_limit(struct conn *c, uint64_t serial, int error, uint32_t limit, uint64_t hard,
		      uint64_t used, const char *format, ...) __attribute__((format(printf, 7, 8)));
#define conn_refuse(c, serial, error, ...) \
	conn_refuse_limit(c, serial, error, WIRE_LIMIT_NONE, 0, 0, __VA_ARGS__)
/* A list says what errors mean to a client. It ends with error 0: where that has a text, every
 * other error means that, else that memory is out. */
struct conn_why {
	int error;
	const char *text;
};
const char *conn_why(const struct conn_why *list, int error);
#define conn_refuse_why(c, serial, error, list) \
	conn_refuse(c, serial, error, "%s", conn_why(list, error))
/* A document as DATA messages: taken over at once (copied), sent as the client reads.
 * Bounded by the configured limit. */
int conn_send_document(struct conn *c, uint64_t serial, const char *json, size_t n);
/* The same of an object, which is taken over. NULL: there was no memory for it, as why says. */
int conn_send_object(struct conn *c, uint64_t serial, struct json_object *o, const char *why);
int conn_send_done(struct conn *c, uint64_t serial);
/* REFUSED to a user who is no administrator. what: "limits are set by" */
int conn_refuse_user(struct conn *c, uint64_t serial, const char *what);
/* Says why the client ends: returns CONN_E_PROTOCOL, to be returned. */
int conn_fault(struct conn *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/*
 * Marks the client: nothing is sent to it any more, and it ends after the handler
 * that runs (loop_after()), which goes on with its state as it is. The object goes
 * when nothing of it is in flight.
 */
void conn_drop(struct conn *c, enum conn_outcome why, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Called at a connection's end, in the order of registration: watchers, waiting grants, member. */
struct conn_end {
	struct conn_end *next;
	void (*fn)(struct conn_end *e, struct conn *c);
};
void conn_on_end(struct conn *c, struct conn_end *e);
void conn_off_end(struct conn *c, struct conn_end *e);
/* The first one of this function, and so of what hangs on the connection by it. NULL: none. */
struct conn_end *conn_find_end(const struct conn *c,
			       void (*fn)(struct conn_end *e, struct conn *c));

/* Made by the listener. Takes fd. NULL: no memory (fd is closed). */
struct conn *conn_new(struct host *h, int fd, const struct conn_peer *peer);
/* A few times a second: drops those that said no HELLO in time, or stopped reading a document. */
void conn_tick(struct host *h, bool late); /* late: the loop stood still: nobody is judged */
/* At the daemon's end: all connections are dropped without a reap. */
void conn_drop_all(struct host *h, const char *why);

/*
 * How many may come through the listener, in all and per user, and how fast. Pure: numbers and
 * time in, decisions out.
 *
 * Every connection that comes costs a token, one that is refused or dropped more of them; without
 * tokens none is accepted for a moment. So who opens connections without end takes a bounded share
 * of our time, and the rest of its own time waiting for the kernel.
 */
#define CROWD_BURST 2000u /* tokens that are kept */
#define CROWD_RATE  8000u /* that come back in a second */
/* that one costs more which is refused, or dropped for a fault; 1 costs each */
#define CROWD_FAULT 16u

/* Zeroed: nobody has come yet. */
struct crowd {
	struct crowd_user *users; /* that have connections: a list, the last one that came first */
	uint32_t n;
	uint64_t full_ns; /* when no token will be missing */
};

enum crowd_verdict {
	CROWD_WELCOME,
	CROWD_FULL,      /* no place for anybody */
	CROWD_USER_FULL, /* this user has its share */
	CROWD_NO_MEMORY,
};

struct crowd_limits {
	uint32_t all, user;
	bool admin; /* one of the places that are kept for administrators will do */
};

void crowd_deinit(struct crowd *c);
/* One more of uid's: counted where it is welcome. Takes tokens. */
enum crowd_verdict crowd_enter(struct crowd *c, uid_t uid, const struct crowd_limits *limits,
			       uint64_t now_ns);
void crowd_leave(struct crowd *c, uid_t uid);
/* One was dropped for a fault. */
void crowd_fault(struct crowd *c, uint64_t now_ns);
/* When the next one may come: now_ns or earlier = at once. */
uint64_t crowd_ready_ns(const struct crowd *c);

struct listener;

/* The listener: takes systemd's descriptor where there is one, else makes config's socket (a stale
 * one is removed, a live one is -EADDRINUSE). */
int listener_new(struct host *h, struct listener **ret);
/* Closes it; removes a socket that we made. */
struct listener *listener_free(struct listener *l);

/* A connection of uid's ended; dropped: by us, for a fault. */
void listener_left(struct listener *l, uid_t uid, bool dropped);

#endif
