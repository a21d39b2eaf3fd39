/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers.h: other daemons, of this host or of others, and messages to and from them
 * (docs/actors.md). Loop's thread only.
 *
 * A peer is a connection to a daemon that has said its name, and has proved who it is: on a Unix
 * socket by its user, on TCP by the shared secret. Two daemons have one connection, whichever of
 * them made it. A peer is trusted as far as peer_speaks_for() goes, and no further: its messages
 * are checked as a client's are.
 *
 * Services (actors, profiles) send and take messages. A service's functions are called from the
 * loop; they may send, and must not end the connection but by their return value. peer_send()
 * calls nobody back.
 */
#ifndef PEERS_H
#define PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#define PEERS_NAME    63u        /* bytes of a daemon's name */
#define PEERS_BODY    65536u     /* bytes of a message */
#define PEERS_LINKS   256u       /* connections at once */
#define PEERS_WAITING (4u << 20) /* bytes that wait to be sent: more, and the connection ends */
#define PEERS_META    1024u      /* bytes beside a bulk */
/* a bulk that is not answered for so long ends the connection */
#define PEERS_BULK_MS UINT64_C(60000)

struct host;
struct peers;
struct peer;

/* Types of messages, of all services. */
enum peers_type {
	PEERS_HELLO = 1,
	PEERS_PING,
	PEERS_BULK,
	PEERS_CHUNK,
	PEERS_ANSWER,
	PEERS_ACTORS = 16, /* to 31: actors.h */
	PEERS_PROFILES = 32,
};

/* A bulk that arrives. */
struct peers_bulk {
	uint16_t type;
	uint64_t id, size;
	size_t n_meta;
	char meta[PEERS_META];
};

struct peers_service {
	struct peers_service *next;
	uint16_t first, last; /* types of its messages and bulks */
	void (*up)(struct peers_service *s, struct peer *p);
	void (*down)(struct peers_service *s, struct peer *p); /* may be NULL */
	/* body: valid during the call, not aligned. False: this is no
	 * message; the connection ends. NULL: it has no messages, only bulks. */
	bool (*message)(struct peers_service *s, struct peer *p, uint16_t type, const char *body,
			size_t n);
	/*
	 * A bulk begins. 0: *ret_fd takes its bytes, and is the link's until arrived() has it or it
	 * is closed; -errno: it is refused, and the sender told so.
	 */
	int (*begin)(struct peers_service *s, struct peer *p, const struct peers_bulk *b,
		     int *ret_fd);
	/* All of it is in fd, which is the service's now. It answers, now or
	 * later, with peer_answer(). */
	void (*arrived)(struct peers_service *s, struct peer *p, const struct peers_bulk *b,
			int fd);
};

/*
 * *ret NULL: the configuration names none. -EADDRINUSE, -EPERM, ..., said in the log: the daemon
 * must not start without what is configured.
 */
int peers_new(struct host *h, struct peers **ret);
/* Ends all connections; services are told. Before loop_free(). Returns NULL. */
struct peers *peers_free(struct peers *p);
/* p may be NULL in all of the following: there are no peers. The service is
 * told of those that are up. */
void peers_add(struct peers *p, struct peers_service *s);
void peers_remove(struct peers *p, struct peers_service *s);
/* This daemon's name among them. */
const char *peers_own_name(const struct peers *p);
/* Those that are up. prev NULL begins; NULL: there are no more. */
struct peer *peers_next(const struct peers *p, const struct peer *prev);
struct peer *peers_find(const struct peers *p, const char *name);

const char *peer_name(const struct peer *p);
/* May it say something of this user's things? */
bool peer_speaks_for(const struct peer *p, uint32_t uid);
/* Queues a message of these parts together. If it cannot, the connection will end. */
void peer_send(struct peer *l, uint16_t type, const struct iovec *parts, int n);

/* How a bulk ended: 0, or -errno, of the other side's or -EPIPE. Called once,
 * unless peer_send_bulk() failed. */
typedef void peer_sent(void *arg, int result);
/*
 * Sends size bytes of fd from its beginning, one bulk after the other. fd is duplicated. They are
 * read with pread(), so a file that is cut meanwhile is an error and no signal.
 * 0; -ENOMEM, -EMFILE, -EINVAL.
 */
int peer_send_bulk(struct peer *p, uint16_t type, const void *meta, size_t n_meta, int fd,
		   uint64_t size, peer_sent *sent, void *arg);
/* The answer to a bulk that has arrived. Does nothing if its connection has ended since. */
void peer_answer(struct peer *p, uint64_t id, int result);

#endif
