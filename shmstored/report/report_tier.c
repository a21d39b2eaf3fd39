/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report_tier.c: a partition's disk tier: what lies there, and what the daemon does with it. Named
 * as in "shmstore-admin --json tier", where they are the same.
 */
#include <json-c/json.h>

#include "account.h"
#include "jsonmake.h"
#include "report_parts.h"
#include "tierfigures.h"
#include "tierwork.def"

void report_tier(const struct report_view *v, struct account *a, struct json_object *o)
{
	struct tierkeeper_view t;
	struct tierscrub_view s;

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
	jsonmake_null(o, "running");
	if (t.state == TIERKEEPER_EVICTING)
		fields_of(jsonmake_child(o, "running", jsonmake_new()), &t, NUMBER(objects), SAME(freed),
			  SAME(written));
	fields_add(jsonmake_child(o, "counters", jsonmake_new()), of_evictions, &t.counters);
	tierscrub_view(a, &s);
	fields_add(jsonmake_child(o, "scrub", jsonmake_new()), of_scrubs, &s);
}
