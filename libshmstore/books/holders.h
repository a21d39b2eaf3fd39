/* SPDX-License-Identifier: Apache-2.0 */
/*
 * holders.h: who keeps memory of the partition's file system without a name: ghosts (deleted, still
 * mapped or open) and writers in flight (never named), as /proc tells.
 *
 * Not to be seen: files that are only in a socket's queue, in an io_uring or under a loop device,
 * and processes of other pid namespaces. Other users' processes are not to be seen without
 * privilege: n_unreadable counts them.
 */
#ifndef SHMS_HOLDERS_H
#define SHMS_HOLDERS_H

#include <shmstore/inspect.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct shms_holders;
struct shms_seglook;
struct shms_users;

/* Scans /proc. keys: find out the objects' keys too, for shms_holders_each(). 0, -EPERM (no
 * /proc), -ENOMEM, -EMFILE. */
int shms_holders_new(struct shmstore_partition *p, bool keys, struct shms_holders **ret);
struct shms_holders *shms_holders_free(struct shms_holders *h);

/*
 * The walk has met a name of this inode. Where the kernel would not tell us the link count of
 * what is mapped (no privilege), "(deleted)" may mean one name of several: then a name met
 * elsewhere says that it is no ghost.
 */
void shms_holders_named(struct shms_holders *h, uint64_t ino);

/*
 * The walk has met the only name of this inode in recycle/. true: somebody else maps it or has it
 * open: it is a ghost, and not the pool's.
 */
bool shms_holders_pooled(struct shms_holders *h, const struct stat *st);

/* Adds bytes of files, each inode once, to ghosts and inflight, and processes to n_unreadable. Of
 * packed objects the books have the bytes (books.h). */
void shms_holders_add(const struct shms_holders *h, struct shmstore_usage *io);
/* Adds ghosts and writers in flight to their users, each inode once: to its owner where the kernel
 * told us, else to its first holder's user. 0, -ENOMEM. */
int shms_holders_users(const struct shms_holders *h, struct shms_users *users);
/* Calls fn for every holder of every inode, and of every packed object. 0 or fn's. */
int shms_holders_each(struct shms_holders *h,
		      int (*fn)(const struct shmstore_holder *holder, void *arg), void *arg);

/* ---- of packed objects the segment has the name; a bit says who has a view ---- */

/* The walk has met that segment: notes who has views of its ghosts, and who
 * puts into it. 0, -ENOMEM. */
int shms_packedholds_segment(struct shms_holders *h, const struct shms_seglook *l, uint64_t now_ms);

#endif
