/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.c: one JSON document is the model (json-c); the tables (libsmartcols) are printed from it,
 * so both say the same. Single-threaded. stdout carries the report alone, stderr what goes wrong.
 */
#include "report.h"

#include <argp.h>
#include <err.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <libsmartcols/libsmartcols.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

struct report {
	/* all but root belong to root */
	struct json_object *root, *notes, *rows, *skipped, *targets;
	struct report_options options;
};

enum {
	OPTION_JSON = 1000,
	OPTION_CHECK,
	OPTION_QUICK,
	OPTION_ROUNDS,
	OPTION_CPU,
	OPTION_LIMIT
};

static const struct argp_option report_argp_options[] = {
	{"json", OPTION_JSON, NULL, 0, "print JSON instead of tables", 0},
	{"check", OPTION_CHECK, NULL, 0, "exit 1 where a target is missed", 0},
	{"quick", OPTION_QUICK, NULL, 0, "fewer operations and no large sizes: for a look", 0},
	{"rounds", OPTION_ROUNDS, "N", 0, "rounds, 5 to 64 (11)", 0},
	{"cpu", OPTION_CPU, "N", 0, "the CPU to run on (the last one)", 0},
	{"limit", OPTION_LIMIT, "N", 0, "largest size in bytes, or number of objects", 0},
	{0},
};

static unsigned long long number(const char *text, struct argp_state *state)
{
	char *end;
	unsigned long long n = strtoull(text, &end, 0);

	if (end == text || *end)
		argp_error(state, "not a number: %s", text);
	return n;
}

/* The input that argp hands to parse_option(). */
struct parsing {
	struct report_options *options;
	void *own_input;
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct parsing *parsing = state->input;
	struct report_options *o = parsing->options;

	switch (key) {
	case ARGP_KEY_INIT:
		if (parsing->own_input)
			state->child_inputs[0] = parsing->own_input;
		return 0;
	case OPTION_JSON:
		o->json = true;
		return 0;
	case OPTION_CHECK:
		o->check = true;
		return 0;
	case OPTION_QUICK:
		o->quick = true;
		return 0;
	case OPTION_ROUNDS:
		o->rounds = (unsigned)number(arg, state);
		if (o->rounds < 5 || o->rounds > MEASURE_ROUNDS_MAX)
			argp_error(state, "rounds must be 5 to %u", MEASURE_ROUNDS_MAX);
		return 0;
	case OPTION_CPU:
		o->cpu = (int)number(arg, state);
		return 0;
	case OPTION_LIMIT:
		o->limit = number(arg, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static struct json_object *put(struct json_object *o, const char *key, struct json_object *value)
{
	json_object_object_add(o, key, value);
	return value;
}

static void put_text(struct json_object *o, const char *key, const char *text)
{
	put(o, key, text ? json_object_new_string(text) : NULL);
}

static void put_double(struct json_object *o, const char *key, double value)
{
	char text[40];

	snprintf(text, sizeof(text), "%.6g", value);
	put(o, key, json_object_new_double_s(value, text));
}

/* The value of that name's first line in /proc/cpuinfo; "?" where it has none. */
static const char *cpu_field(const char *text, const char *name, char *ret, size_t size)
{
	const char *at = strstr(text, name);
	int n = 0;

	at = at ? strchr(at, ':') : NULL;
	if (at)
		n = (int)strcspn(at + 1, "\n");
	snprintf(ret, size, "%.*s", n > 1 ? n - 1 : 1, n > 1 ? at + 2 : "?");
	return ret;
}

/* A figure means nothing without the processor that it was measured on. */
static void put_processor(struct json_object *o)
{
	static char text[16384];
	char name[128], family[16], model[16], what[256];
	FILE *file = fopen("/proc/cpuinfo", "re");
	size_t n = file ? fread(text, 1, sizeof(text) - 1, file) : 0;

	text[n] = '\0';
	if (file)
		fclose(file);
	if (strstr(text, "CPU part"))
		snprintf(what, sizeof(what), "%d x Arm, implementer %s, part %s", get_nprocs(),
			 cpu_field(text, "CPU implementer", family, sizeof(family)),
			 cpu_field(text, "CPU part", model, sizeof(model)));
	else
		snprintf(what, sizeof(what), "%d x %s, family %s, model %s", get_nprocs(),
			 cpu_field(text, "model name", name, sizeof(name)),
			 cpu_field(text, "cpu family", family, sizeof(family)),
			 cpu_field(text, "model\t", model, sizeof(model)));
	put_text(o, "cpu", what);
}

struct report *report_new(int argc, char **argv, const char *name, const char *what,
			  struct report_options *ret)
{
	return report_new_own(argc, argv, &(struct report_program){.name = name, .what = what},
			      ret);
}

struct report *report_new_own(int argc, char **argv, const struct report_program *program,
			      struct report_options *ret)
{
	struct argp_child children[] = {{program->own, 0, NULL, 0}, {0}};
	struct argp argp = {
		report_argp_options, parse_option, NULL, program->what, children, NULL, NULL};
	struct report *r = calloc(1, sizeof(*r));
	struct utsname host;

	if (!r)
		return NULL;
	r->options = (struct report_options){.rounds = 11, .cpu = -1};
	argp_err_exit_status = 2;
	if (!program->own)
		argp.children = NULL;
	argp_parse(&argp, argc, argv, 0, NULL, &(struct parsing){&r->options, program->own_input});
	*ret = r->options;
	r->root = json_object_new_object();
	put_text(r->root, "bench", program->name);
	put_text(r->root, "what", program->what);
	put(r->root, "rounds", json_object_new_int((int)r->options.rounds));
	put(r->root, "quick", json_object_new_boolean(r->options.quick));
	if (uname(&host) == 0)
		put_text(r->root, "kernel", host.release);
	put_processor(r->root);
	r->notes = put(r->root, "notes", json_object_new_array());
	r->rows = put(r->root, "rows", json_object_new_array());
	r->skipped = put(r->root, "skipped", json_object_new_array());
	r->targets = put(r->root, "targets", json_object_new_array());
	return r;
}

struct report *report_free(struct report *r)
{
	if (r)
		json_object_put(r->root);
	free(r);
	return NULL;
}

void report_note(struct report *r, const char *format, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	json_object_array_add(r->notes, json_object_new_string(text));
}

static struct json_object *new_row(struct report *r, const char *where, const char *operation,
				   const char *variant)
{
	struct json_object *row = json_object_new_object();

	put_text(row, "where", where);
	put_text(row, "operation", operation);
	put_text(row, "variant", variant);
	json_object_array_add(r->rows, row);
	return row;
}

void report_row(struct report *r, const char *where, const char *operation, const char *variant,
		uint64_t bytes, const struct measure_series *series)
{
	struct measure_stat s = measure_stat(series);
	struct json_object *row;

	if (s.n_rounds == 0)
		return;
	row = new_row(r, where, operation, variant);
	put(row, "size", json_object_new_int64((int64_t)bytes));
	put_double(row, "median_us", s.median / 1e3);
	put_double(row, "min_us", s.min / 1e3);
	put_double(row, "max_us", s.max / 1e3);
	put_double(row, "mean_us", s.mean / 1e3);
	if (bytes)
		put_double(row, "gb_per_s", (double)bytes / s.median);
	put(row, "rounds", json_object_new_int64((int64_t)s.n_rounds));
	put(row, "operations", json_object_new_int64((int64_t)s.n_ops));
}

void report_seconds(struct report *r, const char *where, const char *operation, const char *variant,
		    uint64_t count, double seconds)
{
	struct json_object *row = new_row(r, where, operation, variant);

	put(row, "count", json_object_new_int64((int64_t)count));
	put_double(row, "seconds", seconds);
}

void report_skip(struct report *r, const char *what, const char *reason)
{
	struct json_object *o = json_object_new_object();

	put_text(o, "what", what);
	put_text(o, "reason", reason);
	json_object_array_add(r->skipped, o);
}

void report_target(struct report *r, const struct report_target *t)
{
	struct json_object *o = json_object_new_object();
	bool met = t->relation == REPORT_AT_LEAST ? t->value >= t->target : t->value <= t->target;

	put_text(o, "id", t->id);
	put_text(o, "what", t->what);
	put_text(o, "unit", t->unit);
	put_text(o, "relation", t->relation == REPORT_AT_LEAST ? ">=" : "<=");
	put_double(o, "target", t->target);
	put_double(o, "value", t->value);
	if (t->min != 0 || t->max != 0) {
		put_double(o, "min", t->min);
		put_double(o, "max", t->max);
	}
	put(o, "met", json_object_new_boolean(met));
	json_object_array_add(r->targets, o);
}

void report_ratio(struct report *r, const char *id, const char *what, const char *unit,
		  enum report_relation relation, double target, const struct measure_series *a,
		  const struct measure_series *b)
{
	struct measure_ratio ratio = measure_ratio(a, b);

	if (a->n_rounds == 0 || b->n_rounds == 0) {
		report_skip(r, what, "one of the two was not measured");
		return;
	}
	report_target(r, &(struct report_target){.id = id,
						 .what = what,
						 .unit = unit,
						 .relation = relation,
						 .target = target,
						 .value = ratio.median,
						 .min = ratio.min,
						 .max = ratio.max});
}

const char *report_size(uint64_t bytes, char *buf, size_t size)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
	double x = (double)bytes;
	size_t u = 0;

	while (x >= 1024 && u < 3) {
		x /= 1024;
		u++;
	}
	snprintf(buf, size, "%.4g %s", x, units[u]);
	return buf;
}

/* ---- tables ---------------------------------------------------------------------------------- */

struct column {
	const char *key;  /* in the JSON */
	const char *head; /* in the table */
	bool right;
};

static void cell(struct libscols_line *line, size_t at, const struct column *c,
		 struct json_object *row)
{
	struct json_object *value;
	char text[64];

	if (!json_object_object_get_ex(row, c->key, &value) || !value)
		return;
	if (strcmp(c->key, "size") == 0)
		scols_line_set_data(line, at,
				    report_size(json_object_get_uint64(value), text, sizeof(text)));
	else if (json_object_is_type(value, json_type_double)) {
		double x = json_object_get_double(value);

		snprintf(text, sizeof(text), x >= 1000 ? "%.0f" : x >= 10 ? "%.1f" : "%.2f", x);
		scols_line_set_data(line, at, text);
	} else if (strcmp(c->key, "met") == 0)
		scols_line_set_data(line, at, json_object_get_boolean(value) ? "met" : "NOT MET");
	else
		scols_line_set_data(line, at, json_object_get_string(value));
}

/* Prints the rows that have the column called need. */
static void print_table(struct json_object *rows, const struct column *columns, size_t n,
			const char *need)
{
	struct libscols_table *table = scols_new_table();
	size_t n_printed = 0;

	if (!table)
		return;
	for (size_t c = 0; c < n; c++)
		scols_table_new_column(table, columns[c].head, 0,
				       columns[c].right ? SCOLS_FL_RIGHT : 0);
	for (size_t i = 0; i < json_object_array_length(rows); i++) {
		struct json_object *row = json_object_array_get_idx(rows, i);
		struct libscols_line *line;

		if (!json_object_object_get_ex(row, need, NULL))
			continue;
		line = scols_table_new_line(table, NULL);
		for (size_t c = 0; line && c < n; c++)
			cell(line, c, &columns[c], row);
		n_printed++;
	}
	if (n_printed > 0) {
		scols_print_table(table);
		putchar('\n');
	}
	scols_unref_table(table);
}

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

static void print_tables(struct report *r)
{
	static const struct column timed[] = {
		{"where", "WHERE", false},     {"operation", "OPERATION", false},
		{"variant", "VARIANT", false}, {"size", "SIZE", true},
		{"median_us", "US", true},     {"min_us", "MIN", true},
		{"max_us", "MAX", true},       {"mean_us", "MEAN", true},
		{"gb_per_s", "GB/S", true}};
	static const struct column single[] = {{"where", "WHERE", false},
					       {"operation", "OPERATION", false},
					       {"variant", "VARIANT", false},
					       {"count", "COUNT", true},
					       {"seconds", "SECONDS", true}};
	static const struct column skipped[] = {{"what", "SKIPPED", false},
						{"reason", "BECAUSE", false}};
	static const struct column targets[] = {
		{"id", "ID", false},     {"what", "TARGET", false}, {"value", "VALUE", true},
		{"relation", "", false}, {"target", "OF", true},    {"unit", "UNIT", false},
		{"min", "MIN", true},    {"max", "MAX", true},      {"met", "", false}};

	printf("%s: %s\n", json_object_get_string(json_object_object_get(r->root, "bench")),
	       json_object_get_string(json_object_object_get(r->root, "what")));
	printf("  %s, kernel %s\n", json_object_get_string(json_object_object_get(r->root, "cpu")),
	       json_object_get_string(json_object_object_get(r->root, "kernel")));
	for (size_t i = 0; i < json_object_array_length(r->notes); i++)
		printf("  %s\n", json_object_get_string(json_object_array_get_idx(r->notes, i)));
	putchar('\n');
	print_table(r->rows, timed, N_OF(timed), "median_us");
	print_table(r->rows, single, N_OF(single), "seconds");
	print_table(r->skipped, skipped, N_OF(skipped), "what");
	print_table(r->targets, targets, N_OF(targets), "met");
}

int report_print(struct report *r)
{
	bool missed = false;

	for (size_t i = 0; i < json_object_array_length(r->targets); i++) {
		struct json_object *t = json_object_array_get_idx(r->targets, i);

		if (!json_object_get_boolean(json_object_object_get(t, "met")))
			missed = true;
	}
	if (r->options.json)
		puts(json_object_to_json_string_ext(r->root, JSON_C_TO_STRING_PRETTY));
	else
		print_tables(r);
	fflush(stdout);
	return r->options.check && missed;
}
