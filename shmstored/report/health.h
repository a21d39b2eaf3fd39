/* SPDX-License-Identifier: Apache-2.0 */
/* health.h: is the daemon well enough to be believed? */
#ifndef HEALTH_H
#define HEALTH_H

#include <stdbool.h>

struct host;
struct json_object;
struct lateness;

/* {"status":"ok"|"unwell","reasons":["…"]}; the caller puts it. NULL: no memory. */
struct json_object *health_make(const struct host *h, const struct lateness *l, bool *ret_well);

#endif
