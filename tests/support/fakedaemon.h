/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fakedaemon.h: shmstored as a store sees it, in a thread of the test: it greets,
 * registers, grants against a sum, and does instead whatever a test tells it to.
 * $SHMSTORE_SOCKET names it while it runs.
 */
#ifndef SHMSTORE_TEST_FAKEDAEMON_H
#define SHMSTORE_TEST_FAKEDAEMON_H

#include <shmstore/shmstore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pagewords.h"
#include "wire.h"

struct fake;

/* A request as it came; body has 64 bytes. Return: true where it was dealt with,
 * false: as a good daemon does. */
typedef bool fake_handler(struct fake *f, int fd, const struct wire_header *h, const void *body,
			  const char *tail, void *arg);

typedef void fake_turn(struct fake *f, void *arg);
typedef void fake_end(struct fake *f, int fd, void *arg);

struct fake {
	_Atomic uint64_t n_requests[128]; /* by type */
	_Atomic uint64_t room;  /* bytes that may be granted still; UINT64_MAX = no limit at all */
	_Atomic uint64_t ahead; /* most that is granted beyond what is needed */
	_Atomic uint64_t n_waiting;     /* GRANTs that wait */
	_Atomic uint64_t n_connections; /* open now */
	uint64_t epoch;
	/* In the fake's thread, as handler and with its arg: every 10 ms or less; a connection's
	 * end. NULL; may be set before anybody connects. */
	_Atomic(fake_turn *) tick;
	_Atomic(fake_end *) dropped;
	char last_register[4096]; /* tail of the last REGISTER; stable while no other comes */
	struct fake_private *private;
};

/* lock: also holds the partition's marker, as a daemon that lives does. handler may be NULL. */
struct fake *fake_start(struct shmstore_partition *p, bool lock, fake_handler *handler, void *arg);
/* Dies: connections, socket and lock go, pages stay as they are. */
void fake_stop(struct fake *f);
/* More room: waiting GRANTs are looked at again. */
void fake_give(struct fake *f, uint64_t bytes);
/* The credit section of the store that registered last; waits for it. */
struct wire_credit *fake_credit(struct fake *f);
/* In the fake's thread: the page of the store registered on that connection, and
 * its id; NULL, 0: none is. */
void *fake_page(struct fake *f, int fd);
uint64_t fake_id(struct fake *f, int fd);
void fake_reply(struct fake *f, int fd, uint16_t type, uint64_t serial, const void *body,
		const char *tail);
/* Does to a message whatever is not allowed: sends these bytes as they are. */
void fake_send(int fd, const void *bytes, size_t n);
/* A socket that is not there. */
void fake_nowhere(void);

#endif
