/* SPDX-License-Identifier: Apache-2.0 */
/* weigh.h: what the policy (victim.h) needs to know of the candidates. */
#ifndef SHMS_WEIGH_H
#define SHMS_WEIGH_H

#include <stddef.h>
#include <stdint.h>

#include "candidates.h"
#include "victim.h"

/* The candidates as victims, whose ids are indices into c->v. size: bytes of the partition. *ret is to be freed. 0, -ENOMEM. */
int shms_weigh(struct shms_candidates *c, uint64_t size, int64_t now_ns, struct shms_victim **ret, size_t *ret_n);

#endif
