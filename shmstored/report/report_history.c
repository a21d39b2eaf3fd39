/* SPDX-License-Identifier: Apache-2.0 */
/* report_history.c: the partition's last minutes, column by column: half the size of an object per
 * sample, and what a chart wants. */
#include <json-c/json.h>

#include "jsonmake.h"
#include "partition.def"
#include "report_parts.h"

static void ring_part(const struct report_view *v, const struct history *h, int fine, struct json_object *o)
{
	size_t n = history_count(h, fine), first = n;
	struct json_object *list;

	/* Times are told in milliseconds, and come back as such. */
	while (first > 0 && (uint64_t)history_at(h, fine, first - 1)->time_ns / 1000000 > v->since / 1000000)
		first--;
	jsonmake_u64(o, "interval_seconds", fine ? 1 : 10);
	list = jsonmake_child(o, "time", jsonmake_new_list());
	for (size_t i = first; i < n; i++)
		jsonmake_append_seconds(list, history_at(h, fine, i)->time_ns);
	for (size_t c = 0; c < sizeof(of_history) / sizeof(of_history[0]); c++) {
		list = jsonmake_child(o, of_history[c].name, jsonmake_new_list());
		for (size_t i = first; i < n; i++)
			jsonmake_append_u64(list,
					    *(const uint64_t *)(const void *)((const char *)history_at(h, fine, i) +
									      of_history[c].off));
	}
}

void report_history(const struct report_view *v, struct account *a, struct json_object *o)
{
	struct json_object *fine = jsonmake_child(o, "fine", jsonmake_new());
	struct json_object *coarse = jsonmake_child(o, "coarse", jsonmake_new());

	if (!a->history)
		return;
	ring_part(v, a->history, 1, fine);
	ring_part(v, a->history, 0, coarse);
}
