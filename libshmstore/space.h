/* SPDX-License-Identifier: Apache-2.0 */
/* space.h: what a full partition makes us give back before we say -ENOSPC. */
#ifndef SHMS_SPACE_H
#define SHMS_SPACE_H

#include <stdbool.h>

struct shmstore;

/* After the tries-th refusal: gives memory back and says whether another try is worth it. */
bool shms_space_make(struct shmstore *s, int tries);

#endif
