/* SPDX-License-Identifier: Apache-2.0 */
/* spillrule.h: is a spill handler to be called again? Pure. */
#ifndef SHMS_SPILLRULE_H
#define SHMS_SPILLRULE_H

#include <errno.h>
#include <stdint.h>

/* tries in a row that give nothing, after which another one is made all the same */
#define SHMS_SPILL_EMPTY_MAX 2u

struct shms_spillrule {
	uint32_t n_empty;
};

/*
 * The handler was called for the nth time (from 0, which begins a new request) and spilled so many
 * bytes: that really left the pool, not such as somebody else took meanwhile. That is progress, and
 * the patience begins anew. 1: again; 0: it has nothing more to give; -EINVAL: a number below zero.
 */
static inline int shms_spillrule_again(struct shms_spillrule *p, int64_t spilled, int nth)
{
	if (spilled < 0 || nth < 0)
		return -EINVAL;
	if (nth == 0 || spilled > 0)
		p->n_empty = 0;
	return spilled > 0 || ++p->n_empty <= SHMS_SPILL_EMPTY_MAX;
}

#endif
