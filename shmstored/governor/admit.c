/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admit.c: the queue at the gate, and the sums of what running tasks will take.
 *
 * Two pure modules decide. gateline.h says which task is next, and whether the gate lets a task
 * through in this interval. admission.h says whether that task, and what running tasks will still
 * take, fit below the gate's threshold. The cap of the sums is that threshold, less the bytes that
 * are used by anything but these tasks; it is set after each look at the host.
 *
 * An answer may be withheld. Then the task keeps its request's serial, and is answered after a
 * look, after the end of another task, or at its deadline. The end of its connection takes it out
 * of the queue, and what it was admitted with out of the sums.
 */
#include "admit.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "events.h"
#include "host.h"
#include "jsonmake.h"
#include "loop.h"
#include "pressure.h"
#include "profiles.h"
#include "wire.h"

#define MS          1000000
#define WAIT_MAX_MS INT64_C(86400000000) /* of a deadline: a thousand days are without end */

struct admit {
	struct host *host;
	struct gateline *line;
	struct admit_tasks tasks;
	uint64_t cap;
	struct pressure_watch watch;
	struct loop_op timer; /* the next deadline */
	int64_t due_ms;
	bool closing;
	uint64_t n_full, n_shut, n_big;
};

static struct pressprocs *procs_of(const struct admit *a)
{
	return &a->host->pressure->procs;
}

static int64_t now_ms(void)
{
	return (int64_t)(loop_clock() / MS);
}

/* ---- deciding ------------------------------------------------------------------------------------------------------ */

static bool fits(const struct gateline_request *r, void *arg)
{
	struct admit *a = arg;
	const struct admit_task *k = admittask_find(&a->tasks, r->id);

	return k && admission_try(a->tasks.sums, &k->ask).admit;
}

/*
 * Sets the cap to the threshold, less the bytes that are used by anything but these tasks, both as
 * of one look. The gate's own u cannot be used: it has peaks of a second ago, to which these tasks
 * may not belong. If a value is not known, the cap stays.
 */
static void set_cap(struct admit *a)
{
	const struct pressure *p = a->host->pressure;
	int64_t cap = amount_sum(p->gate.config.high, (int64_t)admission_used(a->tasks.sums));

	if (!p->used.known)
		return;
	cap = amount_subtract(amount_of(cap), p->used).bytes;
	a->cap = cap > 0 ? (uint64_t)cap : 0;
	admission_set_cap(a->tasks.sums, a->cap);
}

static struct admission_ask ask_of(const struct admit *a, const struct admit_want *w, uint64_t values[PROFILE_RING])
{
	const struct profiles *p = a->host->profiles;
	const uint64_t declared[PROFILE_RESOURCES] = {w->declared};
	struct admission_ask ask = {.estimate = w->declared, .eps_ppm = a->host->config->profile.strategy.eps_ppm};
	struct profiles_estimate e;

	if (ask.estimate > PROFILE_MOST)
		ask.estimate = PROFILE_MOST;
	if (!p || !w->name)
		return ask;
	e = profiles_estimate(p, w->uid, w->name, declared);
	ask.estimate = e.used[PROFILE_PRIVATE] < PROFILE_MOST ? e.used[PROFILE_PRIVATE] : PROFILE_MOST;
	ask.strategy = e.strategy;
	if (e.strategy == PROFILE_HISTOGRAM) {
		ask.values = values;
		ask.n_values = profiles_values(p, w->uid, w->name, values);
	}
	return ask;
}

/* Why a task is not let in now. */
static enum admission_reason why_not(const struct admit *a)
{
	return gateline_is_shut(a->line) ? ADMISSION_GATE : ADMISSION_FULL;
}

static enum admission_reason reason_of(const struct admit *a, enum gateline_outcome o)
{
	switch (o) {
	case GATELINE_IN:
		return ADMISSION_FITS;
	case GATELINE_PROGRESS:
		return ADMISSION_PROGRESS;
	case GATELINE_TOO_BIG:
		return ADMISSION_TOOBIG;
	case GATELINE_WAITS:
	case GATELINE_REFUSED:
	case GATELINE_TIMED_OUT:
	default:
		return why_not(a);
	}
}

static enum admit_outcome outcome_of(enum gateline_outcome o)
{
	switch (o) {
	case GATELINE_IN:
	case GATELINE_PROGRESS:
		return ADMIT_IN;
	case GATELINE_TIMED_OUT:
		return ADMIT_TIMED_OUT;
	case GATELINE_TOO_BIG:
		return ADMIT_TOO_BIG;
	case GATELINE_WAITS:
	case GATELINE_REFUSED:
	default:
		return ADMIT_REFUSED;
	}
}

/* ---- what is told -------------------------------------------------------------------------------------------------- */

static void tell(const struct admit *a, const struct admit_task *k, const char *outcome, enum admission_reason reason,
		 uint64_t waited_ms)
{
	const struct conn_peer *peer = conn_peer(k->guest->conn);
	struct json_object *fields = jsonmake_new();
	char key[24];

	jsonmake_text(fields, "outcome", outcome);
	jsonmake_text(fields, "reason", admission_reason_name(reason));
	jsonmake_i64(fields, "pid", peer->pid);
	jsonmake_u64(fields, "uid", k->uid);
	jsonmake_text(fields, "function", k->name.func);
	jsonmake_text(fields, "level", policylevel_name(k->level));
	jsonmake_u64(fields, "reserve", k->ask.estimate);
	jsonmake_u64(fields, "waited_ms", waited_ms);
	/* Limited to one a second for each user, however many of the user's tasks are told the
	 * same. */
	snprintf(key, sizeof(key), "uid %u", k->uid);
	events_emit(a->host->events, EVENT_ADMISSION, key, fields);
}

static void note_refusal(struct admit *a, const struct admit_task *k, const struct admit_answer *answer)
{
	if (answer->outcome == ADMIT_IN)
		return;
	a->n_full += answer->reason == ADMISSION_FULL;
	a->n_shut += answer->reason == ADMISSION_GATE;
	a->n_big += answer->reason == ADMISSION_TOOBIG;
	tell(a, k,
	     answer->outcome == ADMIT_REFUSED     ? "refused"
	     : answer->outcome == ADMIT_TIMED_OUT ? "timed-out"
						  : "too-big",
	     answer->reason, answer->waited_ms);
}

int admit_send(struct conn *c, uint64_t serial, const struct admit_answer *answer)
{
	static const uint32_t outcomes[] = {[ADMIT_IN] = WIRE_TASK_IN,
					    [ADMIT_REFUSED] = WIRE_TASK_REFUSED,
					    [ADMIT_TIMED_OUT] = WIRE_TASK_TIMEDOUT,
					    [ADMIT_TOO_BIG] = WIRE_TASK_TOOBIG};
	static const uint32_t reasons[] = {[ADMISSION_PROGRESS] = WIRE_TASK_PROGRESS,
					   [ADMISSION_FITS] = WIRE_TASK_FITS,
					   [ADMISSION_GATE] = WIRE_TASK_GATE,
					   [ADMISSION_FULL] = WIRE_TASK_FULL,
					   [ADMISSION_TOOBIG] = WIRE_TASK_MORE_THAN_ALL};
	const struct wire_task_admitted body = {answer->task, answer->reserve, answer->waited_ms,
						outcomes[answer->outcome], reasons[answer->reason]};

	return conn_send(c, WIRE_TASK_ADMITTED, serial, &body, NULL, 0);
}

/* ---- asking -------------------------------------------------------------------------------------------------------- */

static uint64_t remaining(const struct admit_task *k, void *arg)
{
	const struct admit *a = arg;

	return a->host->profiles ? profiles_remaining(a->host->profiles, k->uid, &k->name,
						      (loop_clock() - k->since_ns) / MS, k->alone ? k->most : 0)
				 : UINT64_MAX;
}

static void arm(struct admit *a)
{
	int64_t due = gateline_deadline(a->line);

	if (a->closing || due == INT64_MAX)
		return;
	if (a->timer.busy) {
		if (due < a->due_ms)
			loop_cancel(a->host->loop, &a->timer); /* on_timer() arms it anew */
		return;
	}
	a->due_ms = due;
	/* One ms later, so that the time has come whatever was rounded down. */
	loop_timer(a->host->loop, &a->timer, (uint64_t)(due + 1) * MS, 0);
}

/* Begins a task that was let in. -ENOMEM: it is not let in. */
static int begin(struct admit *a, struct admit_task *k)
{
	int r = admittask_begin(&a->tasks, k, procs_of(a));

	if (r < 0)
		gateline_end(a->line, k->id);
	else if (a->host->profiles && k->name.lang)
		profiles_admitted(a->host->profiles);
	return r;
}

static int ask_line(struct admit *a, struct admit_task *k, const struct admit_want *w, enum gateline_outcome *ret)
{
	int64_t now = now_ms();
	uint64_t most = (uint64_t)WAIT_MAX_MS;
	struct gateline_request r = {
		.id = k->id,
		.level = admittask_level(k),
		.form = w->form,
		.deadline_ms = now + (int64_t)(w->timeout_ms < most ? w->timeout_ms : most),
		.declared = w->declared < INT64_MAX ? (int64_t)w->declared : INT64_MAX,
		.estimate = amount_of((int64_t)k->ask.estimate),
	};
	int error = gateline_ask(a->line, &r, now, ret);

	if (error < 0)
		return error;
	return *ret == GATELINE_IN || *ret == GATELINE_PROGRESS ? begin(a, k) : 0;
}

/* id 0: a new one. */
static struct admit_task *new_task(struct admit *a, struct admit_guest *g, const struct admit_want *w, uint64_t id)
{
	uint64_t values[PROFILE_RING];
	const struct admission_ask ask = ask_of(a, w, values);
	const struct admit_kind kind = {.id = id, .uid = w->uid, .name = w->name, .ask = &ask};
	struct admit_task *k = admittask_new(&a->tasks, &kind);

	if (!k)
		return NULL;
	k->level = w->level;
	k->retriable = w->retriable;
	k->parent = w->parent;
	g->told |= w->told;
	g->worker = w->worker;
	admittask_join(g, k);
	return k;
}

static void on_end(struct conn_end *e, struct conn *c);

static struct admit_guest *guest_of(struct admit *a, struct conn *c)
{
	struct admit_guest *g = admittask_get_guest(&a->tasks, c);

	if (g && !g->of) {
		g->of = a;
		g->end.fn = on_end;
		conn_on_end(c, &g->end);
	}
	return g;
}

/* Finds the guest to which a task may be added. 0, -EPERM, -ENOMEM, -EMFILE. */
static int find_guest(struct admit *a, struct conn *c, const struct admit_want *w, struct admit_guest **ret)
{
	const struct admit_task *parent = w->parent ? admittask_find(&a->tasks, w->parent) : NULL;
	struct admit_guest *g = guest_of(a, c);

	if (parent && parent->uid != w->uid)
		return -EPERM;
	if (!g)
		return -ENOMEM;
	if (g->n >= ADMIT_TASKS_MAX || HASH_COUNT(a->tasks.all) >= ADMISSION_TASKS)
		return -EMFILE;
	*ret = g;
	return 0;
}

int admit_runs(struct admit *a, struct conn *c, uint64_t task, const struct admit_want *w)
{
	const struct admit_task *same = admittask_find(&a->tasks, task);
	struct gateline_request r = {.id = task};
	struct admit_guest *g = NULL;
	struct admit_task *k;
	int error;

	if (same)
		return same->guest->conn == c ? 0 : -EEXIST;
	if (!task || task > a->tasks.first_id)
		return -EINVAL;
	error = find_guest(a, c, w, &g);
	if (error < 0)
		return error;
	k = new_task(a, g, w, task);
	if (!k)
		return -ENOMEM;
	r.level = admittask_level(k);
	error = gateline_runs(a->line, &r);
	if (error == 0)
		error = begin(a, k);
	if (error < 0)
		admittask_free(&a->tasks, k, procs_of(a));
	else
		admittask_count_children(&a->tasks);
	return error;
}

int admit_ask(struct admit *a, struct conn *c, const struct admit_want *w, struct admit_answer *ret)
{
	enum gateline_outcome outcome = GATELINE_WAITS;
	struct admit_guest *g = NULL;
	struct gateline_books books;
	struct admit_task *k;
	int r = find_guest(a, c, w, &g);

	if (r < 0)
		return r;
	gateline_books(a->line, &books);
	k = new_task(a, g, w, 0);
	r = k ? ask_line(a, k, w, &outcome) : -ENOMEM;
	if (r == 0 && outcome == GATELINE_WAITS) {
		k->serial = w->serial;
		if (!books.n_waiting)
			tell(a, k, "waits", why_not(a), 0);
		arm(a);
		return 1;
	}
	if (r == 0) {
		*ret = (struct admit_answer){.outcome = outcome_of(outcome),
					     .reason = reason_of(a, outcome),
					     .task = k->runs ? k->id : 0,
					     .reserve = k->ask.estimate};
		note_refusal(a, k, ret);
	}
	if (k && !k->runs)
		admittask_free(&a->tasks, k, procs_of(a));
	return r;
}

/* ---- answering ----------------------------------------------------------------------------------------------------- */

/* Answers a task that waited. */
static void answer(struct admit *a, struct admit_task *k, const struct gateline_answer *told)
{
	struct conn *c = k->guest->conn;
	uint64_t serial = k->serial;
	struct admit_answer body = {.outcome = outcome_of(told->outcome),
				    .reason = reason_of(a, told->outcome),
				    .reserve = k->ask.estimate,
				    .waited_ms = (uint64_t)told->waited_ms};
	int r = 0;

	k->serial = 0;
	if (body.outcome == ADMIT_IN)
		r = begin(a, k);
	if (r == 0)
		note_refusal(a, k, &body);
	body.task = k->runs ? k->id : 0;
	if (!k->runs)
		admittask_free(&a->tasks, k, procs_of(a));
	r = r < 0 ? conn_refuse(c, serial, r, "the daemon is out of memory") : admit_send(c, serial, &body);
	if (r != CONN_OK)
		conn_drop(c, CONN_E_SLOW, "it does not read what it asked for");
}

void admit_settle(struct admit *a)
{
	struct gateline_answer told;

	if (a->host->draining)
		return;
	while (gateline_next(a->line, now_ms(), &told)) {
		struct admit_task *k = admittask_find(&a->tasks, told.id);

		if (k)
			answer(a, k, &told);
	}
	arm(a);
}

static void end_task(struct admit *a, struct admit_task *k)
{
	gateline_end(a->line, k->id);
	admittask_free(&a->tasks, k, procs_of(a));
}

int admit_done(struct admit *a, struct conn *c, uint64_t task)
{
	struct admit_task *k = admittask_find(&a->tasks, task);

	if (!k || !k->runs)
		return -ENOENT;
	if (k->guest->conn != c)
		return -EPERM;
	end_task(a, k);
	return 0;
}

bool admit_cancel(struct admit *a, struct conn *c, uint64_t serial)
{
	const struct admit_guest *g = admittask_guest(&a->tasks, c);
	struct admit_task *k = g ? g->tasks : NULL;

	while (k && (k->runs || k->serial != serial))
		k = k->next;
	if (k)
		end_task(a, k);
	return k != NULL;
}

static void on_end(struct conn_end *e, UNUSED struct conn *c)
{
	struct admit_guest *g = CONTAINER_OF(e, admit_guest, end);
	struct admit *a = g->of;

	for (const struct admit_task *k = g->tasks; k; k = k->next)
		gateline_end(a->line, k->id);
	admittask_guest_free(&a->tasks, g, procs_of(a));
	admit_settle(a);
}

static void on_timer(struct loop_op *op, UNUSED int result, UNUSED unsigned flags)
{
	struct admit *a = CONTAINER_OF(op, admit, timer);

	if (a->closing)
		free(a);
	else
		admit_settle(a);
}

static void before_sample(struct pressure_watch *w)
{
	struct admit *a = CONTAINER_OF(w, admit, watch);

	admittask_look_before(&a->tasks, procs_of(a));
}

static void on_sample(struct pressure_watch *w)
{
	struct admit *a = CONTAINER_OF(w, admit, watch);
	const struct pressure *p = a->host->pressure;

	if (!p->gated)
		return;
	gateline_set_cap(a->line, p->limits.gate);
	gateline_interval(a->line, &p->gate);
	admittask_look(&a->tasks, procs_of(a), remaining, a);
	if (a->host->profiles)
		profiles_noted(a->host->profiles, admission_used(a->tasks.sums), admission_reserved(a->tasks.sums));
	set_cap(a);
	admit_settle(a);
}

/* ---- its life ------------------------------------------------------------------------------------------------------ */

int admit_new(struct host *h, struct admit **ret)
{
	struct admit *a;

	*ret = NULL;
	if (!h->pressure)
		return 0;
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->host = h;
	a->timer.fn = on_timer;
	a->line = gateline_new(INT64_MAX);
	a->tasks.sums = admission_new(0);
	if (!a->line || !a->tasks.sums) {
		gateline_free(a->line);
		admission_free(a->tasks.sums);
		free(a);
		return -ENOMEM;
	}
	gateline_fits_by(a->line, fits, a);
	admittask_number(&a->tasks);
	a->watch.before = before_sample;
	a->watch.fn = on_sample;
	pressure_watch(h->pressure, &a->watch);
	on_sample(&a->watch);
	*ret = a;
	return 0;
}

struct admit *admit_free(struct admit *a)
{
	struct admit_guest *g, *next;

	if (!a)
		return NULL;
	a->closing = true;
	pressure_unwatch(a->host->pressure, &a->watch);
	HASH_ITER(hh, a->tasks.guests, g, next)
	{
		conn_off_end(g->conn, &g->end);
		admittask_guest_free(&a->tasks, g, procs_of(a));
	}
	a->line = gateline_free(a->line);
	a->tasks.sums = admission_free(a->tasks.sums);
	if (a->timer.busy)
		loop_cancel(a->host->loop, &a->timer); /* on_timer() frees */
	else
		free(a);
	return NULL;
}

void admit_books(const struct admit *a, struct admit_books *ret)
{
	*ret = (struct admit_books){.oldest_ms = (uint64_t)gateline_oldest_ms(a->line, now_ms()),
				    .cap = a->cap,
				    .reserved = admission_reserved(a->tasks.sums),
				    .used = admission_used(a->tasks.sums),
				    .n_full = a->n_full,
				    .n_shut = a->n_shut,
				    .n_big = a->n_big};
	gateline_books(a->line, &ret->line);
}

const struct admit_tasks *admit_tasks(const struct admit *a)
{
	return &a->tasks;
}
