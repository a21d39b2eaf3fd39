/* SPDX-License-Identifier: Apache-2.0 */
/* report_status.c: a partition in short: the file system now, the ledgers' sums, and the df
 * equation of the last survey. */

#include "account.h"
#include "config.h"
#include "fields.h"
#include "jsonmake.h"
#include "partition.def"
#include "report_parts.h"
#include "tierfigures.h"
#include "tierwork.def"
#include "usage.def"

/* From a to b in so long, for each second; elapsed_ns 0: not known. */
static void rate(struct json_object *o, const char *name, int64_t elapsed_ns, uint64_t a,
		 uint64_t b)
{
	double per_second =
		elapsed_ns > 0 && b > a ? (double)(b - a) * 1e9 / (double)elapsed_ns : 0;

	/* jsonmake_seconds(): thousandths of whatever. */
	jsonmake_seconds(o, name, (int64_t)(per_second * 1e9));
}

static void ledgers_part(const struct account_tick *before, const struct account_tick *t,
			 struct json_object *o)
{
	const int64_t elapsed_ns = before->time_ns ? t->time_ns - before->time_ns : 0;

	fields_add(o, of_ledgers, t);
	rate(o, "put_per_s", elapsed_ns, before->put_n, t->put_n);
	rate(o, "put_bytes_per_s", elapsed_ns, before->put_bytes, t->put_bytes);
	rate(o, "get_per_s", elapsed_ns, before->get_n, t->get_n);
	rate(o, "handoff_per_s", elapsed_ns, before->handoff_n, t->handoff_n);
	rate(o, "adopt_per_s", elapsed_ns, before->adopt_n, t->adopt_n);
	rate(o, "delete_per_s", elapsed_ns, before->delete_n, t->delete_n);
}

static void survey_part(const struct report_view *v, const struct survey *s, struct json_object *o)
{
	fields_add(o, of_survey, s);
	jsonmake_seconds(o, "age_seconds", v->now_ns - s->time_ns);
	fields_add(o, of_usage, &s->usage);
}

void report_status(const struct report_view *v, struct account *a, struct json_object *o)
{
	const struct account_tick *t = &a->tick;

	fields_add(o, of_space, t);
	jsonmake_u64(o, "available", t->size > t->used ? t->size - t->used : 0);
	ledgers_part(&a->before, t, jsonmake_child(o, "ledgers", jsonmake_new()));
	jsonmake_flag(o, "surveying", a->running);
	jsonmake_seconds(o, "survey_interval_seconds", (int64_t)a->config->survey_interval_ns);
	if (a->survey)
		survey_part(v, a->survey, jsonmake_child(o, "survey", jsonmake_new()));
	else
		jsonmake_null(o, "survey");
	report_tier(v, a, o);
	report_arb_status(a, o);
}

/*
 * The holders of memory that has no name: the witnesses of the last survey, the
 * largest first as it gives them.
 */
static void holder_part(const struct report_view *v, const struct survey_holder *h,
			struct json_object *o)
{
	fields_of(o, h, PLACE("kind"), SAME(pid), SAME(uid), SAME(command), SAME(inode),
		  SAME(bytes), SAME(mapped), FIELD(n_fds, "fds"), SAME(path), SAME(key),
		  /* Several processes may hold one inode: the first ones' bytes add up. */
		  SAME(first));
	jsonmake_text(o, "kind", h->kind == SHMSTORE_HOLD_INFLIGHT ? "inflight" : "ghost");
	jsonmake_seconds(o, "age_seconds",
			 v->mono_ns > h->since_ns ? (int64_t)(v->mono_ns - h->since_ns) : 0);
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

/*
 * The partition's last minutes, column by column: half the size of an object per
 * sample, and what a chart wants.
 */
static void ring_part(const struct report_view *v, const struct history_ring *r,
		      uint64_t interval_seconds, struct json_object *o)
{
	size_t first = r->n;
	struct json_object *list;

	/* Times are told in milliseconds, and come back as such. */
	while (first > 0 &&
	       (uint64_t)history_at(r, first - 1)->time_ns / 1000000 > v->since / 1000000)
		first--;
	jsonmake_u64(o, "interval_seconds", interval_seconds);
	list = jsonmake_child(o, "time", jsonmake_new_list());
	for (size_t i = first; i < r->n; i++)
		jsonmake_append_seconds(list, history_at(r, i)->time_ns);
	for (size_t c = 0; c < sizeof(of_history) / sizeof(of_history[0]); c++) {
		list = jsonmake_child(o, of_history[c].name, jsonmake_new_list());
		for (size_t i = first; i < r->n; i++) {
			const void *at = (const char *)history_at(r, i) + of_history[c].off;

			jsonmake_append_u64(list, *(const uint64_t *)at);
		}
	}
}

void report_history(const struct report_view *v, struct account *a, struct json_object *o)
{
	ring_part(v, &a->history.seconds, 1, jsonmake_child(o, "fine", jsonmake_new()));
	ring_part(v, &a->history.tens, 10, jsonmake_child(o, "coarse", jsonmake_new()));
}

/*
 * A partition's disk tier: what lies there, and what the daemon does with it. Named
 * as in "shmstore-admin --json tier", where they are the same.
 */
void report_tier(const struct report_view *v, struct account *a, struct json_object *o)
{
	struct tierkeeper_view t;
	struct tierscrub_view s;

	tierkeeper_view(a, &t);
	if (t.state == TIERKEEPER_NONE) {
		jsonmake_null(o, "tier");
		return;
	}
	o = jsonmake_child(o, "tier", jsonmake_new());
	jsonmake_text(o, "state", tierkeeper_state_name(t.state));
	jsonmake_text(o, "why", *t.why ? t.why : NULL);
	if (t.retry_ns > v->mono_ns)
		jsonmake_seconds(o, "retry_seconds", (int64_t)(t.retry_ns - v->mono_ns));
	else
		jsonmake_null(o, "retry_seconds");
	if (t.info)
		tierfigures_add(o, t.info);
	jsonmake_null(o, "running");
	if (t.state == TIERKEEPER_EVICTING)
		fields_of(jsonmake_child(o, "running", jsonmake_new()), &t, NUMBER(objects),
			  SAME(freed), SAME(written));
	fields_add(jsonmake_child(o, "counters", jsonmake_new()), of_evictions, &t.counters);
	tierscrub_view(a, &s);
	fields_add(jsonmake_child(o, "scrub", jsonmake_new()), of_scrubs, &s);
}
