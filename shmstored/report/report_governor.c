/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report_governor.c: the host's memory as the daemon watches it, and its gate, which are of the
 * host and of no partition; and a partition's stages. Processes are shown to whom they belong to
 * and to administrators; their sums to all.
 */
#include <stdlib.h>

#include "account.h"
#include "config.h"
#include "fields.h"
#include "gate.def"
#include "host.h"
#include "member.h"
#include "memsource.h"
#include "pressure.h"
#include "report.h"
#include "stages.h"
#include "sums.def"

static struct amount limit_of(const struct pressure *p, int64_t bytes)
{
	return p->limited ? amount_of(bytes) : AMOUNT_UNKNOWN;
}

void report_memory(const struct report_view *v, struct host *h, struct json_object *o)
{
	const struct pressure *p = h->pressure;
	struct json_object *list;

	jsonmake_flag(o, "enabled", p != NULL);
	if (!p)
		return;
	jsonmake_seconds(o, "sampled", p->time_ns);
	jsonmake_seconds(o, "interval", (int64_t)p->interval_ns);
	jsonmake_text(o, "source", pressure_source(p));
	memjson_amount(o, "total", p->total);
	memjson_amount(o, "used", p->used);
	memjson_amount(o, "private", p->private);
	memjson_amount(o, "store", p->store);
	memjson_amount(o, "other", p->other);
	jsonmake_seconds(o, "private_age_seconds", (int64_t)(p->mono_ns - p->procs_mono_ns));
	memjson_amount(o, "kill", limit_of(p, p->limits.kill));
	memjson_amount(o, "gate", limit_of(p, p->limits.gate));
	memjson_amount(o, "low", limit_of(p, p->limits.low));
	fields_of(o, p, FIELD(limits.rule.delta_ppm, "delta_ppm"), SAME(growth_most),
		  FIELD(n_above, "above_kill"), PLACE("above_kill_seconds"), NUMBER(samples),
		  FIELD(n_unknown, "unknown_samples"), FIELD(last_cost_ns, "cost_ns"));
	jsonmake_seconds(o, "above_kill_seconds", (int64_t)pressure_above_ns(p));
	jsonmake_flag(o, "swap", h->config->pressure.swap);
	memjson_levels(o, &p->reading);
	list = jsonmake_child(o, "partitions", jsonmake_new_list());
	for (const struct account *a = h->accounts; a; a = a->next)
		fields_of(jsonmake_append(list, jsonmake_new()), a, FIELD(path, "partition"),
			  FIELD(tick.size, "size"), FIELD(tick.used, "used"));
	list = jsonmake_child(o, "processes", jsonmake_new_list());
	for (const struct pressproc *proc = p->procs.list; proc; proc = proc->next) {
		struct json_object *item;

		if (!report_may_see(v, proc->uid))
			continue;
		item = jsonmake_append(list, jsonmake_new());
		fields_of(item, proc, SAME(pid), SAME(uid), PLACE("private"), NUMBER(descendants));
		memjson_amount(item, "private", proc->private);
	}
}

#define TASKS_SHOWN 256u /* by name; the sums are of all */

/* Sums to all; tasks to whom they belong to and to administrators. */
static void line_part(const struct report_view *v, const struct admit *a, struct json_object *o)
{
	struct json_object *list = jsonmake_child(o, "tasks", jsonmake_new_list());
	struct admit_books b;
	size_t n = 0;

	admit_books(a, &b);
	fields_add(o, of_line, &b);
	for (const struct admit_task *k = a->tasks; k && n < TASKS_SHOWN; k = k->hh.next) {
		struct json_object *item;

		if (!report_may_see(v, k->uid))
			continue;
		n++;
		item = jsonmake_append(list, jsonmake_new());
		fields_of(item, k, FIELD(id, "task"), PLACE("state"), PLACE("pid"), SAME(uid),
			  PLACE("level"), FIELD(name.lang, "language"),
			  FIELD(name.func, "function"), FIELD(name.group, "group"),
			  FIELD(gate.share.estimate, "reserve"), FIELD(gate.share.now, "now"));
		jsonmake_text(item, "state", k->gate.runs ? "running" : "waiting");
		jsonmake_i64(item, "pid", k->client->conn->peer.pid);
		jsonmake_text(item, "level", policylevel_name(k->level));
		if (!k->gate.runs)
			jsonmake_null(item, "now");
		jsonmake_seconds(item, "since_seconds", (int64_t)(v->mono_ns - k->since_ns));
	}
}

static void record_part(const struct preempt_record *r, struct json_object *item)
{
	fields_of(item, r, SAME(number), FIELD_AS(FIELD_NS, time_ns, "time"), PLACE("step"),
		  SAME(pid), SAME(uid), NUMBER(tasks), PLACE("level"), PLACE("why"), SAME(bytes),
		  SAME(used), FIELD(notice_only, "asked_only"), SAME(retry), SAME(delay_ms));
	jsonmake_text(item, "step", preempt_step_name(r->step));
	jsonmake_text(item, "level", policylevel_name(r->level));
	jsonmake_text(item, "why", policy_why(r->why));
}

/* The processes that preemption would end, in order. */
static void plan_part(const struct report_view *v, const struct host *h, struct json_object *o)
{
	struct json_object *list = jsonmake_child(o, "plan", jsonmake_new_list());
	struct preempt_plans plans;

	if (preempt_plan(h->preempt, &plans) < 0)
		return;
	jsonmake_text(o, "policy", policy_name(plans.policy));
	jsonmake_i64(o, "need", plans.need > 0 ? plans.need : 0);
	fields_of(o, &plans, NUMBER(never), NUMBER(foreign), NUMBER(kept));
	for (size_t i = 0; i < plans.n; i++) {
		const struct preempt_plan *p = &plans.plans[i];
		struct json_object *item;

		if (!report_may_see(v, p->uid))
			continue;
		item = jsonmake_append(list, jsonmake_new());
		fields_of(item, p, SAME(pid), SAME(uid), NUMBER(tasks), NUMBER(actors),
			  FIELD(n_movable, "actors_moved"), PLACE("level"), PLACE("why"),
			  SAME(bytes), SAME(retry), SAME(now));
		jsonmake_text(item, "level", policylevel_name(p->level));
		jsonmake_text(item, "why", policy_why(p->why));
	}
	free(plans.plans);
}

static void preempt_part(const struct report_view *v, const struct host *h, struct json_object *o)
{
	struct json_object *list;
	struct preempt_record recent[PREEMPT_RECENT];
	size_t n = preempt_recent(h->preempt, recent);
	struct preempt_counts c;

	preempt_counts(h->preempt, &c);
	jsonmake_flag(o, "enabled", h->config->pressure.preempt != 0);
	plan_part(v, h, o);
	fields_add(o, of_preempted, &c);
	list = jsonmake_child(o, "recent", jsonmake_new_list());
	for (size_t i = 0; i < n; i++)
		if (report_may_see(v, recent[i].uid))
			record_part(&recent[i], jsonmake_append(list, jsonmake_new()));
}

void report_gate(const struct report_view *v, struct host *h, struct json_object *o)
{
	const struct pressure *p = h->pressure;

	jsonmake_flag(o, "enabled", p != NULL);
	if (!p)
		return;
	jsonmake_text(o, "state", !p->gated ? "unknown" : p->gate.closed ? "closed" : "open");
	jsonmake_seconds(o, "since", p->gate_since_ns);
	jsonmake_seconds(o, "since_seconds", v->now_ns - p->gate_since_ns);
	memjson_amount(o, "used", p->used);
	memjson_amount(o, "u",
		       p->gated && p->gate.n_samples ? amount_of(p->gate.u) : AMOUNT_UNKNOWN);
	memjson_amount(o, "total", p->total);
	memjson_amount(o, "high", limit_of(p, p->limits.gate));
	memjson_amount(o, "low", limit_of(p, p->limits.low));
	memjson_amount(o, "kill", limit_of(p, p->limits.kill));
	jsonmake_u64(o, "window", p->gate.config.window);
	jsonmake_u64(o, "hold", p->gate.config.hold);
	jsonmake_u64(o, "quota", p->gated ? gate_quota(&p->gate, AMOUNT_UNKNOWN) : 0);
	jsonmake_u64(o, "flips", p->gate.n_flips);
	if (h->admit)
		line_part(v, h->admit, o);
	if (h->preempt)
		preempt_part(v, h, jsonmake_child(o, "preemption", jsonmake_new()));
}

/* ---- stages ---------------------------------------------------------------------------------- */

#define MIB INT64_C(1048576)

static void amounts_part(struct json_object *o, const struct stage_amounts *a)
{
	jsonmake_i64(o, "private", a->private_mib * MIB);
	jsonmake_i64(o, "shared", a->shared_mib * MIB);
	jsonmake_i64(o, "slots", a->slots);
}

static void ratio_part(struct json_object *o, const char *name, struct ratio r)
{
	jsonmake_i64(o, name, ratio_floor(r, 1000000)); /* in millionths */
}

static void stage_part(const struct config_stage *c, struct json_object *o)
{
	static const char *const conflicts[] = {"error", "max", "host"};

	jsonmake_text(o, "mode", c->rules.mode == STAGE_HOST ? "host" : "first");
	jsonmake_text(o, "conflict", conflicts[c->conflict]);
	ratio_part(o, "private_ratio_ppm", c->rules.private_ratio);
	ratio_part(o, "shared_ratio_ppm", c->rules.shared_ratio);
	ratio_part(o, "fallen_threshold_ppm", c->rules.fallen_threshold);
	fields_of(o, c, FIELD(rules.whole_shared_div, "whole_shared_div"),
		  FIELD(rules.wait_ms, "wait_ms"), FIELD_AS(FIELD_ID, cap, "cap"));
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
	jsonmake_text(o, "state",
		      s->at.waits      ? "waiting"
		      : !s->name[0]    ? "base"
		      : s->at.degraded ? "degraded"
				       : "running");
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
	struct profile_list l = {.n = 0};
	struct report_stages_sums sums;
	struct json_object *list;

	jsonmake_flag(o, "enabled", c->rules.enabled);
	stage_part(c, jsonmake_child(o, "configured", jsonmake_new()));
	amounts_part(jsonmake_child(o, "base", jsonmake_new()), &t->base);
	report_stages_sums(t, &sums);
	fields_add(o, of_stages, &sums);
	/* The base, and those that were asked for last. */
	l.list = jsonmake_child(o, "profiles", jsonmake_new_list());
	add_profile(0, &t->base, &l);
	stagebook_each(t->book, add_profile, &l);
	list = jsonmake_child(o, "sessions", jsonmake_new_list());
	for (const struct stages_session *s = t->sessions; s; s = s->next)
		session_part(v, s, list);
}
