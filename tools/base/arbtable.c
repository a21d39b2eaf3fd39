/* SPDX-License-Identifier: Apache-2.0 */
/* arbtable.c: tables of an arbiter's contexts and pools, waiting contexts first. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "arb.h"
#include "jsonin.h"
#include "message.h"
#include "table.h"

/* In the order in which they are shown. */
static const char *const states[] = {"BUFN",    "BUFN_WAIT", "BUFN_THROW", "SPLIT_THROW",
				     "BLOCKED", "ALLOC",     "ALLOC_FREE", "REMOVE_THROW",
				     "RUNNING", "UNKNOWN"};
#define N_STATES (sizeof(states) / sizeof(states[0]))

static size_t rank_of(const struct json_object *context)
{
	const char *name = jsonin_text(context, "state");
	size_t i = 0;

	while (i < N_STATES && strcmp(states[i], name) != 0)
		i++;
	return i;
}

/* ---- order ---- */

const char *const arb_order_names[ARB_N_ORDERS] = {"state", "since", "held", "priority", "store"};

static int larger_first(uint64_t a, uint64_t b)
{
	return (a < b) - (a > b);
}

/* Without an explicit priority it comes behind all that have one. */
static int compare_priorities(const struct json_object *a, const struct json_object *b)
{
	bool has_a = jsonin_has(a, "priority"), has_b = jsonin_has(b, "priority");
	int64_t one = jsonin_i64(a, "priority"), two = jsonin_i64(b, "priority");

	if (has_a != has_b)
		return has_b - has_a;
	return (one < two) - (one > two);
}

static int compare(const void *x, const void *y, void *arg)
{
	const struct json_object *a = *(struct json_object *const *)x,
				 *b = *(struct json_object *const *)y;
	size_t rank_a = rank_of(a), rank_b = rank_of(b);
	int r = 0;

	switch (*(enum arb_order *)arg) {
	case ARB_BY_STATE:
		r = (rank_a > rank_b) - (rank_a < rank_b);
		break;
	case ARB_BY_HELD:
		r = larger_first(jsonin_u64(a, "held"), jsonin_u64(b, "held"));
		break;
	case ARB_BY_PRIORITY:
		r = compare_priorities(a, b);
		break;
	case ARB_BY_STORE:
		r = strcmp(jsonin_text(a, "store"), jsonin_text(b, "store"));
		break;
	case ARB_BY_SINCE:
	case ARB_N_ORDERS:
		break;
	}
	if (!r)
		r = larger_first(jsonin_u64(a, "since_ms"), jsonin_u64(b, "since_ms"));
	return r ? r : -larger_first(jsonin_u64(a, "id"), jsonin_u64(b, "id"));
}

/* ---- contexts ---- */

static void show_state(struct table *t, size_t column, const struct json_object *c)
{
	if (!jsonin_has(c, "wait")) {
		table_state(t, column, jsonin_text(c, "state"));
		return;
	}
	/* It runs as far as we know, but says that it does not get on. */
	table_printf(t, column, "waits: %.16s", jsonin_text(c, "wait"));
	table_color(t, column, "yellow");
}

static const struct table_column columns[] = {
	{"CONTEXT", FIGURE_ID, "id"},
	{"STORE", TABLE_TRUNC, "store"},
	{"PID", FIGURE_COUNT, "pid"},
	{"KIND", TABLE_WIDE, "kind"},
	{"STATE", .show = show_state},
	{"SINCE", FIGURE_LATELY, "since_ms"},
	{"PRIO", FIGURE_COUNT, "priority", "-"},
	{"POOL", TABLE_TRUNC, "pool", "-"},
	{"WANTS", FIGURE_SIZE | TABLE_UNLESS_0, "bytes", "-"},
	{"HELD", FIGURE_SIZE | TABLE_UNLESS_0, "held", "-"},
	{"NEED", FIGURE_SIZE | TABLE_UNLESS_0, "need", "-"},
	{"PASSED", FIGURE_COUNT | TABLE_WIDE, "passed"},
	{"TASK", FIGURE_ID | TABLE_WIDE, "task"},
	{"LABEL", TABLE_TRUNC, "label"},
	{"WHY", TABLE_WRAP | TABLE_WIDE, "reason"},
};

size_t arb_print_contexts(const struct admin *a, const struct json_object *partition,
			  enum arb_order order, size_t most, bool narrow)
{
	size_t n = jsonin_count(partition, "contexts"), shown = most && most < n ? most : n;
	const struct json_object **items = calloc(n + 1, sizeof(const struct json_object *));
	struct table t;

	if (!items)
		message_no_memory();
	for (size_t i = 0; i < n; i++)
		items[i] = jsonin_at(partition, "contexts", i);
	qsort_r(items, n, sizeof(const struct json_object *), compare, &order);
	table_init(&t, a, columns, sizeof(columns) / sizeof(columns[0]));
	if (narrow)
		table_hide_wide(&t);
	for (size_t i = 0; i < shown; i++)
		table_object(&t, items[i]);
	table_finish(&t);
	free(items);
	return n - shown;
}

static void show_level(struct table *t, size_t column, const struct json_object *p)
{
	static const char *const levels[] = {"none", "waiting", "rolled back"};
	uint64_t level = jsonin_u64(p, "level");

	if (level > 2)
		table_printf(t, column, "%" PRIu64, level);
	else
		table_text(t, column, levels[level]);
	if (level)
		table_color(t, column, level == 1 ? "yellow" : "red");
}

static const struct table_column pool_columns[] = {
	{"POOL", TABLE_TRUNC, "name"},
	{"ID", FIGURE_ID | TABLE_WIDE, "id"},
	{"OF", TABLE_TRUNC, "store", "all"},
	{"CAPACITY", FIGURE_SIZE, "capacity"},
	{"USED", FIGURE_SIZE, "used"},
	{"FILL", TABLE_FILL, "used/capacity"},
	{"RECLAIMABLE", FIGURE_SIZE | TABLE_UNLESS_0, "reclaimable", "-"},
	{"SPILLED", FIGURE_SIZE | TABLE_UNLESS_0 | TABLE_WIDE, "spilled", "-"},
	{"LEASED", FIGURE_SIZE | TABLE_UNLESS_0 | TABLE_WIDE, "leased", "-"},
	{"OBJECTS", FIGURE_SIZE | TABLE_UNLESS_0 | TABLE_WIDE, "objects", "-"},
	{"GHOSTS", FIGURE_SIZE | TABLE_UNLESS_0 | TABLE_WIDE, "ghosts", "-"},
	{"DRIFT", FIGURE_SIZE | TABLE_UNLESS_0 | TABLE_WIDE, "drift", "-"},
	{"WAITING", FIGURE_COUNT | TABLE_WARN, "waiting"},
	{"PRESSURE", .show = show_level},
	{"GRANTS", FIGURE_COUNT | TABLE_WIDE, "grants"},
	{"WAITS", FIGURE_COUNT | TABLE_WIDE, "waits"},
	{"RETRIES", FIGURE_COUNT | TABLE_WIDE, "retries"},
	{"SPLITS", FIGURE_COUNT | TABLE_WIDE, "splits"},
};

void arb_print_pools(const struct admin *a, const struct json_object *partition, bool narrow)
{
	struct table t;

	table_init(&t, a, pool_columns, sizeof(pool_columns) / sizeof(pool_columns[0]));
	if (narrow)
		table_hide_wide(&t);
	for (size_t i = 0; i < jsonin_count(partition, "pools"); i++)
		table_object(&t, jsonin_at(partition, "pools", i));
	table_finish(&t);
}
