/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preemptpick.c: lists candidates. A process is as willing to be preempted as the least willing of
 * its tasks, can be tried again if all of them can, and began with the last of them. If one of its
 * tasks is NEVER, it is no candidate of any policy.
 *
 * A process that runs no task is a candidate only if it said that it is a worker, which then is
 * idle, or if it has actors. A process that just has a store, or waits at the gate, is no
 * candidate.
 *
 * An actor is not lost for memory: a process is no candidate while its end would lose one.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "account.h"
#include "actord.h"
#include "admit.h"
#include "config.h"
#include "fields.h"
#include "host.h"
#include "log.h"
#include "member.h"
#include "memtext.h"
#include "preempt.h"
#include "pressure.h"
#include "wire.h"

#define BUFFER_PPM  50000 /* a twentieth of the host is freed below kill, */
#define BUFFER_MOST (INT64_C(3) << 30)

unsigned preemptpick_n_tasks(const struct preemptpick_who *who)
{
	unsigned n = 0;

	for (const struct admit_task *k = who->proc ? who->proc->tasks : NULL; k; k = k->proc_next)
		n++;
	return n;
}

static enum policylevel level_of(const struct pressproc *p)
{
	enum policylevel least = POLICYLEVEL_ALWAYS;

	for (const struct admit_task *k = p->tasks; k; k = k->proc_next) {
		enum policylevel level = admit_level(k);

		least = level < least ? level : least;
	}
	return least;
}

/*
 * The bytes of the store that no other store refers to, as of the last survey. The end of the
 * process frees them, unless the store is kept.
 */
static struct amount sole_of(const struct host *h, pid_t pid)
{
	int64_t sum = 0;

	for (const struct account *a = h->accounts; a; a = a->next)
		for (const struct member *m = a->members; m; m = m->next)
			if (m->found && m->conn && m->conn->peer.pid == pid && !m->keep)
				sum = amount_sum(sum, (int64_t)m->found->books.uss);
	return amount_of(sum);
}

struct actord_want preemptpick_want(const struct host *h, pid_t pid, unsigned n_tasks)
{
	const struct pressproc *seen = pressprocs_find(&h->pressure->procs, pid);
	bool known = seen && seen->private.known && !n_tasks;

	return (struct actord_want){.memory = true,
				    .private = known ? (uint64_t)seen->private.bytes : UINT64_MAX};
}

/* Describes any worker. With actors it is no more willing than they are, and not idle. */
static struct policy_worker worker_of(const struct host *h, pid_t pid)
{
	const struct pressproc *seen = pressprocs_find(&h->pressure->procs, pid);
	struct actord_leaving leaving;

	h->actord->leaving(h, pid, (struct actord_want){0}, &leaving);
	return (struct policy_worker){.retries = -1,
				      .work = leaving.n ? POLICY_ACTOR : POLICY_IDLE,
				      .level = (enum policylevel)leaving.level,
				      .private = seen ? seen->private : AMOUNT_UNKNOWN,
				      .sole = sole_of(h, pid)};
}

static struct policy_worker busy_worker(const struct host *h, const struct pressproc *p)
{
	struct policy_worker w = worker_of(h, p->pid);

	w.work = POLICY_TASK;
	w.level = level_of(p) < w.level ? level_of(p) : w.level;
	for (const struct admit_task *k = p->tasks; k; k = k->proc_next) {
		if (!k->retriable)
			w.retries = 0;
		if ((int64_t)k->since_ns >= w.start) {
			w.start = (int64_t)k->since_ns;
			w.owner = k->parent;
		}
	}
	return w;
}

struct actord_leaving preemptpick_leaving(const struct host *h, const struct preemptpick_who *who)
{
	pid_t pid = who->conn->peer.pid;
	struct actord_leaving leaving;

	h->actord->leaving(h, pid, preemptpick_want(h, pid, preemptpick_n_tasks(who)), &leaving);
	return leaving;
}

static void add(struct preemptpick *p, const struct host *h, struct policy_worker w,
		struct preemptpick_who who)
{
	const struct conn_peer *peer = &who.conn->peer;
	struct actord_leaving leaving;

	if (w.level == POLICYLEVEL_NEVER) {
		p->n_never++;
		return;
	}
	if (peer->pid <= 1 || peer->pid == getpid() ||
	    (geteuid() != 0 && peer->uid != geteuid())) { /* one that we may not signal */
		p->n_foreign++;
		return;
	}
	leaving = preemptpick_leaving(h, &who);
	/* Its end would lose an actor: neither a place with memory nor a copy goes on with it. */
	if (leaving.n_movable < leaving.n) {
		p->n_kept++;
		return;
	}
	w.id = p->n;
	p->workers[p->n] = w;
	p->who[p->n++] = who;
}

bool preemptpick_has_tasks(const struct host *h, pid_t pid)
{
	for (const struct client *c = h->clients; c; c = c->next)
		if (c->n_tasks && c->conn->peer.pid == pid)
			return true;
	return false;
}

/*
 * Is the process listed already: another connection of it runs a task or waits for one, or was
 * taken?
 */
static bool is_known(const struct preemptpick *p, const struct host *h, pid_t pid)
{
	const struct pressproc *proc = pressprocs_find(&h->pressure->procs, pid);

	for (size_t i = 0; i < p->n; i++)
		if (p->who[i].conn->peer.pid == pid)
			return true;
	return (proc && proc->tasks) || preemptpick_has_tasks(h, pid);
}

static bool is_worker(const struct host *h, pid_t pid)
{
	const struct client *g = h->clients;

	while (g && !(g->worker && g->conn->peer.pid == pid))
		g = g->next;
	return g != NULL;
}

/* A process that runs no task. */
static void add_idle(struct preemptpick *p, const struct host *h, struct conn *c, bool cold)
{
	struct policy_worker w = worker_of(h, c->peer.pid);

	if (w.work == POLICY_IDLE && cold)
		w.work = POLICY_COLD;
	add(p, h, w, (struct preemptpick_who){c, NULL});
}

int preemptpick_init(struct preemptpick *p, const struct host *h)
{
	size_t most = h->pressure->procs.n;

	for (const struct client *c = h->clients; c; c = c->next)
		most++;
	for (struct conn *c = h->actord->place_next(h, NULL); c; c = h->actord->place_next(h, c))
		most++;

	*p = (struct preemptpick){0};
	if (!most)
		return 0;
	p->workers = calloc(most, sizeof(*p->workers));
	p->who = calloc(most, sizeof(*p->who));
	p->victims = calloc(most, sizeof(*p->victims));
	if (!p->workers || !p->who || !p->victims) {
		preemptpick_deinit(p);
		return -ENOMEM;
	}
	for (const struct pressproc *proc = h->pressure->procs.list; proc; proc = proc->next)
		if (proc->tasks)
			add(p, h, busy_worker(h, proc),
			    (struct preemptpick_who){proc->tasks->client->conn, proc});
	for (const struct client *c = h->clients; c; c = c->next)
		if (c->worker && !is_known(p, h, c->conn->peer.pid))
			add_idle(p, h, c->conn, !c->used);
	for (struct conn *c = h->actord->place_next(h, NULL); c; c = h->actord->place_next(h, c))
		if (!is_worker(h, c->peer.pid) && !is_known(p, h, c->peer.pid))
			add_idle(p, h, c, false);
	return 0;
}

void preemptpick_deinit(struct preemptpick *p)
{
	free(p->workers);
	free(p->who);
	free(p->victims);
	*p = (struct preemptpick){0};
}

struct policy preemptpick_policy(const struct host *h, enum policy_kind kind)
{
	const struct pressure *p = h->pressure;
	struct amount buffer = memlimit_buffer(p->total, RATIO_PPM(BUFFER_PPM), BUFFER_MOST);

	return (struct policy){
		.kind = kind,
		.kill = p->limited ? amount_of(p->limits.kill) : AMOUNT_UNKNOWN,
		.gate = p->limited ? amount_of(p->limits.gate) : AMOUNT_UNKNOWN,
		.buffer = buffer.known ? buffer.bytes : 0,
		.idle = POLICY_IDLE_BYTES,
	};
}

void preemptvictim_free(struct preempt_victim *v, struct loop *l)
{
	int pidfd = v->pidfd;

	for (unsigned i = 0; i < v->record.n_tasks; i++)
		free(v->tasks[i].names);
	loop_release(l, &v->poll, v);
	close(pidfd);
}

int preemptvictim_new(const struct preemptpick_who *who, const struct policy_victim *chosen,
		      struct preempt_victim **ret)
{
	unsigned n = preemptpick_n_tasks(who), i = 0;
	int pidfd = conn_pidfd(who->conn);
	struct preempt_victim *v;

	if (pidfd < 0)
		return pidfd;
	v = calloc(1, sizeof(*v) + n * sizeof(v->tasks[0]));
	if (!v || syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) < 0) {
		int r = v ? -errno : -ENOMEM;

		close(pidfd);
		free(v);
		return r;
	}
	for (const struct admit_task *k = who->proc ? who->proc->tasks : NULL; k;
	     k = k->proc_next) {
		struct preempt_lost *to = &v->tasks[i++];

		*to = (struct preempt_lost){.id = k->id,
					    .parent = k->parent,
					    .had = k->gate.share.now,
					    .uid = k->uid,
					    .retriable = k->retriable};
		/* If there is no memory for a name, the copy has none. */
		if (k->name.lang)
			to->names = profile_name_copy(&k->name, &to->name);
	}
	v->pidfd = pidfd;
	v->conn = who->conn;
	v->record = (struct preempt_record){.pid = who->conn->peer.pid,
					    .uid = who->conn->peer.uid,
					    .n_tasks = n,
					    .level = chosen->worker->level,
					    .why = chosen->why,
					    .retry = chosen->retry,
					    .bytes = chosen->bytes};
	*ret = v;
	return 0;
}

const struct client *preemptvictim_client(const struct preempt_victim *v, const struct host *h)
{
	const struct client *c = h->clients;

	while (c && c->conn != v->conn)
		c = c->next;
	/* The address may belong to a new connection by now. */
	return c && c->conn->peer.pid == v->record.pid ? c : NULL;
}

/* ---- it is told ------------------------------------------------------------------------------ */

/*
 * The process of a task and the process whose task started it are told by message, watchers by an
 * event. No connection is dropped here because it does not read: conn_send() leaves a message out
 * that a slow one would have to keep waiting. A connection that cannot be sent to ends by itself.
 */

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

static void tell_task(const struct admit *a, const struct preempt_lost *k,
		      struct wire_task_preempt m)
{
	const struct admit_task *task = admit_find(a, k->id);
	const struct admit_task *parent = k->parent ? admit_find(a, k->parent) : NULL;
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
	const struct admit *a = h->admit;
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
		tell_task(a, &v->tasks[i], m);
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
