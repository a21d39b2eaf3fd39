/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report_tier.c: a partition's disk tier: what lies there, and what the daemon does with it. Named as in "shmstore-admin --json tier", where
 * they are the same.
 */
#include <json-c/json.h>

#include "account.h"
#include "jsonmake.h"
#include "report_parts.h"
#include "tierfigures.h"
#include "tierkeeper.h"
#include "tierscrub.h"

static void counters_part(const struct tierkeeper_counters *c, struct json_object *o)
{
	jsonmake_u64(o, "evictions", c->n_evictions);
	jsonmake_u64(o, "objects", c->n_objects);
	jsonmake_u64(o, "clean", c->n_clean);
	jsonmake_u64(o, "skipped", c->n_skipped);
	jsonmake_u64(o, "disk_full", c->n_disk_full);
	jsonmake_u64(o, "damaged", c->n_damaged);
	jsonmake_u64(o, "freed", c->freed);
	jsonmake_u64(o, "held", c->held);
	jsonmake_u64(o, "original", c->original);
	jsonmake_u64(o, "written", c->written);
	jsonmake_seconds(o, "duration_seconds", (int64_t)c->duration_ns);
}

static void scrub_part(const struct account *a, struct json_object *o)
{
	struct tierscrub_view s;

	tierscrub_view(a, &s);
	jsonmake_flag(o, "running", s.running);
	jsonmake_u64(o, "bytes", s.bytes);
	if (s.time_ns)
		jsonmake_seconds(o, "time", s.time_ns);
	else
		jsonmake_null(o, "time");
	jsonmake_u64(o, "files", s.n_files);
	jsonmake_u64(o, "damaged", s.n_damaged);
}

void report_tier(const struct report_view *v, struct account *a, struct json_object *o)
{
	struct tierkeeper_view t;

	tierkeeper_view(a, &t);
	if (t.state == TIERKEEPER_NONE) {
		jsonmake_null(o, "tier");
		return;
	}
	o = jsonmake_child(o, "tier", jsonmake_new());
	jsonmake_text(o, "state", tierkeeper_state_name(t.state));
	jsonmake_text(o, "why", *t.why ? t.why : NULL);
	if (t.retry_ns > v->mono_ns)
		jsonmake_seconds(o, "retry_seconds", (int64_t)(t.retry_ns - v->mono_ns));
	else
		jsonmake_null(o, "retry_seconds");
	if (t.info)
		tierfigures_add(o, t.info);
	if (t.state == TIERKEEPER_EVICTING) {
		struct json_object *running = jsonmake_child(o, "running", jsonmake_new());

		jsonmake_u64(running, "objects", t.n_objects);
		jsonmake_u64(running, "freed", t.freed);
		jsonmake_u64(running, "written", t.written);
	} else {
		jsonmake_null(o, "running");
	}
	counters_part(&t.counters, jsonmake_child(o, "counters", jsonmake_new()));
	scrub_part(a, jsonmake_child(o, "scrub", jsonmake_new()));
}
