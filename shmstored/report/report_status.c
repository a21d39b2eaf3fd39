/* SPDX-License-Identifier: Apache-2.0 */
/* report_status.c: a partition in short: the file system now, the ledgers' sums, and the df equation of the last survey. */
#include <json-c/json.h>

#include "account.h"
#include "config.h"
#include "jsonmake.h"
#include "report_parts.h"
#include "usagejson.h"

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
	jsonmake_u64(o, "stores", t->n_members);
	jsonmake_u64(o, "objects", t->n_objects);
	jsonmake_u64(o, "linked", t->linked);
	jsonmake_u64(o, "pool", t->pool);
	jsonmake_u64(o, "mapped", t->mapped);
	jsonmake_u64(o, "reserved", t->reserved);
	jsonmake_u64(o, "put_n", t->put_n);
	jsonmake_u64(o, "put_bytes", t->put_bytes);
	jsonmake_u64(o, "get_n", t->get_n);
	jsonmake_u64(o, "get_bytes", t->get_bytes);
	jsonmake_u64(o, "delete_n", t->delete_n);
	jsonmake_u64(o, "handoff_n", t->handoff_n);
	jsonmake_u64(o, "handoff_bytes", t->handoff_bytes);
	jsonmake_u64(o, "adopt_n", t->adopt_n);
	jsonmake_u64(o, "adopt_bytes", t->adopt_bytes);
	rate(o, "put_per_s", report_rate(before, t, before->put_n, t->put_n));
	rate(o, "put_bytes_per_s", report_rate(before, t, before->put_bytes, t->put_bytes));
	rate(o, "get_per_s", report_rate(before, t, before->get_n, t->get_n));
	rate(o, "handoff_per_s", report_rate(before, t, before->handoff_n, t->handoff_n));
	rate(o, "adopt_per_s", report_rate(before, t, before->adopt_n, t->adopt_n));
	rate(o, "delete_per_s", report_rate(before, t, before->delete_n, t->delete_n));
}

static void survey_part(const struct report_view *v, const struct survey *s, struct json_object *o)
{
	jsonmake_u64(o, "sequence", s->sequence);
	jsonmake_seconds(o, "time", s->time_ns);
	jsonmake_seconds(o, "age_seconds", v->now_ns - s->time_ns);
	jsonmake_seconds(o, "duration_seconds", (int64_t)s->duration_ns);
	usagejson_add(o, &s->usage);
}

void report_status(const struct report_view *v, struct account *a, struct json_object *o)
{
	const struct account_tick *t = &a->tick;

	jsonmake_seconds(o, "time", t->time_ns);
	jsonmake_u64(o, "size", t->size);
	jsonmake_u64(o, "used", t->used);
	jsonmake_u64(o, "available", t->size > t->used ? t->size - t->used : 0);
	jsonmake_u64(o, "used_max", t->used_max);
	jsonmake_u64(o, "inodes_size", t->inodes_size);
	jsonmake_u64(o, "inodes_used", t->inodes_used);
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
