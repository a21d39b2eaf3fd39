/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbscope.c: the requests about tasks and contexts: TASK_BEGIN, TASK_END, BIND, UNBIND, and
 * those that only name one of them.
 *
 * A task or context is put into the client's table before the core hears of it, and
 * what the core did not take is taken out again: so there is never one in the core that
 * the client's end would miss.
 */
#include <errno.h>
#include <json-c/json.h>

#include "arbhost.h"
#include "fields.h"
#include "jsonmake.h"

int arbscope_begin(struct arbrequest *q)
{
	struct arbguest *c = q->client;
	const struct wire_arb *w = q->w;
	char name[ARB_NAME_MAX + 1];
	struct arb_message m = {
		.op = ARB_OP_TASK_BEGIN,
		.task = arb_id(c, w->task),
		.other = arb_id(c, w->other),
		.value = w->value,
		.name = arbbytes_name(q->tail, name),
	};
	struct arbtask *t;
	int r;

	if (!w->task || (w->other && !arbguest_task(c, w->other)))
		return ARB_INVALID;
	r = arbguest_add_task(c, w->task, &t);
	if (r < 0)
		return r;
	r = arbstep_do(c->host, &m);
	if (r != ARB_OK)
		arbguest_look_task(c, t);
	return r;
}

int arbscope_end(struct arbrequest *q)
{
	struct arbguest *c = q->client;
	struct arbtask *t = arbguest_task(c, q->w->task);
	struct arb_message m = {
		.op = ARB_OP_TASK_END,
		.flags = q->w->flags & (ARB_RELEASE | ARB_ALL),
		.task = arb_id(c, q->w->task),
	};
	int r;

	if (!t)
		return ARB_INVALID;
	/* The kernel's figures come first: else its taken bytes would be free for a moment. */
	if (m.flags & ARB_RELEASE)
		arbguest_discount_task(c, t, m.flags & ARB_ALL);
	arbkernel_refresh(c->host, c);
	r = arbstep_do(c->host, &m);
	arbguest_look_task(c, t);
	return r;
}

/* A BIND's tasks in the client's table. 0, -errno; the caller looks at unused new ones. */
static int add_tasks(struct arbguest *c, const uint32_t *ids, uint32_t n)
{
	struct arbtask *t;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < n; i++)
		r = arbguest_add_task(c, ids[i], &t);
	return r;
}

int arbscope_bind(struct arbrequest *q)
{
	struct arbguest *c = q->client;
	const struct wire_arb *w = q->w;
	uint64_t list[ARB_LIST_MAX];
	uint32_t ids[ARB_LIST_MAX], n = arbbytes_list(q->tail, ids, NULL, ARB_LIST_MAX);
	struct arb_message m = {.op = ARB_OP_BIND,
				.kind = w->kind,
				.context = arb_id(c, w->context),
				.list = list,
				.n_list = n};
	struct arbcontext *x = NULL;
	int r;

	if (!w->context || !n)
		return ARB_INVALID;
	for (uint32_t i = 0; i < n; i++)
		list[i] = arb_id(c, ids[i]);
	r = arbguest_add_context(c, w->context, &x);
	if (r == -EMFILE) {
		arbguest_forget_unbound(c);
		r = arbguest_add_context(c, w->context, &x);
	}
	if (r == 0)
		r = add_tasks(c, ids, n);
	if (r == 0)
		r = arbstep_do(c->host, &m);
	if (r != ARB_OK) {
		if (x)
			arbguest_look_context(c, x);
		/* Named twice in the list it is looked at twice, and may be gone by then. */
		for (uint32_t i = 0; i < n; i++) {
			struct arbtask *t = arbguest_task(c, ids[i]);

			if (t)
				arbguest_look_task(c, t);
		}
	}
	return r;
}

int arbscope_unbind(struct arbrequest *q)
{
	struct arbguest *c = q->client;
	const struct wire_arb *w = q->w;
	struct arbcontext *x = arbguest_context(c, w->context);
	uint64_t list[ARB_LIST_MAX];
	uint32_t ids[ARB_LIST_MAX], n = 0;
	struct arb_message m = {
		.op = ARB_OP_UNBIND, .context = arb_id(c, w->context), .list = list};
	int r;

	if (!w->context)
		return ARB_INVALID;
	if (*q->tail) {
		n = arbbytes_list(q->tail, ids, NULL, ARB_LIST_MAX);
		if (!n)
			return ARB_INVALID;
	}
	if (!x)
		return ARB_OK; /* it is not bound */
	for (uint32_t i = 0; i < n; i++)
		list[i] = arb_id(c, ids[i]);
	m.n_list = n;
	m.flags = n ? 0 : ARB_ALL;
	r = arbstep_do(c->host, &m);
	arbguest_look_context(c, x);
	return r;
}

int arbscope_plain(struct arbrequest *q)
{
#define PLAIN(op) [WIRE_ARB_##op] = ARB_OP_##op
	static const enum arb_op ops[WIRE_ARB_OP_END] = {
		PLAIN(READY),     PLAIN(RETRY_BEGIN), PLAIN(RETRY_END),
		PLAIN(WAIT_ON),   PLAIN(WAIT_OFF),    PLAIN(SPILL_BEGIN),
		PLAIN(SPILL_END), PLAIN(CANCEL),      PLAIN(INJECT)};
	struct arbguest *c = q->client;
	const struct wire_arb *w = q->w;
	struct arb_message m = {.op = ops[w->op], .context = arb_id(c, w->context)};

	/* Of a task only where no context is named. */
	if (m.op == ARB_OP_CANCEL || m.op == ARB_OP_INJECT) {
		if (w->context ? !arbguest_context(c, w->context) : !arbguest_task(c, w->task))
			return ARB_INVALID;
		m.task = w->context ? 0 : arb_id(c, w->task);
	} else if (!w->context) {
		return ARB_INVALID;
	}
	if (m.op == ARB_OP_INJECT) {
		m.kind = w->kind;
		m.value = w->value;
		m.extra = w->extra_kib;
		m.pool = w->pool ? arb_pool_id(c, w->pool) : 0;
	}
	if (m.op == ARB_OP_RETRY_END)
		m.value = w->value;
	if (m.op == ARB_OP_WAIT_ON) {
		m.kind = w->kind;
		m.other = arb_id(c, w->other);
	}
	if (m.op != ARB_OP_READY)
		return arbstep_do(c->host, &m);
	arbkernel_refresh(c->host, c);
	m.deadline_ns = arbstep_deadline(c->host, w->timeout_ms);
	return arbbytes_call(q, &m, 0);
}

/* STATE and STATS: a client asks about its own contexts, tasks and pools. One JSON
 * object each, as wire.h has it. */
#define MS UINT64_C(1000000)

static int say(struct arbrequest *q, struct json_object *o)
{
	o = jsonmake_end(o);
	q->text = o ? strdup(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN)) : NULL;
	json_object_put(o);
	return q->text ? ARB_OK : -ENOMEM;
}

static int say_state(struct arbrequest *q, struct json_object *o)
{
	struct arbguest *c = q->client;
	struct arb_context_info i = {.state = ARB_UNKNOWN};

	(void)arb_context(c->host->core, arb_id(c, q->w->context), arb_now(c->host), &i);
	jsonmake_text(o, "state", arb_state_name(i.state));
	jsonmake_u64(o, "since_ms", i.since_ns ? (arb_now(c->host) - i.since_ns) / MS : 0);
	fields_of(o, &i, SAME(held), SAME(need));
	return say(q, o);
}

static int say_pool(struct arbrequest *q, const struct arb_pool_info *i, struct json_object *o)
{
	fields_of(o, i, SAME(capacity), SAME(used), SAME(reclaimable), SAME(spilled),
		  SAME(max_used), NUMBER(waiting));
	jsonmake_u64(o, "level", arbhost_level(q->client->host, i));
	return say(q, o);
}

static int say_task(struct arbrequest *q, const struct arb_stats *s, struct json_object *o)
{
	fields_of(o, s, NUMBER(retries), NUMBER(splits), NUMBER(grants), SAME(blocked_ns),
		  SAME(lost_ns), SAME(blocked_or_lost_ns), SAME(current), SAME(max),
		  SAME(footprint), SAME(need));
	return say(q, o);
}

int arbstate_make(struct arbrequest *q)
{
	struct arbguest *c = q->client;
	const struct wire_arb *w = q->w;
	uint64_t pool = w->pool ? arb_pool_id(c, w->pool) : 0;
	struct arb_pool_info i;
	struct arb_stats s;

	if (w->pool && !arbguest_has_pool(c, w->pool))
		return ARB_INVALID;
	/* Its numbers as they are now. */
	arbkernel_refresh(c->host, c);
	jsonmake_begin();
	if (w->op == WIRE_ARB_STATE)
		return w->context ? say_state(q, jsonmake_new()) : ARB_INVALID;
	if (!w->task)
		return arb_pool(c->host->core, pool, &i) ? say_pool(q, &i, jsonmake_new())
							 : ARB_INVALID;
	return arb_stats(c->host->core, arb_id(c, w->task), pool, arb_now(c->host),
			 w->flags & ARB_RESET, &s)
		       ? say_task(q, &s, jsonmake_new())
		       : ARB_INVALID;
}
