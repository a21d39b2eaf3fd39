/* SPDX-License-Identifier: Apache-2.0 */
/* tierfigures.h: what is made of a disk tier's figures, and the figures as JSON, by the same names
 * from the daemon and from the tool. */
#ifndef TIERFIGURES_H
#define TIERFIGURES_H

#include <stdint.h>

struct json_object;
struct shmstore_tier_info;

/* Bytes that tier files may still take, by the tier's limits and the disk's free space. */
uint64_t tierfigures_available(const struct shmstore_tier_info *info);
void tierfigures_add(struct json_object *o, const struct shmstore_tier_info *info);

#endif
