/* SPDX-License-Identifier: Apache-2.0 */
/* usagejson.h: the terms of a partition's accounting as JSON, by the same names from the daemon's surveys and from the tool's. */
#ifndef USAGEJSON_H
#define USAGEJSON_H

struct json_object;
struct shmstore_usage;

void usagejson_add(struct json_object *o, const struct shmstore_usage *u);

#endif
