/* SPDX-License-Identifier: Apache-2.0 */
/* socket.h: the listening socket: systemd's, or our own at a path. */
#ifndef SOCKET_H
#define SOCKET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#define SOCKET_BACKLOG 128

struct socket {
	int fd;
	/* flock on "<path>.lock": nobody else takes the path while we
	 * live; -1 = systemd's socket */
	int lock_fd;
	int type;   /* SOCK_SEQPACKET, SOCK_STREAM */
	char *path; /* NULL = systemd's */
	dev_t dev;  /* of what we made at path */
	ino_t ino;
};
#define SOCKET_NULL ((struct socket){.fd = -1, .lock_fd = -1})

/*
 * group: NULL = as it comes. A stale socket at path is replaced, its directory is made where that
 * is missing. -errno, said in the log: -EADDRINUSE (another daemon listens there), -EEXIST (what is
 * there is no socket), -EINVAL (path too long, no such group), …
 */
int socket_open(struct socket *s, const char *path, uint32_t mode, const char *group);
/* As that: a socket for streams at path, for this user and root alone; systemd's is not taken. */
int socket_open_stream(struct socket *s, const char *path);
/* Takes the name away where it is still ours: nobody new comes. */
void socket_remove(struct socket *s);
/* Idempotent. */
void socket_close(struct socket *s);

/* From where somebody connects, as far as one who connects cannot have many of them for nothing. */

/* The whole address of IPv4, the network of IPv6 (64 bits). Unix sockets are of one source. */
struct source {
	uint64_t network;
	bool v6;
};

struct source source_of(const struct sockaddr *address);
bool source_same(struct source a, struct source b);

/* The file /proc/PID/<name> as text, and when the process began, in ticks since the boot. -ESRCH:
 * it has ended; -errno. */
int process_read(pid_t pid, const char *name, char *ret, size_t size);
int process_start(pid_t pid, uint64_t *ret_ticks);

/* A descriptor of the process at the other end of a connection, by which it can be
 * signalled and nobody else. */

/*
 * fd: the connection; pid: of its peer, as SO_PEERCRED says; since_ns: CLOCK_MONOTONIC when it was
 * accepted. The caller closes the descriptor. -ESRCH: it has ended, or whoever has its number now
 * began after the connection; -EPERM: in a pid namespace that we do not see; -errno.
 */
int peerpid_open(int fd, pid_t pid, uint64_t since_ns);

/* Sockets that the service manager made for us (sd_listen_fds(3)): they may be of a network
 * namespace that we are not in. */
#define HANDED_TCP  (-1)
#define HANDED_UNIX (-2)
/* The descriptor, CLOEXEC and ours from here on: a netlink socket of that protocol; HANDED_TCP: a
 * listening TCP socket; HANDED_UNIX: a listening one of packets. -ENOENT: none was handed over. */
int handed_socket(int protocol);

/* Which local user is at the other end of a TCP connection: the SO_PEERCRED that TCP has not. */
struct peeruid;

/* 0; -errno: this kernel does not tell, or we may not ask. */
int peeruid_new(struct peeruid **ret);
struct peeruid *peeruid_free(struct peeruid *p);
/* True: the other end of the connected socket fd is an open socket of this host's, on a loopback
 * address, of that user. Does not block. */
bool peeruid_find(struct peeruid *p, int fd, uid_t *ret);

#endif
