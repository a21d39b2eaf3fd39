/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report_tier.c: a partition's disk tier: what lies there, and what the daemon does with it. Named as in "shmstore-admin --json tier", where
 * they are the same.
 */
#include <json-c/json.h>

#include "account.h"
#include "jsonmake.h"
#include "report_parts.h"
#include "tierkeeper.h"
#include "tierscrub.h"

static void info_part(const struct shmstore_tier_info *i, struct json_object *o)
{
	const struct shmstore_tier_config *c = &i->config;

	jsonmake_text(o, "path", c->path);
	jsonmake_text(o, "files", i->path);
	jsonmake_u64(o, "max", c->max);
	jsonmake_u64(o, "min_free", c->min_free);
	jsonmake_i64(o, "level", c->level);
	jsonmake_flag(o, "fsync", c->fsync);
	jsonmake_u64(o, "high", c->high);
	jsonmake_u64(o, "low", c->low);
	jsonmake_u64(o, "disk_size", i->disk_size);
	jsonmake_u64(o, "disk_free", i->disk_free);
	jsonmake_u64(o, "available", tierkeeper_available(i));
	jsonmake_u64(o, "used", i->used);
	jsonmake_u64(o, "demoted", i->demoted);
	jsonmake_u64(o, "clean", i->clean);
	jsonmake_u64(o, "orphans", i->orphans);
	jsonmake_u64(o, "n_demoted", i->n_demoted);
	jsonmake_u64(o, "n_clean", i->n_clean);
	jsonmake_u64(o, "n_orphans", i->n_orphans);
	jsonmake_u64(o, "original", i->original);
	/* Two decimals are enough; jsonmake_seconds() has three of whatever. */
	if (i->demoted)
		jsonmake_seconds(o, "ratio", (int64_t)((double)i->original / (double)i->demoted * 1e9));
	else
		jsonmake_null(o, "ratio");
	jsonmake_u64(o, "n_raw", i->n_codec_raw);
	jsonmake_u64(o, "n_zstd", i->n_codec_zstd);
}

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
		info_part(t.info, o);
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
