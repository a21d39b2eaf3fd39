/* SPDX-License-Identifier: Apache-2.0 */
/* namesof.h: all names in objects/ directories that one inode has, by a walk of the partition. */
#ifndef SHMS_NAMESOF_H
#define SHMS_NAMESOF_H

#include <stddef.h>
#include <stdint.h>

#include "demote.h"

struct shms_namesof {
	struct shms_demote_name *names; /* their descriptors and texts are this structure's */
	size_t n;
};

/* Names in stores that take part in the tier. 0, -ENOMEM, -EMFILE. deinit is owed in any case. */
int shms_namesof_find(struct shmstore_partition *p, uint64_t inode, struct shms_namesof *ret);
void shms_namesof_deinit(struct shms_namesof *n);

#endif
