/* SPDX-License-Identifier: Apache-2.0 */
/* memjson.h: what memsource.h read, as JSON, by the same names from the tool and from the daemon. */
#ifndef MEMJSON_H
#define MEMJSON_H

#include "memsource.h"

struct json_object;

/* null where it is unknown. */
void memjson_amount(struct json_object *o, const char *name, struct amount a);
/* Adds "memories": the host and each cgroup, with their terms. */
void memjson_levels(struct json_object *o, const struct memsource_reading *r);

#endif
