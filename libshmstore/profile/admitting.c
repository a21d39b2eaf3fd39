/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admitting.c: a store's tasks ask the daemon's gate, which profiles them, and divides memory for
 * stages. It counts what it let in until it is told of the end, or the connection ends; what runs
 * is kept for the next daemon (running.c).
 *
 * The daemon may withhold an answer as long as it likes. If it dies first, it admitted nothing: the
 * next daemon is asked anew. A daemon that hangs up twice on this question does not know it.
 */
#include <errno.h>
#include <shmstore/profile.h>
#include <shmstore/stage.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "attach.h"
#include "detail.h"
#include "handle.h"
#include "opened.h"
#include "sys.h"

#define NAMES_SIZE (3 * (SHMSTORE_PROFILE_NAME + 1))
#define MS         UINT64_C(1000000)
#define LOOK_NS    (100 * MS)
#define HURRY_NS   (10 * MS)
#define ANSWER_NS  (1000 * MS) /* to a CANCEL: at once, from a daemon that lives */
#define HANGS_UP   2u

_Static_assert((int)SHMSTORE_TASK_AUTO == (int)WIRE_TASK_LEVEL_AUTO &&
		       (int)SHMSTORE_TASK_WHY_PROGRESS == (int)WIRE_TASK_PROGRESS &&
		       (int)SHMSTORE_TASK_WHY_OFF == (int)WIRE_TASK_OFF &&
		       (int)SHMSTORE_TASK_WHY_TOOBIG == (int)WIRE_TASK_MORE_THAN_ALL,
	       "the public numbers are the protocol's");

static bool name_fits(const char *name, bool may_be_empty)
{
	return name && (*name || may_be_empty) && strlen(name) <= SHMSTORE_PROFILE_NAME &&
	       !strchr(name, '\n');
}

/* "LANG\nFUNC\nGROUP", without a NUL. Its length, or -EINVAL, said. */
static int names_of(const struct shmstore_profile_kind *kind, char ret[NAMES_SIZE])
{
	const char *group = kind->group ? kind->group : "";
	char *at = ret;

	if (!name_fits(kind->lang, false) || !name_fits(kind->func, false) ||
	    !name_fits(group, true))
		return shms_detail(-EINVAL, NULL,
				   "a kind of tasks is a language, a function and perhaps a group, "
				   "without line breaks and of at most %u bytes each",
				   SHMSTORE_PROFILE_NAME);
	at = stpcpy(at, kind->lang);
	*at++ = '\n';
	at = stpcpy(at, kind->func);
	*at++ = '\n';
	at = stpcpy(at, group);
	return (int)(at - ret);
}

/* One question, asked until somebody answers. */
struct asking {
	struct shmstore *s;
	struct shmstore_task_ask ask;
	char names[NAMES_SIZE];
	size_t n_names;
	uint64_t until_ns; /* CLOCK_MONOTONIC; UINT64_MAX: without end */
	uint64_t epoch;    /* of the daemon that hung up last, */
	unsigned n_hangs;  /* so often in a row */
};

static bool is_over(const struct asking *a)
{
	return a->ask.wait_ms != SHMSTORE_TASK_TRY && shms_now_mono_ns() >= a->until_ns;
}

static bool wants_no_more(const struct asking *a)
{
	return a->ask.idle && a->ask.idle(a->ask.idle_arg) != 0;
}

/* ---- the answer ------------------------------------------------------------------------------ */

static int judge(const struct shms_reply *reply, struct shmstore_task_grant *ret)
{
	const struct wire_task_admitted *w = &reply->body.admitted;

	if (reply->type == WIRE_REFUSED)
		return shms_reply_error(reply);
	*ret = (struct shmstore_task_grant){.task = w->task,
					    .reserve = w->reserve,
					    .waited_ms = w->waited_ms,
					    .reason = w->reason};
	switch (w->outcome) {
	case WIRE_TASK_IN:
		return 0;
	case WIRE_TASK_TIMEDOUT:
		return SHMSTORE_TASK_TIMEDOUT;
	case WIRE_TASK_TOOBIG:
		return SHMSTORE_TASK_TOOBIG;
	case WIRE_TASK_REFUSED:
	default:
		return SHMSTORE_TASK_REFUSED;
	}
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* The wait ended without the daemon: gives back a grant that came meanwhile. */
static void take_back(const struct asking *a, struct shms_request *q, uint64_t generation)
{
	const struct wire_cancel cancel = {.serial = q->serial};
	struct shms_attach *attach = shms_attach_of(a->s);
	struct shms_reply done;
	int r;

	r = shms_attach_call(attach,
			     &(struct shms_call){.type = WIRE_CANCEL,
						 .answer = WIRE_DONE,
						 .body = &cancel,
						 .generation = generation},
			     &done);
	/* It answers in the order of what it is asked: q was told before. */
	if (r == 0)
		shms_request_wait_until(attach, q, shms_now_mono_ns() + ANSWER_NS);
	shms_request_withdraw(attach, q);
	if (q->done && !q->error && q->reply->type == WIRE_TASK_ADMITTED &&
	    q->reply->body.admitted.task)
		(void)shmstore_task_done(a->s, q->reply->body.admitted.task);
}

static uint32_t flags_of(const struct shmstore_task_ask *ask)
{
	return WIRE_TASK_TOLD | (ask->flags & SHMSTORE_TASK_RETRIABLE ? WIRE_TASK_RETRIABLE : 0) |
	       (ask->flags & SHMSTORE_TASK_WORKER ? WIRE_TASK_WORKER : 0);
}

static uint32_t user_of(const struct shmstore_task_ask *ask)
{
	return ask->user == SHMSTORE_PROFILE_MINE ? WIRE_TASK_MINE : ask->user;
}

/* It was let in. */
static void remember(const struct asking *a, uint64_t task, uint64_t generation)
{
	const struct wire_task_runs m = {.task = task,
					 .declared = a->ask.declared,
					 .parent = a->ask.parent,
					 .uid = user_of(&a->ask),
					 .flags = flags_of(&a->ask),
					 .level = a->ask.level};
	const struct shms_call call = {.type = WIRE_TASK_RUNS,
				       .answer = WIRE_DONE,
				       .body = &m,
				       .tail = a->names,
				       .tail_size = a->n_names};

	if (task && shms_running_add(&shms_handle(a->s)->running, shms_attach_of(a->s), &m,
				     a->names, a->n_names, generation))
		(void)shms_request_post(shms_attach_of(a->s), &call, NULL);
}

/* The daemon of this generation. 0 and above: it answered; -ENOTCONN: it is gone; -ECANCELED. */
static int ask_once(struct asking *a, uint64_t generation, struct shmstore_task_grant *ret)
{
	uint64_t now = shms_now_mono_ns();
	const struct wire_task_admit m = {
		.form = a->ask.wait_ms == SHMSTORE_TASK_TRY ? WIRE_TASK_TRY
			: a->until_ns == UINT64_MAX         ? WIRE_TASK_WAIT
							    : WIRE_TASK_UNTIL,
		.level = (uint16_t)a->ask.level,
		.flags = flags_of(&a->ask),
		.uid = user_of(&a->ask),
		.declared = a->ask.declared,
		.timeout_ms = a->until_ns > now ? (a->until_ns - now) / MS : 0,
		.parent = a->ask.parent,
	};
	const struct shms_call call = {.type = WIRE_TASK_ADMIT,
				       .answer = WIRE_TASK_ADMITTED,
				       .body = &m,
				       .tail = a->names,
				       .tail_size = a->n_names,
				       .generation = generation};
	struct shms_reply reply;
	struct shms_request q = {.reply = &reply};
	int r = shms_request_post(shms_attach_of(a->s), &call, &q);

	if (r < 0)
		return r;
	while (!shms_request_wait_until(shms_attach_of(a->s), &q, shms_now_mono_ns() + LOOK_NS)) {
		if (wants_no_more(a)) {
			take_back(a, &q, generation);
			return shms_detail(-ECANCELED, NULL,
					   "%s: the wait at the gate was ended by idle()",
					   a->s->path);
		}
	}
	r = q.error < 0 ? q.error : judge(&reply, ret);
	if (r == 0)
		remember(a, ret->task, generation);
	return r;
}

/* The daemon is gone: is another one there before the patience for one that starts,
 * or the deadline, is over? */
static bool come_back(const struct asking *a)
{
	struct shms_attach *attach = shms_attach_of(a->s);
	uint64_t since = shms_now_mono_ns();

	while (!shms_attach_hurry(attach)) {
		if (is_over(a) || wants_no_more(a))
			return false;
		if (shms_now_mono_ns() - since >= shms_attach_patience(attach)) {
			shms_attach_give_up(attach);
			return false;
		}
		nanosleep(&(struct timespec){.tv_nsec = (long)HURRY_NS}, NULL);
	}
	return true;
}

/* Registered with a daemon, whose generation this is; 0: there is none. */
static uint64_t find_daemon(const struct asking *a)
{
	struct shms_attach *attach = shms_attach_of(a->s);
	uint64_t generation = shms_attach_generation(attach);

	if (generation)
		return generation;
	if (!shms_attach_again(attach) && !(shms_attach_expected(attach) && come_back(a)))
		return 0;
	return shms_attach_generation(attach);
}

static int ask_until_answered(struct asking *a, struct shmstore_task_grant *ret)
{
	uint64_t generation, epoch;
	int r;

	while ((generation = find_daemon(a)) != 0) {
		epoch = atomic_load_explicit(&shms_attach_of(a->s)->epoch, memory_order_relaxed);
		r = ask_once(a, generation, ret);
		if (r != -ENOTCONN)
			return r;
		a->n_hangs = epoch == a->epoch ? a->n_hangs + 1 : 1;
		a->epoch = epoch;
		if (a->n_hangs >= HANGS_UP)
			break;
	}
	if (is_over(a)) {
		*ret = (struct shmstore_task_grant){.reserve = a->ask.declared,
						    .reason = SHMSTORE_TASK_WHY_GATE};
		return SHMSTORE_TASK_TIMEDOUT;
	}
	if (wants_no_more(a))
		return shms_detail(-ECANCELED, NULL,
				   "%s: the wait for a daemon was ended by idle()", a->s->path);
	*ret = (struct shmstore_task_grant){.reserve = a->ask.declared,
					    .reason = SHMSTORE_TASK_WHY_OFF};
	return 0;
}

/* ---- the calls ------------------------------------------------------------------------------- */

static int take_ask(const struct shmstore_task_ask *from, struct asking *ret)
{
	static const struct shmstore_task_ask init = SHMSTORE_TASK_ASK_INIT;
	struct shmstore_task_ask *ask = &ret->ask;
	int n, r;

	*ask = init;
	r = shms_take_sized(ask, sizeof(*ask), from, SHMS_UPTO(shmstore_task_ask, idle_arg), "ask",
			    "SHMSTORE_TASK_ASK_INIT");
	if (r < 0)
		return r;
	if (ask->level > SHMSTORE_TASK_AUTO)
		return shms_detail(-EINVAL, NULL,
				   "there is no level %u: 0 (NEVER) to 4 (ALWAYS), or 5 (AUTO)",
				   ask->level);
	if (ask->flags & ~(SHMSTORE_TASK_RETRIABLE | SHMSTORE_TASK_WORKER))
		return shms_detail_flags(ask->flags,
					 SHMSTORE_TASK_RETRIABLE | SHMSTORE_TASK_WORKER);
	ret->until_ns = shms_until_ns(ask->wait_ms);
	if (!ask->kind)
		return 0;
	n = names_of(ask->kind, ret->names);
	ret->n_names = n > 0 ? (size_t)n : 0;
	return n < 0 ? n : 0;
}

int shmstore_task_admit(struct shmstore *s, const struct shmstore_task_ask *ask,
			struct shmstore_task_grant *ret)
{
	struct asking a = {.s = s};
	int r;

	if (!ret)
		return shms_detail_null("ret");
	r = take_ask(ask, &a);
	return r < 0 ? r : ask_until_answered(&a, ret);
}

int shmstore_task_done(struct shmstore *s, uint64_t task)
{
	const struct wire_task_done m = {.task = task};
	const struct shms_call call = {.type = WIRE_TASK_DONE, .answer = WIRE_DONE, .body = &m};
	struct shms_reply reply;
	int r;

	if (!task)
		return 0;
	/* first: no daemon is to be told any more that it runs */
	shms_running_del(&shms_handle(s)->running, task);
	r = shms_attach_call(shms_attach_of(s), &call, &reply);
	if (r == -ENOTCONN)
		return shms_detail(-ENOENT, NULL, "%s: the daemon that let task %llu in is gone",
				   s->path, (unsigned long long)task);
	return r < 0 ? shms_error(r) : shms_reply_error(&reply);
}

/* ---- told to give way ------------------------------------------------------------------------ */

_Static_assert((int)SHMSTORE_PREEMPT_NOTICE == (int)WIRE_PREEMPT_NOTICE &&
		       (int)SHMSTORE_PREEMPT_SPARED == (int)WIRE_PREEMPT_SPARED &&
		       (int)SHMSTORE_PREEMPT_LOST == (int)WIRE_PREEMPT_LOST,
	       "the public numbers are the protocol's");
/* That both sides are the same is what is asserted. NOLINTBEGIN(misc-redundant-expression) */
_Static_assert(SHMSTORE_PREEMPT_RETRY == WIRE_PREEMPT_RETRY &&
		       SHMSTORE_PREEMPT_ASKED == WIRE_PREEMPT_ASKED,
	       "and so are the flags");
/* NOLINTEND(misc-redundant-expression) */

int shmstore_preempt_fd(struct shmstore *s)
{
	int fd = shms_request_fd(shms_attach_of(s));

	return fd < 0 ? fd : shms_running_fd(&shms_handle(s)->running, fd);
}

int shmstore_preempt_next(struct shmstore *s, struct shmstore_preempt *ret)
{
	struct wire_task_preempt m;

	if (!ret)
		return shms_detail_null("ret");
	shms_request_look(shms_attach_of(s));
	if (!shms_attach_generation(shms_attach_of(s)))
		(void)shms_attach_again(shms_attach_of(s)); /* the next daemon is told what runs */
	if (!shms_running_take(&shms_handle(s)->running, &m))
		return 0;
	*ret = (struct shmstore_preempt){.task = m.task,
					 .parent = m.parent,
					 .bytes = m.bytes,
					 .grace_ms = m.grace_ms,
					 .delay_ms = m.delay_ms,
					 .what = m.what,
					 .flags = m.flags};
	return 1;
}

/* ---- profiles -------------------------------------------------------------------------------- */

/* Of profiles and stages nothing is kept here but the last task's number. */

_Static_assert((int)SHMSTORE_PROFILE_DONE == (int)WIRE_PROFILE_DONE &&
		       (int)SHMSTORE_PROFILE_KILLED == (int)WIRE_PROFILE_KILLED &&
		       (int)SHMSTORE_PROFILE_PREEMPTED == (int)WIRE_PROFILE_PREEMPTED &&
		       (int)SHMSTORE_PROFILE_DROPPED == (int)WIRE_PROFILE_DROPPED,
	       "the public ends are the protocol's");

static _Atomic uint32_t last_task; /* of all stores: no two tasks have one number */

static const char UNKNOWN[] = "nothing is known of its tasks";

static int call(struct shmstore *s, const struct wire_profile *m, const char *tail, size_t n,
		struct wire_profiled *ret)
{
	const struct shms_call what = {.type = WIRE_PROFILE,
				       .answer = WIRE_PROFILED,
				       .body = m,
				       .tail = tail,
				       .tail_size = n};
	struct shms_reply reply;
	int r = shms_attach_registered(shms_attach_of(s))
			? shms_attach_call(shms_attach_of(s), &what, &reply)
			: -ENOTCONN;

	r = shms_request_error(shms_attach_of(s), r, &reply, UNKNOWN);
	if (r == 0 && ret)
		memcpy(ret, reply.body.bytes, sizeof(*ret));
	return r;
}

int shmstore_profile_begin(struct shmstore *s, const struct shmstore_profile_kind *kind,
			   uint32_t *ret_task)
{
	struct wire_profile m = {.op = WIRE_PROFILE_BEGIN};
	char names[NAMES_SIZE];
	int r, n;

	if (!kind || !ret_task)
		return shms_detail_null(!kind ? "kind" : "ret_task");
	n = names_of(kind, names);
	if (n < 0)
		return n;
	do {
		m.task = atomic_fetch_add_explicit(&last_task, 1, memory_order_relaxed) + 1;
	} while (!m.task);
	r = call(s, &m, names, (size_t)n, NULL);
	if (r == 0)
		*ret_task = m.task;
	return r;
}

int shmstore_profile_sample(struct shmstore *s, uint32_t task, uint64_t private_bytes)
{
	const struct wire_profile m = {.op = WIRE_PROFILE_SAMPLE,
				       .flags = WIRE_PROFILE_QUIET,
				       .task = task,
				       .private_bytes = private_bytes};
	const struct shms_call what = {.type = WIRE_PROFILE, .answer = WIRE_PROFILED, .body = &m};
	int r;

	if (!task)
		return shms_detail(-EINVAL, NULL, "0 is no task");
	r = shms_request_post(shms_attach_of(s), &what, NULL);
	return r == -ENOTCONN ? shms_attach_absent(shms_attach_of(s), UNKNOWN) : r;
}

static void tell(struct wire_profile *m, uint64_t value, uint32_t flag, uint64_t *ret)
{
	if (value == SHMSTORE_PROFILE_UNKNOWN)
		return;
	*ret = value;
	m->flags |= flag;
}

int shmstore_profile_end(struct shmstore *s, uint32_t task, const struct shmstore_profile_end *from)
{
	struct shmstore_profile_end end = SHMSTORE_PROFILE_END_INIT;
	struct wire_profile m = {.op = WIRE_PROFILE_END, .task = task};
	int r = shms_take_sized(&end, sizeof(end), from, SHMS_UPTO(shmstore_profile_end, cpu_ms),
				"end", "SHMSTORE_PROFILE_END_INIT");

	if (r < 0)
		return r;
	if (!task || end.how > SHMSTORE_PROFILE_DROPPED)
		return !task ? shms_detail(-EINVAL, NULL, "0 is no task")
			     : shms_detail(-EINVAL, NULL, "no task ends as %u", end.how);
	m.how = (uint16_t)end.how;
	tell(&m, end.private_bytes, WIRE_PROFILE_HAS_PRIVATE, &m.private_bytes);
	tell(&m, end.shared_bytes, WIRE_PROFILE_HAS_SHARED, &m.shared_bytes);
	tell(&m, end.cpu_ms, WIRE_PROFILE_HAS_CPU, &m.cpu_ms);
	return call(s, &m, NULL, 0, NULL);
}

int shmstore_profile_estimate(struct shmstore *s, const struct shmstore_profile_kind *kind,
			      const struct shmstore_profile_use *declared,
			      struct shmstore_profile_use *ret)
{
	struct wire_profile m = {.op = WIRE_PROFILE_ESTIMATE};
	struct wire_profiled reply;
	char names[NAMES_SIZE];
	int r, n;

	if (!kind || !ret)
		return shms_detail_null(!kind ? "kind" : "ret");
	n = names_of(kind, names);
	if (n < 0)
		return n;
	if (declared) {
		m.private_bytes = declared->private_bytes;
		m.shared_bytes = declared->shared_bytes;
		m.cpu_ms = declared->cpu_ms;
	}
	r = call(s, &m, names, (size_t)n, &reply);
	if (r == 0)
		*ret = (struct shmstore_profile_use){reply.private_bytes, reply.shared_bytes,
						     reply.cpu_ms, reply.n};
	return r;
}

/* ---- stages ---- */

_Static_assert(SHMSTORE_STAGE_NAME == WIRE_STAGE_NAME && SHMSTORE_STAGE_WHOLE == WIRE_STAGE_WHOLE &&
		       SHMSTORE_STAGE_PARTIAL == WIRE_STAGE_PARTIAL,
	       "the public numbers are the protocol's");

static int call_staged(struct shmstore *s, struct shms_call *what,
		       struct shmstore_stage_profile *ret)
{
	struct shms_reply reply;
	struct wire_staged w;
	int r;

	what->answer = WIRE_STAGED;
	/* A begin may be withheld: who waits for it must not take the daemon for dead, so it
	 * is no shms_attach_call(). */
	r = shms_request_ask(shms_attach_of(s), what, &reply);
	r = shms_request_error(shms_attach_of(s), r, &reply, "nobody divides memory for stages");
	if (r < 0)
		return r;
	memcpy(&w, reply.body.bytes, sizeof(w));
	*ret = (struct shmstore_stage_profile){
		.profile = w.profile,
		.rules = w.rules,
		.clamped = (w.flags & WIRE_STAGED_CLAMPED) != 0,
		.degraded = (w.flags & WIRE_STAGED_DEGRADED) != 0,
		.slots = w.slots,
		.private_bytes = w.private_bytes,
		.shared_bytes = w.shared_bytes,
		.private_per_slot = w.private_per_slot,
		.shared_per_slot = w.shared_per_slot,
		.expires_ms = w.expires_ms,
	};
	return 0;
}

static int check_name(const char *name)
{
	if (!name)
		return shms_detail_null("name");
	if (!*name || strlen(name) > SHMSTORE_STAGE_NAME || strchr(name, '\n'))
		return shms_detail(-EINVAL, NULL,
				   "a stage has a name of 1 to %u bytes without line breaks",
				   SHMSTORE_STAGE_NAME);
	return 0;
}

int shmstore_stage_query(struct shmstore *s, const struct shmstore_stage_ask *from,
			 struct shmstore_stage_profile *ret)
{
	struct shmstore_stage_ask ask = SHMSTORE_STAGE_ASK_INIT;
	struct shms_call what = {.type = WIRE_STAGE_QUERY};
	struct wire_stage_query m;
	int r;

	if (!from || !ret)
		return shms_detail_null(!from ? "ask" : "ret");
	r = shms_take_sized(&ask, sizeof(ask), from, SHMS_UPTO(shmstore_stage_ask, want_slots),
			    "ask", "SHMSTORE_STAGE_ASK_INIT");
	if (r == 0)
		r = check_name(ask.name);
	if (r < 0)
		return r;
	if (ask.root > SHMSTORE_STAGE_FINAL || ask.fallback > SHMSTORE_STAGE_FALLBACK_WHOLE)
		return shms_detail(-EINVAL, NULL,
				   "there is no root %u or no fallback %u of a stage", ask.root,
				   ask.fallback);
	m = (struct wire_stage_query){
		.base = ask.base_profile,
		.flags = ask.nonshare_ppm == SHMSTORE_STAGE_UNKNOWN ? 0 : WIRE_STAGE_HAS_NONSHARE,
		.root = (uint16_t)ask.root,
		.fallback = (uint16_t)ask.fallback,
		.nonshare_ppm = ask.nonshare_ppm == SHMSTORE_STAGE_UNKNOWN ? 0 : ask.nonshare_ppm,
		.n_native = ask.n_native,
		.n_convert = ask.n_convert,
		.n_other = ask.n_other,
		.want_slots = ask.want_slots,
	};
	what.body = &m;
	what.tail = ask.name;
	what.tail_size = strlen(ask.name);
	return call_staged(s, &what, ret);
}

int shmstore_stage_begin(struct shmstore *s, const char *name, uint32_t profile, uint32_t other,
			 uint64_t wait_ms, struct shmstore_stage_profile *ret)
{
	const struct wire_stage_begin m = {
		.profile = profile, .other = other, .timeout_ms = wait_ms};
	struct shms_call what = {.type = WIRE_STAGE_BEGIN, .body = &m, .tail = name};
	int r = check_name(name);

	if (r < 0)
		return r;
	if (!ret)
		return shms_detail_null("ret");
	what.tail_size = strlen(name);
	return call_staged(s, &what, ret);
}

int shmstore_stage_end(struct shmstore *s, struct shmstore_stage_profile *ret)
{
	static const struct wire_stage_end own = {0};
	struct shms_call what = {.type = WIRE_STAGE_END, .body = &own};

	return ret ? call_staged(s, &what, ret) : shms_detail_null("ret");
}
