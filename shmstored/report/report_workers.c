/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report_workers.c: the stores of a partition: those that live, as their pages say now, with what the last survey found of them on
 * the file system; then the dead ones that it found. And the sums by user and by label.
 */
#include <errno.h>
#include <json-c/json.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account.h"
#include "jsonmake.h"
#include "member.h"
#include "pagewords.h"
#include "quota.h"
#include "report.h"
#include "report_parts.h"

/* ---- sums -------------------------------------------------------------------------------------------------------------- */

static int by_label(const void *a, const void *b)
{
	return strcmp(((const struct report_label *)a)->label, ((const struct report_label *)b)->label);
}

int report_labels(const struct report_view *v, const struct survey *s, struct report_label **ret, size_t *ret_n)
{
	struct report_label *l = calloc(s->n_stores + 1, sizeof(*l));
	size_t n = 0, n_sums = 0;

	if (!l)
		return -ENOMEM;
	for (size_t i = 0; i < s->n_stores; i++) {
		const struct survey_store *st = &s->stores[i];

		if (!st->label || !*st->label || !report_may_see(v, st->uid))
			continue;
		l[n++] = (struct report_label){
			.label = st->label,
			.n_stores = 1,
			.linked = st->books.linked,
			.pss = st->books.pss,
			.uss = st->books.uss,
			.pool = st->books.pool,
		};
	}
	qsort(l, n, sizeof(*l), by_label);
	for (size_t i = 0; i < n; i++) {
		struct report_label *sum = n_sums ? &l[n_sums - 1] : NULL;

		if (!sum || strcmp(sum->label, l[i].label) != 0) {
			l[n_sums++] = l[i];
			continue;
		}
		sum->n_stores++;
		sum->linked += l[i].linked;
		sum->pss += l[i].pss;
		sum->uss += l[i].uss;
		sum->pool += l[i].pool;
	}
	*ret = l;
	*ret_n = n_sums;
	return 0;
}

static void labels_part(const struct report_view *v, const struct survey *s, struct json_object *list)
{
	struct report_label *labels;
	size_t n;

	if (report_labels(v, s, &labels, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		struct json_object *o = jsonmake_append(list, jsonmake_new());

		jsonmake_text(o, "label", labels[i].label);
		jsonmake_u64(o, "stores", labels[i].n_stores);
		jsonmake_u64(o, "linked", labels[i].linked);
		jsonmake_u64(o, "pss", labels[i].pss);
		jsonmake_u64(o, "uss", labels[i].uss);
		jsonmake_u64(o, "pool", labels[i].pool);
	}
	free(labels);
}

static void users_part(const struct survey *s, struct json_object *list)
{
	for (size_t i = 0; i < s->n_users; i++) {
		const struct survey_user *u = &s->users[i];
		struct json_object *o = jsonmake_append(list, jsonmake_new());

		jsonmake_u64(o, "uid", u->uid);
		jsonmake_text(o, "user", u->name);
		jsonmake_u64(o, "stores", u->books.n_stores);
		jsonmake_u64(o, "linked", u->books.linked);
		jsonmake_u64(o, "pss", u->pss);
		jsonmake_u64(o, "uss", u->uss);
		jsonmake_u64(o, "pool", u->books.pool);
		jsonmake_u64(o, "ghosts", u->books.ghosts);
		jsonmake_u64(o, "inflight", u->books.inflight);
		jsonmake_u64(o, "n_demoted", u->books.n_demoted);
		jsonmake_u64(o, "tier", u->books.tier);
	}
}

/* ---- stores ------------------------------------------------------------------------------------------------------------ */

static const char *user_name(const struct survey *s, uid_t uid, char digits[static 16])
{
	for (size_t i = 0; s && i < s->n_users; i++)
		if (s->users[i].uid == uid)
			return s->users[i].name;
	snprintf(digits, 16, "%u", (unsigned)uid);
	return digits;
}

static void books_part(const struct survey_store *s, struct json_object *o)
{
	static const char *const names[] = {"objects", "leases",   "linked",  "pss",       "uss",     "leased",
					    "pool",    "metadata", "demoted", "n_demoted", "n_clean", "stranded"};
	const struct shmstore_store_books *b = s ? &s->books : NULL;
	const uint64_t values[] = {
		b ? b->n_objects : 0, b ? b->n_leases : 0,  b ? b->linked : 0,  b ? b->pss : 0,
		b ? b->uss : 0,       b ? b->leased : 0,    b ? b->pool : 0,    b ? b->metadata : 0,
		b ? b->demoted : 0,   b ? b->n_demoted : 0, b ? b->n_clean : 0, b ? b->stranded : 0,
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (s)
			jsonmake_u64(o, names[i], values[i]);
		else
			jsonmake_null(o, names[i]); /* it came after the survey */
	}
}

static void ledger_part(const struct shmstore_counters *c, struct json_object *o)
{
	jsonmake_u64(o, "objects", c->linked_n);
	jsonmake_u64(o, "linked", c->linked_bytes);
	jsonmake_u64(o, "pool", c->pool_bytes);
	jsonmake_u64(o, "mapped", c->mapped_bytes);
	jsonmake_u64(o, "reserved", c->reserved_bytes);
	jsonmake_u64(o, "put_n", c->put_n);
	jsonmake_u64(o, "put_bytes", c->put_bytes);
	jsonmake_u64(o, "get_n", c->get_n);
	jsonmake_u64(o, "get_bytes", c->get_bytes);
	jsonmake_u64(o, "delete_n", c->delete_n);
	jsonmake_u64(o, "handoff_n", c->handoff_n);
	jsonmake_u64(o, "handoff_bytes", c->handoff_bytes);
	jsonmake_u64(o, "adopt_n", c->adopt_n);
	jsonmake_u64(o, "adopt_bytes", c->adopt_bytes);
	jsonmake_u64(o, "alias_n", c->alias_n);
	jsonmake_u64(o, "recycled_n", c->recycled_n);
	jsonmake_u64(o, "evicted_n", c->evicted_n);
	jsonmake_u64(o, "enospc_n", c->enospc_n);
	jsonmake_u64(o, "linked_max", c->linked_bytes_max);
}

/* granted: what may be outstanding at most, null where there is no limit; NULL page: a store that we cannot grant to. */
static void credit_part(const struct member *m, struct json_object *o)
{
	uint64_t granted, charged;

	if (!m->credit || !m->quota) {
		jsonmake_null(o, "credit");
		return;
	}
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

static void member_part(const struct member *m, const struct survey *s, const struct survey_store *found,
			struct json_object *o)
{
	char digits[16];

	jsonmake_text(o, "name", m->name);
	jsonmake_text(o, "path", m->path);
	jsonmake_i64(o, "pid", m->pid);
	jsonmake_u64(o, "uid", m->uid);
	jsonmake_text(o, "user", user_name(s, m->uid, digits));
	jsonmake_text(o, "label", m->label);
	jsonmake_text(o, "address", m->address);
	jsonmake_flag(o, "alive", true);
	jsonmake_flag(o, "keep", m->keep);
	jsonmake_flag(o, "registered", m->conn != NULL);
	if (m->registered_ns)
		jsonmake_seconds(o, "registered_time", m->registered_ns);
	else
		jsonmake_null(o, "registered_time");
	books_part(found, o);
	jsonmake_u64(o, "mapped", m->last.mapped_bytes);
	ledger_part(&m->last, jsonmake_child(o, "ledger", jsonmake_new()));
	credit_part(m, o);
	jsonmake_u64(o, "asked", m->asked_bytes);
}

/* A store of the survey's that no longer lives, or whose life we cannot see. */
static void found_part(const struct survey *s, const struct survey_store *f, struct json_object *o)
{
	char digits[16];

	jsonmake_text(o, "name", f->name);
	jsonmake_text(o, "path", f->path);
	jsonmake_i64(o, "pid", f->pid);
	jsonmake_u64(o, "uid", f->uid);
	jsonmake_text(o, "user", user_name(s, f->uid, digits));
	jsonmake_text(o, "label", f->label);
	jsonmake_text(o, "address", f->address);
	if (f->alive == SHMSTORE_ALIVE_UNKNOWN)
		jsonmake_null(o, "alive");
	else
		jsonmake_flag(o, "alive", false);
	jsonmake_flag(o, "keep", f->keep);
	jsonmake_flag(o, "registered", false);
	jsonmake_null(o, "registered_time");
	books_part(f, o);
	jsonmake_u64(o, "mapped", 0);
	ledger_part(&f->counters, jsonmake_child(o, "ledger", jsonmake_new()));
	jsonmake_null(o, "credit");
	jsonmake_u64(o, "asked", 0);
}

/* The survey's stores by path. */
struct index {
	const struct survey_store **stores;
	bool *seen; /* a member was found for it */
	size_t n;
};

static int by_path(const void *a, const void *b)
{
	return strcmp((*(const struct survey_store *const *)a)->path, (*(const struct survey_store *const *)b)->path);
}

static int path_of(const void *key, const void *item)
{
	return strcmp(key, (*(const struct survey_store *const *)item)->path);
}

static void index_deinit(struct index *x)
{
	free(x->stores);
	free(x->seen);
}

static void index_init(struct index *x, const struct survey *s)
{
	*x = (struct index){0};
	if (!s || !s->n_stores)
		return;
	x->stores = calloc(s->n_stores, sizeof(const struct survey_store *));
	x->seen = calloc(s->n_stores, sizeof(*x->seen));
	if (!x->stores || !x->seen)
		return; /* n is 0: a list without books is better than none */
	x->n = s->n_stores;
	for (size_t i = 0; i < x->n; i++)
		x->stores[i] = &s->stores[i];
	qsort(x->stores, x->n, sizeof(const struct survey_store *), by_path);
}

static const struct survey_store *index_take(struct index *x, const char *path)
{
	const struct survey_store **found =
		x->n ? bsearch(path, x->stores, x->n, sizeof(const struct survey_store *), path_of) : NULL;

	if (!found)
		return NULL;
	x->seen[found - x->stores] = true;
	return *found;
}

void report_workers(const struct report_view *v, struct account *a, struct json_object *o)
{
	const struct survey *s = a->survey;
	struct json_object *list = jsonmake_child(o, "workers", jsonmake_new_list());
	uint64_t n = 0;
	struct index x;

	index_init(&x, s);
	for (const struct member *m = a->members; m; m = m->next) {
		const struct survey_store *found = index_take(&x, m->path);

		if (!report_may_see(v, m->uid) || n++ >= REPORT_WORKERS_MAX)
			continue;
		/* Another store of the same name took the place of the one that the survey saw. */
		if (found && found->pid != m->pid)
			found = NULL;
		member_part(m, s, found, jsonmake_append(list, jsonmake_new()));
	}
	for (size_t i = 0; i < x.n; i++) {
		const struct survey_store *f = x.stores[i];

		/* A store that lived then and is no member now has gone since the survey. */
		if (x.seen[i] || f->alive == SHMSTORE_ALIVE || !report_may_see(v, f->uid) || n++ >= REPORT_WORKERS_MAX)
			continue;
		found_part(s, f, jsonmake_append(list, jsonmake_new()));
	}
	index_deinit(&x);
	jsonmake_u64(o, "left_out", n > REPORT_WORKERS_MAX ? n - REPORT_WORKERS_MAX : 0);
	jsonmake_u64(o, "survey_sequence", s ? s->sequence : 0);
	jsonmake_seconds(o, "ledgers_time", a->tick.time_ns); /* of the ledgers and of mapped */
	list = jsonmake_child(o, "users", jsonmake_new_list());
	if (s)
		users_part(s, list);
	list = jsonmake_child(o, "labels", jsonmake_new_list());
	if (s)
		labels_part(v, s, list);
}
