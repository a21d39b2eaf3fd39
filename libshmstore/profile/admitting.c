/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admitting.c: a store's tasks ask the daemon's gate. The daemon counts what it let in until it is
 * told of the end, or the connection ends; what runs is kept for the next daemon (running.h).
 *
 * The daemon may withhold an answer as long as it likes. If it dies first, it admitted nothing: the
 * next daemon is asked anew. A daemon that hangs up twice on this question does not know it.
 */
#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#include "detail.h"
#include "handle.h"
#include "profiling.h"
#include "sys.h"

#define MS        UINT64_C(1000000)
#define LOOK_NS   (100 * MS)
#define HURRY_NS  (10 * MS)
#define ANSWER_NS (1000 * MS) /* to a CANCEL: at once, from a daemon that lives */
#define HANGS_UP  2u

_Static_assert((int)SHMSTORE_TASK_AUTO == (int)WIRE_TASK_LEVEL_AUTO &&
		       (int)SHMSTORE_TASK_WHY_PROGRESS == (int)WIRE_TASK_PROGRESS &&
		       (int)SHMSTORE_TASK_WHY_OFF == (int)WIRE_TASK_OFF &&
		       (int)SHMSTORE_TASK_WHY_TOOBIG == (int)WIRE_TASK_MORE_THAN_ALL,
	       "the public numbers are the protocol's");

/* One question, asked until somebody answers. */
struct asking {
	struct shmstore *s;
	struct shmstore_task_ask ask;
	char names[SHMS_PROFILE_NAMES];
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

static int let_in(struct shmstore_task_grant *ret, uint64_t declared)
{
	*ret = (struct shmstore_task_grant){.reserve = declared, .reason = SHMSTORE_TASK_WHY_OFF};
	return 0;
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

/* Has the same daemon hung up often enough? */
static bool is_deaf(struct asking *a, uint64_t epoch)
{
	a->n_hangs = epoch == a->epoch ? a->n_hangs + 1 : 1;
	a->epoch = epoch;
	return a->n_hangs >= HANGS_UP;
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
		if (is_deaf(a, epoch))
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
	return let_in(ret, a->ask.declared);
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
	n = shms_profile_names(ask->kind, ret->names);
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
