/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierinfo.c: what a partition's disk tier holds and what room it has: the directories of stubs and
 * of tier files, one statfs, and no object.
 */
#include <errno.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <string.h>

#include "cleanup.h"
#include "detail.h"
#include "partition.h"
#include "sys.h"
#include "tierformat.h"
#include "tierscan.h"

static uint64_t object_size(const struct shms_stub *stub)
{
	return stub->header_size + stub->buffer_size;
}

static int add_file(const struct shms_tierscan_file *f, void *arg)
{
	struct shmstore_tier_info *info = arg;
	uint64_t bytes = shms_blocks(f->st);
	int64_t age_ns =
		shms_now_real_ns() - (f->st->st_mtim.tv_sec * 1000000000 + f->st->st_mtim.tv_nsec);

	info->used += bytes;
	info->last_minute += age_ns < 60 * (int64_t)1000000000 ? bytes : 0;
	switch (f->what) {
	case SHMS_TIERSCAN_DEMOTED:
		info->demoted += bytes;
		info->n_demoted++;
		info->original += object_size(&f->stub);
		break;
	case SHMS_TIERSCAN_CLEAN:
		info->clean += bytes;
		info->n_clean++;
		break;
	case SHMS_TIERSCAN_ORPHAN:
	default:
		info->orphans += bytes;
		info->n_orphans++;
		return 0;
	}
	/* A raw one is at least a page of header and the object's bytes, padded: no
	 * header has to be read to tell. */
	if ((uint64_t)f->st->st_size < SHMS_TIER_ALIGN + shms_tier_pad(object_size(&f->stub)))
		info->n_codec_zstd++;
	else
		info->n_codec_raw++;
	return 0;
}

static int fill_disk(const struct shmstore_partition *p, const struct shms_tier_config *config,
		     struct shmstore_tier_info *info)
{
	struct shms_space space;
	_fd_ int root = shms_tierscan_root(p, config);
	int r = root < 0 ? root : shms_space(root, &space);

	snprintf(info->path, sizeof(info->path), "%.4000s/%s", config->path, p->uuid);
	if (r < 0)
		return shms_detail(
			shms_error(r), info->path,
			"the tier's directory %s cannot be used: %s; is its file system mounted?",
			info->path, strerror(-r));
	info->disk_size = space.size;
	info->disk_free = space.available;
	return 0;
}

static void fill_config(const struct shms_tier_config *from, struct shmstore_tier_info *info)
{
	info->config = (struct shmstore_tier_config){
		.size = sizeof(info->config),
		.max = from->max,
		.min_free = from->min_free,
		.level = from->level,
		.fsync = from->fsync,
		.high = from->high,
		.low = from->low,
	};
	memcpy(info->config_path, from->path, sizeof(info->config_path));
}

int shmstore_tier_info(struct shmstore_partition *p, struct shmstore_tier_info *ret)
{
	struct shmstore_tier_info info = {.size = sizeof(info)};
	struct shms_tierscan scan = {.file = add_file, .arg = &info};
	struct shms_tier_config config;
	int r;

	if (!p || !ret)
		return shms_detail_null(!p ? "p" : "ret");
	r = shms_tier_config_read(p, &config);
	/* Without a path: no file is about nothing. */
	if (r == -ENOENT)
		return shms_detail(r, NULL,
				   "%s has no disk tier; shmstore-admin tier --set gives it one",
				   p->path);
	if (r < 0)
		return r;
	fill_config(&config, &info);
	r = fill_disk(p, &config, &info);
	if (r < 0)
		return r;
	r = shms_tierscan_run(&scan, p, &config);
	if (r < 0)
		return r;
	*ret = info;
	ret->config.path = ret->config_path;
	return 0;
}
