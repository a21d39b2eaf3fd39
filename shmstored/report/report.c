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

#include <json-c/json.h>
#include <json-c/printbuf.h>
#include <shmstore/shmstore.h>
#include <string.h>
#include <unistd.h>

#include "account.h"
#include "actord.h"
#include "clocks.h"
#include "events.h"
#include "host.def"
#include "jsonmake.h"
#include "loop.h"
#include "profiletasks.h"
#include "report_parts.h"

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
