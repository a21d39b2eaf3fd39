/* SPDX-License-Identifier: Apache-2.0 */
/* report_quota.c: the limits of a partition, and what is used and granted of each. */
#include <stdlib.h>
#include <string.h>

#include "account.h"
#include "accountquota.h"
#include "config.h"
#include "jsonmake.h"
#include "member.h"
#include "putqueue.h"
#include "report.h"
#include "report_parts.h"
#include "stores.def"

struct lines {
	const struct report_view *view;
	const struct account *account;
	struct json_object *list;
};

/* Whether one of the asker's live stores has that label or that name. */
static bool is_of_own_store(const struct report_view *v, const struct account *a,
			    const struct quota_line *q)
{
	for (const struct member *m = a->members; m; m = m->next) {
		const char *word = q->kind == WIRE_LIMIT_LABEL ? m->label : m->name;

		if (strcmp(word, q->id) == 0 && report_may_see(v, m->uid))
			return true;
	}
	return false;
}

bool report_may_see_limit(const struct report_view *v, const struct account *a,
			  const struct quota_line *q)
{
	if (v->uid == REPORT_ALL || q->kind == WIRE_LIMIT_PARTITION || strcmp(q->id, "*") == 0)
		return true;
	if (q->kind == WIRE_LIMIT_USER)
		return report_may_see(v, (uid_t)strtoul(q->id, NULL, 10));
	return is_of_own_store(v, a, q);
}

static void bytes_or_none(struct json_object *o, const char *name, uint64_t bytes)
{
	if (bytes)
		jsonmake_u64(o, name, bytes);
	else
		jsonmake_null(o, name);
}

static int add_line(const struct quota_line *q, void *arg)
{
	struct lines *l = arg;
	struct json_object *o;

	if (!report_may_see_limit(l->view, l->account, q))
		return 0;
	o = jsonmake_append(l->list, jsonmake_new());
	fields_add(o, of_limit, q);
	jsonmake_text(o, "kind", quota_kind_name(q->kind));
	return 0;
}

/* Puts that wait by createqueue.h; null: they wait under their limits. */
static void queue_part(const struct report_view *v, const struct account *a, struct json_object *o)
{
	const struct putqueue *p = a->accountquota ? a->accountquota->puts : NULL;
	struct createqueue_counts counts;

	if (!p) {
		jsonmake_null(o, "queue");
		return;
	}
	counts = p->queue.counts;
	/* It does not know that they did not wait. */
	counts.dropped -= p->n_now;
	counts.refused += p->n_now;
	o = jsonmake_child(o, "queue", jsonmake_new());
	jsonmake_text(o, "mode", p->queue.config.mode == CREATEQUEUE_HOST ? "host" : "first");
	fields_of(o, &counts, SAME(waiting), PLACE("oldest_wait_seconds"), FIELD(calls, "attempts"),
		  FIELD(created, "granted"), SAME(refused), FIELD(out_of_disk, "no_disk"),
		  SAME(timed_out), FIELD(dropped, "left"));
	jsonmake_seconds(o, "oldest_wait_seconds",
			 (int64_t)createqueue_oldest_ms(&p->queue, v->mono_ns / 1000000) * 1000000);
}

void report_quota(const struct report_view *v, struct account *a, struct json_object *o)
{
	struct lines l = {.view = v, .account = a};

	bytes_or_none(o, "watermark_low", config_watermark(a->config->watermark_low, a->tick.size));
	bytes_or_none(o, "watermark_high",
		      config_watermark(a->config->watermark_high, a->tick.size));
	l.list = jsonmake_child(o, "limits", jsonmake_new_list());
	if (a->quota)
		quota_each(a->quota, add_line, &l);
	queue_part(v, a, o);
}
