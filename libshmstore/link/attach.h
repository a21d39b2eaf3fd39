/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach.h: a store's connection to shmstored: registration, and going on without. Requests on it
 * are in request.h.
 *
 * Every call that may talk to the daemon is bounded: 200 ms for a greeting (2 s where the daemon is
 * required), 1 s for a reply that is due at once. After one timeout nobody waits again until the
 * daemon is heard. No lock of the store may be held over shms_attach_call().
 */
#ifndef SHMS_ATTACH_H
#define SHMS_ATTACH_H

#include <pthread.h>
#include <stdatomic.h>

#include "pagewords.h"
#include "request.h"

enum shms_attach_state {
	SHMS_ATTACH_ALONE,    /* no connection */
	SHMS_ATTACH_GREETING, /* HELLO and REGISTER are sent */
	SHMS_ATTACH_REGISTERED,
};

/* The store that registers. All of it is the store's, and stays where it is
 * until shms_attach_deinit(). */
struct shms_attach_place {
	const char *partition;            /* absolute directory */
	const char *uuid;                 /* the partition's, as text */
	const char *store;                /* absolute directory, below partition */
	const struct wire_credit *credit; /* in the store's page */
};

/* Call-backs for unasked messages, under the lock: they may only call shms_attach_tell() here. */
struct shms_attach_hooks {
	/* anew, perhaps with another daemon */
	void (*registered)(struct shms_attach *a, void *arg);
	void (*preempted)(const struct wire_task_preempt *m, void *arg);
	void *arg;
};

struct shms_attach {
	/* all below; never held while waiting. No other lock is taken under it but by hooks */
	pthread_mutex_t lock;
	struct shms_attach_hooks hooks; /* set before shms_attach_open() */
	pthread_cond_t changed;
	struct shms_attach_place place;
	enum shms_attach_state state;
	int fd;        /* the connection; -1 = none */
	int epoll_fd;  /* what event loops watch, whatever the connection is; -1 = not asked for */
	bool off;      /* never to connect */
	bool there;    /* the last try found a socket, whether somebody served it or not */
	int error;     /* of the last try; 0: it was connected */
	bool starting; /* nobody did, so one may be starting again; until one spoke */
	bool reading; /* a thread waits in recv() or poll() for all of them: only it may close fd */
	bool polls;   /* in poll(), which has the exact time: a recv() has ended without anything */
	bool ended;   /* fd is to be closed as soon as nobody reads */
	bool silent;  /* a reply that was due did not come: not waited for until something does */
	bool needed;  /* so is a greeting that was waited for at length */
	bool given_up; /* so is one who holds the partition's lock and does not speak */
	uint64_t last_serial, hello_serial, register_serial;
	uint64_t next_try_ns;      /* CLOCK_MONOTONIC */
	uint64_t welcome_epoch;    /* of the daemon at the other end */
	_Atomic uint64_t features; /* of it: WIRE_FEATURE_* */
	uint64_t id;               /* that it gave us */
	int told;                  /* how the last shms_attach_tell() of this registration went */
	uint64_t n_registered;     /* times that one took us in */
	uint64_t heard_ns,
		/* CLOCK_MONOTONIC: when it last spoke, and was asked
		 * whether it lives (0: was not) */
		pinged_ns;
	uint64_t ping_serial;          /* whose PONG is to come; 0 = none */
	struct shms_request *requests; /* sent and not answered */
	/* n_registered of this connection; 0 = not registered. Read without the lock */
	_Atomic uint64_t generation;
	/* the page's, as this connection's daemon wrote it; 0 = alone. Read without the lock */
	_Atomic uint64_t epoch;
};

void shms_attach_init(struct shms_attach *a);
/* Closes the connection. In a forked child nobody else's state is touched. */
void shms_attach_deinit(struct shms_attach *a);
/* In a child of fork(), over which the lock was held: closes its copies, gives the lock back. */
void shms_attach_fork_child(struct shms_attach *a);

/*
 * The first connection of a store that was just opened, and that has set a->place. required: a
 * daemon that is slow to greet is waited for longer. 0: registered. -ENOENT: no socket is there.
 * -ETIMEDOUT: a socket is there, and no daemon registered us.
 */
int shms_attach_open(struct shms_attach *a, bool required);
/* For event loops while we are connected: a descriptor, which stays ours; -ENOENT; -errno. */
int shms_attach_fd(struct shms_attach *a);
/* In hooks.registered: one message that is not answered. 0, -ENOTCONN: it is not to be had,
 * and the connection will end. */
int shms_attach_tell(struct shms_attach *a, uint16_t type, const void *body, const void *tail,
		     size_t tail_size);
/* The store closes in good order; nothing is waited for. */
void shms_attach_bye(struct shms_attach *a);
/* Looks for a daemon that died, came, or speaks again; tries to connect once a second
 * at most. True: registered. */
bool shms_attach_again(struct shms_attach *a);
/* The number of the registration that holds; 0: there is none. */
static inline uint64_t shms_attach_generation(const struct shms_attach *a)
{
	return atomic_load_explicit(&a->generation, memory_order_relaxed);
}
/* As shms_attach_again(); no lock is taken while the store is registered. */
bool shms_attach_registered(struct shms_attach *a);
/* For a call that can do nothing without a daemon: one that is slow to greet
 * is waited for longer, once. */
bool shms_attach_needed(struct shms_attach *a);
/* -ENOTSUP, of a call that needed one; the sentence says why there is
 * none, and goes on with then. */
int shms_attach_absent(struct shms_attach *a, const char *then);
/*
 * Somebody holds the partition's lock, so a daemon may just be starting: looks whether it
 * speaks by now, without waiting.
 * True: registered. shms_attach_patience() is how long (ns) to go on asking, as far as is known
 * now: longer from when nobody served the socket, as one that starts looks at all partitions before
 * it does. shms_attach_give_up() makes it short until one spoke, or another one starts.
 */
bool shms_attach_hurry(struct shms_attach *a);
uint64_t shms_attach_patience(struct shms_attach *a);
void shms_attach_give_up(struct shms_attach *a);
/* One served us, is gone, and another one may be starting: worth that patience. */
bool shms_attach_expected(struct shms_attach *a);

/* ---- for attach.c and request.c: the connection. The attach lock is held over each of these -- */

#define SHMS_MS          1000000ull
#define SHMS_GREETING_NS (200 * SHMS_MS)
#define SHMS_REQUIRED_NS (2000 * SHMS_MS) /* the greeting of who cannot do without */

int shms_attach_send(struct shms_attach *a, uint16_t type, uint64_t serial, const void *body,
		     const void *tail, size_t tail_size);
/* Alone from here on; not tried again for pause_ns. Requests under way end with -ENOTCONN. */
void shms_attach_end(struct shms_attach *a, uint64_t pause_ns);
/* Takes what has come, without waiting, unless another thread reads. */
void shms_attach_read(struct shms_attach *a);
/* Waits until something comes (events: POLLIN, or POLLOUT too), changes, or until_ns. The
 * lock is given up meanwhile. */
void shms_attach_wait(struct shms_attach *a, short events, uint64_t until_ns);
/* Connects and waits for the greeting's end, greeting_ns at most. */
void shms_attach_connect(struct shms_attach *a, uint64_t greeting_ns);
/* A request has ended, and is in no list. */
void shms_request_end(struct shms_attach *a, struct shms_request *q, int error);

#endif
