/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peerstream.h: bytes to and from another daemon: plain on a Unix socket, where the kernel says who
 * is at the other end; TLS 1.3 with a shared secret (PSK) on TCP, where only who has the secret
 * gets through the handshake, on both sides. Never blocks.
 */
#ifndef PEERSTREAM_H
#define PEERSTREAM_H

#include <gnutls/gnutls.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

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

/*
 * Takes fd, which must not block, also on failure. secret: NULL: plain; else borrowed for the
 * stream's life. 0, -ENOMEM, -EIO (the library of TLS refuses).
 */
int peerstream_open(struct peerstream *s, int fd, const struct peersecret *secret, bool server);
/* Idempotent. */
void peerstream_close(struct peerstream *s);
/* 0: done; -EAGAIN: go on when the socket can be read, or (*ret_write) written; -EPERM: the other
 * end is not who it should be. */
int peerstream_shake(struct peerstream *s, bool *ret_write);
/* Bytes; 0: the end; -EAGAIN; -EIO. */
ssize_t peerstream_receive(struct peerstream *s, void *data, size_t n);
/* Are there bytes that were taken off the socket and not received? */
bool peerstream_pending(const struct peerstream *s);
/* Bytes, maybe fewer; -EAGAIN: call again with the same data; -EIO. */
ssize_t peerstream_send(struct peerstream *s, const void *data, size_t n);

#endif
