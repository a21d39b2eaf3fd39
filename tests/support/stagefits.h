/* SPDX-License-Identifier: Apache-2.0 */
/* stagefits.h: is a configuration of stages possible, and are amounts? Tests ask that
 * of what they draw and read. */
#ifndef STAGEFITS_H
#define STAGEFITS_H

#include "stagebook.h"

#define STAGE_SLOTS_MAX (INT64_C(1) << 20)

static inline bool stage_config_fits(const struct stage_config *c)
{
	return c->whole_shared_div > 0 && c->cap_mib >= 0 && c->cap_mib <= STAGE_MIB_MAX &&
	       c->wait_ms >= 0 && c->private_ratio.den && c->shared_ratio.den &&
	       c->fallen_threshold.den;
}

static inline bool stage_amounts_fit(const struct stage_amounts *a)
{
	return a->private_mib >= 0 && a->private_mib <= STAGE_MIB_MAX && a->shared_mib >= 0 &&
	       a->shared_mib <= STAGE_MIB_MAX && a->slots >= 1 && a->slots <= STAGE_SLOTS_MAX;
}

#endif
