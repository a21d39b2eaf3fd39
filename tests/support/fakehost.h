/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fakehost.h: the daemon within a test's process, without its main(): the real loop and
 * connections, turned by hand, and clients at the other ends of socket pairs. Programs that use it
 * link shmstored_whole. Aborts where it cannot do its work, as scratch.h does.
 */
#ifndef SHMSTORE_TEST_FAKEHOST_H
#define SHMSTORE_TEST_FAKEHOST_H

#include <stddef.h>
#include <stdint.h>

#include "config.h"
#include "conn.h"
#include "host.h"
#include "wire.h"

/* A host with a loop, events, actors, and peers if they are configured; what else a
 * test needs it makes itself. */
void fakehost_begin(struct host *h, struct config *config, uint64_t epoch);
/*
 * As above, and it serves the one partition of config, which is made in the scratch
 * directory and has this store: with its account, the rules, the scanner, and profiles, for
 * programs that go on until they end.
 */
void fakehost_begin_whole(struct host *h, struct config *config, const char *store);
/* Drops every client and frees what fakehost_begin() made. */
void fakehost_end(struct host *h);
/* Lets the loop run n times, each for at least wait_ns: what is there to be done is done. */
void fakehost_turn(struct host *h, unsigned n, uint64_t wait_ns);
/* A new client; *ret_fd is its end, to be closed. */
struct conn *fakehost_connect(struct host *h, const struct conn_peer *peer, int *ret_fd);

struct fakehost_packet {
	struct wire_header head;
	const void *body; /* valid until the next one is heard, as is tail */
	const char *tail; /* ends with a NUL too */
};
#define FAKEHOST_NONE -1
#define FAKEHOST_END  0
/* The next message for a client, which must be well-formed: its type, or one of the above. */
int fakehost_hear(int fd, struct fakehost_packet *ret);
/* Sends a message in a client's name. False: the daemon takes no more, or
 * has ended the connection. */
bool fakehost_tell(int fd, uint16_t type, uint64_t serial, const void *body, const void *tail,
		   size_t tail_size);
/* A client says what begins every conversation; and which store it has open. uuid:
 * its partition's, as text. */
void fakehost_hello(int fd);
void fakehost_register(int fd, const char *uuid, const char *store);

#endif
