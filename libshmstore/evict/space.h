/* SPDX-License-Identifier: Apache-2.0 */
/* space.h: what a full partition, or quota, makes us give back before we say -ENOSPC or -EDQUOT. */
#ifndef SHMS_SPACE_H
#define SHMS_SPACE_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

struct shmstore;

/* Is r the error of a put that room would help? */
static inline bool shms_space_wanted(int r)
{
	return r == -ENOSPC || r == -EDQUOT;
}

/*
 * After the tries-th refusal (0, 1, ...) of bytes: gives memory back, or with the disk tier's help makes room, and says whether another try is
 * worth it. flags: SHMSTORE_NO_EVICT. Never called with a lock of the store held.
 */
bool shms_space_make(struct shmstore *s, uint64_t bytes, unsigned flags, int tries);

/* All was tried: says which limit refused bytes, and how far it is, unless that was said. Returns error. */
int shms_space_refused(struct shmstore *s, int error, uint64_t bytes);

#endif
