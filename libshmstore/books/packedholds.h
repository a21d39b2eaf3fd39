/* SPDX-License-Identifier: Apache-2.0 */
/* packedholds.h: the part of holders.h that is about packed objects: the memory is a segment's,
 * which has a name, and a bit says who has a view. */
#ifndef SHMS_PACKEDHOLDS_H
#define SHMS_PACKEDHOLDS_H

#include <shmstore/inspect.h>
#include <stddef.h>
#include <stdint.h>

struct shms_holders;
struct shms_mapper;
struct shms_seglook;

/* The scan of /proc met a mapping of a segment. m: copied, and path with it. 0, -ENOMEM. */
int shms_packedholds_mapper(struct shms_holders *h, const struct shms_mapper *m, const char *path,
			    size_t path_length);
/* The walk has met that segment: notes who has views of its ghosts, and who
 * puts into it. 0, -ENOMEM. */
int shms_packedholds_segment(struct shms_holders *h, const struct shms_seglook *l, uint64_t now_ms);
/* For shms_holders_each(). 0 or fn's. */
int shms_packedholds_each(const struct shms_holders *h,
			  int (*fn)(const struct shmstore_holder *holder, void *arg), void *arg);
/* Frees what was noted. */
void shms_packedholds_free(struct shms_holders *h);

#endif
