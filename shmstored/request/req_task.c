/* SPDX-License-Identifier: Apache-2.0 */
/* req_task.c: TASK_ADMIT, TASK_RUNS, TASK_DONE: a client's task begins by leave of the gate, runs
 * since an earlier daemon, and has ended. */
#include <errno.h>

#include "admit.h"
#include "dispatch.h"
#include "host.h"
#include "stages.h"

_Static_assert((int)POLICYLEVEL_AUTO == (int)WIRE_TASK_LEVEL_AUTO,
	       "the protocol's levels are the policy's");

static int refuse_admit(struct conn *c, uint64_t serial, int error)
{
	if (error == -EMFILE)
		return conn_refuse(c, serial, error,
				   "too many tasks of this client, or of all clients, wait or run: "
				   "end some first");
	if (error == -EPERM)
		return conn_refuse(c, serial, error,
				   "the task that is said to have started it is another user's");
	return conn_refuse(c, serial, error, "the daemon is out of memory");
}

/* Without the gate: what was declared decides. */
static int answer_now(struct conn *c, uint64_t serial, const struct wire_task_admit *w,
		      uint32_t outcome, uint32_t reason)
{
	const struct wire_task_admitted body = {
		.reserve = w->declared, .outcome = outcome, .reason = reason};

	return conn_send(c, WIRE_TASK_ADMITTED, serial, &body, NULL, 0);
}

/* More than its worker may have privately in its stage: no wait helps. */
static bool is_beyond_stage(const struct conn *c, const struct wire_task_admit *w)
{
	const struct member *m = c->member;

	return m && w->declared > stages_private(m);
}

static int admit(struct conn *c, uint64_t serial, const struct wire_task_admit *w,
		 const struct profile_name *name)
{
	static const enum gateline_form forms[] = {
		[WIRE_TASK_TRY] = GATELINE_TRY,
		[WIRE_TASK_UNTIL] = GATELINE_UNTIL,
		[WIRE_TASK_WAIT] = GATELINE_WAIT,
	};
	struct admit *a = c->host->admit;
	const struct admit_want want = {
		.serial = serial,
		.uid = w->uid == WIRE_TASK_MINE ? c->peer.uid : w->uid,
		.level = (enum policylevel)w->level,
		.retriable = (w->flags & WIRE_TASK_RETRIABLE) != 0,
		.told = (w->flags & WIRE_TASK_TOLD) != 0,
		.worker = (w->flags & WIRE_TASK_WORKER) != 0,
		.form = forms[w->form],
		.timeout_ms = w->timeout_ms,
		.declared = w->declared,
		.parent = w->parent,
		.name = name,
	};
	struct admit_answer answer;
	int r;

	if (want.uid != c->peer.uid && !conn_is_admin(c))
		return conn_refuse_user(c, serial, "others' tasks are for");
	if (is_beyond_stage(c, w))
		return answer_now(c, serial, w, WIRE_TASK_TOOBIG, WIRE_TASK_MORE_THAN_ALL);
	if (!a) /* nobody is held back */
		return answer_now(c, serial, w, WIRE_TASK_IN, WIRE_TASK_OFF);
	r = admit_ask(a, c, &want, &answer);
	if (r > 0)
		return CONN_OK;
	return r < 0 ? refuse_admit(c, serial, r) : admit_send(c, serial, &answer);
}

DISPATCH_HANDLER(task_admit)
{
	struct profile_name name;

	if (body->form < WIRE_TASK_TRY || body->form >= WIRE_TASK_FORM_END ||
	    body->level > WIRE_TASK_LEVEL_AUTO)
		return conn_fault(c, "TASK_ADMIT: no such form or level");
	if (!tail_size)
		return admit(c, serial, body, NULL);
	if (!profilename_cut(tail, &name))
		return conn_refuse(c, serial, -EINVAL, PROFILENAME_WRONG);
	return admit(c, serial, body, &name);
}

DISPATCH_HANDLER(task_runs)
{
	struct admit *a = c->host->admit;
	struct admit_want want = {
		.uid = body->uid == WIRE_TASK_MINE ? c->peer.uid : body->uid,
		.level = (enum policylevel)body->level,
		.retriable = (body->flags & WIRE_TASK_RETRIABLE) != 0,
		.told = (body->flags & WIRE_TASK_TOLD) != 0,
		.worker = (body->flags & WIRE_TASK_WORKER) != 0,
		.declared = body->declared,
		.parent = body->parent,
	};
	struct profile_name name;

	if (body->level > WIRE_TASK_LEVEL_AUTO)
		return conn_fault(c, "TASK_RUNS: no such level");
	if (profilename_cut(tail, &name))
		want.name = &name;
	if (a && (want.uid == c->peer.uid || conn_is_admin(c)))
		/* what is not counted is found out at its end */
		(void)admit_runs(a, c, body->task, &want);
	return CONN_OK;
}

DISPATCH_HANDLER(task_done)
{
	struct admit *a = c->host->admit;
	int r = a ? admit_done(a, c, body->task) : -ENOENT;

	if (r < 0)
		return conn_refuse(c, serial, r,
				   r == -EPERM ? "the task was admitted on another connection: "
						 "only that one may end it"
					       : "no such task runs");
	r = conn_send_done(c, serial);
	admit_settle(a);
	return r;
}
