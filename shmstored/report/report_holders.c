/* SPDX-License-Identifier: Apache-2.0 */
/* report_holders.c: who holds memory that has no name: the witnesses of the last survey, the
 * largest first as it gives them. */
#include <json-c/json.h>

#include "account.h"
#include "fields.h"
#include "jsonmake.h"
#include "report_parts.h"

static void holder_part(const struct report_view *v, const struct survey_holder *h, struct json_object *o)
{
	fields_of(
		o, h, PLACE("kind"), SAME(pid), SAME(uid), SAME(command), SAME(inode), SAME(bytes), SAME(mapped),
		FIELD(n_fds, "fds"), SAME(path), SAME(key),
		/* Several processes may hold one inode: bytes are to be added up over the first ones. */ SAME(first));
	jsonmake_text(o, "kind", h->kind == SHMSTORE_HOLD_INFLIGHT ? "inflight" : "ghost");
	jsonmake_seconds(o, "age_seconds", v->mono_ns > h->since_ns ? (int64_t)(v->mono_ns - h->since_ns) : 0);
}

void report_holders(const struct report_view *v, struct account *a, struct json_object *o)
{
	const struct survey *s = a->survey;
	struct json_object *list = jsonmake_child(o, "holders", jsonmake_new_list());

	jsonmake_u64(o, "survey_sequence", s ? s->sequence : 0);
	jsonmake_u64(o, "left_out", s ? s->n_holders_left_out : 0);
	jsonmake_u64(o, "ghosts", s ? s->usage.ghosts : 0);
	jsonmake_u64(o, "inflight", s ? s->usage.inflight : 0);
	for (size_t i = 0; s && i < s->n_holders; i++)
		if (report_may_see(v, s->holders[i].uid))
			holder_part(v, &s->holders[i], jsonmake_append(list, jsonmake_new()));
}
