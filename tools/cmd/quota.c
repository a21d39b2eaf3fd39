/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_quota.c: "shmstore-admin quota": every limit that is set or in use, what counts against it, and who waits for room. */
#include <inttypes.h>
#include <stdio.h>

#include "asking.h"
#include "human.h"
#include "jsonin.h"
#include "options.h"
#include "table.h"

#define COLUMNS(X)                         \
	X(KIND, "LIMIT OF", 0)             \
	X(ID, "WHICH", 0)                  \
	X(HARD, "HARD", TABLE_RIGHT)       \
	X(SOFT, "SOFT", TABLE_RIGHT)       \
	X(USED, "USED", TABLE_RIGHT)       \
	X(GRANTED, "GRANTED", TABLE_RIGHT) \
	X(FILL, "FILL", TABLE_RIGHT)       \
	X(STORES, "STORES", TABLE_RIGHT)   \
	X(WAITING, "WAITING", TABLE_RIGHT) \
	X(REFUSED, "REFUSED", TABLE_RIGHT)
TABLE_COLUMNS(columns, COLUMNS, N_COLUMNS);

static void print_limit(struct table *t, size_t column, const struct json_object *o, const char *member)
{
	if (jsonin_has(o, member))
		table_size(t, column, jsonin_u64(o, member));
	else
		table_text(t, column, "-");
}

static void print_line(struct table *t, const struct json_object *o)
{
	uint64_t used = jsonin_u64(o, "used"), outstanding = jsonin_u64(o, "outstanding"), soft = jsonin_u64(o, "soft");

	table_row(t);
	table_text(t, KIND, jsonin_text(o, "kind"));
	table_text(t, ID, jsonin_text(o, "id"));
	print_limit(t, HARD, o, "hard");
	print_limit(t, SOFT, o, "soft");
	table_size(t, USED, used);
	if (soft && used > soft)
		table_color(t, USED, "yellow");
	table_size(t, GRANTED, outstanding);
	table_fill(t, FILL, used + outstanding, jsonin_u64(o, "hard"));
	table_count(t, STORES, jsonin_u64(o, "stores"));
	table_count(t, WAITING, jsonin_u64(o, "waiting"));
	table_count(t, REFUSED, jsonin_u64(o, "refused"));
	if (jsonin_u64(o, "waiting"))
		table_color(t, WAITING, "yellow");
}

static void print_watermarks(const struct admin *a, const struct json_object *p)
{
	char low[HUMAN_SIZE], high[HUMAN_SIZE];

	if (!jsonin_has(p, "watermark_high"))
		return;
	printf("watermarks: asks for bytes back above %s until below %s\n",
	       human_bytes(jsonin_u64(p, "watermark_high"), a->bytes, high),
	       human_bytes(jsonin_u64(p, "watermark_low"), a->bytes, low));
}

static void print_partition(const struct json_object *p, void *arg)
{
	const struct admin *a = arg;
	struct table t;

	table_init(&t, a, columns, N_COLUMNS);
	for (size_t i = 0; i < jsonin_count(p, "limits"); i++)
		print_line(&t, jsonin_at(p, "limits", i));
	table_finish(&t);
	if (!jsonin_count(p, "limits"))
		puts("no limits but the size of the file system");
	print_watermarks(a, p);
}

int cmd_quota(struct admin *a, int argc, char **argv)
{
	static const struct argp argp = OPTIONS_ARGP(
		NULL, options_common, "quota",
		"Shows the limits: of partitions, users, labels and stores.\v"
		"USED is taken, GRANTED is what stores may take without asking; both together never pass HARD. Above "
		"SOFT "
		"stores are asked to give back. WAITING and REFUSED count requests. \"*\" is the limit of all that "
		"have none "
		"of their own. To set one: " ADMIN_NAME " set user.1000.limit=4GiB");
	struct command_line line = {.admin = a};
	const struct asking_view view = {.partition = print_partition, .arg = a};

	options_parse(&argp, &line, argc, argv);
	return asking_show(a, SHMSTORE_QUERY_QUOTA, &view);
}
