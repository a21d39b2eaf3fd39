/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h: the daemon's state for Prometheus and its like.
 * docs/operations.md lists the metrics. */
#ifndef METRICS_H
#define METRICS_H

#include <stdbool.h>
#include <stddef.h>

struct host;
struct lateness;

#define METRICS_TYPE_OPEN  "application/openmetrics-text; version=1.0.0; charset=utf-8"
#define METRICS_TYPE_PLAIN "text/plain; version=0.0.4; charset=utf-8"
#define METRICS_STORES_MAX 256u /* series of single stores, per partition and metric */

/*
 * open: OpenMetrics 1.0, else the older text format of Prometheus. uid: as report_make(): whose
 * stores and labels are there by name. 0: *ret is to be freed. -ENOMEM.
 */
int metrics_make(struct host *h, const struct lateness *l, unsigned uid, bool open, char **ret,
		 size_t *ret_size);

#endif
