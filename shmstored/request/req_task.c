/* SPDX-License-Identifier: Apache-2.0 */
/*
 * req_task.c: TASK_ADMIT, TASK_RUNS, TASK_DONE: a client's task begins by leave of the gate, runs
 * since an earlier daemon, and has ended; a worker's share for a stage of a job, its begin and its
 * end; PROFILE: what tasks use; and the messages of the program's actors (actord.h).
 */
#include <errno.h>
#include <shmstore/stage.h>
#include <stdlib.h>
#include <string.h>

#include "account.h"
#include "actord.h"
#include "admit.h"
#include "dispatch.h"
#include "host.h"
#include "member.h"
#include "profiles.h"
#include "stages.h"

_Static_assert((int)POLICYLEVEL_AUTO == (int)WIRE_TASK_LEVEL_AUTO,
	       "the protocol's levels are the policy's");

static const struct conn_why not_admitted[] = {
	{-EMFILE, "too many tasks of this client, or of all clients, wait or run: end some first"},
	{-EPERM, "the task that is said to have started it is another user's"},
	{0, NULL}};

/* The name of a kind of tasks, as requests have it in their tail. */
#define PROFILENAME_WRONG                                                                          \
	"a kind of tasks is a language, a function and a group, each of 255 bytes at most and in " \
	"a line of its "                                                                           \
	"own; only the group may be empty"

/* "LANG\nFUNC\nGROUP", cut in place, where ret points to. False: it is none. */
static bool profilename_cut(char *text, struct profile_name *ret)
{
	char *func = strchr(text, '\n'), *group = func ? strchr(func + 1, '\n') : NULL;

	if (!group || strchr(group + 1, '\n') || func == text || group == func + 1)
		return false;
	*func = *group = '\0';
	*ret = (struct profile_name){text, func + 1, group + 1};
	return profile_name_fits(ret);
}

/* Without the gate: what was declared decides. */
static int answer_now(struct conn *c, uint64_t serial, const struct wire_task_admit *w,
		      uint32_t outcome, uint32_t reason)
{
	const struct wire_task_admitted body = {
		.reserve = w->declared, .outcome = outcome, .reason = reason};

	return conn_send(c, WIRE_TASK_ADMITTED, serial, &body, NULL, 0);
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
	/* More than its worker may have privately in its stage: no wait helps. */
	if (c->member && w->declared > stages_private(c->member))
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

static int refuse_name(struct conn *c, uint64_t serial)
{
	return conn_refuse(c, serial, -EINVAL,
			   "a stage has a name of 1 to 240 bytes without line breaks");
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
		return refuse_name(c, serial);
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
		return refuse_name(c, serial);
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

/* ---- PROFILE --------------------------------------------------------------------------------- */

/*
 * A client's tasks say what they use, for the profile of its own user and no other; and tools ask
 * of profiles. A text that is loaded comes in parts. They are kept with the connection, one text
 * each, and PARTS_MAX bytes of all together.
 */
#define PARTS_MAX (4 * WIRE_PROFILE_TEXT_MAX)

static int refuse_off(struct conn *c, uint64_t serial)
{
	return conn_refuse(
		c, serial, -ENOTSUP,
		"profiles are off here: set profile { private = conservative } in shmstored.conf");
}

/* ---- tasks ---- */

static const struct conn_why not_begun[] = {
	{-EMFILE, "too many tasks of one client run: end some first"},
	{-EEXIST, "a task with this number runs already"},
	{0, NULL}};

static int begin(struct conn *c, uint64_t serial, const struct wire_profile *w, char *tail)
{
	const uint64_t declared[PROFILE_RESOURCES] = {w->private_bytes, w->shared_bytes, w->cpu_ms};
	struct profiles_estimate e;
	struct wire_profiled body;
	struct profile_name name;
	int r = 0;

	if (!profilename_cut(tail, &name))
		return conn_refuse(c, serial, -EINVAL, PROFILENAME_WRONG);
	if (w->op == WIRE_PROFILE_BEGIN)
		r = profiletasks_begin(c->host->profiles, c, w->task, &name);
	if (r < 0)
		return conn_refuse_why(c, serial, r, not_begun);
	e = profiles_estimate(c->host->profiles, c->peer.uid, &name, declared);
	body = (struct wire_profiled){e.used[PROFILE_PRIVATE], e.used[PROFILE_SHARED],
				      e.used[PROFILE_CPU], e.n};
	return conn_send(c, WIRE_PROFILED, serial, &body, NULL, 0);
}

static int done(struct conn *c, uint64_t serial, const struct wire_profile *w, int r)
{
	static const struct conn_why not_ended[] = {{-ENOENT, "no task with this number runs"},
						    {-EMFILE, "too many users have a profile"},
						    {0, NULL}};
	static const struct wire_profiled nothing;

	if (r < 0)
		return conn_refuse_why(c, serial, r, not_ended);
	return w->flags & WIRE_PROFILE_QUIET
		       ? CONN_OK
		       : conn_send(c, WIRE_PROFILED, serial, &nothing, NULL, 0);
}

static int end(struct conn *c, uint64_t serial, const struct wire_profile *w)
{
	static const enum profiles_end how[WIRE_PROFILE_HOW_END] = {
		[WIRE_PROFILE_DONE] = PROFILES_DONE,
		[WIRE_PROFILE_KILLED] = PROFILES_KILLED,
		[WIRE_PROFILE_PREEMPTED] = PROFILES_PREEMPTED,
		[WIRE_PROFILE_DROPPED] = PROFILES_DROPPED,
	};
	const struct profile_task told = {
		.used = {w->private_bytes, w->shared_bytes, w->cpu_ms},
		.has = {(w->flags & WIRE_PROFILE_HAS_PRIVATE) != 0,
			(w->flags & WIRE_PROFILE_HAS_SHARED) != 0,
			(w->flags & WIRE_PROFILE_HAS_CPU) != 0},
	};

	return done(c, serial, w,
		    profiletasks_end(c->host->profiles, c, w->task, &told, how[w->how]));
}

DISPATCH_HANDLER(profile)
{
	if (body->op < WIRE_PROFILE_BEGIN || body->op >= WIRE_PROFILE_OP_END ||
	    body->how >= WIRE_PROFILE_HOW_END || (body->how && body->op != WIRE_PROFILE_END) ||
	    (!body->task && body->op != WIRE_PROFILE_ESTIMATE))
		return conn_fault(c, "PROFILE: no such operation, end or task");
	if (!c->host->profiles)
		return refuse_off(c, serial);
	switch ((enum wire_profile_op)body->op) {
	case WIRE_PROFILE_BEGIN:
	case WIRE_PROFILE_ESTIMATE:
		return begin(c, serial, body, tail);
	case WIRE_PROFILE_SAMPLE:
		return done(c, serial, body,
			    profiletasks_sample(c, body->task, body->private_bytes));
	case WIRE_PROFILE_END:
	case WIRE_PROFILE_OP_END:
	default:
		return end(c, serial, body);
	}
}

/* ---- tools ---- */

static int send_text(struct conn *c, uint64_t serial, uint32_t uid)
{
	struct profile *p = profiles_of(c->host->profiles, uid);
	size_t n;
	char *text = p ? profile_text(p, &n) : NULL;
	int r = text ? conn_send_document(c, serial, text, n)
		     : conn_refuse(c, serial, -ENOMEM,
				   "the daemon is out of memory, or too many users have a profile");

	free(text);
	return r;
}

/* A text of which not all parts have come. */
struct parts {
	struct conn_end end;
	uint32_t uid;
	size_t n, total;
	char text[];
};

static size_t all_parts; /* the bytes of all together, as they will be */

static void parts_free(struct parts *a)
{
	all_parts -= a->total;
	free(a);
}

static void on_end(struct conn_end *e, UNUSED struct conn *c)
{
	parts_free(CONTAINER_OF(e, parts, end));
}

static struct parts *parts_of(const struct conn *c)
{
	struct conn_end *e = conn_find_end(c, on_end);

	return e ? CONTAINER_OF(e, parts, end) : NULL;
}

static void parts_forget(struct conn *c)
{
	struct parts *a = parts_of(c);

	if (a) {
		conn_off_end(c, &a->end);
		parts_free(a);
	}
}

/* NULL: no memory, or others load so much. */
static struct parts *parts_new(struct conn *c, uint32_t uid, size_t total)
{
	struct parts *a = all_parts + total > PARTS_MAX ? NULL : malloc(sizeof(*a) + total);

	if (!a)
		return NULL;
	*a = (struct parts){.end = {.fn = on_end}, .uid = uid, .total = total};
	all_parts += total;
	conn_on_end(c, &a->end);
	return a;
}

static int load(struct conn *c, uint64_t serial, const struct wire_profile_admin *w, uint32_t uid,
		const char *tail, size_t n)
{
	const char *why = NULL;
	struct parts *a;
	int r = 0;

	if (w->offset == 0)
		parts_forget(c);
	if (!n || w->total > WIRE_PROFILE_TEXT_MAX || w->offset > w->total ||
	    n > w->total - w->offset) {
		parts_forget(c);
		return conn_refuse(
			c, serial, -EINVAL,
			"a profile has 1 to 16777216 bytes, and no part of it goes beyond them");
	}
	a = w->offset ? parts_of(c) : parts_new(c, uid, w->total);
	if (!a && !w->offset)
		return conn_refuse(
			c, serial, -ENOMEM,
			"the daemon has no memory for it, or others load theirs: try again");
	if (!a || a->uid != uid || a->n != w->offset || a->total != w->total) {
		parts_forget(c);
		return conn_refuse(c, serial, -EINVAL,
				   "the parts of a profile come one after the other, from 0 on");
	}
	memcpy(a->text + a->n, tail, n);
	a->n += n;
	if (a->n == a->total) {
		r = profiles_load(c->host->profiles, uid, a->text, a->n, &why);
		parts_forget(c);
	}
	if (r < 0)
		return conn_refuse(c, serial, r == -EPROTONOSUPPORT ? -ENOTSUP : r,
				   "the profile is refused: %s; nothing was changed", why);
	return conn_send_done(c, serial);
}

static int reset(struct conn *c, uint64_t serial, bool all, uint32_t uid)
{
	struct profiles *p = c->host->profiles;

	if (!all)
		profiles_reset(p, uid);
	for (uint32_t u = 0; all && (u = profiles_next(p, u)) != UINT32_MAX; u++)
		profiles_reset(p, u);
	return conn_send_done(c, serial);
}

DISPATCH_HANDLER(profile_admin)
{
	uint32_t mine = c->peer.uid, uid = body->uid == WIRE_PROFILE_MINE ? mine : body->uid;
	bool all = uid == WIRE_PROFILE_ALL;

	if (body->op < WIRE_PROFILE_ADMIN_SHOW || body->op >= WIRE_PROFILE_ADMIN_OP_END ||
	    (all && (body->op == WIRE_PROFILE_ADMIN_TEXT || body->op == WIRE_PROFILE_ADMIN_LOAD)))
		return conn_fault(c, "PROFILE_ADMIN: no such operation");
	if (!c->host->profiles)
		return refuse_off(c, serial);
	if (uid != mine && !conn_is_admin(c))
		return conn_refuse_user(c, serial, "others' profiles are for");
	switch ((enum wire_profile_admin_op)body->op) {
	case WIRE_PROFILE_ADMIN_SHOW:
		return conn_send_object(c, serial, profilereport_make(c->host, all, uid),
					"the daemon is out of memory");
	case WIRE_PROFILE_ADMIN_TEXT:
		return send_text(c, serial, uid);
	case WIRE_PROFILE_ADMIN_LOAD:
		return load(c, serial, body, uid, tail, tail_size);
	case WIRE_PROFILE_ADMIN_RESET:
	case WIRE_PROFILE_ADMIN_OP_END:
	default:
		return reset(c, serial, all, uid);
	}
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
