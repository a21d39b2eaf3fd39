/* SPDX-License-Identifier: Apache-2.0 */
/* report_status.c: a partition in short: the file system now, the ledgers' sums, and the df
 * equation of the last survey. */
#include <json-c/json.h>

#include "config.h"
#include "jsonmake.h"
#include "partition.def"
#include "report_parts.h"
#include "usage.def"

static double report_rate(const struct account_tick *before, const struct account_tick *tick, uint64_t a, uint64_t b)
{
	if (!before->time_ns || tick->time_ns <= before->time_ns || b < a)
		return 0;
	return (double)(b - a) * 1e9 / (double)(tick->time_ns - before->time_ns);
}

static void rate(struct json_object *o, const char *name, double per_second)
{
	/* jsonmake_seconds(): thousandths of whatever. */
	jsonmake_seconds(o, name, (int64_t)(per_second * 1e9));
}

static void ledgers_part(const struct account_tick *before, const struct account_tick *t, struct json_object *o)
{
	fields_add(o, of_ledgers, t);
	rate(o, "put_per_s", report_rate(before, t, before->put_n, t->put_n));
	rate(o, "put_bytes_per_s", report_rate(before, t, before->put_bytes, t->put_bytes));
	rate(o, "get_per_s", report_rate(before, t, before->get_n, t->get_n));
	rate(o, "handoff_per_s", report_rate(before, t, before->handoff_n, t->handoff_n));
	rate(o, "adopt_per_s", report_rate(before, t, before->adopt_n, t->adopt_n));
	rate(o, "delete_per_s", report_rate(before, t, before->delete_n, t->delete_n));
}

static void survey_part(const struct report_view *v, const struct survey *s, struct json_object *o)
{
	fields_add(o, of_survey, s);
	jsonmake_seconds(o, "age_seconds", v->now_ns - s->time_ns);
	fields_add(o, of_usage, &s->usage);
}

void report_status(const struct report_view *v, struct account *a, struct json_object *o)
{
	const struct account_tick *t = &a->tick;

	fields_add(o, of_space, t);
	jsonmake_u64(o, "available", t->size > t->used ? t->size - t->used : 0);
	ledgers_part(&a->before, t, jsonmake_child(o, "ledgers", jsonmake_new()));
	jsonmake_flag(o, "surveying", a->surveying);
	jsonmake_seconds(o, "survey_interval_seconds", (int64_t)a->config->survey_interval_ns);
	if (a->survey)
		survey_part(v, a->survey, jsonmake_child(o, "survey", jsonmake_new()));
	else
		jsonmake_null(o, "survey");
	report_tier(v, a, o);
	report_arb_status(a, o);
}
