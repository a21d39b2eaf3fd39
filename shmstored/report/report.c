/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.c: chooses the partitions, and puts the daemon's part and the partitions' parts together.
 * Reads what the loop's thread owns, changes nothing, blocks on nothing: no name is looked up here,
 * users' names are those of the last survey.
 *
 * A daemon has one answer to each question: a viewer that may see less gets the same document
 * without others' data.
 */
#include "report.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <json-c/printbuf.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "account.h"
#include "actord.h"
#include "clocks.h"
#include "config.h"
#include "fields.h"
#include "host.def"
#include "host.h"
#include "log.h"
#include "loop.h"
#include "partition.def"
#include "profiles.h"
#include "tierkeeper.h"
#include "tierwork.def"
#include "usage.def"

static void daemon_part(const struct report_view *v, struct host *h, struct json_object *o)
{
	struct json_object *events;

	jsonmake_text(o, "version", shmstore_version());
	jsonmake_i64(o, "pid", getpid());
	jsonmake_seconds(o, "started", h->started_ns);
	jsonmake_seconds(o, "time", v->now_ns);
	jsonmake_u64(o, "epoch", h->epoch);
	jsonmake_text(o, "backend", loop_backend(h->loop));
	jsonmake_u64(o, "clients", h->n_conns);
	jsonmake_flag(o, "draining", h->draining);
	/* The users whose stores the other documents show by name. */
	jsonmake_text(o, "view",
		      v->uid == REPORT_ALL      ? "all"
		      : v->uid == REPORT_NOBODY ? "totals"
						: "own");
	fields_add(jsonmake_child(o, "counters", jsonmake_new()), of_host, &h->counters);
	events = jsonmake_child(o, "events", jsonmake_new());
	for (int e = 0; e < (int)EVENTS_N; e++)
		jsonmake_u64(events, event_name((enum event)e),
			     events_count(h->events, (enum event)e));
}

/* An event is text in JSON already: it is printed as it is instead of being parsed and printed
 * again. */
static int print_raw(struct json_object *o, struct printbuf *out, UNUSED int level,
		     UNUSED int flags)
{
	return printbuf_memappend(out, json_object_get_string(o), json_object_get_string_len(o));
}

struct event_list {
	const struct report_view *view;
	struct events *events;
	struct json_object *list;
};

static int add_event(UNUSED enum event e, uint64_t sequence, const char *json, void *arg)
{
	struct event_list *l = arg;
	uid_t owner = events_owner(l->events, sequence);
	struct json_object *item;

	if (owner != (uid_t)-1 && !report_may_see(l->view, owner))
		return 0;
	item = json_object_new_string(json);
	if (item)
		json_object_set_serializer(item, print_raw, NULL, NULL);
	jsonmake_append(l->list, item);
	return 0;
}

static void events_part(const struct report_view *v, struct host *h, struct json_object *o)
{
	struct event_list l = {.view = v, .events = h->events};

	jsonmake_u64(o, "last", events_last(h->events));
	l.list = jsonmake_child(o, "events", jsonmake_new_list());
	events_each(h->events, v->since, UINT64_MAX, add_event, &l);
}

static void report_actors(const struct report_view *v, struct host *h, struct json_object *o)
{
	if (h->actord->report)
		h->actord->report(v, h, o);
}

/* ---- a partition in short -------------------------------------------------------------------- */

/* From a to b in so long, for each second; elapsed_ns 0: not known. */
static void rate(struct json_object *o, const char *name, int64_t elapsed_ns, uint64_t a,
		 uint64_t b)
{
	double per_second =
		elapsed_ns > 0 && b > a ? (double)(b - a) * 1e9 / (double)elapsed_ns : 0;

	/* jsonmake_seconds(): thousandths of whatever. */
	jsonmake_seconds(o, name, (int64_t)(per_second * 1e9));
}

/*
 * A partition's disk tier: what lies there, and what the daemon does with it. Named
 * as in "shmstore-admin --json tier", where they are the same.
 */
static void report_tier(const struct report_view *v, struct account *a, struct json_object *o)
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
		fields_of(jsonmake_child(o, "running", jsonmake_new()), &t, NUMBER(objects),
			  SAME(freed), SAME(written));
	fields_add(jsonmake_child(o, "counters", jsonmake_new()), of_evictions, &t.counters);
	tierscrub_view(a, &s);
	fields_add(jsonmake_child(o, "scrub", jsonmake_new()), of_scrubs, &s);
}

static void report_status(const struct report_view *v, struct account *a, struct json_object *o)
{
	const struct account_tick *t = &a->tick, *before = &a->before;
	const int64_t elapsed_ns = before->time_ns ? t->time_ns - before->time_ns : 0;
	const struct survey *s = a->survey;
	struct json_object *part;

	fields_add(o, of_space, t);
	jsonmake_u64(o, "available", t->size > t->used ? t->size - t->used : 0);
	part = jsonmake_child(o, "ledgers", jsonmake_new());
	fields_add(part, of_ledgers, t);
	rate(part, "put_per_s", elapsed_ns, before->put_n, t->put_n);
	rate(part, "put_bytes_per_s", elapsed_ns, before->put_bytes, t->put_bytes);
	rate(part, "get_per_s", elapsed_ns, before->get_n, t->get_n);
	rate(part, "handoff_per_s", elapsed_ns, before->handoff_n, t->handoff_n);
	rate(part, "adopt_per_s", elapsed_ns, before->adopt_n, t->adopt_n);
	rate(part, "delete_per_s", elapsed_ns, before->delete_n, t->delete_n);
	jsonmake_flag(o, "surveying", a->running);
	jsonmake_seconds(o, "survey_interval_seconds", (int64_t)a->config->survey_interval_ns);
	part = jsonmake_child(o, "survey", s ? jsonmake_new() : NULL);
	if (s) {
		fields_add(part, of_survey, s);
		jsonmake_seconds(part, "age_seconds", v->now_ns - s->time_ns);
		fields_add(part, of_usage, &s->usage);
	}
	report_tier(v, a, o);
	report_arb_status(a, o);
}

/* The holders of memory that has no name: the witnesses of the last survey, the largest first as
 * it gives them. */
static void report_holders(const struct report_view *v, struct account *a, struct json_object *o)
{
	const struct survey *s = a->survey;
	struct json_object *list = jsonmake_child(o, "holders", jsonmake_new_list());

	jsonmake_u64(o, "survey_sequence", s ? s->sequence : 0);
	jsonmake_u64(o, "left_out", s ? s->n_holders_left_out : 0);
	jsonmake_u64(o, "ghosts", s ? s->usage.ghosts : 0);
	jsonmake_u64(o, "inflight", s ? s->usage.inflight : 0);
	for (size_t i = 0; s && i < s->n_holders; i++) {
		const struct survey_holder *h = &s->holders[i];

		if (!report_may_see(v, h->uid))
			continue;
		o = jsonmake_append(list, jsonmake_new());
		fields_of(o, h, PLACE("kind"), SAME(pid), SAME(uid), SAME(command), SAME(inode),
			  SAME(bytes), SAME(mapped), FIELD(n_fds, "fds"), SAME(path), SAME(key),
			  /* Several processes may hold one inode: the first ones' bytes add up. */
			  SAME(first));
		jsonmake_text(o, "kind", h->kind == SHMSTORE_HOLD_INFLIGHT ? "inflight" : "ghost");
		jsonmake_seconds(o, "age_seconds",
				 v->mono_ns > h->since_ns ? (int64_t)(v->mono_ns - h->since_ns)
							  : 0);
	}
}

/*
 * The partition's last minutes, column by column: half the size of an object per
 * sample, and what a chart wants.
 */
static void ring_part(const struct report_view *v, const struct history_ring *r,
		      uint64_t interval_seconds, struct json_object *o)
{
	size_t first = r->n;
	struct json_object *list;

	/* Times are told in milliseconds, and come back as such. */
	while (first > 0 &&
	       (uint64_t)history_at(r, first - 1)->time_ns / 1000000 > v->since / 1000000)
		first--;
	jsonmake_u64(o, "interval_seconds", interval_seconds);
	list = jsonmake_child(o, "time", jsonmake_new_list());
	for (size_t i = first; i < r->n; i++)
		jsonmake_append_seconds(list, history_at(r, i)->time_ns);
	for (size_t c = 0; c < sizeof(of_history) / sizeof(of_history[0]); c++) {
		list = jsonmake_child(o, of_history[c].name, jsonmake_new_list());
		for (size_t i = first; i < r->n; i++) {
			const void *at = (const char *)history_at(r, i) + of_history[c].off;

			jsonmake_append_u64(list, *(const uint64_t *)at);
		}
	}
}

static void report_history(const struct report_view *v, struct account *a, struct json_object *o)
{
	ring_part(v, &a->history.seconds, 1, jsonmake_child(o, "fine", jsonmake_new()));
	ring_part(v, &a->history.tens, 10, jsonmake_child(o, "coarse", jsonmake_new()));
}

/* ---- documents ------------------------------------------------------------------------------- */

typedef void part(const struct report_view *v, struct account *a, struct json_object *o);

static void partitions_part(const struct report_view *v, struct host *h, const struct account *only,
			    part *fill, struct json_object *o)
{
	struct json_object *list = jsonmake_child(o, "partitions", jsonmake_new_list());

	for (struct account *a = h->accounts; a; a = a->next) {
		struct json_object *item;

		if (only && a != only)
			continue;
		item = jsonmake_append(list, jsonmake_new());
		jsonmake_text(item, "partition", a->path);
		jsonmake_text(item, "uuid", a->uuid);
		fill(v, a, item);
	}
}

/* The use of tasks so far, for viewers who may see it: the document of "shmstore-admin profile
 * show". */
static void report_profiles(const struct report_view *v, struct host *h, struct json_object *o)
{
	struct json_object *known = h->profiles && v->uid != REPORT_NOBODY
					    ? profilereport_make(h, v->uid == REPORT_ALL, v->uid)
					    : NULL;

	jsonmake_flag(o, "enabled", known != NULL);
	if (known)
		jsonmake_child(o, "known", known);
}

/* The questions by the names that HTTP has for them, and the answer to each: of each partition, or
 * of the host, in a member of that name. Events are a member of the document's own. */
static const struct {
	const char *name;
	part *partition;
	void (*host)(const struct report_view *v, struct host *h, struct json_object *o);
} parts[] = {
	[WIRE_QUERY_STATUS] = {"status", report_status},
	[WIRE_QUERY_RECONCILE] = {NULL, report_status},
	[WIRE_QUERY_WORKERS] = {"workers", report_workers},
	[WIRE_QUERY_QUOTA] = {"quota", report_quota},
	[WIRE_QUERY_HOLDERS] = {"holders", report_holders},
	[WIRE_QUERY_HISTORY] = {"history", report_history},
	[WIRE_QUERY_EVENTS] = {"events", NULL, events_part},
	[WIRE_QUERY_ARBITER] = {"arbiter", report_arbiter},
	[WIRE_QUERY_ARB_LOG] = {"arb_log", report_arb_log},
	[WIRE_QUERY_STAGES] = {"stages", report_stages},
	[WIRE_QUERY_MEMORY] = {"memory", NULL, report_memory},
	[WIRE_QUERY_GATE] = {"gate", NULL, report_gate},
	[WIRE_QUERY_ACTORS] = {"actors", NULL, report_actors},
	[WIRE_QUERY_PROFILES] = {"profiles", NULL, report_profiles},
};
#define N_PARTS (sizeof(parts) / sizeof(parts[0]))

bool report_answers(uint32_t what)
{
	return what < N_PARTS && (parts[what].partition || parts[what].host);
}

enum wire_question report_question(const char *name)
{
	unsigned what = N_PARTS;

	while (what-- > 0)
		if (parts[what].name && strcmp(parts[what].name, name) == 0)
			return (enum wire_question)what;
	return 0;
}

struct json_object *report_make(struct host *h, enum wire_question what, const char *path,
				unsigned uid, uint64_t since)
{
	struct report_view v = {.uid = uid,
				.since = since,
				.now_ns = (int64_t)clock_ns(CLOCK_REALTIME),
				.mono_ns = loop_clock()};
	const struct account *only = NULL;
	part *fill = parts[what].partition;
	struct json_object *o;

	if (path && *path) {
		only = account_find(h, path);
		if (!only)
			return NULL;
	}
	jsonmake_begin();
	o = jsonmake_new();
	if (fill == report_status)
		daemon_part(&v, h, jsonmake_child(o, "daemon", jsonmake_new()));
	else
		jsonmake_seconds(o, "time", v.now_ns);
	if (fill)
		partitions_part(&v, h, only, fill, o);
	else if (what == WIRE_QUERY_EVENTS)
		events_part(&v, h, o);
	else
		parts[what].host(&v, h, jsonmake_child(o, parts[what].name, jsonmake_new()));
	return jsonmake_end(o);
}

/* ---- is the daemon well enough to be believed? ----------------------------------------------- */

#define SECOND_NS INT64_C(1000000000)
#define LATE_NS   UINT64_C(1000000000)
#define STALE_NS  (30 * SECOND_NS) /* beyond three intervals of the survey */

/* A survey that does not come says that its books are not to be believed, whatever the reason. */
static void add_stale(const struct account *a, int64_t started_ns, int64_t now_ns,
		      struct json_object *reasons)
{
	int64_t allowed = 3 * (int64_t)a->config->survey_interval_ns + STALE_NS;
	int64_t age = now_ns - (a->survey ? a->survey->time_ns : started_ns);
	char text[512];

	if (!a->config->survey_interval_ns || age < allowed)
		return;
	snprintf(text, sizeof(text), "survey stale: %.400s: the last one is %" PRId64 " s old",
		 a->path, age / SECOND_NS);
	jsonmake_append_text(reasons, text);
}

/* Where a partition cannot be kept below its mark, puts are about to fail, or wait for the disk. */
static void add_tier(const struct account *a, struct json_object *reasons)
{
	struct tierkeeper_view t;
	char text[1024];

	tierkeeper_view(a, &t);
	if (t.state != TIERKEEPER_DISK_FULL && t.state != TIERKEEPER_UNAVAILABLE)
		return;
	/* A directory that is gone, a temporary one perhaps, with nothing that was in it,
	 * keeps nobody from anything. */
	if (t.state == TIERKEEPER_UNAVAILABLE && a->survey && !a->survey->usage.n_demoted)
		return;
	snprintf(text, sizeof(text), "disk tier %s: %.400s: %s", tierkeeper_state_name(t.state),
		 a->path, t.why);
	jsonmake_append_text(reasons, text);
}

struct json_object *health_make(const struct host *h, const struct lateness *l, bool *ret_well)
{
	struct json_object *o, *reasons;
	char text[128];
	bool well;

	jsonmake_begin();
	o = jsonmake_new();
	reasons = jsonmake_new_list();
	if (lateness_worst(l) > LATE_NS) {
		snprintf(text, sizeof(text), "loop late: by %.1f s within the last %u s",
			 (double)lateness_worst(l) / 1e9, LATENESS_RECENT);
		jsonmake_append_text(reasons, text);
	}
	if (h->draining)
		jsonmake_append_text(reasons, "the daemon is about to end");
	for (const struct account *a = h->accounts; a; a = a->next) {
		add_stale(a, h->started_ns, (int64_t)clock_ns(CLOCK_REALTIME), reasons);
		add_tier(a, reasons);
	}
	well = reasons && json_object_array_length(reasons) == 0;
	jsonmake_text(o, "status", well ? "ok" : "unwell");
	jsonmake_child(o, "reasons", reasons);
	*ret_well = well;
	return jsonmake_end(o);
}
