/* SPDX-License-Identifier: Apache-2.0 */
/* handed.h: sockets that the service manager made for us (sd_listen_fds(3)): they may be of a network namespace that we are not in. */
#ifndef HANDED_H
#define HANDED_H

/* The descriptor, CLOEXEC and ours from here on: a listening TCP socket; a netlink socket of that protocol. -ENOENT: none was handed over. */
int handed_tcp(void);
int handed_netlink(int protocol);

#endif
