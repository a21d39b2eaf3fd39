/* SPDX-License-Identifier: Apache-2.0 */
/* tiermake.c: see tiermake.h. */
#include "tiermake.h"

#include "content.h"

int tier_make(struct shmstore_partition *p, const char *disk, bool fsync)
{
	struct shmstore_tier_config config = SHMSTORE_TIER_CONFIG_INIT;
	config.path = disk;
	config.fsync = fsync;
	struct shmstore_evict all = SHMSTORE_EVICT_INIT;
	all.bytes = 1;
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s = NULL;
	options.pack_max = 0;
	int rc = shmstore_tier_set(p, &config);
	if (rc == 0)
		rc = shmstore_open(p, "first", &options, &s);
	if (rc == 0)
		rc = content_put(s, "first", 5, (struct content){1, 100000}, 0);
	if (rc == 0)
		rc = shmstore_partition_evict(p, &all, NULL);
	int closed = shmstore_close(s);
	return rc < 0 ? rc : closed;
}
