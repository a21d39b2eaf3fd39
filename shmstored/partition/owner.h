/* SPDX-License-Identifier: Apache-2.0 */
/* owner.h: the process behind a store: a pidfd that is that very process's, and whether a page's pid means the process at a socket's end. */
#ifndef OWNER_H
#define OWNER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A pidfd of pid, if that is the process that started at start_time (clock ticks since boot). -ESRCH: it is gone, or it is another one. */
int owner_open(pid_t pid, uint64_t start_time);
/* Is the process that we know as pid known as inner in its own pid namespace, or one between? */
bool owner_is(pid_t pid, pid_t inner);

#endif
