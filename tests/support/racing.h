/* SPDX-License-Identifier: Apache-2.0 */
/* racing.h: threads that race for the same keys by random numbers, each in its own order, and hold
 * views beyond the stores' end. */
#ifndef SHMSTORE_TEST_RACING_H
#define SHMSTORE_TEST_RACING_H

#include <shmstore/shmstore.h>
#include <stdint.h>

#define RACERS 32 /* at most; $SHMSTORE_TEST_RACERS, or 8, run */

/* Calls fn n times in each of these threads, and returns when all are done. *held is the thread's
 * own, NULL at first: a view whose content is telling_put()'s (api.h), for as long as fn leaves it
 * there. ret_held: what each held in the end, NULL for those that did not run. */
void racing_run(void (*fn)(uint64_t random, struct shmstore_view **held), unsigned n,
		struct shmstore_view *ret_held[RACERS]);
/* Checks that the views they held are unchanged, and gives them back. */
void racing_end(struct shmstore_view *held[RACERS]);

#endif
