/* SPDX-License-Identifier: Apache-2.0 */
/*
 * createqueue.h: objects that shall be created and for which there is no room yet. They wait here;
 * each pass tries some of them again, until there is room, or they may lie on the disk, or they
 * have waited long enough. Pure: messages and time in, decisions out; no clock, no I/O. A pass acts
 * on the world only through struct createqueue_ops. Times have the caller's unit.
 *
 * A request, and a client, is the caller's structure. A request ends in one way only: created,
 * refused by the world, no room on the disk either, its time is over, or it is dropped. It has its
 * result, is in the list of those that have ended, and counts for its client, until it is dropped.
 *
 * Two modes:
 *   CREATEQUEUE_FIRST  as in Ray: strictly first come, first served, so a small request
 *                      waits behind a big one. One timer for all: it starts with the first
 *                      failure, any success clears it, and after grace each failure
 *                      falls back to the disk. While the store spills nobody's time runs,
 *                      unless the request has a deadline.
 *   CREATEQUEUE_HOST   the clients take turns: a request that does not fit holds back its own
 *                      client's later ones and nobody else's, until max_bypass later ones passed
 *                      it; from then on it is first. Each request has its own grace and its own
 *                      deadline, also while the store spills. A disk that is full is noticed
 *                      before anybody waits for it.
 */
#ifndef CREATEQUEUE_H
#define CREATEQUEUE_H

#include <stdbool.h>
#include <stdint.h>

enum createqueue_mode {
	CREATEQUEUE_FIRST,
	CREATEQUEUE_HOST
};

struct createqueue_config {
	enum createqueue_mode mode;
	uint64_t grace;      /* from a failure until the disk may take it */
	uint32_t per_client; /* requests of one client, those not dropped included */
	uint32_t max_bypass; /* in mode HOST */
};

enum createqueue_result {
	CREATEQUEUE_UNKNOWN, /* it does not wait, and did not, or is dropped */
	CREATEQUEUE_PENDING,
	CREATEQUEUE_CREATED,
	CREATEQUEUE_WRONG, /* the world refused it */
	CREATEQUEUE_OUT_OF_DISK,
	CREATEQUEUE_TIMED_OUT,
};

/* A client that makes requests; zeroed by the caller. */
struct createqueue_client {
	uint32_t n;
	uint64_t held; /* the pass in which one of its requests did not fit */
};

struct createqueue_request {
	struct createqueue_client *client;
	enum createqueue_result result;
	uint64_t added, deadline;
	/* Private: */
	uint64_t failing;  /* since when it does not fit */
	uint32_t n_passed; /* later ones that were created before it */
	struct createqueue_request *prev, *next;
};

/* The result of an attempt. */
enum createqueue_got {
	CREATEQUEUE_GOT,
	CREATEQUEUE_NO_ROOM,
	/* not for want of room: it exists, it is wrong; trying again is no use */
	CREATEQUEUE_REFUSED,
};

/* The calls must not call back into the queue. */
struct createqueue_ops {
	/* One attempt. fallback: on the disk. */
	enum createqueue_got (*allocate)(void *arg, struct createqueue_request *r, bool fallback);
	/* The disk that the fallback would use has no room. */
	bool (*disk_full)(void *arg);
	/* Asks for room by spilling. true: it is under way. */
	bool (*spill)(void *arg);
	void *arg;
};

/* How a pass ended. */
enum createqueue_status {
	CREATEQUEUE_OK,        /* nobody waits */
	CREATEQUEUE_FULL,      /* somebody waits for room */
	CREATEQUEUE_TRANSIENT, /* somebody waits for the spilling that is under way */
	CREATEQUEUE_DISK, /* no room, and none on the disk: who was asked about has been told */
};

struct createqueue_counts {
	uint64_t calls;                                             /* attempts */
	uint64_t created, refused, out_of_disk, timed_out, dropped; /* requests by their ends */
	uint32_t waiting;                                           /* now */
};

struct createqueue {
	struct createqueue_config config;
	struct createqueue_ops ops;
	struct createqueue_request *waiting; /* in the order of their arrival */
	struct createqueue_request *ended;   /* and not dropped; in the order of their ends */
	uint64_t failing;                    /* mode FIRST: one for all */
	uint64_t n_passes;
	struct createqueue_counts counts;
};

void createqueue_init(struct createqueue *q, const struct createqueue_config *config,
		      const struct createqueue_ops *ops);
/* A request comes; the next pass tries it. deadline: until when it may wait; UINT64_MAX: for ever.
 * False: the client has per_client of them. */
bool createqueue_add(struct createqueue *q, struct createqueue_request *r,
		     struct createqueue_client *client, uint64_t deadline, uint64_t now);
enum createqueue_status createqueue_process(struct createqueue *q, uint64_t now);
/* It is forgotten, whether it waits or has a result. */
void createqueue_drop(struct createqueue *q, struct createqueue_request *r);

#endif
