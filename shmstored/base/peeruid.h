/* SPDX-License-Identifier: Apache-2.0 */
/* peeruid.h: which local user is at the other end of a TCP connection: the
 * SO_PEERCRED that TCP has not. */
#ifndef PEERUID_H
#define PEERUID_H

#include <stdbool.h>
#include <sys/types.h>

/* Sockets that the service manager made for us (sd_listen_fds(3)): they may be of a network
 * namespace that we are not in. */

#define HANDED_TCP  (-1)
#define HANDED_UNIX (-2)
/* The descriptor, CLOEXEC and ours from here on: a netlink socket of that protocol; HANDED_TCP: a
 * listening TCP socket; HANDED_UNIX: a listening one of packets. -ENOENT: none was handed over. */
int handed_socket(int protocol);

struct peeruid;

/* 0; -errno: this kernel does not tell, or we may not ask. */
int peeruid_new(struct peeruid **ret);
struct peeruid *peeruid_free(struct peeruid *p);
/* True: the other end of the connected socket fd is an open socket of this host's, on a loopback
 * address, of that user. Does not block. */
bool peeruid_find(struct peeruid *p, int fd, uid_t *ret);

#endif
