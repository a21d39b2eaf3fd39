/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preempt.c: waves of victims, and what is done to each, step by step, after each look at the host.
 *
 * A victim's memory counts as used until its descriptor says that it has died, as it is used until then. Its tasks may go before that, with its connection:
 * so what its owner is to be told is copied when it is chosen. Killed in between, the daemon leaves a process that got a notice, and goes on, or one that got a signal, and ends:
 * the next daemon knows of neither, and chooses anew.
 */
#include "preempt.h"

#include <errno.h>
#include <json-c/json.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "admit.h"
#include "config.h"
#include "events.h"
#include "host.h"
#include "jsonmake.h"
#include "log.h"
#include "loop.h"
#include "memlimit.h"
#include "preemptpick.h"
#include "pressure.h"
#include "profiles.h"

#define MS            1000000
#define QUIET_NS      (UINT64_C(10000) * MS) /* between two notices to one process that nothing follows */
#define DELAY_MS      1000
#define TASKS_TOLD    8u /* of one process, in an event */
#define DELAY_MOST_MS 60000

/* One of its tasks, as it was when it was chosen. */
struct lost {
	uint64_t id, parent, had;
	uint32_t uid;
	bool retriable;
	char *names;
	struct profile_name name; /* lang NULL: none */
};

struct victim {
	struct victim *next;
	struct preempt *of; /* NULL: nobody cares any more */
	struct loop_op poll;
	int pidfd;
	struct preempt_record record;
	struct lost *tasks;
};

struct preempt {
	struct host *host;
	struct pressure_watch watch;
	struct victim *wave;
	struct preempt_record recent[PREEMPT_RECENT]; /* a ring: n_recent ever */
	uint64_t n_recent, last_number;
	struct preempt_counts counts;
};

static const struct config_pressure *config_of(const struct preempt *p)
{
	return &p->host->config->pressure;
}

const char *preempt_step_name(enum preempt_step s)
{
	static const char *const names[] = {
		[PREEMPT_NOTICED] = "notice", [PREEMPT_TERMED] = "term",     [PREEMPT_KILLED] = "kill",
		[PREEMPT_GONE] = "gone",      [PREEMPT_YIELDED] = "yielded", [PREEMPT_SPARED] = "spared",
	};

	return names[s];
}

/* ---- victims ------------------------------------------------------------------------------------------------------- */

static void victim_free(struct victim *v)
{
	for (unsigned i = 0; i < v->record.n_tasks; i++)
		free(v->tasks[i].names);
	free(v->tasks);
	if (v->pidfd >= 0)
		close(v->pidfd);
	free(v);
}

static char *copy_names(const struct profile_name *name, struct profile_name *ret)
{
	size_t lang = strlen(name->lang) + 1, func = strlen(name->func) + 1, group = strlen(name->group) + 1;
	char *names = malloc(lang + func + group);

	if (names)
		*ret = (struct profile_name){memcpy(names, name->lang, lang), memcpy(names + lang, name->func, func),
					     memcpy(names + lang + func, name->group, group)};
	return names;
}

/* A name for which there is no memory is none. */
static void copy_task(struct lost *to, const struct admit_task *k)
{
	*to = (struct lost){.id = k->id, .parent = k->parent, .had = k->now, .uid = k->uid, .retriable = k->retriable};
	if (k->name.lang)
		to->names = copy_names(&k->name, &to->name);
}

/* 0; -ESRCH and the like: it cannot be signalled for certain; -ENOMEM. */
static int victim_new(struct preempt *p, const struct admit_proc *proc, const struct policy_victim *chosen,
		      struct victim **ret)
{
	const struct conn *c = preemptpick_conn(proc);
	unsigned n = preemptpick_n_tasks(proc), i = 0;
	int pidfd = conn_pidfd(c);
	struct victim *v;

	if (pidfd < 0)
		return pidfd;
	v = calloc(1, sizeof(*v));
	if (v)
		v->tasks = calloc(n, sizeof(*v->tasks));
	if (!v || !v->tasks || syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) < 0) {
		int r = v && v->tasks ? -errno : -ENOMEM;

		close(pidfd);
		if (v)
			free(v->tasks);
		free(v);
		return r;
	}
	for (const struct admit_task *k = proc->tasks; k; k = k->proc_next)
		copy_task(&v->tasks[i++], k);
	v->of = p;
	v->pidfd = pidfd;
	v->record = (struct preempt_record){.pid = proc->pid,
					    .uid = conn_peer(c)->uid,
					    .n_tasks = n,
					    .level = chosen->worker->level,
					    .why = chosen->why,
					    .retry = chosen->retry,
					    .bytes = chosen->bytes};
	*ret = v;
	return 0;
}

/* ---- what is told -------------------------------------------------------------------------------------------------- */

/* A notice tells the process how long it has; what is told of its end, its tasks' owners whether and when to try again, and what it had. */
static void tell(const struct preempt *p, const struct victim *v)
{
	const struct preempt_record *r = &v->record;
	struct json_object *o = jsonmake_new(), *list = jsonmake_child(o, "tasks", jsonmake_new_list());
	char key[48];

	jsonmake_text(o, "step", preempt_step_name(r->step));
	jsonmake_i64(o, "pid", r->pid);
	jsonmake_u64(o, "uid", r->uid);
	for (unsigned i = 0; i < r->n_tasks && i < TASKS_TOLD; i++) {
		struct json_object *k = jsonmake_append(list, jsonmake_new());

		jsonmake_u64(k, "task", v->tasks[i].id);
		jsonmake_u64(k, "parent", v->tasks[i].parent);
		jsonmake_text(k, "function", v->tasks[i].name.func);
		jsonmake_u64(k, "had", v->tasks[i].had);
	}
	jsonmake_flag(o, "asked_only", r->notice_only);
	jsonmake_u64(o, "grace_ms", config_of(p)->grace_ns / MS);
	jsonmake_text(o, "level", policylevel_name(r->level));
	jsonmake_text(o, "why", policy_why(r->why));
	jsonmake_i64(o, "bytes", r->bytes);
	jsonmake_flag(o, "retry", r->retry);
	jsonmake_u64(o, "delay_ms", r->delay_ms);
	jsonmake_i64(o, "used", r->used);
	jsonmake_i64(o, "kill", p->host->pressure->limits.kill);
	snprintf(key, sizeof(key), "%llu %s", (unsigned long long)r->number, preempt_step_name(r->step));
	events_emit(p->host->events, EVENT_PREEMPT, key, o);
}

/* The profile of each kind that went with it. */
static void teach(const struct preempt *p, const struct victim *v)
{
	for (unsigned i = 0; i < v->record.n_tasks; i++) {
		const struct lost *k = &v->tasks[i];
		struct profile_task used = {.used = {k->had}, .has = {true}};

		if (!p->host->profiles || !k->names)
			continue;
		(void)profiles_ended(p->host->profiles, k->uid, &k->name, &used, PROFILES_PREEMPTED);
		if (k->had)
			(void)profiles_ended(p->host->profiles, k->uid, &k->name, &used, PROFILES_KILLED);
	}
}

/* ---- steps --------------------------------------------------------------------------------------------------------- */

static void count(struct preempt *p, const struct preempt_record *r)
{
	struct preempt_counts *c = &p->counts;
	uint64_t *const of[] = {
		[PREEMPT_NOTICED] = &c->n_notices, [PREEMPT_TERMED] = &c->n_terms,    [PREEMPT_KILLED] = &c->n_kills,
		[PREEMPT_GONE] = &c->n_gone,       [PREEMPT_YIELDED] = &c->n_yielded, [PREEMPT_SPARED] = &c->n_spared,
	};

	++*of[r->step];
	if (r->step == PREEMPT_NOTICED)
		c->n_level[r->level]++;
}

static void set_step(struct preempt *p, struct victim *v, enum preempt_step step)
{
	v->record.step = step;
	v->record.mono_ns = loop_clock();
	count(p, &v->record);
	tell(p, v);
}

/* It is a victim no more. */
static void let_go(struct preempt *p, struct victim *v, enum preempt_step how)
{
	struct victim **at = &p->wave;

	while (*at != v)
		at = &(*at)->next;
	*at = v->next;
	if (how == PREEMPT_GONE)
		teach(p, v);
	set_step(p, v, how);
	p->recent[p->n_recent++ % PREEMPT_RECENT] = v->record;
	v->of = NULL;
	if (v->poll.busy)
		loop_cancel(p->host->loop, &v->poll); /* on_dead() frees */
	else
		victim_free(v);
}

static void on_dead(struct loop_op *op, int result, unsigned flags)
{
	struct victim *v = (struct victim *)(void *)((char *)op - offsetof(struct victim, poll));

	(void)flags;
	if (!v->of)
		victim_free(v);
	else if (result >= 0)
		let_go(v->of, v, PREEMPT_GONE);
}

static void send_signal(struct preempt *p, struct victim *v, int number, enum preempt_step step)
{
	if (syscall(SYS_pidfd_send_signal, v->pidfd, number, NULL, 0) < 0 && errno != ESRCH) {
		log_say(LOG_WARNING, LOG_FIELDS(.error = -errno),
			"process %d could not be signalled, and is let go; its memory stays in use",
			(int)v->record.pid);
		let_go(p, v, PREEMPT_SPARED);
		return;
	}
	log_say(LOG_NOTICE, LOG_FIELDS(.error = 0),
		"memory is short: process %d of user %u was sent %s: %s; %lld bytes are expected of its end",
		(int)v->record.pid, (unsigned)v->record.uid, number == SIGTERM ? "SIGTERM" : "SIGKILL",
		policy_why(v->record.why), (long long)v->record.bytes);
	set_step(p, v, step);
}

static bool runs_any(const struct preempt *p, const struct victim *v)
{
	for (unsigned i = 0; i < v->record.n_tasks; i++)
		if (admittask_find(admit_tasks(p->host->admit), v->tasks[i].id))
			return true;
	return false;
}

static void grace_is_over(struct preempt *p, struct victim *v, bool above)
{
	if (v->record.notice_only || !above)
		let_go(p, v, PREEMPT_SPARED);
	else
		send_signal(p, v, SIGTERM, PREEMPT_TERMED);
}

static void step(struct preempt *p, struct victim *v)
{
	const struct pressure *host = p->host->pressure;
	bool above = host->used.known && host->used.bytes > host->limits.kill;
	uint64_t waited = loop_clock() - v->record.mono_ns;

	switch (v->record.step) {
	case PREEMPT_NOTICED:
		if (!runs_any(p, v)) {
			let_go(p, v, PREEMPT_YIELDED);
			break;
		}
		if (above)
			v->record.notice_only = false; /* it has become worse: the time that it had counts */
		/* What is not known kills nobody. */
		if (waited >= config_of(p)->grace_ns && host->used.known)
			grace_is_over(p, v, above);
		break;
	case PREEMPT_TERMED:
		if (waited >= config_of(p)->term_ns)
			send_signal(p, v, SIGKILL, PREEMPT_KILLED);
		break;
	case PREEMPT_KILLED:
	case PREEMPT_GONE:
	case PREEMPT_YIELDED:
	case PREEMPT_SPARED:
	default:
		break;
	}
}

/* ---- choosing ------------------------------------------------------------------------------------------------------ */

/* Was it asked lately, without more to follow? */
static bool was_asked(const struct preempt *p, pid_t pid)
{
	uint64_t n = p->n_recent < PREEMPT_RECENT ? p->n_recent : PREEMPT_RECENT;

	for (uint64_t i = 0; i < n; i++) {
		const struct preempt_record *r = &p->recent[i];

		if (r->pid == pid && r->notice_only && r->step == PREEMPT_SPARED &&
		    loop_clock() - r->mono_ns < QUIET_NS)
			return true;
	}
	return false;
}

/* The more of a user's processes had to go within the last minute, the longer its tasks should wait before they are tried again. */
static uint64_t delay_of(const struct preempt *p, uid_t uid)
{
	uint64_t n = p->n_recent < PREEMPT_RECENT ? p->n_recent : PREEMPT_RECENT;
	int64_t attempt = 1;

	for (uint64_t i = 0; i < n; i++)
		attempt += p->recent[i].uid == uid && p->recent[i].step == PREEMPT_GONE &&
			   loop_clock() - p->recent[i].mono_ns < DELAY_MOST_MS * (uint64_t)MS;
	return (uint64_t)memlimit_delay_ms(attempt, DELAY_MS, DELAY_MOST_MS);
}

static bool add_victim(struct preempt *p, const struct admit_proc *proc, const struct policy_victim *chosen,
		       bool notice_only)
{
	const struct pressure *host = p->host->pressure;
	struct victim *v = NULL;

	if (victim_new(p, proc, chosen, &v) < 0 || !v)
		return false;
	v->poll.fn = on_dead;
	if (loop_poll(p->host->loop, &v->poll, v->pidfd, POLLIN, true) < 0) {
		victim_free(v);
		return false;
	}
	v->record.number = ++p->last_number;
	v->record.time_ns = host->time_ns;
	v->record.used = host->used.bytes;
	v->record.notice_only = notice_only;
	v->record.delay_ms = delay_of(p, v->record.uid);
	v->next = p->wave;
	p->wave = v;
	set_step(p, v, PREEMPT_NOTICED);
	return true;
}

static enum policy_kind kind_of(const struct preempt *p)
{
	int word = config_of(p)->preempt;

	return word ? (enum policy_kind)(word - 1) : POLICY_SHM;
}

static void choose(struct preempt *p)
{
	const struct pressure *host = p->host->pressure;
	struct policy policy = preemptpick_policy(p->host, kind_of(p));
	bool above = host->used.known && host->limited && host->used.bytes > host->limits.kill;
	struct preemptpick pick;
	bool any = false;
	size_t n;

	/* Ray's policies take one where they are asked, so they are asked above the threshold only. */
	if (!above && (policy.kind != POLICY_SHM || policy_need(&policy, host->used) <= 0))
		return;
	if (preemptpick_init(&pick, p->host) < 0)
		return;
	for (size_t i = 0; i < pick.n && !above; i++)
		if (was_asked(p, pick.procs[i]->pid))
			pick.workers[i].life = POLICY_DEAD;
	n = policy_select(&policy, host->used, pick.workers, pick.n, pick.victims);
	for (size_t i = 0; i < n; i++)
		any |= add_victim(p, pick.procs[pick.victims[i].worker->id], &pick.victims[i], !above);
	p->counts.n_waves += any;
	preemptpick_deinit(&pick);
}

static void on_sample(struct pressure_watch *w)
{
	struct preempt *p = (struct preempt *)(void *)((char *)w - offsetof(struct preempt, watch));

	for (struct victim *v = p->wave, *next; v; v = next) {
		next = v->next;
		step(p, v);
	}
	if (!p->wave && config_of(p)->preempt && !p->host->draining)
		choose(p);
}

/* ---- its life ------------------------------------------------------------------------------------------------------ */

int preempt_new(struct host *h, struct preempt **ret)
{
	struct preempt *p;

	*ret = NULL;
	if (!h->admit)
		return 0;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->host = h;
	p->watch.fn = on_sample;
	pressure_watch(h->pressure, &p->watch);
	*ret = p;
	return 0;
}

struct preempt *preempt_free(struct preempt *p)
{
	if (!p)
		return NULL;
	pressure_unwatch(p->host->pressure, &p->watch);
	while (p->wave) {
		struct victim *v = p->wave;

		p->wave = v->next;
		v->of = NULL;
		if (v->poll.busy)
			loop_cancel(p->host->loop, &v->poll); /* on_dead() frees */
		else
			victim_free(v);
	}
	free(p);
	return NULL;
}

/* ---- for those who show it ----------------------------------------------------------------------------------------- */

void preempt_counts(const struct preempt *p, struct preempt_counts *ret)
{
	*ret = p->counts;
	ret->n_alive = 0;
	for (const struct victim *v = p->wave; v; v = v->next)
		ret->n_alive++;
}

size_t preempt_recent(const struct preempt *p, struct preempt_record ret[PREEMPT_RECENT])
{
	size_t n = 0;

	for (const struct victim *v = p->wave; v && n < PREEMPT_RECENT; v = v->next)
		ret[n++] = v->record;
	for (uint64_t i = p->n_recent; i > 0 && p->n_recent - i < PREEMPT_RECENT && n < PREEMPT_RECENT; i--)
		ret[n++] = p->recent[(i - 1) % PREEMPT_RECENT];
	return n;
}

static void add_plan(const struct preemptpick *pick, const struct policy_victim *v, bool now, struct preempt_plans *to)
{
	const struct admit_proc *proc = pick->procs[v->worker->id];

	to->plans[to->n++] = (struct preempt_plan){.pid = proc->pid,
						   .uid = conn_peer(preemptpick_conn(proc))->uid,
						   .n_tasks = preemptpick_n_tasks(proc),
						   .level = v->worker->level,
						   .why = v->why,
						   .retry = v->retry,
						   .now = now,
						   .bytes = v->bytes};
}

/* Wave after wave as if memory were full, each wave dead before the next. */
static void plan_rest(const struct policy *policy, struct preemptpick *pick, struct preempt_plans *to)
{
	struct amount full = policy->kill.known ? amount_of(INT64_MAX) : AMOUNT_UNKNOWN;
	size_t n;

	for (size_t i = 0; i < pick->n; i++)
		if (pick->workers[i].life == POLICY_TAKEN)
			pick->workers[i].life = POLICY_DEAD;
	while ((n = policy_select(policy, full, pick->workers, pick->n, pick->victims)) > 0) {
		for (size_t i = 0; i < n; i++) {
			pick->victims[i].worker->life = POLICY_DEAD;
			add_plan(pick, &pick->victims[i], false, to);
		}
	}
}

int preempt_plan(const struct preempt *p, struct preempt_plans *ret)
{
	const struct pressure *host = p->host->pressure;
	struct policy how = preemptpick_policy(p->host, kind_of(p));
	bool above = host->used.known && host->limited && host->used.bytes > host->limits.kill;
	struct preemptpick pick;
	int r = preemptpick_init(&pick, p->host);
	size_t n = 0;

	if (r < 0)
		return r;
	*ret = (struct preempt_plans){.policy = how.kind,
				      .need = above || how.kind == POLICY_SHM ? policy_need(&how, host->used) : 0,
				      .n_never = pick.n_never,
				      .n_foreign = pick.n_foreign,
				      .plans = calloc(pick.n + 1, sizeof(*ret->plans))};
	if (!ret->plans) {
		preemptpick_deinit(&pick);
		return -ENOMEM;
	}
	if (ret->need > 0)
		n = policy_select(&how, host->used, pick.workers, pick.n, pick.victims);
	for (size_t i = 0; i < n; i++)
		add_plan(&pick, &pick.victims[i], true, ret);
	plan_rest(&how, &pick, ret);
	preemptpick_deinit(&pick);
	return 0;
}
