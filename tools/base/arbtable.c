/* SPDX-License-Identifier: Apache-2.0 */
/* arbtable.c: tables of an arbiter's contexts and pools, waiting contexts first. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "arb.h"
#include "human.h"
#include "jsonin.h"
#include "message.h"
#include "table.h"

/* In the order in which they are shown, with what they look like. */
static const struct {
	const char *name, *color;
} states[] = {
	{"BUFN", "red"},       {"BUFN_WAIT", "red"}, {"BUFN_THROW", "red"},  {"SPLIT_THROW", "red"},
	{"BLOCKED", "yellow"}, {"ALLOC", "cyan"},    {"ALLOC_FREE", "cyan"}, {"REMOVE_THROW", NULL},
	{"RUNNING", "green"},  {"UNKNOWN", NULL},
};
#define N_STATES (sizeof(states) / sizeof(states[0]))

static size_t rank_of(const struct json_object *context)
{
	const char *name = jsonin_text(context, "state");
	size_t i = 0;

	while (i < N_STATES && strcmp(states[i].name, name) != 0)
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
	const struct json_object *a = *(struct json_object *const *)x, *b = *(struct json_object *const *)y;
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

#define COLUMNS(X)                         \
	X(CONTEXT, "CONTEXT", TABLE_RIGHT) \
	X(STORE, "STORE", TABLE_TRUNC)     \
	X(PID, "PID", TABLE_RIGHT)         \
	X(KIND, "KIND", 0)                 \
	X(STATE, "STATE", 0)               \
	X(SINCE, "SINCE", TABLE_RIGHT)     \
	X(PRIORITY, "PRIO", TABLE_RIGHT)   \
	X(POOL, "POOL", TABLE_TRUNC)       \
	X(WANTS, "WANTS", TABLE_RIGHT)     \
	X(HELD, "HELD", TABLE_RIGHT)       \
	X(NEED, "NEED", TABLE_RIGHT)       \
	X(PASSED, "PASSED", TABLE_RIGHT)   \
	X(TASK, "TASK", TABLE_RIGHT)       \
	X(LABEL, "LABEL", TABLE_TRUNC)     \
	X(REASON, "WHY", TABLE_WRAP)
TABLE_COLUMNS(columns, COLUMNS, N_COLUMNS);

static void print_duration(struct table *t, size_t column, uint64_t ms)
{
	char text[HUMAN_SIZE];

	if (ms < 10000)
		table_printf(t, column, "%.1f s", (double)ms / 1e3);
	else
		table_text(t, column, human_duration((double)ms / 1e3, text));
}

static void print_state(struct table *t, const struct json_object *c)
{
	size_t rank = rank_of(c);

	if (jsonin_has(c, "wait")) {
		/* It runs as far as we know, but says that it does not get on. */
		table_printf(t, STATE, "waits: %.16s", jsonin_text(c, "wait"));
		table_color(t, STATE, "yellow");
		return;
	}
	table_text(t, STATE, jsonin_text(c, "state"));
	if (rank < N_STATES && states[rank].color)
		table_color(t, STATE, states[rank].color);
}

static void print_size_unless_0(struct table *t, size_t column, const struct json_object *o, const char *member)
{
	if (jsonin_u64(o, member))
		table_size(t, column, jsonin_u64(o, member));
	else
		table_text(t, column, "-");
}

static void print_context(struct table *t, const struct json_object *c)
{
	char id[ARB_ID_SIZE];

	table_row(t);
	table_text(t, CONTEXT, arb_id_text(jsonin_u64(c, "id"), id));
	table_text(t, STORE, jsonin_text(c, "store"));
	table_printf(t, PID, "%" PRId64, jsonin_i64(c, "pid"));
	table_text(t, KIND, jsonin_text(c, "kind"));
	print_state(t, c);
	print_duration(t, SINCE, jsonin_u64(c, "since_ms"));
	if (jsonin_has(c, "priority"))
		table_printf(t, PRIORITY, "%" PRId64, jsonin_i64(c, "priority"));
	else
		table_text(t, PRIORITY, "-");
	table_text(t, POOL, jsonin_has(c, "pool") ? jsonin_text(c, "pool") : "-");
	print_size_unless_0(t, WANTS, c, "bytes");
	print_size_unless_0(t, HELD, c, "held");
	print_size_unless_0(t, NEED, c, "need");
	table_count(t, PASSED, jsonin_u64(c, "passed"));
	table_text(t, TASK, arb_id_text(jsonin_u64(c, "task"), id));
	table_text(t, LABEL, jsonin_text(c, "label"));
	table_text(t, REASON, jsonin_text(c, "reason"));
}

size_t arb_print_contexts(const struct admin *a, const struct json_object *partition, enum arb_order order, size_t most,
			  bool narrow)
{
	size_t n = jsonin_count(partition, "contexts"), shown = most && most < n ? most : n;
	const struct json_object **items = calloc(n + 1, sizeof(const struct json_object *));
	struct table_column fitting[N_COLUMNS];
	struct table t;

	if (!items)
		message_no_memory();
	memcpy(fitting, columns, sizeof(fitting));
	if (narrow)
		fitting[KIND].flags = fitting[PASSED].flags = fitting[TASK].flags = fitting[REASON].flags =
			TABLE_HIDDEN;
	for (size_t i = 0; i < n; i++)
		items[i] = jsonin_at(partition, "contexts", i);
	qsort_r(items, n, sizeof(const struct json_object *), compare, &order);
	table_init(&t, a, fitting, N_COLUMNS);
	for (size_t i = 0; i < shown; i++)
		print_context(&t, items[i]);
	table_finish(&t);
	free(items);
	return n - shown;
}

/* ---- pools ---- */

#define POOL_COLUMNS(X)                              \
	X(P_NAME, "POOL", TABLE_TRUNC)               \
	X(P_ID, "ID", TABLE_RIGHT)                   \
	X(P_OWNER, "OF", TABLE_TRUNC)                \
	X(P_CAPACITY, "CAPACITY", TABLE_RIGHT)       \
	X(P_USED, "USED", TABLE_RIGHT)               \
	X(P_FILL, "FILL", TABLE_RIGHT)               \
	X(P_RECLAIMABLE, "RECLAIMABLE", TABLE_RIGHT) \
	X(P_SPILLED, "SPILLED", TABLE_RIGHT)         \
	X(P_LEASED, "LEASED", TABLE_RIGHT)           \
	X(P_OBJECTS, "OBJECTS", TABLE_RIGHT)         \
	X(P_GHOSTS, "GHOSTS", TABLE_RIGHT)           \
	X(P_DRIFT, "DRIFT", TABLE_RIGHT)             \
	X(P_WAITING, "WAITING", TABLE_RIGHT)         \
	X(P_LEVEL, "PRESSURE", 0)                    \
	X(P_GRANTS, "GRANTS", TABLE_RIGHT)           \
	X(P_WAITS, "WAITS", TABLE_RIGHT)             \
	X(P_RETRIES, "RETRIES", TABLE_RIGHT)         \
	X(P_SPLITS, "SPLITS", TABLE_RIGHT)
TABLE_COLUMNS(pool_columns, POOL_COLUMNS, N_POOL_COLUMNS);

static void print_level(struct table *t, const struct json_object *p)
{
	static const char *const levels[] = {"none", "waiting", "rolled back"};
	uint64_t level = jsonin_u64(p, "level");

	if (level > 2)
		table_printf(t, P_LEVEL, "%" PRIu64, level);
	else
		table_text(t, P_LEVEL, levels[level]);
	if (level)
		table_color(t, P_LEVEL, level == 1 ? "yellow" : "red");
}

static void print_pool(struct table *t, const struct json_object *p)
{
	char id[ARB_ID_SIZE];

	table_row(t);
	table_text(t, P_NAME, jsonin_text(p, "name"));
	table_text(t, P_ID, arb_id_text(jsonin_u64(p, "id"), id));
	table_text(t, P_OWNER, jsonin_has(p, "store") ? jsonin_text(p, "store") : "all");
	table_size(t, P_CAPACITY, jsonin_u64(p, "capacity"));
	table_size(t, P_USED, jsonin_u64(p, "used"));
	table_fill(t, P_FILL, jsonin_u64(p, "used"), jsonin_u64(p, "capacity"));
	print_size_unless_0(t, P_RECLAIMABLE, p, "reclaimable");
	print_size_unless_0(t, P_SPILLED, p, "spilled");
	print_size_unless_0(t, P_LEASED, p, "leased");
	print_size_unless_0(t, P_OBJECTS, p, "objects");
	print_size_unless_0(t, P_GHOSTS, p, "ghosts");
	print_size_unless_0(t, P_DRIFT, p, "drift");
	table_count(t, P_WAITING, jsonin_u64(p, "waiting"));
	if (jsonin_u64(p, "waiting"))
		table_color(t, P_WAITING, "yellow");
	print_level(t, p);
	table_count(t, P_GRANTS, jsonin_u64(p, "grants"));
	table_count(t, P_WAITS, jsonin_u64(p, "waits"));
	table_count(t, P_RETRIES, jsonin_u64(p, "retries"));
	table_count(t, P_SPLITS, jsonin_u64(p, "splits"));
}

void arb_print_pools(const struct admin *a, const struct json_object *partition, bool narrow)
{
	struct table_column fitting[N_POOL_COLUMNS];
	struct table t;

	memcpy(fitting, pool_columns, sizeof(fitting));
	if (narrow) {
		static const unsigned char dispensable[] = {P_ID,    P_SPILLED, P_LEASED, P_OBJECTS, P_GHOSTS,
							    P_DRIFT, P_GRANTS,  P_WAITS,  P_RETRIES, P_SPLITS};
		for (size_t i = 0; i < sizeof(dispensable); i++)
			fitting[dispensable[i]].flags = TABLE_HIDDEN;
	}
	table_init(&t, a, fitting, N_POOL_COLUMNS);
	for (size_t i = 0; i < jsonin_count(partition, "pools"); i++)
		print_pool(&t, jsonin_at(partition, "pools", i));
	table_finish(&t);
}
