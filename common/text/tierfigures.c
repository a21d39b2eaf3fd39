/* SPDX-License-Identifier: Apache-2.0 */
/* tierfigures.c: see tierfigures.h. */
#include "tierfigures.h"

#include <shmstore/inspect.h>

#include "jsonmake.h"

uint64_t tierfigures_available(const struct shmstore_tier_info *info)
{
	const struct shmstore_tier_config *c = &info->config;
	uint64_t disk = info->disk_free > c->min_free ? info->disk_free - c->min_free : 0;
	uint64_t limit = !c->max ? UINT64_MAX : c->max > info->used ? c->max - info->used : 0;

	return disk < limit ? disk : limit;
}

double tierfigures_ratio(const struct shmstore_tier_info *info)
{
	return info->demoted ? (double)info->original / (double)info->demoted : 0;
}

void tierfigures_add(struct json_object *o, const struct shmstore_tier_info *info)
{
	const struct shmstore_tier_config *c = &info->config;

	jsonmake_prose(o, "path", c->path);
	jsonmake_prose(o, "files", info->path);
	jsonmake_u64(o, "max", c->max);
	jsonmake_u64(o, "min_free", c->min_free);
	jsonmake_i64(o, "level", c->level);
	jsonmake_flag(o, "fsync", c->fsync);
	jsonmake_u64(o, "high", c->high);
	jsonmake_u64(o, "low", c->low);
	jsonmake_u64(o, "disk_size", info->disk_size);
	jsonmake_u64(o, "disk_free", info->disk_free);
	jsonmake_u64(o, "available", tierfigures_available(info));
	jsonmake_u64(o, "used", info->used);
	jsonmake_u64(o, "demoted", info->demoted);
	jsonmake_u64(o, "clean", info->clean);
	jsonmake_u64(o, "orphans", info->orphans);
	jsonmake_u64(o, "n_demoted", info->n_demoted);
	jsonmake_u64(o, "n_clean", info->n_clean);
	jsonmake_u64(o, "n_orphans", info->n_orphans);
	jsonmake_u64(o, "original", info->original);
	if (info->demoted)
		jsonmake_real(o, "ratio", tierfigures_ratio(info));
	else
		jsonmake_null(o, "ratio");
	jsonmake_u64(o, "n_raw", info->n_codec_raw);
	jsonmake_u64(o, "n_zstd", info->n_codec_zstd);
}
