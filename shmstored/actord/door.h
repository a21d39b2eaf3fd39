/* SPDX-License-Identifier: Apache-2.0 */
/* door.h: actors and other daemons, as actord.h has them. */
#ifndef DOOR_H
#define DOOR_H

#include "actord.h"

extern const struct actord actord_whole;

/* requests.c, report_actors.c: members of it. */
int actord_request(struct conn *c, uint16_t type, uint64_t serial, const void *body,
		   const char *tail, size_t tail_size);
void actord_report(const struct report_view *v, struct host *h, struct json_object *o);
void actord_metrics(struct metric_out *o, const struct host *h);

#endif
