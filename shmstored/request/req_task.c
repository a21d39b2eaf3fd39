/* SPDX-License-Identifier: Apache-2.0 */
/*
 * req_task.c: TASK_ADMIT, TASK_RUNS, TASK_DONE: a client's task begins by leave of the gate, runs
 * since an earlier daemon, and has ended; a worker's share for a stage of a job, its begin and its
 * end; and the messages of the program's actors (actord.h).
 */
#include <errno.h>
#include <shmstore/stage.h>
#include <string.h>

#include "account.h"
#include "actord.h"
#include "admit.h"
#include "dispatch.h"
#include "host.h"
#include "member.h"
#include "stages.h"

_Static_assert((int)POLICYLEVEL_AUTO == (int)WIRE_TASK_LEVEL_AUTO,
	       "the protocol's levels are the policy's");

static const struct conn_why not_admitted[] = {
	{-EMFILE, "too many tasks of this client, or of all clients, wait or run: end some first"},
	{-EPERM, "the task that is said to have started it is another user's"},
	{0, NULL}};

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

/* TASK_ADMIT and TASK_RUNS say these members of an admit_want. */
#define WANTED(c, w)                                                               \
	.uid = (w)->uid == WIRE_TASK_MINE ? (c)->peer.uid : (w)->uid,              \
	.level = (enum policylevel)(w)->level,                                     \
	.retriable = ((w)->flags & WIRE_TASK_RETRIABLE) != 0,                      \
	.told = ((w)->flags & WIRE_TASK_TOLD) != 0,                                \
	.worker = ((w)->flags & WIRE_TASK_WORKER) != 0, .declared = (w)->declared, \
	.parent = (w)->parent

static int admit(struct conn *c, uint64_t serial, const struct wire_task_admit *w,
		 const struct profile_name *name)
{
	static const enum gateline_form forms[] = {
		[WIRE_TASK_TRY] = GATELINE_TRY,
		[WIRE_TASK_UNTIL] = GATELINE_UNTIL,
		[WIRE_TASK_WAIT] = GATELINE_WAIT,
	};
	struct admit *a = c->host->admit;
	const struct admit_want want = {WANTED(c, w), .serial = serial, .form = forms[w->form],
					.timeout_ms = w->timeout_ms, .name = name};
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
	return r < 0 ? conn_refuse_why(c, serial, r, not_admitted) : admit_send(c, serial, &answer);
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
	struct admit_want want = {WANTED(c, body)};
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

/* ---- stages ---------------------------------------------------------------------------------- */

/*
 * The worker is the store that the connection has registered; another's stage can be ended by the
 * same user, and by administrators. An impossible request (a name, a count) is refused; a breach of
 * the protocol ends the client.
 */

#define PPM UINT32_C(1000000)

static int refuse_store(struct conn *c, uint64_t serial)
{
	return conn_refuse(c, serial, -ENOENT,
			   "no store is registered on this connection, and a worker is a store; "
			   "register one first");
}

static const struct conn_why no_stage[] = {
	{-ENOSPC, "all stage profiles that the daemon remembers are in use: end some stages"},
	{-ENOENT, "the daemon knows no stage profile of this number, or not any more: ask for one"},
	{-EBUSY, "this worker is in a stage, or waits for one: end that first"},
	{-EEXIST,
	 "two different profiles were asked for in one stage, and stage.conflict is error: "
	 "ask for one, or set it to max or host"},
	{0, NULL}};

static bool name_fits(const char *text)
{
	return *text && strlen(text) <= STAGES_NAME && !strchr(text, '\n');
}

DISPATCH_HANDLER(stage_query)
{
	struct member *m = c->member;
	struct stages_answer a;
	struct stage_ask ask;
	int r;

	if (body->root > SHMSTORE_STAGE_FINAL || body->fallback > SHMSTORE_STAGE_FALLBACK_WHOLE)
		return conn_fault(c, "STAGE_QUERY: no such root or fallback");
	if (!m)
		return refuse_store(c, serial);
	if (!name_fits(tail))
		return conn_refuse(c, serial, -EINVAL,
				   "a stage has a name of 1 to 240 bytes without line breaks");
	if (body->base)
		return conn_refuse(c, serial, -EINVAL,
				   "every query starts from the base, which is profile 0");
	ask = (struct stage_ask){
		.n_native = (int64_t)body->n_native,
		.n_convert = (int64_t)body->n_convert,
		.n_other = (int64_t)body->n_other,
		.has_nonshare = (body->flags & WIRE_STAGE_HAS_NONSHARE) != 0,
		.nonshare = RATIO(body->nonshare_ppm, PPM),
		.root = body->root == SHMSTORE_STAGE_FINAL ? STAGE_FINAL : STAGE_EXCHANGE,
		.fallback = (enum stage_fallback)body->fallback,
		.want_slots = body->want_slots,
	};
	if (!stage_ask_fits(&ask) || body->nonshare_ppm > PPM)
		return conn_refuse(c, serial, -EINVAL,
				   "a stage has 0 to 2^40 operators of each kind, and no more of "
				   "its bytes than all can be unshareable");
	r = stages_query(m, &ask, &a);
	return r < 0 ? conn_refuse_why(c, serial, r, no_stage) : stages_send(c, serial, &a);
}

DISPATCH_HANDLER(stage_begin)
{
	struct member *m = c->member;
	struct stages_answer a;
	int r;

	if (!m)
		return refuse_store(c, serial);
	if (!name_fits(tail))
		return conn_refuse(c, serial, -EINVAL,
				   "a stage has a name of 1 to 240 bytes without line breaks");
	r = stages_begin(m, serial, tail, body->profile, body->other, body->timeout_ms, &a);
	if (r < 0)
		return conn_refuse_why(c, serial, r, no_stage);
	return r == 1 ? CONN_OK : stages_send(c, serial, &a);
}

DISPATCH_HANDLER(stage_end)
{
	struct member *m = body->session ? member_by_id(c->host, body->session) : c->member;
	struct stages_answer a;

	if (!m && !body->session)
		return refuse_store(c, serial);
	if (m && m->uid != c->peer.uid && !conn_is_admin(c))
		return conn_refuse(c, serial, -EPERM,
				   "others' stages are for root and the daemon's own user to end; "
				   "you are user %u",
				   (unsigned)c->peer.uid);
	if (!m || stages_end(m, &a) < 0)
		return conn_refuse(c, serial, -ENOENT,
				   "no stage runs there: the daemon may have been started anew "
				   "since its begin");
	return body->session ? conn_send_done(c, serial) : stages_send(c, serial, &a);
}

/* ---- actors ---------------------------------------------------------------------------------- */

#define TO_ACTORD(NAME, name)                                                                   \
	DISPATCH_HANDLER(name)                                                                  \
	{                                                                                       \
		return c->host->actord->request(c, WIRE_##NAME, serial, body, tail, tail_size); \
	}

TO_ACTORD(ACTOR_PLACE, actor_place)
TO_ACTORD(ACTOR_BORN, actor_born)
TO_ACTORD(ACTOR_NEXT, actor_next)
TO_ACTORD(ACTOR_DONE, actor_done)
TO_ACTORD(ACTOR_CALL, actor_call)
TO_ACTORD(ACTOR_MOVE, actor_move)
