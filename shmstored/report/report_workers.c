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
#include "arbhost.h"
#include "clocks.h"
#include "config.h"
#include "counters.def"
#include "fields.h"
#include "member.h"
#include "pagewords.h"
#include "quota.h"
#include "report.h"
#include "stores.def"
#include "sums.def"

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
	struct survey_label *labels;
	size_t n_labels;
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
	if (s && report_labels(v, s, &labels, &n_labels) == 0) {
		for (size_t i = 0; i < n_labels; i++)
			fields_add(jsonmake_append(list, jsonmake_new()), of_label, &labels[i]);
		free(labels);
	}
}

/* ---- limits, and puts that wait -------------------------------------------------------------- */

struct lines {
	const struct report_view *view;
	const struct account *account;
	struct json_object *list;
};

bool report_may_see_limit(const struct report_view *v, const struct account *a,
			  const struct quota_line *q)
{
	if (v->uid == REPORT_ALL || q->kind == WIRE_LIMIT_PARTITION || strcmp(q->id, "*") == 0)
		return true;
	if (q->kind == WIRE_LIMIT_USER)
		return report_may_see(v, (uid_t)strtoul(q->id, NULL, 10));
	/* Has one of the asker's live stores that label or that name? */
	for (const struct member *m = a->members; m; m = m->next)
		if (strcmp(q->kind == WIRE_LIMIT_LABEL ? m->label : m->name, q->id) == 0 &&
		    report_may_see(v, m->uid))
			return true;
	return false;
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

/* ---- the memory arbiter ---------------------------------------------------------------------- */

#define MS UINT64_C(1000000)

struct listing {
	const struct report_view *view;
	struct arbhost *host;
	struct json_object *list;
	uint64_t now_ns;     /* the core's clock */
	int64_t boottime_ns; /* CLOCK_BOOTTIME less that */
};

/* The client that an id of the core's is of. NULL: it went, or it may not be seen. */
static const struct arbguest *seen(const struct listing *l, uint64_t id)
{
	const struct arbguest *c = id & ARB_OURS ? NULL : arbguest_find(l->host, id >> 32);

	return c && report_may_see(l->view, c->member->uid) ? c : NULL;
}

static void priority(struct json_object *o, int64_t value)
{
	/* Below 0: by arrival. */
	if (value < 0)
		jsonmake_null(o, "priority");
	else
		jsonmake_i64(o, "priority", value);
}

static void ms(struct json_object *o, const char *name, uint64_t ns)
{
	jsonmake_u64(o, name, ns / MS);
}

static uint64_t since(const struct listing *l, uint64_t ns)
{
	return ns && l->now_ns > ns ? l->now_ns - ns : 0;
}

/* ---- pools ----------------------------------------------------------------------------------- */

/* In leases of that pool: of one client, or the partition's of all. */
static uint64_t leased(struct arbhost *h, const struct arbguest *of, uint32_t pool)
{
	uint64_t sum = 0;

	if (pool == 0 || pool > WIRE_LEASES)
		return 0;
	if (of)
		return of->leases[pool - 1].core_held + of->leases[pool - 1].core_unspent;
	for (const struct arbguest *c = h->clients; c; c = c->hh.next)
		sum += c->leases[pool - 1].core_held + c->leases[pool - 1].core_unspent;
	return sum;
}

/* Puts the store and the process of c, if any, into their places. */
static void add_owner(struct json_object *o, const struct arbguest *c)
{
	if (!c)
		return;
	jsonmake_text(o, "store", c->member->name);
	jsonmake_i64(o, "pid", c->member->pid);
}

static bool add_pool(void *arg, const struct arb_pool_info *i)
{
	struct listing *l = arg;
	const struct arbguest *c = i->kind == ARB_PRIVATE ? seen(l, i->id) : NULL;
	static const struct arbkernel none;
	bool partition = i->kind == ARB_PARTITION;
	struct json_object *o;

	if (!partition && !c)
		return true;
	o = jsonmake_append(l->list, jsonmake_new());
	fields_of(o, i, SAME(id), SAME(name), PLACE("kind"), PLACE("store"), PLACE("pid"),
		  SAME(capacity), SAME(used), SAME(reclaimable), SAME(spilling), SAME(spilled),
		  SAME(max_used), NUMBER(waiting), NUMBER(grants), NUMBER(waits), NUMBER(retries),
		  NUMBER(splits), NUMBER(toobig), FIELD_AS(FIELD_ID, closed_by, "closed_by"));
	jsonmake_text(o, "kind", partition ? "partition" : "private");
	add_owner(o, c);
	jsonmake_u64(o, "leased", leased(l->host, c, (uint32_t)i->id));
	fields_of(o, partition ? &l->host->kernel : &none, FIELD(core_objects, "objects"),
		  FIELD(core_evictable, "evictable"), FIELD(core_coming, "coming"), SAME(ghosts),
		  SAME(drift));
	jsonmake_u64(o, "level", arbhost_level(l->host, i));
	return true;
}

/* ---- tasks and contexts ---------------------------------------------------------------------- */

static bool add_task(void *arg, const struct arb_task_info *i)
{
	struct listing *l = arg;
	const struct arbguest *c = seen(l, i->id);
	struct arb_stats s = {0};
	struct json_object *o;

	/* Of those that went nobody can say whose they were: administrators see them. */
	if (!c && l->view->uid != (unsigned)-1)
		return true;
	arb_stats(l->host->core, i->id, 0, l->now_ns, 0, &s);
	o = jsonmake_append(l->list, jsonmake_new());
	fields_of(o, i, SAME(id), PLACE("store"), PLACE("pid"), PLACE("task"), FIELD(name, "label"),
		  PLACE("priority"), PLACE("begun_ms_ago"), SAME(held), SAME(stalled),
		  NUMBER(contexts));
	add_owner(o, c);
	jsonmake_u64(o, "task", (uint32_t)i->id);
	priority(o, i->priority);
	ms(o, "begun_ms_ago", since(l, i->begun_ns));
	fields_of(o, &s, NUMBER(retries), NUMBER(splits));
	ms(o, "blocked_ms", s.blocked_ns);
	ms(o, "lost_ms", s.lost_ns);
	return true;
}

static void pool_name(const struct listing *l, struct json_object *o, uint64_t id)
{
	struct arb_pool_info i;

	jsonmake_text(o, "pool", id && arb_pool(l->host->core, id, &i) ? i.name : NULL);
}

static bool add_context(void *arg, const struct arb_context_info *i)
{
	static const char *const kinds[] = {"", "dedicated", "helper", "service"};
	static const char *const waits[] = {NULL, "pool", "task", "external"};
	struct listing *l = arg;
	const struct arbguest *c = seen(l, i->id);
	struct arb_task_info t;
	struct json_object *o;

	if (!c)
		return true;
	o = jsonmake_append(l->list, jsonmake_new());
	fields_of(o, i, SAME(id), PLACE("store"), PLACE("pid"), PLACE("context"), PLACE("kind"),
		  PLACE("state"), FIELD_AS(FIELD_ID, task, "task"), PLACE("label"),
		  PLACE("priority"), PLACE("since_ms"), PLACE("pool"), SAME(bytes), SAME(held),
		  SAME(need), NUMBER(passed), NUMBER(outcomes), PLACE("wait"), SAME(reason),
		  PLACE("deadline_ms"));
	add_owner(o, c);
	jsonmake_u64(o, "context", (uint32_t)i->id);
	jsonmake_text(o, "kind", kinds[(unsigned)i->kind <= ARB_SERVICE ? i->kind : 0]);
	jsonmake_text(o, "state", arb_state_name(i->state));
	jsonmake_text(o, "label", i->task && arb_task(l->host->core, i->task, &t) ? t.name : NULL);
	priority(o, i->priority);
	ms(o, "since_ms", since(l, i->since_ns));
	pool_name(l, o, i->pool);
	jsonmake_text(o, "wait", waits[(unsigned)i->wait <= ARB_WAIT_EXTERNAL ? i->wait : 0]);
	if (i->deadline_ns)
		ms(o, "deadline_ms", i->deadline_ns > l->now_ns ? i->deadline_ns - l->now_ns : 0);
	return true;
}

void report_arbiter(const struct report_view *v, struct account *a, struct json_object *o)
{
	struct listing l = {.view = v, .host = a->arb};
	struct json_object *part;
	struct arb_totals t;

	jsonmake_flag(o, "enabled", a->arb);
	if (!a->arb)
		return;
	l.now_ns = arb_now(a->arb);
	part = jsonmake_child(o, "knobs", jsonmake_new());
	for (int k = ARB_KNOB_MAX_BYPASS; k <= ARB_KNOB_OS_PROBE; k++)
		jsonmake_i64(part, arb_knob_name((enum arb_knob)k),
			     arb_knob(a->arb->core, (enum arb_knob)k));
	ms(part, "wait_ms", arb_config(a->arb)->wait_ns);
	ms(part, "tick_ms", arb_config(a->arb)->tick_ns);
	arb_totals(a->arb->core, &t);
	part = jsonmake_child(o, "totals", jsonmake_new());
	fields_of(part, &t, NUMBER(messages), NUMBER(retries), NUMBER(splits), NUMBER(nomem),
		  NUMBER(toobig), NUMBER(timeouts), NUMBER(canceled), NUMBER(removed),
		  NUMBER(progress), NUMBER(detects), NUMBER(parked), NUMBER(contexts),
		  NUMBER(tasks), NUMBER(pools), NUMBER(reservations));
	l.list = jsonmake_child(o, "pools", jsonmake_new_list());
	arb_each_pool(a->arb->core, add_pool, &l);
	l.list = jsonmake_child(o, "tasks", jsonmake_new_list());
	arb_each_task(a->arb->core, add_task, &l);
	l.list = jsonmake_child(o, "contexts", jsonmake_new_list());
	arb_each_context(a->arb->core, add_context, &l);
}

/* ---- the log --------------------------------------------------------------------------------- */

static bool add_transition(void *arg, const struct arb_transition *t)
{
	struct listing *l = arg;
	const struct arbguest *c = seen(l, t->context);
	struct json_object *o;

	if (!c && l->view->uid != (unsigned)-1)
		return true;
	o = jsonmake_append(l->list, jsonmake_new());
	fields_of(o, t, SAME(number), PLACE("time_ms"), PLACE("op"), FIELD_AS(FIELD_ID, by, "by"),
		  SAME(context), FIELD_AS(FIELD_ID, task, "task"), PLACE("store"), PLACE("from"),
		  PLACE("to"), PLACE("outcome"), PLACE("pool"), SAME(bytes), SAME(note));
	jsonmake_u64(o, "time_ms", (uint64_t)((int64_t)t->time_ns + l->boottime_ns) / MS);
	jsonmake_text(o, "op", arb_op_name(t->op));
	jsonmake_text(o, "store", c ? c->member->name : NULL);
	jsonmake_text(o, "from", arb_state_name(t->from));
	jsonmake_text(o, "to", arb_state_name(t->to));
	jsonmake_text(o, "outcome", arb_outcome_name(t->outcome));
	pool_name(l, o, t->pool);
	return true;
}

void report_arb_log(const struct report_view *v, struct account *a, struct json_object *o)
{
	struct listing l = {.view = v, .host = a->arb};

	l.list = jsonmake_child(o, "log", jsonmake_new_list());
	jsonmake_flag(o, "enabled", a->arb);
	if (!a->arb)
		return;
	l.now_ns = arb_now(a->arb);
	l.boottime_ns = (int64_t)(clock_ns(CLOCK_BOOTTIME) - clock_ns(CLOCK_MONOTONIC));
	arb_log(a->arb->core, 0, add_transition, &l);
	l.list = jsonmake_child(o, "ended", jsonmake_new_list());
	arb_each_ended(a->arb->core, add_task, &l);
}

/* ---- sums ------------------------------------------------------------------------------------ */

bool report_arb_sums(const struct account *a, struct report_arb *ret)
{
	*ret = (struct report_arb){0};
	if (!a->arb)
		return false;
	arb_totals(a->arb->core, &ret->totals);
	arb_pool(a->arb->core, WIRE_ARB_PARTITION, &ret->pool);
	ret->leased = leased(a->arb, NULL, WIRE_ARB_PARTITION);
	ret->objects = a->arb->kernel.core_objects;
	ret->drift = a->arb->kernel.drift;
	ret->level = a->arb->level;
	return true;
}

static bool count_state(void *arg, const struct arb_context_info *i)
{
	uint64_t *n = arg; /* by state */

	if (i->state >= 0 && i->state <= ARB_REMOVE_THROW)
		n[i->state]++;
	return true;
}

void report_arb_status(const struct account *a, struct json_object *o)
{
	static const enum arb_state at_rest[] = {ARB_RUNNING, ARB_ALLOC,     ARB_ALLOC_FREE,
						 ARB_BLOCKED, ARB_BUFN_WAIT, ARB_BUFN};
	uint64_t n[ARB_REMOVE_THROW + 1] = {0};
	struct json_object *list;
	struct report_arb r;

	if (!report_arb_sums(a, &r)) {
		jsonmake_null(o, "arbiter");
		return;
	}
	o = jsonmake_child(o, "arbiter", jsonmake_new());
	fields_add(o, of_arbiter, &r);
	list = jsonmake_child(o, "states", jsonmake_new());
	arb_each_context(a->arb->core, count_state, n);
	for (size_t i = 0; i < sizeof(at_rest) / sizeof(at_rest[0]); i++)
		jsonmake_u64(list, arb_state_name(at_rest[i]), n[at_rest[i]]);
}
