/* SPDX-License-Identifier: Apache-2.0 */
/* arbtable.c: tables of an arbiter's contexts and pools, waiting contexts first. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "arb.h"
#include "jsonin.h"
#include "jsonmake.h"
#include "table.h"

/* In the order in which they are shown. */
static const char *const states[] = {"BUFN",    "BUFN_WAIT", "BUFN_THROW", "SPLIT_THROW",
				     "BLOCKED", "ALLOC",     "ALLOC_FREE", "REMOVE_THROW",
				     "RUNNING", "UNKNOWN"};
#define N_STATES (sizeof(states) / sizeof(states[0]))

static uint64_t rank_of(const struct json_object *context)
{
	const char *name = jsonin_text(context, "state");
	size_t i = 0;

	while (i < N_STATES && strcmp(states[i], name) != 0)
		i++;
	return i;
}

/* ---- order ---- */

const char *const arb_order_names[ARB_N_ORDERS] = {"state", "since", "held", "priority", "store"};
/* The members that they are, of which the tool adds two itself. */
static const char *const order_members[ARB_N_ORDERS] = {"rank", "-since_ms", "-held", "-urgency",
							"store"};

/* ---- contexts ---- */

static const struct table_column columns[] = {
	{"CONTEXT", FIGURE_ID, "id"},
	{"STORE", TABLE_TRUNC, "store"},
	{"PID", FIGURE_COUNT, "pid"},
	{"KIND", TABLE_WIDE, "kind"},
	/* A waiting context counts as running, but says that it makes no progress. */
	{"STATE", TABLE_STATE, "[has wait?waits: {wait}|{state}]"},
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

size_t arb_print_contexts(const struct admin *a, const struct json_object *partition, size_t order,
			  size_t most, bool narrow)
{
	const char *const by[] = {order_members[order], "-since_ms", "id", NULL};
	const struct json_object **items;
	size_t n = jsonin_count(partition, "contexts"), shown = most && most < n ? most : n;
	struct table t;

	for (size_t i = 0; i < n; i++) {
		struct json_object *c = jsonin_at(partition, "contexts", i);

		jsonmake_u64(c, "rank", rank_of(c));
		/* Without an explicit priority it comes behind all that have one. */
		jsonmake_i64(c, "urgency",
			     jsonin_has(c, "priority") ? jsonin_i64(c, "priority") : INT64_MIN);
	}
	items = jsonin_sorted(partition, "contexts", by, &n);
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
