/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report_stages.c: stage profiles of a partition: what workers have outside of stages, which
 * profiles there are, and who runs which stage with what. Workers are shown to whom they belong to
 * and to administrators; the sums to all.
 */

#include "account.h"
#include "config.h"
#include "fields.h"
#include "host.h"
#include "jsonmake.h"
#include "member.h"
#include "report_parts.h"
#include "stages.h"
#include "sums.def"

#define MIB INT64_C(1048576)

static void amounts_part(struct json_object *o, const struct stage_amounts *a)
{
	jsonmake_i64(o, "private", a->private_mib * MIB);
	jsonmake_i64(o, "shared", a->shared_mib * MIB);
	jsonmake_i64(o, "slots", a->slots);
}

static void ratio_part(struct json_object *o, const char *name, struct ratio r)
{
	jsonmake_i64(o, name, ratio_ppm(r));
}

static void config_part(const struct config_stage *c, struct json_object *o)
{
	static const char *const conflicts[] = {"error", "max", "host"};

	jsonmake_text(o, "mode", c->rules.mode == STAGE_HOST ? "host" : "first");
	jsonmake_text(o, "conflict", conflicts[c->conflict]);
	ratio_part(o, "private_ratio_ppm", c->rules.private_ratio);
	ratio_part(o, "shared_ratio_ppm", c->rules.shared_ratio);
	ratio_part(o, "fallen_threshold_ppm", c->rules.fallen_threshold);
	jsonmake_i64(o, "whole_shared_div", c->rules.whole_shared_div);
	jsonmake_i64(o, "wait_ms", c->rules.wait_ms);
	if (c->cap)
		jsonmake_u64(o, "cap", c->cap);
	else
		jsonmake_null(o, "cap");
}

struct profile_list {
	struct json_object *list;
	size_t n;
};

static bool add_profile(uint32_t id, const struct stage_amounts *amounts, void *arg)
{
	struct profile_list *l = arg;
	struct json_object *item = jsonmake_append(l->list, jsonmake_new());

	jsonmake_u64(item, "profile", id);
	amounts_part(item, amounts);
	return ++l->n < STAGES_SHOWN;
}

/* The base, and those that were asked for last. */
static void profiles_part(const struct stages *t, struct json_object *list)
{
	struct profile_list l = {.list = list};

	add_profile(0, &t->base, &l);
	stagebook_each(t->book, add_profile, &l);
}

static const char *state_of(const struct stages_session *s)
{
	if (s->at.waits)
		return "waiting";
	if (!s->name[0])
		return "base";
	return s->at.degraded ? "degraded" : "running";
}

static void session_part(const struct report_view *v, const struct stages_session *s,
			 struct json_object *list)
{
	struct json_object *o;
	uint64_t since = s->at.waits ? s->asked_ns : s->began_ns;

	if (!report_may_see(v, s->member->uid))
		return;
	o = jsonmake_append(list, jsonmake_new());
	fields_of(o, s->member, FIELD(id, "session"), FIELD(name, "store"), SAME(pid), SAME(uid));
	jsonmake_text(o, "stage", s->name);
	jsonmake_text(o, "state", state_of(s));
	jsonmake_u64(o, "profile", s->at.profile);
	amounts_part(o, &s->at.has);
	jsonmake_flag(o, "degraded", s->at.degraded);
	jsonmake_seconds(o, "since_seconds",
			 s->name[0] && v->mono_ns > since ? (int64_t)(v->mono_ns - since) : 0);
	jsonmake_seconds(o, "waited_seconds",
			 s->at.waits ? (int64_t)(v->mono_ns - s->asked_ns) : (int64_t)s->waited_ns);
}

void report_stages_sums(const struct stages *t, struct report_stages_sums *ret)
{
	*ret = (struct report_stages_sums){.total = t->total_mib * MIB,
					   .held = stagebook_held_mib(t->book) * MIB,
					   .n_queries = t->n_queries,
					   .n_begun = t->n_begun,
					   .n_waited = t->n_waited,
					   .n_begun_degraded = t->n_degraded,
					   .wait_ns = t->wait_ns};
	for (const struct stages_session *s = t->sessions; s; s = s->next) {
		ret->n_sessions++;
		ret->n_waiting += s->at.waits;
		ret->n_running += s->name[0] && !s->at.waits;
		ret->n_degraded += s->at.degraded;
	}
}

void report_stages(const struct report_view *v, struct account *a, struct json_object *o)
{
	const struct config_stage *c = &a->host->config->stage;
	const struct stages *t = a->stages;
	struct json_object *list;
	struct report_stages_sums sums;

	jsonmake_flag(o, "enabled", c->rules.enabled);
	config_part(c, jsonmake_child(o, "configured", jsonmake_new()));
	amounts_part(jsonmake_child(o, "base", jsonmake_new()), &t->base);
	report_stages_sums(t, &sums);
	fields_add(o, of_stages, &sums);
	profiles_part(t, jsonmake_child(o, "profiles", jsonmake_new_list()));
	list = jsonmake_child(o, "sessions", jsonmake_new_list());
	for (const struct stages_session *s = t->sessions; s; s = s->next)
		session_part(v, s, list);
}
