/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report_arb.c: the memory arbiter of a partition: its pools, tasks and contexts; its last
 * transitions; its sums. A viewer that may not see a store by name sees none of its pools, tasks
 * and contexts, only the partition's pool and the sums.
 */

#include "arbhost.h"
#include "clocks.h"
#include "jsonmake.h"
#include "report_parts.h"
#include "sums.def"

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

static void knobs_part(const struct arbhost *h, struct json_object *o)
{
	for (int k = ARB_KNOB_MAX_BYPASS; k <= ARB_KNOB_OS_PROBE; k++)
		jsonmake_i64(o, arb_knob_name((enum arb_knob)k),
			     arb_knob(h->core, (enum arb_knob)k));
	ms(o, "wait_ms", arb_config(h)->wait_ns);
	ms(o, "tick_ms", arb_config(h)->tick_ns);
}

static void totals_part(const struct arbhost *h, struct json_object *o)
{
	struct arb_totals t;

	arb_totals(h->core, &t);
	fields_of(o, &t, NUMBER(messages), NUMBER(retries), NUMBER(splits), NUMBER(nomem),
		  NUMBER(toobig), NUMBER(timeouts), NUMBER(canceled), NUMBER(removed),
		  NUMBER(progress), NUMBER(detects), NUMBER(parked), NUMBER(contexts),
		  NUMBER(tasks), NUMBER(pools), NUMBER(reservations));
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
	fields_add(o, of_arbiter, &r);
	list = jsonmake_child(o, "states", jsonmake_new());
	arb_each_context(a->arb->core, count_state, &states);
	for (size_t i = 0; i < sizeof(at_rest) / sizeof(at_rest[0]); i++)
		jsonmake_u64(list, arb_state_name(at_rest[i]), states.n[at_rest[i]]);
}
