/* SPDX-License-Identifier: Apache-2.0 */
/* tierconfig.h: a partition's tier/config: reading, checking, writing. */
#ifndef SHMS_TIERCONFIG_H
#define SHMS_TIERCONFIG_H

#include <shmstore/shmstore.h>
#include <stdbool.h>
#include <stdint.h>

#include "name.h"

struct shms_tier_config {
	char path[4096];
	uint64_t max, min_free;
	int level;
	bool fsync;
	unsigned high, low;
};

/* 0, -ENOENT (none), -EBADMSG, -EPERM (written by somebody whom the
 * partition does not belong to). */
int shms_tier_config_read(const struct shmstore_partition *p, struct shms_tier_config *ret);
/* The same of what was left under the other name: whole, where somebody was killed while he took
 * the tier away, or just before he set it. */
int shms_tier_config_read_left(const struct shmstore_partition *p, struct shms_tier_config *ret);
/* Pure: text to values and back. */
int shms_tier_config_parse(char *text, struct shms_tier_config *ret);
int shms_tier_config_format(const struct shms_tier_config *c, char *ret_text, size_t size);

#endif
