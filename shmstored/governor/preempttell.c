/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preempttell.c: tells the process of a task, and the process whose task started it, by message,
 * and watchers by an event. No connection is dropped here because it does not read: conn_send()
 * leaves a message out that a slow one would have to keep waiting. A connection that cannot be sent
 * to ends by itself.
 */
#include <stdio.h>

#include "admit.h"
#include "config.h"
#include "events.h"
#include "fields.h"
#include "host.h"
#include "jsonmake.h"
#include "preemptpick.h"
#include "pressure.h"
#include "wire.h"

#define MS         1000000
#define TASKS_TOLD 8u /* of one process, in an event */

static uint64_t grace_ms(const struct host *h)
{
	return h->config->pressure.grace_ns / MS;
}

/* ---- by message ------------------------------------------------------------------------------ */

/* The other steps are told to nobody. */
static const uint32_t what_of[PREEMPT_SPARED + 1] = {
	[PREEMPT_NOTICED] = WIRE_PREEMPT_NOTICE,
	[PREEMPT_GONE] = WIRE_PREEMPT_LOST,
	[PREEMPT_YIELDED] = WIRE_PREEMPT_SPARED,
	[PREEMPT_SPARED] = WIRE_PREEMPT_SPARED,
};

static void send_to(const struct client *g, const struct wire_task_preempt *m)
{
	if (g && g->told)
		(void)conn_send(g->conn, WIRE_TASK_PREEMPT, 0, m, NULL, 0);
}

static void tell_task(const struct admit_tasks *t, const struct preempt_lost *k,
		      struct wire_task_preempt m)
{
	const struct admit_task *task = admittask_find(t, k->id);
	const struct admit_task *parent = k->parent ? admittask_find(t, k->parent) : NULL;
	const struct client *own = task ? task->client : NULL,
			    *owner = parent ? parent->client : NULL;

	m.task = k->id;
	m.parent = k->parent;
	m.bytes = k->had;
	if (!k->retriable)
		m.flags &= ~WIRE_PREEMPT_RETRY;
	send_to(own, &m);
	if (owner != own)
		send_to(owner, &m);
}

static void tell_clients(const struct host *h, const struct preempt_victim *v)
{
	const struct preempt_record *r = &v->record;
	const struct admit_tasks *t = &h->admit->tasks;
	struct wire_task_preempt m = {
		.grace_ms = r->step == PREEMPT_NOTICED ? grace_ms(h) : 0,
		.delay_ms = r->delay_ms,
		.what = what_of[r->step],
		.flags = (r->retry ? WIRE_PREEMPT_RETRY : 0) |
			 (r->notice_only ? WIRE_PREEMPT_ASKED : 0),
	};

	if (!m.what)
		return;
	for (unsigned i = 0; i < r->n_tasks; i++)
		tell_task(t, &v->tasks[i], m);
	if (r->n_tasks)
		return;
	m.bytes = r->bytes > 0 ? (uint64_t)r->bytes : 0;
	send_to(preemptvictim_client(v, h), &m);
}

/* ---- by event -------------------------------------------------------------------------------- */

/*
 * A notice says how long the process has. Its end says whether and when its tasks may be tried
 * again, and what they had.
 */
static void tell_watchers(const struct host *h, const struct preempt_victim *v)
{
	const struct preempt_record *r = &v->record;
	struct json_object *o = jsonmake_new(),
			   *list = jsonmake_child(o, "tasks", jsonmake_new_list());
	char key[48];

	jsonmake_text(o, "step", preempt_step_name(r->step));
	jsonmake_i64(o, "pid", r->pid);
	jsonmake_u64(o, "uid", r->uid);
	for (unsigned i = 0; i < r->n_tasks && i < TASKS_TOLD; i++) {
		fields_of(jsonmake_append(list, jsonmake_new()), &v->tasks[i], FIELD(id, "task"),
			  SAME(parent), FIELD(name.func, "function"), SAME(had));
	}
	fields_of(o, r, FIELD(notice_only, "asked_only"), PLACE("grace_ms"), PLACE("level"),
		  PLACE("why"), SAME(bytes), SAME(retry), SAME(delay_ms), SAME(used));
	jsonmake_u64(o, "grace_ms", grace_ms(h));
	jsonmake_text(o, "level", policylevel_name(r->level));
	jsonmake_text(o, "why", policy_why(r->why));
	jsonmake_i64(o, "kill", h->pressure->limits.kill);
	snprintf(key, sizeof(key), "%llu %s", (unsigned long long)r->number,
		 preempt_step_name(r->step));
	events_emit(h->events, EVENT_PREEMPT, key, o);
}

void preempttell(struct host *h, const struct preempt_victim *v)
{
	tell_clients(h, v);
	tell_watchers(h, v);
}
