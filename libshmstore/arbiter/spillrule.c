/* SPDX-License-Identifier: Apache-2.0 */
/* spillrule.c: see spillrule.h. Something that was spilled is progress, and the patience begins anew; so it does with each request. */
#include "spillrule.h"

#include <errno.h>

int shms_spillrule_again(struct shms_spillrule *p, int64_t spilled, int nth)
{
	if (spilled < 0 || nth < 0)
		return -EINVAL;
	if (nth == 0 || spilled > 0)
		p->n_empty = 0;
	if (spilled > 0)
		return 1;
	p->n_empty++;
	return p->n_empty <= SHMS_SPILL_EMPTY_MAX;
}
