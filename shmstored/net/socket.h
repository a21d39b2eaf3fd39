/* SPDX-License-Identifier: Apache-2.0 */
/* socket.h: the listening socket: systemd's, or our own at a path. */
#ifndef SOCKET_H
#define SOCKET_H

#include <stdint.h>
#include <sys/types.h>

#define SOCKET_BACKLOG 128

struct socket {
	int fd;
	int lock_fd; /* flock on "<path>.lock": nobody else takes the path while we live; -1 = systemd's socket */
	int type;    /* SOCK_SEQPACKET, SOCK_STREAM */
	char *path;  /* NULL = systemd's */
	dev_t dev;   /* of what we made at path */
	ino_t ino;
};
#define SOCKET_NULL ((struct socket){.fd = -1, .lock_fd = -1})

/*
 * group: NULL = as it comes. A stale socket at path is replaced, its directory is made where that is missing. -errno, said in the log:
 * -EADDRINUSE (another daemon listens there), -EEXIST (what is there is no socket), -EINVAL (path too long, no such group), …
 */
int socket_open(struct socket *s, const char *path, uint32_t mode, const char *group);
/* As that: a socket for streams at path, for this user and root alone; systemd's is not taken. */
int socket_open_stream(struct socket *s, const char *path);
/* Takes the name away where it is still ours: nobody new comes. */
void socket_remove(struct socket *s);
/* Idempotent. */
void socket_close(struct socket *s);

#endif
