/* SPDX-License-Identifier: Apache-2.0 */
/* report_parts.h: what report.c puts together: each fills in the object of one partition. For
 * report_*.c and metrics.c only. */
#ifndef REPORT_PARTS_H
#define REPORT_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "arbiter.h"
#include "report.h"

struct account;
struct host;
struct json_object;
struct quota_line;
struct survey;
struct survey_label;

/* The asking user, and the time. */
struct report_view {
	unsigned uid;     /* as report_make() */
	uint64_t since;   /* as report_make_since() */
	int64_t now_ns;   /* CLOCK_REALTIME */
	uint64_t mono_ns; /* CLOCK_MONOTONIC */
};

/* May the asker see what is that user's by name? */
static inline bool report_may_see(const struct report_view *v, uid_t owner)
{
	return v->uid == REPORT_ALL || (v->uid != REPORT_NOBODY && v->uid == owner);
}

bool report_may_see_limit(const struct report_view *v, const struct account *a,
			  const struct quota_line *q);
/* survey_labels() of those stores only that the asker may see. */
int report_labels(const struct report_view *v, const struct survey *s, struct survey_label **ret,
		  size_t *ret_n);

/* Adds "arbiter" to what report_status() says; null where it is off. */
void report_arb_status(const struct account *a, struct json_object *o);
/* Contexts with a withheld call, tasks, and the sums that operators look at: for report_status()
 * and the metrics. */
struct report_arb {
	struct arb_totals totals;
	struct arb_pool_info pool; /* the partition's */
	uint64_t leased, objects, drift, level;
};
/* False: the arbiter is off. */
bool report_arb_sums(const struct account *a, struct report_arb *ret);

void report_arbiter(const struct report_view *v, struct account *a, struct json_object *o);
void report_arb_log(const struct report_view *v, struct account *a, struct json_object *o);
void report_workers(const struct report_view *v, struct account *a, struct json_object *o);
void report_quota(const struct report_view *v, struct account *a, struct json_object *o);

struct stages;
struct report_stages_sums {
	int64_t total, held;                                   /* bytes, private and shared */
	uint64_t n_sessions, n_running, n_waiting, n_degraded; /* now */
	uint64_t n_queries, n_begun, n_waited, n_begun_degraded, wait_ns; /* ever */
};
void report_stages_sums(const struct stages *t, struct report_stages_sums *ret);
void report_stages(const struct report_view *v, struct account *a, struct json_object *o);

/* Of the host, not of a partition. */
void report_memory(const struct report_view *v, struct host *h, struct json_object *o);
void report_gate(const struct report_view *v, struct host *h, struct json_object *o);

#endif
