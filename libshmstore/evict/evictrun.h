/* SPDX-License-Identifier: Apache-2.0 */
/* evictrun.h: one eviction, for users whose parts of the tier are open, and
 * locked (or see one_name). */
#ifndef SHMS_EVICTRUN_H
#define SHMS_EVICTRUN_H

#include <shmstore/shmstore.h>
#include <stdbool.h>
#include <stdint.h>

#include "evictuser.h"

struct shms_evict_run {
	struct shmstore_partition *p;
	struct shms_evict_users *users;
	struct shmstore *s;                /* whose objects go first; NULL = nobody's */
	const struct shmstore_evict *what; /* threads, progress */
	uint64_t goal;                     /* bytes to free */
	uint64_t need; /* less than so many is of no use; 0 = whatever can be had */
	bool mapped;   /* what is mapped too, where nothing else is left */
	bool one_name; /* only objects of one name: for who does not hold the user's lock */
	struct shmstore_evict_report *report; /* is added to */
};

/* 0, whether or not the goal was reached (report->freed); -ECANCELED, -ENOMEM, -EMFILE, -errno. */
int shms_evict_run(const struct shms_evict_run *run);

#endif
