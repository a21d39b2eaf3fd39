/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simclient.h: a client: a virtual process with a connection, and maybe a store. It keeps book of
 * what it asked, and fails the run where an answer comes that it did not ask for, or of the wrong
 * type, or twice.
 */
#ifndef SIM_SIMCLIENT_H
#define SIM_SIMCLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "simstore.h"
#include "wire.h"

#define SIMCLIENT_REQUESTS 24u
#define SIMCLIENT_TASKS    6u

struct simworld;

/* A request that was sent and not answered. serial 0: none. */
struct simrequest {
	uint64_t serial, sent_ns, need;
	uint64_t deadline_ns;   /* the answer comes then at the latest; UINT64_MAX: whenever */
	uint64_t not_before_ns; /* a refusal because of the time does not come before that */
	uint64_t cancels;       /* CANCEL: the serial that it names */
	uint16_t type, op;      /* op: ARB's */
};

enum simclient_state {
	SIMCLIENT_NONE, /* there is none, now */
	SIMCLIENT_LIVES,
	SIMCLIENT_DROPPED, /* the daemon has ended the connection; its process lives */
};

struct simclient {
	struct simworld *world;
	unsigned number;
	enum simclient_state state;
	pid_t pid;
	unsigned user;
	int fd, their_fd; /* its end; the daemon's until it accepts it, then -1 */
	bool reads;       /* its socket; else it lets it fill */
	bool slow;        /* there was a time when it did not */
	bool hostile;     /* it has sent what no message is: anything may end it */
	bool registered, said_bye, watches, served;
	uint64_t reads_since_ns;
	uint64_t next_ns; /* its next step */
	unsigned n_steps; /* until it goes */
	uint64_t serial;
	struct simrequest requests[SIMCLIENT_REQUESTS];
	struct simstore store;
	uint32_t profile;                /* of a stage, that it was told */
	uint64_t tasks[SIMCLIENT_TASKS]; /* admitted ones; 0: none */
	uint32_t arb_task;               /* 0: none runs */
	uint32_t reservations;           /* bits: that it holds */
	bool arb_waits, arb_rolls;       /* a call is withheld; it was told RETRY or SPLIT */
	uint64_t event;                  /* the last one that it was told */
};

/* A new process connects, and says HELLO but for now and then. */
void simclient_come(struct simclient *c);
/* The process ends its connection, and makes another one; its store stays open. */
void simclient_reconnect(struct simclient *c);
/* The process ends: with its store closed in good order, or as by a SIGKILL. */
void simclient_leave(struct simclient *c);
void simclient_die(struct simclient *c);
/* Sends a request; within_ms: of its answer. False: the socket is full, or it has enough to wait
 * for. *ret: its entry, to be completed; NULL. */
bool simclient_ask(struct simclient *c, uint16_t type, const void *body, const char *tail,
		   uint64_t within_ms, struct simrequest **ret);
/* Reads all that is there, and looks whether it was asked for. */
void simclient_hear(struct simclient *c);
unsigned simclient_n_waits(const struct simclient *c);

/* simprogram.c: the next step of what it does; an answer that it waited for; its process was
 * signalled. */
void simprogram_step(struct simclient *c);
void simprogram_answered(struct simclient *c, const struct simrequest *q,
			 const struct wire_header *h, const void *body);
void simprogram_told(struct simclient *c, const struct wire_header *h, const void *body);

#endif
