/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seglock.h: a holder's life: a lock of the open file description (OFD) on the byte of the segment's file that has the holder's number.
 *
 * The lock belongs to the description, which a descriptor or a mapping keeps: it outlives closed descriptors and stopped processes, and ends
 * when the last process that maps it is dead. So a byte that nobody has locked says that nobody has the segment mapped as that holder, and that
 * nobody ever will. A locked byte says that the holder lives, or that somebody recovers it.
 *
 * One description may lock several bytes; a lock that is not to stay is ended explicitly, since a child of a fork may have the description too.
 */
#ifndef SHMS_SEGLOCK_H
#define SHMS_SEGLOCK_H

#define SHMS_SEGLOCK_WAIT_MS 1000u /* how long a recovery by somebody else is waited for */

/* 0; -EAGAIN: another description has it; another -errno. */
int shms_seglock_try(int fd, unsigned holder);
/* As before, but tries again for SHMS_SEGLOCK_WAIT_MS. -EBUSY: in vain. */
int shms_seglock_wait(int fd, unsigned holder);
void shms_seglock_end(int fd, unsigned holder);

#endif
