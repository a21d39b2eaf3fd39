/* SPDX-License-Identifier: Apache-2.0 */
/* space.h: what a full partition, or quota, makes us give back before we say -ENOSPC or -EDQUOT. */
#ifndef SHMS_SPACE_H
#define SHMS_SPACE_H

#include <errno.h>
#include <stdbool.h>

struct shmstore;

/* Is r the error of a put that room would help? */
static inline bool shms_space_wanted(int r)
{
	return r == -ENOSPC || r == -EDQUOT;
}

/* After the tries-th refusal: gives memory back and says whether another try is worth it. */
bool shms_space_make(struct shmstore *s, int tries);

#endif
