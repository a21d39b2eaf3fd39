/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move.h: the books of a store's object that somebody else than the store's owner moves
 * between memory and the disk tier.
 *
 * The mover may be killed between the exchange of the names and its booking. So it writes
 * beforehand what the books are to say in either case, and whoever takes the names lock next looks
 * at the directory, and books what is there (shms_move_settle()).
 */
#ifndef SHMS_MOVE_H
#define SHMS_MOVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "page.h"

/* Says to the owner that somebody else waits for the names lock, or no more: its threads would
 * have that in turn for ever. */
void shms_move_ask(int objects_fd, bool wanted);

/* objects_fd is the store's objects/; its names lock is held. Books are not worth an error: what
 * cannot be written is off until the next owner counts. */

/* Before the first name is exchanged: the object is that inode, and takes so many bytes of the
 * books if the store links it. linked: it does now. */
void shms_move_begin(int objects_fd, uint64_t inode, uint64_t bytes, bool linked);
/* After it, or instead: does the store link it? Nothing is booked where the page has
 * a new owner, who counted. */
void shms_move_end(int objects_fd, bool linked);

/* For who gets the lock, before anything else: ends what a dead mover began. */
void shms_move_settle(int objects_fd);
/* Did somebody begin, and not end? Without the lock: now, or ever. */
static inline bool shms_move_begun(const struct shms_page *page)
{
	return atomic_load_explicit(&page->moved.inode, memory_order_relaxed) != 0;
}

/* Removes the objects' files from clean/: they are there in the middle of an exchange only, and
 * who makes it holds the lock. */
void shms_move_sweep(int objects_fd);

#endif
