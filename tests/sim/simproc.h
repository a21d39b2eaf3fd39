/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simproc.h: virtual processes, as the daemon sees processes: by /proc, by the credentials at the
 * other end of a socket, by pidfds, and as whom it signals. The doors to them are calls of the
 * program that come here (-Wl,--wrap): open() and opendir() of /proc, syscall() of pidfds,
 * getsockopt(). A pidfd is an eventfd that has something to read once the process has ended.
 */
#ifndef SIM_SIMPROC_H
#define SIM_SIMPROC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "twister.h"

#define SIMPROC_FIRST 100000 /* their pids begin there */

/* root: a directory, empty, for what /proc says of them. killed: the daemon sent SIGTERM or
 * SIGKILL to a process. */
void simproc_begin(const char *root, struct twister *random, void (*killed)(pid_t pid, int number));
pid_t simproc_new(uid_t uid);
uint64_t simproc_start_time(pid_t pid);
void simproc_end(pid_t pid);
/* Private bytes that it has in memory. */
void simproc_grow(pid_t pid, uint64_t bytes);
/* The process at the other end of the daemon's socket fd. */
void simproc_connects(int fd, pid_t pid);
/* So many of 1000 recvmsg() fail from now on, with EINTR. */
void simproc_refuse(unsigned permille);

#endif
