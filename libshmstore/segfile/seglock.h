/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seglock.h: tells whether a holder lives, by a lock of its open file description (OFD) on the byte
 * of the segment's file that has the holder's number.
 *
 * The lock belongs to the description, which a descriptor or a mapping keeps. So it outlives closed
 * descriptors and stopped processes, and ends when the last process that maps it is dead. If a byte
 * is not locked, no process has the segment mapped as that holder, and none ever will. If it is
 * locked, the holder lives, or a process recovers it.
 *
 * One description may lock several bytes. A lock that shall not last is ended explicitly, since a
 * forked child may have the description, too.
 */
#ifndef SHMS_SEGLOCK_H
#define SHMS_SEGLOCK_H

#include <stdbool.h>

/* the byte of who punches free extents of a segment without an owner */
#define SHMS_SEGLOCK_TRIM     512u
/* + a holder's number: the byte that children of its forks lock together */
#define SHMS_SEGLOCK_CHILDREN 1024u
#define SHMS_SEGLOCK_WAIT_MS  1000u /* how long a recovery by somebody else is waited for */

/* 0; -EAGAIN: another description has it; another -errno. */
int shms_seglock_try(int fd, unsigned holder);
/* As before, but tries for SHMS_SEGLOCK_WAIT_MS. -EBUSY: in vain. */
int shms_seglock_wait(int fd, unsigned holder);
void shms_seglock_end(int fd, unsigned holder);
/* Has another description that byte locked? fd may be one that can only be read. */
bool shms_seglock_taken(int fd, unsigned byte);

#endif
