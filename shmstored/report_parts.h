/* SPDX-License-Identifier: Apache-2.0 */
/* report_parts.h: what report.c puts together: each fills in the object of one partition. For report_*.c and metrics.c only. */
#ifndef REPORT_PARTS_H
#define REPORT_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct account;
struct account_tick;
struct json_object;
struct quota_line;
struct survey;

/* Who asks, and when. */
struct report_view {
	unsigned uid;     /* as report_make() */
	uint64_t since;   /* as report_make_since() */
	int64_t now_ns;   /* CLOCK_REALTIME */
	uint64_t mono_ns; /* CLOCK_MONOTONIC */
};

/* May the asker see what is that user's by name? */
bool report_may_see(const struct report_view *v, uid_t owner);
bool report_may_see_limit(const struct report_view *v, const struct account *a, const struct quota_line *q);
/* Of the sums of label: those stores only that the asker may see, "" left out; sorted by label. */
struct report_label {
	const char *label; /* owned by the survey */
	uint64_t n_stores, linked, pss, uss, pool;
};
/* *ret is to be freed. -ENOMEM. */
int report_labels(const struct report_view *v, const struct survey *s, struct report_label **ret, size_t *ret_n);
/* Per second between the last two ticks; 0 where there is only one, or the counter fell. */
double report_rate(const struct account_tick *before, const struct account_tick *tick, uint64_t a, uint64_t b);
/* "partition", "user", "label", "store". */
const char *report_limit_name(unsigned kind);

void report_status(const struct report_view *v, struct account *a, struct json_object *o);
void report_workers(const struct report_view *v, struct account *a, struct json_object *o);
void report_quota(const struct report_view *v, struct account *a, struct json_object *o);
void report_holders(const struct report_view *v, struct account *a, struct json_object *o);
void report_history(const struct report_view *v, struct account *a, struct json_object *o);

#endif
