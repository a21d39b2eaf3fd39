/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_arb_log.c: "shmstore-admin arb log": the arbiter's last transitions as CSV (RFC 4180, but
 * lines end in a newline only): first the columns that spark-rapids' log has, so that its readers'
 * tools work, then ours. Times are the wall clock's, made of the daemon's, which counts from the
 * boot.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "arb.h"
#include "asking.h"
#include "cleanup.h"
#include "figure.h"
#include "human.h"
#include "jsonin.h"
#include "options.h"

struct log {
	uint64_t since; /* number after which transitions are wanted */
	uint64_t most;  /* the last so many; 0 = all */
};

static int64_t clock_ms(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A comma and a cell, quoted where it must be. Characters that could upset a terminal are escaped.
 */
static void print_cell(const char *text)
{
	_free_ char *shown = figure_escaped(text, strlen(text));

	putchar(',');
	if (!strpbrk(shown, ",\"")) {
		fputs(shown, stdout);
	} else {
		putchar('"');
		for (const char *p = shown; *p; p++) {
			if (*p == '"')
				putchar('"');
			putchar(*p);
		}
		putchar('"');
	}
}

static void print_time(uint64_t boot_ms)
{
	int64_t ms = (int64_t)boot_ms + clock_ms(CLOCK_REALTIME) - clock_ms(CLOCK_BOOTTIME);
	time_t seconds = (time_t)(ms / 1000);
	struct tm tm;
	char text[32];

	gmtime_r(&seconds, &tm);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	printf("%s.%03dZ", text, (int)(ms % 1000));
}

static void print_id(const struct json_object *o, const char *member)
{
	putchar(',');
	if (jsonin_u64(o, member))
		fputs(human_id(jsonin_u64(o, member)), stdout);
}

static void print_line(const char *partition, const struct json_object *o)
{
	print_time(jsonin_u64(o, "time_ms"));
	print_cell(jsonin_text(o, "op"));
	print_id(o, "by");
	print_id(o, "context");
	print_id(o, "task");
	print_cell(jsonin_text(o, "from"));
	print_cell(jsonin_text(o, "to"));
	print_cell(jsonin_text(o, "note"));
	printf(",%" PRIu64, jsonin_u64(o, "number"));
	print_cell(jsonin_text(o, "store"));
	print_cell(jsonin_text(o, "outcome"));
	print_cell(jsonin_text(o, "pool"));
	printf(",%" PRIu64, jsonin_u64(o, "bytes"));
	print_cell(partition);
	putchar('\n');
}

/* The first transition of a partition that is wanted. */
static size_t first_wanted(const struct log *l, const struct json_object *p)
{
	size_t n = jsonin_count(p, "log"), first = 0;

	while (first < n && jsonin_u64(jsonin_at(p, "log", first), "number") <= l->since)
		first++;
	return l->most && n - first > l->most ? n - (size_t)l->most : first;
}

static void print_csv(const struct admin *a, const struct json_object *document)
{
	puts("time,op,current thread,op thread,op "
	     "task,from,to,notes,number,store,outcome,pool,bytes,partition");
	for (size_t i = 0; i < jsonin_count(document, "partitions"); i++) {
		const struct json_object *p = jsonin_at(document, "partitions", i);

		for (size_t t = first_wanted(a->own, p); t < jsonin_count(p, "log"); t++)
			print_line(jsonin_text(p, "partition"), jsonin_at(p, "log", t));
	}
}

int cmd_arb_log(struct admin *a, int argc, char **argv)
{
	typedef struct log OF;
	static const struct options_row options[] = {
		{"since", 0, "NUMBER", "only transitions after the one of that number",
		 OPTIONS_NUMBER, offsetof(OF, since)},
		{"count", 'n', "N", "only the last N", OPTIONS_NUMBER, offsetof(OF, most), 1},
		{NULL},
	};
	struct log l = {0};
	const struct asking_view view = {.document = print_csv};

	OPTIONS_PARSE(
		a, argc, argv, "arb log",
		"Prints the arbiter's last transitions, oldest first, as CSV.\v"
		"The daemon keeps the last 1000. \"current thread\" is whose message it was, \"op "
		"thread\" whom it moved. With --json the daemon's document comes as it is, whole.",
		.options = options, .own = &l);
	return asking_show(a, SHMSTORE_QUERY_ARB_LOG, &view);
}
