/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.h: the daemon's state as JSON documents: one source for the CLI (WIRE_QUERY), the HTTP API
 * and the page, so that they say the same. Fields are named as in shmstore-admin's --json where
 * they mean the same; bytes are integers. docs/operations.md lists them.
 */
#ifndef REPORT_H
#define REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire.h"

struct host;
struct json_object;
struct lateness;

#define REPORT_ALL         ((unsigned)-1)
#define REPORT_NOBODY      ((unsigned)-2) /* sees no store by name, only totals */
#define REPORT_WORKERS_MAX 4096u          /* a longer list is cut, and says by how much */

/* Is there such a question? */
bool report_answers(uint32_t what);
/* The question that has this name; 0: none has. */
enum wire_question report_question(const char *name);
/* path: one partition, "" or NULL = all. NULL: no such partition, or no memory. The caller puts the
 * object. uid: whose stores may be seen by name; REPORT_ALL, REPORT_NOBODY. since: only what is
 * newer: EVENTS after that number, HISTORY after that time (CLOCK_REALTIME, ns). 0: all. */
struct json_object *report_make(struct host *h, enum wire_question what, const char *path,
				unsigned uid, uint64_t since);

/* Is the daemon well enough to be believed? */
/* {"status":"ok"|"unwell","reasons":["…"]}; the caller puts it. NULL: no memory. */
struct json_object *health_make(const struct host *h, const struct lateness *l, bool *ret_well);

/* The daemon's state for Prometheus and its like. docs/operations.md lists the metrics. */
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
