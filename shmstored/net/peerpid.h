/* SPDX-License-Identifier: Apache-2.0 */
/* peerpid.h: a descriptor of the process at the other end of a connection, by which it can be signalled and nobody else. */
#ifndef PEERPID_H
#define PEERPID_H

#include <stdint.h>
#include <sys/types.h>

/*
 * fd: the connection; pid: of its peer, as SO_PEERCRED says; since_ns: CLOCK_MONOTONIC when it was accepted. The caller closes the descriptor.
 * -ESRCH: it has ended, or whoever has its number now began after the connection; -EPERM: in a pid namespace that we do not see; -errno.
 */
int peerpid_open(int fd, pid_t pid, uint64_t since_ns);

#endif
