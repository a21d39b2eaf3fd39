/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_quota.c: "shmstore-admin quota": every limit that is set or in use, what counts against it,
 * and who waits for room. */
#include <stdio.h>

#include "asking.h"
#include "jsonin.h"
#include "options.h"
#include "table.h"

static void show_used(struct table *t, size_t column, const struct json_object *o)
{
	table_size(t, column, jsonin_u64(o, "used"));
	if (jsonin_has(o, "soft") && jsonin_u64(o, "used") > jsonin_u64(o, "soft"))
		table_color(t, column, "yellow");
}

static const struct table_column columns[] = {
	{"LIMIT OF", FIGURE_TEXT, "kind"},
	{"WHICH", FIGURE_TEXT, "id"},
	{"HARD", FIGURE_SIZE, "hard", "-"},
	{"SOFT", FIGURE_SIZE, "soft", "-"},
	{"USED", TABLE_RIGHT, .show = show_used},
	{"GRANTED", FIGURE_SIZE, "outstanding"},
	{"FILL", TABLE_FILL, "used+outstanding/hard"},
	{"STORES", FIGURE_COUNT, "stores"},
	{"WAITING", FIGURE_COUNT | TABLE_WARN, "waiting"},
	{"REFUSED", FIGURE_COUNT, "refused"},
};

static void print_partition(const struct admin *a, const struct json_object *p)
{
	if (!TABLE_LIST(a, columns, p, "limits"))
		puts("no limits but the size of the file system");
	if (jsonin_has(p, "watermark_high"))
		figure_print(p, a->bytes,
			     "watermarks: asks for bytes back above {watermark_high:size} until "
			     "below {watermark_low:size}\n");
}

int cmd_quota(struct admin *a, int argc, char **argv)
{
	const struct asking_view view = {.partition = print_partition};

	OPTIONS_PARSE(a, argc, argv, "quota",
		      "Shows the limits: of partitions, users, labels and stores.\v"
		      "USED is taken, GRANTED is what stores may take without asking; both "
		      "together never pass HARD. Above SOFT stores are asked to give back. WAITING "
		      "and REFUSED count requests. \"*\" is the limit of all that have none of "
		      "their own. To set one: " ADMIN_NAME " set user.1000.limit=4GiB");
	return asking_show(a, SHMSTORE_QUERY_QUOTA, &view);
}
