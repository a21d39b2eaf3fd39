/* SPDX-License-Identifier: Apache-2.0 */
/* usage.h: the df equation. */
#ifndef SHMS_USAGE_H
#define SHMS_USAGE_H

#include <shmstore/shmstore.h>
#include <stdbool.h>

struct shms_holders;

/*
 * Takes the books of p's whole file system; three times where somebody writes meanwhile.
 *   ret_holders   NULL: ghosts and writers are left in the residual. Else they are asked for, and freed by the caller.
 *   keys          find out their keys too.
 * 0, -EINVAL, -EPERM, -EMFILE, -ENOMEM.
 */
int shms_usage_take(struct shmstore_partition *p, bool keys, struct shmstore_usage *ret,
		    struct shms_holders **ret_holders);

#endif
