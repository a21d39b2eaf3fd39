/* SPDX-License-Identifier: Apache-2.0 */
/* socketpath.h: where shmstored's socket is, and a connection to it: the same
 * for stores and for tools. */
#ifndef SHMS_SOCKETPATH_H
#define SHMS_SOCKETPATH_H

#include <stdint.h>

#define SHMS_SOCKET_PATH 108 /* as sockaddr_un's */

/*
 * given, where it is one; else $SHMSTORE_SOCKET; else WIRE_OWN_SOCKET in the directory of that
 * partition (may be NULL), where it is there and the caller's; else WIRE_SOCKET. 0, or -EINVAL: too
 * long for a socket's address.
 */
int shms_socket_path(const char *given, const char *partition, char ret_path[SHMS_SOCKET_PATH]);
/*
 * A SOCK_SEQPACKET connection to path; non-blocking. timeout_ms: how long a full backlog is waited
 * for; 0: not at all. The descriptor, or -errno as connect(2): -ENOENT, -ECONNREFUSED (nobody
 * listens), -EACCES, -EAGAIN (busy), …
 */
int shms_socket_connect(const char *path, uint32_t timeout_ms);

#endif
