/* SPDX-License-Identifier: Apache-2.0 */
/* peerlink.h: one connection to another daemon, for this room's files. */
#ifndef PEERLINK_H
#define PEERLINK_H

#include <gnutls/gnutls.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "loop.h"
#include "peers.h"
#include "socket.h"

/*
 * Bytes to and from another daemon: plain on a Unix socket, where the kernel says who
 * is at the other end; TLS 1.3 with a shared secret (PSK) on TCP, where only who has the secret
 * gets through the handshake, on both sides. Never blocks.
 */

#define PEERSECRET_LEAST 32u   /* bytes */
#define PEERSECRET_MOST  4096u /* of a file */

/* The secret that daemons of several hosts share. */
struct peersecret {
	size_t n;
	unsigned char bytes[PEERSECRET_MOST];
};

/*
 * Reads it from a file that nobody else may read. White space at both ends does not count. ret_why:
 * what is wrong, a static text. 0; -EPERM: the file is another user's, or others may read or write
 * it; -EINVAL: it is too short or too long, or no regular file; -errno.
 */
int peersecret_read(const char *path, struct peersecret *ret, const char **ret_why);

struct peerstream {
	int fd;
	gnutls_session_t tls; /* NULL: plain */
	void *credentials;    /* TLS's, ours to free */
	bool server;
	size_t retry; /* bytes of the send that is to be repeated */
	const struct peersecret *secret;
};
#define PEERSTREAM_NULL ((struct peerstream){.fd = -1})

#define PEERLINK_MAGIC   0x53504452u /* "SPDR" where both hosts have one byte order */
#define PEERLINK_VERSION 1u
#define PEERLINK_ANYBODY UINT32_MAX /* uid: the other end proved the secret, and says who it is */

struct peerlink_header {
	uint32_t size; /* with this header */
	uint16_t type, reserved;
};
#define PEERLINK_MOST (sizeof(struct peerlink_header) + PEERS_BODY)

struct peerlink_hello {
	uint32_t magic, version, uid, reserved;
	char name[PEERS_NAME + 1];
};

struct peerlink_bulk {
	uint64_t id, size;
	uint32_t type, n_meta; /* meta follows */
};
struct peerlink_chunk {
	uint64_t id; /* bytes follow */
};
struct peerlink_answer {
	uint64_t id;
	int32_t result;
	uint32_t reserved;
};

/* On its way to the other side; a list, of which the first one is being sent. */
struct peerlink_out {
	struct peerlink_out *prev, *next;
	uint64_t id, size, at, begun_ms;
	int fd;
	bool told; /* BULK was sent */
	uint16_t type;
	size_t n_meta;
	peer_sent *sent;
	void *arg;
	char meta[PEERS_META];
};

struct peer {
	struct peer *prev, *next;
	struct peers *of;
	struct peers_address *to; /* NULL: it connected to us */
	struct peerstream stream;
	const struct peersecret *secret; /* NULL: a Unix socket */
	struct loop_op in_op, out_op;
	bool connecting, shaken, spoke, up, closing, broken; /* spoke: a byte has come */
	unsigned handling;
	char name[PEERS_NAME + 1];
	uint32_t uid;
	struct source from; /* of one that connected to us */
	uint64_t began_ms, heard_ms, said_ms;
	char *in;
	size_t in_used;
	char *out;
	size_t out_used, out_at, out_size;
	struct peerlink_out *bulks;
	uint64_t last_id;
	struct {
		bool is;
		struct peers_bulk bulk;
		struct peers_service *service;
		uint64_t at;
		int fd; /* -1: it was refused; its bytes are thrown away */
	} arriving;
};

struct peers_address {
	struct peers_address *next;
	char *text;
	struct peer *link;         /* NULL: none so far, or not now */
	char name[PEERS_NAME + 1]; /* who answered there last */
	uint64_t not_before_ms;    /* after what was no peer */
	bool said;                 /* that nobody answers */
};

/* peers.c's */
struct loop *peers_loop(const struct peers *p);
struct peers_service *peers_service_of(const struct peers *p, uint16_t type);
/* The other end has said HELLO. False: the connection is not wanted. */
bool peers_greeted(struct peer *l, const struct peerlink_hello *h);
/* The connection is over: services are told, and the list forgets it. */
void peers_left(struct peer *l);

/* Has a byte come from it, read or not? */
bool peerlink_has_spoken(const struct peer *l);
/* Takes fd. NULL: no memory; fd is closed. connecting: connect() is under way. */
struct peer *peerlink_new(struct peers *p, int fd, const struct peersecret *secret, uint32_t uid,
			  bool connecting, struct peers_address *to);
/* Ends it; the memory goes when the loop has nothing of it any more. why: for the
 * log; NULL: not to be logged. */
void peerlink_drop(struct peer *l, const char *why);
/* Time has passed: says that we live, and ends one that does not. */
void peerlink_tick(struct peer *l, uint64_t now_ms, uint64_t timeout_ms);

/* ---- peerbulk.c ------------------------------------------------------------------------------ */

/* Sends pieces of bulks while little else waits. */
void peerbulk_pump(struct peer *l);
/* BULK, CHUNK, ANSWER. False: it is none. */
bool peerbulk_message(struct peer *l, uint16_t type, const char *body, size_t n);
/* The connection ends. */
void peerbulk_end(struct peer *l);

#endif
