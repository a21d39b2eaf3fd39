/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report_workers.c: the stores of a partition: those that live, as their pages say now, with what
 * the last survey found of them on the file system; then the dead ones that it found. And the sums
 * by user and by label.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account.h"
#include "accountquota.h"
#include "config.h"
#include "counters.def"
#include "jsonmake.h"
#include "member.h"
#include "pagewords.h"
#include "quota.h"
#include "report.h"
#include "report_parts.h"
#include "stores.def"

/* ---- sums ------------------------------------------------------------------------------------ */

static bool may_see(const void *view, uid_t uid)
{
	return report_may_see(view, uid);
}

int report_labels(const struct report_view *v, const struct survey *s, struct survey_label **ret,
		  size_t *ret_n)
{
	return survey_labels(s, may_see, v, ret, ret_n);
}

static void labels_part(const struct report_view *v, const struct survey *s,
			struct json_object *list)
{
	struct survey_label *labels;
	size_t n;

	if (report_labels(v, s, &labels, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++)
		fields_add(jsonmake_append(list, jsonmake_new()), of_label, &labels[i]);
	free(labels);
}

/* ---- stores ---------------------------------------------------------------------------------- */

static const char *user_name(const struct survey *s, uid_t uid, char digits[static 16])
{
	for (size_t i = 0; s && i < s->n_users; i++)
		if (s->users[i].uid == uid)
			return s->users[i].name;
	snprintf(digits, 16, "%u", (unsigned)uid);
	return digits;
}

/* granted: what may be outstanding at most, null where there is no limit; NULL page: a store that
 * we cannot grant to. */
static void credit_part(const struct member *m, struct json_object *o)
{
	uint64_t granted, charged;

	if (!m->credit || !m->quota)
		return;
	o = jsonmake_child(o, "credit", jsonmake_new());
	/* Relaxed: a figure to look at; the two need not be of one moment. */
	granted = atomic_load_explicit(&m->credit->granted, memory_order_relaxed);
	charged = atomic_load_explicit(&m->credit->charged, memory_order_relaxed);
	jsonmake_flag(o, "unlimited", granted == WIRE_UNLIMITED);
	if (granted == WIRE_UNLIMITED)
		jsonmake_null(o, "granted");
	else
		jsonmake_u64(o, "granted", granted);
	jsonmake_u64(o, "charged", charged);
	jsonmake_u64(o, "outstanding", quota_outstanding(m->quota));
}

/* Of a store that lives; of another one these are 0. */
#define OF struct member
static const struct field of_live[] = {FIELD(last.mapped_bytes, "mapped"), PLACE("ledger"),
				       PLACE("credit"), FIELD(asked_bytes, "asked"),
				       SAME(put_bytes_per_s)};
#undef OF

static void member_part(const struct member *m, const struct survey *s,
			const struct survey_store *found, struct json_object *o)
{
	char digits[16];

	fields_of(o, m, SAME(name), SAME(path), SAME(pid), SAME(uid), PLACE("user"), SAME(label),
		  SAME(address), PLACE("alive"), SAME(keep), PLACE("registered"),
		  FIELD_AS(FIELD_MOMENT, registered_ns, "registered_time"));
	jsonmake_text(o, "user", user_name(s, m->uid, digits));
	jsonmake_flag(o, "alive", true);
	jsonmake_flag(o, "registered", m->conn != NULL);
	fields_add(o, of_store, found); /* null: it came after the survey */
	fields_add(o, of_live, m);
	fields_add(jsonmake_child(o, "ledger", jsonmake_new()), of_counters, &m->last);
	credit_part(m, o);
}

/* A store of the survey's that no longer lives, or whose life we cannot see. */
static void found_part(const struct survey *s, const struct survey_store *f, struct json_object *o)
{
	static const struct member nobody;
	char digits[16];

	fields_of(o, f, SAME(name), SAME(path), SAME(pid), SAME(uid), PLACE("user"), SAME(label),
		  SAME(address), PLACE("alive"), SAME(keep), PLACE("registered"),
		  PLACE("registered_time"));
	jsonmake_text(o, "user", user_name(s, f->uid, digits));
	if (f->alive != SHMSTORE_ALIVE_UNKNOWN)
		jsonmake_flag(o, "alive", false);
	jsonmake_flag(o, "registered", false);
	fields_add(o, of_store, f);
	fields_add(o, of_live, &nobody);
	fields_add(jsonmake_child(o, "ledger", jsonmake_new()), of_counters, &f->counters);
}

void report_workers(const struct report_view *v, struct account *a, struct json_object *o)
{
	const struct survey *s = a->survey;
	struct json_object *list = jsonmake_child(o, "workers", jsonmake_new_list());
	uint64_t n = 0;

	for (const struct member *m = a->members; m; m = m->next) {
		const struct survey_store *found = m->found;

		if (!report_may_see(v, m->uid) || n++ >= REPORT_WORKERS_MAX)
			continue;
		/* Another store of the same name took the place of the one that the survey saw. */
		if (found && found->pid != m->pid)
			found = NULL;
		member_part(m, s, found, jsonmake_append(list, jsonmake_new()));
	}
	for (size_t i = 0; s && i < s->n_stores; i++) {
		const struct survey_store *f = &s->stores[i];

		/* A store that lived then and is no member now has gone since the survey. */
		if (f->alive == SHMSTORE_ALIVE || member_find(a, f->path) ||
		    !report_may_see(v, f->uid) || n++ >= REPORT_WORKERS_MAX)
			continue;
		found_part(s, f, jsonmake_append(list, jsonmake_new()));
	}
	jsonmake_u64(o, "left_out", n > REPORT_WORKERS_MAX ? n - REPORT_WORKERS_MAX : 0);
	jsonmake_u64(o, "survey_sequence", s ? s->sequence : 0);
	jsonmake_seconds(o, "ledgers_time", a->tick.time_ns); /* of the ledgers and of mapped */
	list = jsonmake_child(o, "users", jsonmake_new_list());
	for (size_t i = 0; s && i < s->n_users; i++)
		fields_add(jsonmake_append(list, jsonmake_new()), of_user, &s->users[i]);
	list = jsonmake_child(o, "labels", jsonmake_new_list());
	if (s)
		labels_part(v, s, list);
}

/* ---- limits, and puts that wait -------------------------------------------------------------- */

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
	const struct createqueue *q = a->quota ? quota_puts(a->quota) : NULL;

	if (!q) {
		jsonmake_null(o, "queue");
		return;
	}
	o = jsonmake_child(o, "queue", jsonmake_new());
	jsonmake_text(o, "mode", q->config.mode == CREATEQUEUE_HOST ? "host" : "first");
	fields_of(o, &q->counts, SAME(waiting), PLACE("oldest_wait_seconds"),
		  FIELD(calls, "attempts"), FIELD(created, "granted"), SAME(refused),
		  FIELD(out_of_disk, "no_disk"), SAME(timed_out), FIELD(dropped, "left"));
	jsonmake_seconds(o, "oldest_wait_seconds",
			 q->waiting ? (int64_t)(v->mono_ns - q->waiting->added) : 0);
}

void report_quota(const struct report_view *v, struct account *a, struct json_object *o)
{
	struct lines l = {.view = v, .account = a};
	const struct {
		uint64_t low, high;
	} marks = {config_watermark(a->config->watermark_low, a->tick.size),
		   config_watermark(a->config->watermark_high, a->tick.size)};

	fields_of(o, &marks, FIELD_AS(FIELD_ID, low, "watermark_low"),
		  FIELD_AS(FIELD_ID, high, "watermark_high"));
	l.list = jsonmake_child(o, "limits", jsonmake_new_list());
	if (a->quota)
		quota_each(a->quota, add_line, &l);
	queue_part(v, a, o);
}
