/* SPDX-License-Identifier: Apache-2.0 */
/* alone.h: credit where no daemon answers: limits hold all the same. */
#ifndef SHMS_ALONE_H
#define SHMS_ALONE_H

#include <stdint.h>

struct shmstore;
struct shmstore_partition;

/*
 * The store is short of credit for n bytes and has no daemon: raises its own granted, by what is
 * given ahead if there is so much room, else by what is missing. 0: try again (also where a daemon
 * is there after all); -ENOSPC (the partition's limit), -EDQUOT (the user's, the label's); as
 * -ENOSPC or -EDQUOT where a daemon lives but does not answer us.
 */
int shms_alone_grant(struct shmstore *s, uint64_t n);
/*
 * The store was just opened, and the daemon is dead: takes the limits that it left in the pages of
 * others, so that they hold for this one too. Not where a daemon lives: it will find the store.
 */
void shms_alone_inherit(struct shmstore *s);
/*
 * The page of the store in the directory storefd is about to go, or to begin anew, after freed
 * bytes went: memory that others have of it, and others' that it gave back, are in the sums of its
 * user and label from here on by the pages of the stores that stay.
 */
void shms_alone_leave(struct shmstore_partition *p, int storefd, uint64_t freed);
/* The error of a store that may not be granted more, whatever the reason. */
int shms_alone_refusal(const struct shmstore *s);

#endif
