/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admit.c: the queue at the gate, and the sums of what running tasks will take.
 *
 * gate.h decides which task is next, and whether it is let through. The cap of the sums is the
 * gate's threshold, less the bytes that are used by anything but these tasks; it is set after each
 * look at the host.
 *
 * An answer may be withheld. Then the task keeps its request's serial, and is answered after a
 * look, after the end of another task, or at its deadline. The end of its connection takes it out
 * of the queue, and what it was admitted with out of the sums.
 */
#include "admit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <utlist.h>

#include "clocks.h"
#include "config.h"
#include "host.h"
#include "jsonmake.h"
#include "log.h"
#include "loop.h"
#include "pressure.h"
#include "profiles.h"
#include "wire.h"

#define MS          1000000
#define WAIT_MAX_MS UINT64_C(86400000000) /* of a deadline: a thousand days are without end */

/* ---- tasks ----------------------------------------------------------------------------------- */

struct admit_task *admit_find(const struct admit *a, uint64_t id)
{
	struct admit_task *k;

	HASH_FIND(hh, a->tasks, &id, sizeof(id), k);
	return k;
}

/* id 0: a new one. share: what is expected of it; its values are copied. NULL: out of memory. */
static struct admit_task *make_task(struct admit *a, struct client *c, const struct admit_want *w,
				    uint64_t id, const struct admission_task *share)
{
	size_t n = share->n_values;
	struct admit_task *k = calloc(1, sizeof(*k) + n * sizeof(k->values[0]));

	if (!k)
		return NULL;
	*k = (struct admit_task){
		.id = id ? id : a->last_id + 1,
		.client = c,
		.gate = {.form = w->form, .declared = w->declared, .share = *share},
		.serial = w->serial,
		.uid = w->uid,
		.level = w->level,
		.retriable = w->retriable,
		.parent = w->parent,
		.since_ns = loop_clock(),
	};
	if (n)
		memcpy(k->values, share->values, n * sizeof(k->values[0]));
	k->gate.share.values = k->values;
	k->gate.level = admit_level(k);
	if (w->name)
		k->names = profile_name_copy(w->name, &k->name);
	if (!w->name || k->names)
		HASH_ADD(hh, a->tasks, id, sizeof(k->id), k);
	if (!k->hh.tbl) {
		free(k->names);
		free(k);
		return NULL;
	}
	a->last_id += !id;
	DL_APPEND(c->tasks, k);
	c->n_tasks++;
	return k;
}

static void count_child(const struct admit *a, struct admit_task *k)
{
	struct admit_task *parent = k->parent && !k->counted ? admit_find(a, k->parent) : NULL;

	if (parent) {
		parent->n_children++;
		k->counted = true;
	}
}

/* ---- processes ------------------------------------------------------------------------------- */

/*
 * If the process cannot be seen, the task runs all the same: then none of what is expected of it
 * counts as there.
 */
static void join_proc(const struct admit *a, struct admit_task *k)
{
	struct pressproc *p = pressprocs_link(a->procs, k->client);

	if (!p)
		return;
	if (!p->tasks) {
		pressprocs_read_one(a->procs, p);
		p->seen = p->private.known;
		p->base = p->private.bytes;
		p->grown = p->before = 0;
	}
	if (p->tasks)
		p->tasks->alone = false;
	k->alone = !p->tasks;
	DL_APPEND2(p->tasks, k, proc_prev, proc_next);
	k->proc = p;
}

/*
 * Reads how much of the process's memory is its tasks'. If it cannot be read, the last value stays.
 */
static void look_at(const struct admit *a, struct pressproc *p)
{
	pressprocs_read_one(a->procs, p);
	if (p->seen && p->private.known)
		p->grown = p->private.bytes > p->base ? p->private.bytes - p->base : 0;
}

static void leave_proc(const struct admit *a, struct admit_task *k)
{
	struct pressproc *p = k->proc;
	int64_t expected = 0;

	DL_DELETE2(p->tasks, k, proc_prev, proc_next);
	if (!p->tasks)
		return;
	look_at(a, p);
	for (const struct admit_task *other = p->tasks; other; other = other->proc_next)
		expected = amount_sum(expected, (int64_t)other->gate.share.estimate);
	if (p->grown <= expected)
		return;
	p->base += p->grown - expected;
	p->grown = expected;
}

static void begin(struct admit *a, struct admit_task *k)
{
	k->client->used = true;
	k->since_ns = loop_clock();
	join_proc(a, k);
	count_child(a, k);
	if (a->host->profiles && k->name.lang)
		profiles_admitted(a->host->profiles);
}

/* Removes the task everywhere. */
static void free_task(struct admit *a, struct admit_task *k)
{
	struct admit_task *parent = k->counted ? admit_find(a, k->parent) : NULL;

	gateline_end(&a->line, &k->gate);
	if (k->proc)
		leave_proc(a, k);
	if (parent)
		parent->n_children--;
	DL_DELETE(k->client->tasks, k);
	k->client->n_tasks--;
	HASH_DEL(a->tasks, k);
	free(k->names);
	free(k);
}

/* ---- what they have -------------------------------------------------------------------------- */

/*
 * The host is read after this and before on_sample(), and the lesser value counts: a task that has
 * just taken or freed memory must not be counted with bytes that the host's use does not have.
 */
static void before_sample(struct pressure_watch *w)
{
	struct admit *a = CONTAINER_OF(w, admit, watch);

	for (struct pressproc *p = a->procs->list; p; p = p->next)
		if (p->tasks) {
			look_at(a, p);
			p->before = p->grown;
		}
}

/* The bytes that it will have at most; UINT64_MAX: that is not known. */
static uint64_t remaining(const struct admit *a, const struct admit_task *k)
{
	const struct profiles *p = a->host->profiles;

	return p && k->name.lang
		       ? profile_bound(profiles_key(p, k->uid, &k->name),
				       (loop_clock() - k->since_ns) / MS, k->alone ? k->most : 0)
		       : UINT64_MAX;
}

static void look(struct admit *a, struct pressproc *p)
{
	uint64_t left;

	look_at(a, p);
	if (p->before < p->grown)
		p->grown = p->before;
	left = (uint64_t)p->grown;
	for (struct admit_task *k = p->tasks; k; k = k->proc_next) {
		uint64_t now = k->proc_next ? MIN(left, k->gate.share.estimate) : left;

		k->most = now > k->most ? now : k->most;
		left -= now;
		admission_note(&a->line.sums, &k->gate.share, now, remaining(a, k));
	}
}

enum policylevel admit_level(const struct admit_task *k)
{
	const struct policylevel_wish wish = {.class = POLICYLEVEL_UNSAID,
					      .instance = k->level,
					      .retriable = k->retriable,
					      .n_children = k->n_children};

	return policylevel_resolve(&wish);
}

/* ---- deciding -------------------------------------------------------------------------------- */

/*
 * Sets the cap to the threshold, less the bytes that are used by anything but these tasks, both as
 * of one look. The gate's own u cannot be used: it has peaks of a second ago, to which these tasks
 * may not belong. If a value is not known, the cap stays.
 */
static void set_cap(struct admit *a)
{
	const struct pressure *p = a->host->pressure;
	struct admission *sums = &a->line.sums;
	int64_t cap = amount_sum(p->gate.config.high, (int64_t)sums->used);

	if (!p->used.known)
		return;
	cap = amount_subtract(amount_of(cap), p->used).bytes;
	admission_set_cap(sums, cap > 0 ? (uint64_t)cap : 0);
}

static struct admission_task share_of(const struct admit *a, const struct admit_want *w,
				      uint64_t values[PROFILE_RING])
{
	const struct profiles *p = a->host->profiles;
	const uint64_t declared[PROFILE_RESOURCES] = {w->declared};
	struct admission_task share = {.estimate = MIN(w->declared, PROFILE_MOST),
				       .eps_ppm = a->host->config->profile.strategy.eps_ppm};
	struct profiles_estimate e;

	if (!p || !w->name)
		return share;
	e = profiles_estimate(p, w->uid, w->name, declared);
	share.estimate = MIN(e.used[PROFILE_PRIVATE], PROFILE_MOST);
	share.strategy = e.strategy;
	if (e.strategy == PROFILE_HISTOGRAM) {
		share.values = values;
		share.n_values = profile_values(e.key, PROFILE_PRIVATE, values);
	}
	return share;
}

/* ---- what is told ---------------------------------------------------------------------------- */

static void tell(const struct admit *a, const struct admit_task *k, const char *outcome,
		 enum gateline_reason reason, uint64_t waited_ms)
{
	const struct conn_peer *peer = &k->client->conn->peer;
	struct json_object *fields = jsonmake_new();
	char key[24];

	jsonmake_text(fields, "outcome", outcome);
	jsonmake_text(fields, "reason", gateline_reason_name(reason));
	jsonmake_i64(fields, "pid", peer->pid);
	jsonmake_u64(fields, "uid", k->uid);
	jsonmake_text(fields, "function", k->name.func);
	jsonmake_text(fields, "level", policylevel_name(k->level));
	jsonmake_u64(fields, "reserve", k->gate.share.estimate);
	jsonmake_u64(fields, "waited_ms", waited_ms);
	/* Limited to one a second for each user, however many of the user's tasks are told the
	 * same. */
	snprintf(key, sizeof(key), "uid %u", k->uid);
	events_emit(a->host->events, EVENT_ADMISSION, key, fields);
}

int admit_send(struct conn *c, uint64_t serial, const struct admit_answer *answer)
{
	static const uint32_t outcomes[] = {[GATELINE_IN] = WIRE_TASK_IN,
					    [GATELINE_PROGRESS] = WIRE_TASK_IN,
					    [GATELINE_REFUSED] = WIRE_TASK_REFUSED,
					    [GATELINE_TIMED_OUT] = WIRE_TASK_TIMEDOUT,
					    [GATELINE_TOO_BIG] = WIRE_TASK_TOOBIG};
	static const uint32_t reasons[] = {[GATELINE_NOTHING_RUNS] = WIRE_TASK_PROGRESS,
					   [GATELINE_FITS] = WIRE_TASK_FITS,
					   [GATELINE_SHUT] = WIRE_TASK_GATE,
					   [GATELINE_FULL] = WIRE_TASK_FULL,
					   [GATELINE_MORE_THAN_ALL] = WIRE_TASK_MORE_THAN_ALL};
	const struct wire_task_admitted body = {answer->task, answer->reserve, answer->waited_ms,
						outcomes[answer->outcome], reasons[answer->reason]};

	return conn_send(c, WIRE_TASK_ADMITTED, serial, &body, NULL, 0);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void arm(struct admit *a)
{
	uint64_t due = gateline_deadline(&a->line);

	/* One ms later, so that the time has come whatever was rounded down. */
	if (due != UINT64_MAX)
		loop_timer_by(a->host->loop, &a->timer, (due + 1) * MS);
}

static void left(struct client *c)
{
	struct admit *a = c->host->admit;

	while (c->tasks)
		free_task(a, c->tasks);
	admit_settle(a);
}

/* The client's task, which may be added. id 0: a new one. 0, -EPERM, -ENOMEM, -EMFILE. */
static int new_task(struct admit *a, struct conn *c, const struct admit_want *w, uint64_t id,
		    struct admit_task **ret)
{
	const struct admit_task *parent = w->parent ? admit_find(a, w->parent) : NULL;
	struct client *client = client_get(c);
	uint64_t values[PROFILE_RING];
	struct admission_task share;

	if (parent && parent->uid != w->uid)
		return -EPERM;
	if (!client)
		return -ENOMEM;
	if (client->n_tasks >= ADMIT_TASKS_MAX || HASH_COUNT(a->tasks) >= ADMISSION_TASKS)
		return -EMFILE;
	share = share_of(a, w, values);
	*ret = make_task(a, client, w, id, &share);
	if (!*ret)
		return -ENOMEM;
	client->left[CLIENT_TASKS] = left;
	client->told |= w->told;
	client->worker = w->worker;
	return 0;
}

int admit_runs(struct admit *a, struct conn *c, uint64_t task, const struct admit_want *w)
{
	const struct admit_task *same = admit_find(a, task);
	struct admit_task *k;
	int r;

	if (same)
		return same->client->conn == c ? 0 : -EEXIST;
	if (!task || task > a->first_id)
		return -EINVAL;
	r = new_task(a, c, w, task, &k);
	if (r < 0)
		return r;
	gateline_runs(&a->line, &k->gate);
	begin(a, k);
	/* Others may have named it as their parent before. */
	for (k = a->tasks; k; k = k->hh.next)
		if (k->gate.runs)
			count_child(a, k);
	return 0;
}

/* The task has been let in, or is not any more, and its answer says so. */
static struct admit_answer settled(struct admit *a, struct admit_task *k,
				   enum gateline_outcome outcome, uint64_t waited_ms)
{
	const struct admit_answer answer = {.outcome = outcome,
					    .reason = gateline_reason(&a->line, outcome),
					    .task = k->gate.runs ? k->id : 0,
					    .reserve = k->gate.share.estimate,
					    .waited_ms = waited_ms};

	k->serial = 0;
	if (k->gate.runs) {
		begin(a, k);
		return answer;
	}
	a->n_full += answer.reason == GATELINE_FULL;
	a->n_shut += answer.reason == GATELINE_SHUT;
	a->n_big += answer.reason == GATELINE_MORE_THAN_ALL;
	tell(a, k,
	     outcome == GATELINE_REFUSED     ? "refused"
	     : outcome == GATELINE_TIMED_OUT ? "timed-out"
					     : "too-big",
	     answer.reason, waited_ms);
	free_task(a, k);
	return answer;
}

int admit_ask(struct admit *a, struct conn *c, const struct admit_want *w, struct admit_answer *ret)
{
	struct gateline *line = &a->line;
	bool first = !line->books.n_waiting;
	enum gateline_outcome outcome;
	struct admit_task *k;
	uint64_t now = loop_clock_ms();
	int r = new_task(a, c, w, 0, &k);

	if (r < 0)
		return r;
	k->gate.deadline_ms = now + MIN(w->timeout_ms, WAIT_MAX_MS);
	outcome = gateline_ask(line, &k->gate, now);
	if (outcome != GATELINE_WAITS) {
		*ret = settled(a, k, outcome, 0);
		return 0;
	}
	if (first)
		tell(a, k, "waits", gateline_reason(line, outcome), 0);
	arm(a);
	return 1;
}

/* ---- answering ------------------------------------------------------------------------------- */

void admit_settle(struct admit *a)
{
	uint64_t now = loop_clock_ms();
	enum gateline_outcome outcome;
	struct gateline_task *t;

	if (a->host->draining)
		return;
	while ((t = gateline_next(&a->line, now, &outcome))) {
		struct admit_task *k = CONTAINER_OF(t, admit_task, gate);
		struct conn *c = k->client->conn;
		uint64_t serial = k->serial;
		struct admit_answer answer = settled(a, k, outcome, now - t->since_ms);

		admit_send(c, serial, &answer);
	}
	arm(a);
}

int admit_done(struct admit *a, struct conn *c, uint64_t task)
{
	struct admit_task *k = admit_find(a, task);

	if (!k || !k->gate.runs)
		return -ENOENT;
	if (k->client->conn != c)
		return -EPERM;
	free_task(a, k);
	return 0;
}

bool admit_cancel(struct admit *a, struct conn *c, uint64_t serial)
{
	const struct client *client = client_find(c);
	struct admit_task *k = client ? client->tasks : NULL;

	while (k && (k->gate.runs || k->serial != serial))
		k = k->next;
	if (k)
		free_task(a, k);
	return k != NULL;
}

static void on_timer(struct loop_op *op, UNUSED int result, UNUSED unsigned flags)
{
	admit_settle(CONTAINER_OF(op, admit, timer));
}

static void on_sample(struct pressure_watch *w)
{
	struct admit *a = CONTAINER_OF(w, admit, watch);
	const struct pressure *p = a->host->pressure;

	if (!p->gated)
		return;
	a->line.cap = (uint64_t)p->limits.gate;
	gateline_interval(&a->line, &p->gate);
	for (struct pressproc *proc = a->procs->list; proc; proc = proc->next)
		if (proc->tasks)
			look(a, proc);
	if (a->host->profiles)
		adaptation_note(&a->host->profiles->adaptation, a->line.sums.used,
				a->line.sums.reserved);
	set_cap(a);
	admit_settle(a);
}

/* ---- its life -------------------------------------------------------------------------------- */

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
	gateline_init(&a->line);
	a->procs = &h->pressure->procs;
	/*
	 * Numbers are microseconds. No daemon lets in more than one task in each, so the next
	 * daemon's numbers are above; and JSON holds them exactly.
	 */
	a->first_id = a->last_id = clock_ns(CLOCK_BOOTTIME) / 1000;
	a->watch.before = before_sample;
	a->watch.fn = on_sample;
	pressure_watch(h->pressure, &a->watch);
	on_sample(&a->watch);
	*ret = a;
	return 0;
}

struct admit *admit_free(struct admit *a)
{
	if (!a)
		return NULL;
	pressure_unwatch(a->host->pressure, &a->watch);
	loop_release(a->host->loop, &a->timer, a);
	return NULL;
}

void admit_books(const struct admit *a, struct admit_books *ret)
{
	const struct gateline *line = &a->line;

	*ret = (struct admit_books){.line = line->books,
				    .oldest_ms = gateline_oldest_ms(line, loop_clock_ms()),
				    .cap = line->sums.cap,
				    .reserved = line->sums.reserved,
				    .used = line->sums.used,
				    .n_full = a->n_full,
				    .n_shut = a->n_shut,
				    .n_big = a->n_big};
}
