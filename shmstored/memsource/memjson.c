/* SPDX-License-Identifier: Apache-2.0 */
/* memjson.c: one object for the host and for each cgroup. */
#include "memjson.h"

#include "jsonmake.h"

void memjson_amount(struct json_object *o, const char *name, struct amount a)
{
	if (a.known)
		jsonmake_i64(o, name, a.bytes);
	else
		jsonmake_null(o, name);
}

static struct json_object *level_json(const struct memsource_level *l, bool tightest)
{
	static const char *const states[] = {"read", "unlimited", "unknown"};
	struct json_object *o = jsonmake_new(), *terms;

	jsonmake_text(o, "source", l->path);
	if (l->version)
		jsonmake_u64(o, "cgroup_version", (uint64_t)l->version);
	else
		jsonmake_null(o, "cgroup_version");
	memjson_amount(o, "total", l->use.total);
	memjson_amount(o, "used", l->use.used);
	jsonmake_flag(o, "tightest", tightest);
	terms = jsonmake_child(o, "terms", jsonmake_new_list());
	for (size_t i = 0; i < l->n_terms; i++) {
		const struct memsource_term *t = &l->terms[i];
		struct json_object *term = jsonmake_append(terms, jsonmake_new());

		jsonmake_text(term, "term", t->name);
		memjson_amount(term, "size", (struct amount){t->state == MEMSOURCE_READ, t->bytes});
		jsonmake_text(term, "state", states[t->state]);
	}
	return o;
}

void memjson_levels(struct json_object *o, const struct memsource_reading *r)
{
	struct json_object *levels = jsonmake_child(o, "memories", jsonmake_new_list());

	for (size_t i = 0; i < r->n_levels; i++)
		jsonmake_append(levels, level_json(&r->levels[i], i == r->tightest));
}
