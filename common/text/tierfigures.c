/* SPDX-License-Identifier: Apache-2.0 */
/* tierfigures.c: see tierfigures.h. */
#include "tierfigures.h"

#include <shmstore/inspect.h>

#include "fields.h"
#include "jsonmake.h"
#include "tier.def"

uint64_t tierfigures_available(const struct shmstore_tier_info *info)
{
	const struct shmstore_tier_config *c = &info->config;
	uint64_t disk = info->disk_free > c->min_free ? info->disk_free - c->min_free : 0;
	uint64_t limit = !c->max ? UINT64_MAX : c->max > info->used ? c->max - info->used : 0;

	return disk < limit ? disk : limit;
}

void tierfigures_add(struct json_object *o, const struct shmstore_tier_info *info)
{
	fields_add(o, of_tier, info);
	jsonmake_u64(o, "available", tierfigures_available(info));
	if (info->demoted)
		jsonmake_real(o, "ratio", (double)info->original / (double)info->demoted);
}
