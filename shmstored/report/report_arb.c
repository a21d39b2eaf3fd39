/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report_arb.c: the memory arbiter of a partition: its pools, tasks and contexts; its last transitions; its sums. A viewer
 * that may not see a store by name sees none of its pools, tasks and contexts, only the partition's pool and the sums.
 */
#include <json-c/json.h>
#include <time.h>

#include "arbhost_state.h"
#include "jsonmake.h"
#include "report_parts.h"

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
	const struct arbguest *c = id & ARB_OURS ? NULL : arbhost_client(l->host, id >> 32);

	return c && report_may_see(l->view, c->member->uid) ? c : NULL;
}

static void id_or_null(struct json_object *o, const char *name, uint64_t id)
{
	if (id)
		jsonmake_u64(o, name, id);
	else
		jsonmake_null(o, name);
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

/* ---- pools --------------------------------------------------------------------------------------------------------- */

/* In leases of that pool: of one client, or the partition's of all. */
static uint64_t leased(struct arbhost *h, const struct arbguest *of, uint32_t pool)
{
	struct arbguest *c, *next;
	uint64_t sum = 0;

	if (pool == 0 || pool > WIRE_LEASES)
		return 0;
	if (of)
		return of->leases[pool - 1].core_held + of->leases[pool - 1].core_unspent;
	HASH_ITER(hh, h->clients, c, next)
	{
		sum += c->leases[pool - 1].core_held + c->leases[pool - 1].core_unspent;
	}
	return sum;
}

static void pool_numbers(const struct arb_pool_info *i, struct json_object *o)
{
	jsonmake_u64(o, "capacity", i->capacity);
	jsonmake_u64(o, "used", i->used);
	jsonmake_u64(o, "reclaimable", i->reclaimable);
	jsonmake_u64(o, "spilling", i->spilling);
	jsonmake_u64(o, "spilled", i->spilled);
	jsonmake_u64(o, "max_used", i->max_used);
	jsonmake_u64(o, "waiting", i->n_waiting);
	jsonmake_u64(o, "grants", i->n_grants);
	jsonmake_u64(o, "waits", i->n_waits);
	jsonmake_u64(o, "retries", i->n_retries);
	jsonmake_u64(o, "splits", i->n_splits);
	jsonmake_u64(o, "toobig", i->n_toobig);
	id_or_null(o, "closed_by", i->closed_by);
}

static bool add_pool(void *arg, const struct arb_pool_info *i)
{
	struct listing *l = arg;
	const struct arbguest *c = i->kind == ARB_PRIVATE ? seen(l, i->id) : NULL;
	const struct arbkernel *k = &l->host->kernel;
	bool partition = i->kind == ARB_PARTITION;
	struct json_object *o;

	if (!partition && !c)
		return true;
	o = jsonmake_append(l->list, jsonmake_new());
	jsonmake_u64(o, "id", i->id);
	jsonmake_text(o, "name", i->name);
	jsonmake_text(o, "kind", partition ? "partition" : "private");
	jsonmake_text(o, "store", c ? c->member->name : NULL);
	if (c)
		jsonmake_i64(o, "pid", c->member->pid);
	else
		jsonmake_null(o, "pid");
	pool_numbers(i, o);
	jsonmake_u64(o, "leased", leased(l->host, c, (uint32_t)i->id));
	jsonmake_u64(o, "objects", partition ? k->core_objects : 0);
	jsonmake_u64(o, "evictable", partition ? k->core_evictable : 0);
	jsonmake_u64(o, "coming", partition ? k->core_coming : 0);
	jsonmake_u64(o, "ghosts", partition ? k->ghosts : 0);
	jsonmake_u64(o, "drift", partition ? k->drift : 0);
	jsonmake_u64(o, "level", arbhost_level(l->host, i));
	return true;
}

/* ---- tasks and contexts -------------------------------------------------------------------------------------------- */

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
	jsonmake_u64(o, "id", i->id);
	jsonmake_text(o, "store", c ? c->member->name : NULL);
	if (c)
		jsonmake_i64(o, "pid", c->member->pid);
	else
		jsonmake_null(o, "pid");
	jsonmake_u64(o, "task", (uint32_t)i->id);
	jsonmake_text(o, "label", i->name);
	priority(o, i->priority);
	ms(o, "begun_ms_ago", since(l, i->begun_ns));
	jsonmake_u64(o, "held", i->held);
	jsonmake_flag(o, "stalled", i->stalled);
	jsonmake_u64(o, "contexts", i->n_contexts);
	jsonmake_u64(o, "retries", s.n_retries);
	jsonmake_u64(o, "splits", s.n_splits);
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
	jsonmake_u64(o, "id", i->id);
	jsonmake_text(o, "store", c->member->name);
	jsonmake_i64(o, "pid", c->member->pid);
	jsonmake_u64(o, "context", (uint32_t)i->id);
	jsonmake_text(o, "kind", kinds[(unsigned)i->kind <= ARB_SERVICE ? i->kind : 0]);
	jsonmake_text(o, "state", arb_state_name(i->state));
	id_or_null(o, "task", i->task);
	jsonmake_text(o, "label", i->task && arb_task(l->host->core, i->task, &t) ? t.name : NULL);
	priority(o, i->priority);
	ms(o, "since_ms", since(l, i->since_ns));
	pool_name(l, o, i->pool);
	jsonmake_u64(o, "bytes", i->bytes);
	jsonmake_u64(o, "held", i->held);
	jsonmake_u64(o, "need", i->need);
	jsonmake_u64(o, "passed", i->n_passed);
	jsonmake_u64(o, "outcomes", i->n_outcomes);
	jsonmake_text(o, "wait", waits[(unsigned)i->wait <= ARB_WAIT_EXTERNAL ? i->wait : 0]);
	jsonmake_text(o, "reason", i->reason);
	if (i->deadline_ns)
		ms(o, "deadline_ms", i->deadline_ns > l->now_ns ? i->deadline_ns - l->now_ns : 0);
	else
		jsonmake_null(o, "deadline_ms");
	return true;
}

static void knobs_part(const struct arbhost *h, struct json_object *o)
{
	for (int k = ARB_KNOB_MAX_BYPASS; k <= ARB_KNOB_OS_PROBE; k++)
		jsonmake_i64(o, arb_knob_name((enum arb_knob)k), arb_knob(h->core, (enum arb_knob)k));
	ms(o, "wait_ms", arb_config(h)->wait_ns);
	ms(o, "tick_ms", arb_config(h)->tick_ns);
}

static void totals_part(const struct arbhost *h, struct json_object *o)
{
	struct arb_totals t;

	arb_totals(h->core, &t);
	jsonmake_u64(o, "messages", t.n_messages);
	jsonmake_u64(o, "retries", t.n_retries);
	jsonmake_u64(o, "splits", t.n_splits);
	jsonmake_u64(o, "nomem", t.n_nomem);
	jsonmake_u64(o, "toobig", t.n_toobig);
	jsonmake_u64(o, "timeouts", t.n_timeouts);
	jsonmake_u64(o, "canceled", t.n_canceled);
	jsonmake_u64(o, "removed", t.n_removed);
	jsonmake_u64(o, "progress", t.n_progress);
	jsonmake_u64(o, "detects", t.n_detects);
	jsonmake_u64(o, "parked", t.n_parked);
	jsonmake_u64(o, "contexts", t.n_contexts);
	jsonmake_u64(o, "tasks", t.n_tasks);
	jsonmake_u64(o, "pools", t.n_pools);
	jsonmake_u64(o, "reservations", t.n_reservations);
}

void report_arbiter(const struct report_view *v, struct account *a, struct json_object *o)
{
	struct listing l = {.view = v, .host = a->arb};

	jsonmake_flag(o, "enabled", a->arb);
	if (!a->arb)
		return;
	l.now_ns = arb_now(a->arb);
	knobs_part(a->arb, jsonmake_child(o, "knobs", jsonmake_new()));
	totals_part(a->arb, jsonmake_child(o, "totals", jsonmake_new()));
	l.list = jsonmake_child(o, "pools", jsonmake_new_list());
	arb_each_pool(a->arb->core, add_pool, &l);
	l.list = jsonmake_child(o, "tasks", jsonmake_new_list());
	arb_each_task(a->arb->core, false, add_task, &l);
	l.list = jsonmake_child(o, "contexts", jsonmake_new_list());
	arb_each_context(a->arb->core, l.now_ns, add_context, &l);
}

/* ---- the log ------------------------------------------------------------------------------------------------------- */

static bool add_transition(void *arg, const struct arb_transition *t)
{
	struct listing *l = arg;
	const struct arbguest *c = seen(l, t->context);
	struct json_object *o;

	if (!c && l->view->uid != (unsigned)-1)
		return true;
	o = jsonmake_append(l->list, jsonmake_new());
	jsonmake_u64(o, "number", t->number);
	jsonmake_u64(o, "time_ms", (uint64_t)((int64_t)t->time_ns + l->boottime_ns) / MS);
	jsonmake_text(o, "op", arb_op_name(t->op));
	id_or_null(o, "by", t->by);
	jsonmake_u64(o, "context", t->context);
	id_or_null(o, "task", t->task);
	jsonmake_text(o, "store", c ? c->member->name : NULL);
	jsonmake_text(o, "from", arb_state_name(t->from));
	jsonmake_text(o, "to", arb_state_name(t->to));
	jsonmake_text(o, "outcome", arb_outcome_name(t->outcome));
	pool_name(l, o, t->pool);
	jsonmake_u64(o, "bytes", t->bytes);
	jsonmake_text(o, "note", t->note);
	return true;
}

static int64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void report_arb_log(const struct report_view *v, struct account *a, struct json_object *o)
{
	struct listing l = {.view = v, .host = a->arb};

	l.list = jsonmake_child(o, "log", jsonmake_new_list());
	jsonmake_flag(o, "enabled", a->arb);
	if (!a->arb)
		return;
	l.now_ns = arb_now(a->arb);
	l.boottime_ns = clock_ns(CLOCK_BOOTTIME) - clock_ns(CLOCK_MONOTONIC);
	arb_log(a->arb->core, 0, add_transition, &l);
	l.list = jsonmake_child(o, "ended", jsonmake_new_list());
	arb_each_task(a->arb->core, true, add_task, &l);
}

/* ---- sums ---------------------------------------------------------------------------------------------------------- */

bool report_arb_sums(const struct account *a, struct report_arb *ret)
{
	struct arb_pool_info p = {0};
	struct arb_totals t;

	*ret = (struct report_arb){0};
	if (!a->arb)
		return false;
	arb_totals(a->arb->core, &t);
	arb_pool(a->arb->core, WIRE_ARB_PARTITION, &p);
	*ret = (struct report_arb){
		.n_retries = t.n_retries,
		.n_splits = t.n_splits,
		.n_nomem = t.n_nomem,
		.n_toobig = t.n_toobig,
		.n_timeouts = t.n_timeouts,
		.n_canceled = t.n_canceled,
		.n_removed = t.n_removed,
		.n_contexts = t.n_contexts,
		.n_parked = t.n_parked,
		.n_tasks = t.n_tasks,
		.n_pools = t.n_pools,
		.capacity = p.capacity,
		.used = p.used,
		.reclaimable = p.reclaimable,
		.leased = leased(a->arb, NULL, WIRE_ARB_PARTITION),
		.objects = a->arb->kernel.core_objects,
		.evictable = a->arb->kernel.core_evictable,
		.drift = a->arb->kernel.drift,
		.level = a->arb->level,
	};
	return true;
}

struct states {
	uint64_t n[ARB_REMOVE_THROW + 1];
};

static bool count_state(void *arg, const struct arb_context_info *i)
{
	struct states *s = arg;

	if (i->state >= 0 && i->state <= ARB_REMOVE_THROW)
		s->n[i->state]++;
	return true;
}

void report_arb_status(const struct account *a, struct json_object *o)
{
	static const enum arb_state at_rest[] = {ARB_RUNNING, ARB_ALLOC,     ARB_ALLOC_FREE,
						 ARB_BLOCKED, ARB_BUFN_WAIT, ARB_BUFN};
	struct states states = {0};
	struct json_object *list;
	struct report_arb r;

	if (!report_arb_sums(a, &r)) {
		jsonmake_null(o, "arbiter");
		return;
	}
	o = jsonmake_child(o, "arbiter", jsonmake_new());
	jsonmake_u64(o, "capacity", r.capacity);
	jsonmake_u64(o, "used", r.used);
	jsonmake_u64(o, "reclaimable", r.reclaimable);
	jsonmake_u64(o, "leased", r.leased);
	jsonmake_u64(o, "level", r.level);
	jsonmake_u64(o, "tasks", r.n_tasks);
	jsonmake_u64(o, "contexts", r.n_contexts);
	jsonmake_u64(o, "parked", r.n_parked);
	jsonmake_u64(o, "pools", r.n_pools);
	jsonmake_u64(o, "retries", r.n_retries);
	jsonmake_u64(o, "splits", r.n_splits);
	jsonmake_u64(o, "nomem", r.n_nomem);
	jsonmake_u64(o, "toobig", r.n_toobig);
	jsonmake_u64(o, "timeouts", r.n_timeouts);
	jsonmake_u64(o, "canceled", r.n_canceled);
	jsonmake_u64(o, "removed", r.n_removed);
	list = jsonmake_child(o, "states", jsonmake_new());
	arb_each_context(a->arb->core, arb_now(a->arb), count_state, &states);
	for (size_t i = 0; i < sizeof(at_rest) / sizeof(at_rest[0]); i++)
		jsonmake_u64(list, arb_state_name(at_rest[i]), states.n[at_rest[i]]);
}
