/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preempt.c: chooses victims in waves, and takes a victim's next step after each look at the host.
 *
 * A victim's memory counts as used until its descriptor says that it has died; one that does not
 * die of SIGKILL stays in the list, but holds nobody up. Its tasks may go
 * before that, with its connection; so what their owners are to be told is copied when the victim
 * is chosen. If the daemon is killed in between, it leaves a process that got a notice, and goes
 * on, or a process that got a signal, and ends. The next daemon knows of neither, and chooses anew.
 */
#include "preempt.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utlist.h>

#include "actord.h"
#include "admit.h"
#include "config.h"
#include "host.h"
#include "log.h"
#include "loop.h"
#include "memtext.h"
#include "pressure.h"
#include "profiles.h"

#define MS            1000000
/* between two notices to one process that nothing follows */
#define QUIET_NS      (UINT64_C(10000) * MS)
#define DELAY_MS      1000
#define DELAY_MOST_MS 60000
#define STUCK_NS      (UINT64_C(5000) * MS) /* killed, and no memory came free */
#define STUCK_SHARE   100                   /* of the host's memory is what counts as coming free */

struct preempt {
	struct host *host;
	struct pressure_watch watch;
	struct preempt_victim *wave;
	/* a ring: n_recent ever; the others are of no process, and no step of interest */
	struct preempt_record recent[PREEMPT_RECENT];
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
		[PREEMPT_NOTICED] = "notice", [PREEMPT_TERMED] = "term",
		[PREEMPT_KILLED] = "kill",    [PREEMPT_STUCK] = "stuck",
		[PREEMPT_GONE] = "gone",      [PREEMPT_YIELDED] = "yielded",
		[PREEMPT_SPARED] = "spared",
	};

	return names[s];
}

/* Tells the profile of each kind of task that went with the process. */
static void teach(const struct preempt *p, const struct preempt_victim *v)
{
	for (unsigned i = 0; i < v->record.n_tasks; i++) {
		const struct preempt_lost *k = &v->tasks[i];
		struct profile_task used = {.used = {k->had}, .has = {true}};

		if (!p->host->profiles || !k->names)
			continue;
		(void)profiles_ended(p->host->profiles, k->uid, &k->name, &used,
				     PROFILES_PREEMPTED);
		if (k->had)
			(void)profiles_ended(p->host->profiles, k->uid, &k->name, &used,
					     PROFILES_KILLED);
	}
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Is so much used that processes are ended? */
static bool is_above(const struct pressure *host)
{
	return host->used.known && host->limited && host->used.bytes > host->limits.kill;
}

static void note_step(struct preempt *p, struct preempt_victim *v, enum preempt_step step)
{
	v->record.step = step;
	v->record.mono_ns = p->host->pressure->mono_ns;
	p->counts.n_steps[step]++;
	if (step == PREEMPT_NOTICED)
		p->counts.n_level[v->record.level]++;
}

static void set_step(struct preempt *p, struct preempt_victim *v, enum preempt_step step)
{
	note_step(p, v, step);
	preempttell(p->host, v);
}

/* Ends the handling of a victim. */
static void let_go(struct preempt *p, struct preempt_victim *v, enum preempt_step how)
{
	LL_DELETE(p->wave, v);
	if (how == PREEMPT_GONE)
		teach(p, v);
	set_step(p, v, how);
	p->recent[p->n_recent++ % PREEMPT_RECENT] = v->record;
	preemptvictim_free(v, p->host->loop);
}

static void on_dead(struct loop_op *op, int result, UNUSED unsigned flags)
{
	struct preempt_victim *v = CONTAINER_OF(op, preempt_victim, poll);
	struct preempt *p = v->of;

	if (result < 0)
		return;
	let_go(p, v, PREEMPT_GONE);
	pressure_look(p->host->pressure); /* it may be enough, or the next wave's turn */
}

static void send_signal(struct preempt *p, struct preempt_victim *v, int number,
			enum preempt_step step)
{
	if (syscall(SYS_pidfd_send_signal, v->pidfd, number, NULL, 0) < 0 && errno != ESRCH) {
		log_say(LOG_WARNING, LOG_FIELDS(.error = -errno),
			"process %d could not be signalled, and is let go; its memory stays in use",
			(int)v->record.pid);
		let_go(p, v, PREEMPT_SPARED);
		return;
	}
	log_say(LOG_NOTICE, LOG_FIELDS(.error = 0),
		"memory is short: process %d of user %u was sent %s: %s; %lld bytes are expected "
		"of its end",
		(int)v->record.pid, (unsigned)v->record.uid,
		number == SIGTERM ? "SIGTERM" : "SIGKILL", policy_why(v->record.why),
		(long long)v->record.bytes);
	v->killed_used = p->host->pressure->used.bytes;
	v->killed_mono_ns = p->host->pressure->mono_ns;
	set_step(p, v, step);
}

/*
 * A large process takes long to die, and its memory comes free meanwhile. A process that is traced,
 * or waits in the kernel for a disk that is gone, may never die.
 */
static void look_at_killed(struct preempt *p, struct preempt_victim *v)
{
	const struct pressure *host = p->host->pressure;
	int64_t least = host->total.known ? host->total.bytes / STUCK_SHARE : 0;

	if (host->used.known && host->used.bytes < v->killed_used - least) {
		v->killed_used = host->used.bytes;
		v->killed_mono_ns = host->mono_ns;
	} else if (host->mono_ns - v->killed_mono_ns >= STUCK_NS) {
		log_say(LOG_WARNING, LOG_FIELDS(.error = 0),
			"process %d of user %u was sent SIGKILL and does not die: it is traced, or "
			"waits in the kernel (see /proc/%d/status and wchan); others are preempted "
			"without waiting for it",
			(int)v->record.pid, (unsigned)v->record.uid, (int)v->record.pid);
		set_step(p, v, PREEMPT_STUCK);
	}
}

/* Is it still what it was chosen for: a process that runs tasks, or an idle worker? */
static bool is_as_chosen(const struct preempt *p, const struct preempt_victim *v)
{
	const struct admit *a = p->host->admit;
	const struct client *c = preemptvictim_client(v, p->host);
	/* Tasks of its process may be other connections'. */
	const struct pressproc *proc = c ? pressprocs_find(a->procs, c->conn->peer.pid) : NULL;

	if (!v->record.n_tasks)
		return v->has_actors || (c && !c->n_tasks && !(proc && proc->tasks));
	for (unsigned i = 0; i < v->record.n_tasks; i++)
		if (admit_find(a, v->tasks[i].id))
			return true;
	return false;
}

static struct actord_leaving actors_of(const struct preempt *p, pid_t pid)
{
	struct actord_leaving left;

	p->host->actord->leaving(p->host, pid, (struct actord_want){0}, &left);
	return left;
}

/* Are there actors that were to be moved, and are not yet, or could not be?
 * They are not lost for memory. */
static bool has_actors(const struct preempt *p, pid_t pid)
{
	return actors_of(p, pid).n > 0;
}

static void grace_is_over(struct preempt *p, struct preempt_victim *v, bool above)
{
	v->record.keeps_actors = has_actors(p, v->record.pid);
	if (v->record.notice_only || v->record.keeps_actors || !above)
		let_go(p, v, PREEMPT_SPARED);
	else
		send_signal(p, v, SIGTERM, PREEMPT_TERMED);
}

/*
 * Until the next look another interval passes, and a process takes a while to die: if the kernel
 * has no memory left by then, it kills whom it likes. A configured total is not the kernel's.
 */
static bool is_urgent(const struct preempt *p)
{
	const struct pressure *host = p->host->pressure;
	const struct memlimit_use use = {.used = host->used, .total = host->total};

	return !config_of(p)->host_total &&
	       memlimit_fills(use, host->grown, host->grown_ns, 2 * config_of(p)->interval_ns);
}

/* A move within the host frees memory only where the old process is ended. */
static void evacuate(const struct preempt *p, const struct preempt_victim *v)
{
	struct actord_want want = preemptpick_want(p->host, v->record.pid, v->record.n_tasks);

	want.daemons = v->record.notice_only;
	if (p->host->actord->evacuate)
		p->host->actord->evacuate(p->host, v->record.pid, want);
}

static void step(struct preempt *p, struct preempt_victim *v)
{
	const struct pressure *host = p->host->pressure;
	bool above = is_above(host);
	uint64_t waited = host->mono_ns - v->record.mono_ns;

	switch (v->record.step) {
	case PREEMPT_NOTICED:
		if (!is_as_chosen(p, v)) {
			let_go(p, v, v->record.n_tasks ? PREEMPT_YIELDED : PREEMPT_SPARED);
			break;
		}
		if (above && v->record.notice_only) {
			/* it has become worse: the time that it had counts */
			v->record.notice_only = false;
			evacuate(p, v);
		}
		if (above && is_urgent(p) && !has_actors(p, v->record.pid)) {
			send_signal(p, v, SIGKILL, PREEMPT_KILLED);
			break;
		}
		/* An unknown use ends no process, and the move of an actor is waited for: it takes
		 * as long as its steps may. */
		if (waited >= config_of(p)->grace_ns && host->used.known &&
		    !actors_of(p, v->record.pid).moving)
			grace_is_over(p, v, above);
		break;
	case PREEMPT_TERMED:
		if (waited >= config_of(p)->term_ns || (above && is_urgent(p)))
			send_signal(p, v, SIGKILL, PREEMPT_KILLED);
		break;
	case PREEMPT_KILLED:
		look_at_killed(p, v);
		break;
	case PREEMPT_STUCK:
	case PREEMPT_GONE:
	case PREEMPT_YIELDED:
	case PREEMPT_SPARED:
	default:
		break;
	}
}

static void step_all(struct preempt *p)
{
	for (struct preempt_victim *v = p->wave, *next; v; v = next) {
		next = v->next;
		step(p, v);
	}
}

/* ---- choosing -------------------------------------------------------------------------------- */

/* Is the last wave under way? A victim that is stuck, or moves an actor when there is no time
 * for that, holds nobody up. */
static bool is_under_way(const struct preempt *p)
{
	const struct preempt_victim *v = p->wave;

	while (v &&
	       (v->record.step == PREEMPT_STUCK || (v->record.step == PREEMPT_NOTICED &&
						    is_urgent(p) && has_actors(p, v->record.pid))))
		v = v->next;
	return v != NULL;
}

static const struct preempt_victim *find_victim(const struct preempt *p, pid_t pid)
{
	const struct preempt_victim *v = p->wave;

	while (v && v->record.pid != pid)
		v = v->next;
	return v;
}

/* Was it asked lately, with no further step? above: and has actors that could not be moved. */
static bool was_asked(const struct preempt *p, pid_t pid, bool above)
{
	for (unsigned i = 0; i < PREEMPT_RECENT; i++) {
		const struct preempt_record *r = &p->recent[i];

		if (r->pid == pid && (above ? r->keeps_actors : r->notice_only) &&
		    r->step == PREEMPT_SPARED && loop_clock() - r->mono_ns < QUIET_NS)
			return true;
	}
	return false;
}

/*
 * The more processes of a user had to go within the last minute, the longer its tasks should wait
 * before they are tried again.
 */
static uint64_t delay_of(const struct preempt *p, uid_t uid)
{
	int64_t attempt = 1;

	for (unsigned i = 0; i < PREEMPT_RECENT; i++)
		attempt += p->recent[i].uid == uid && p->recent[i].step == PREEMPT_GONE &&
			   loop_clock() - p->recent[i].mono_ns < DELAY_MOST_MS * (uint64_t)MS;
	return (uint64_t)memlimit_delay_ms(attempt, DELAY_MS, DELAY_MOST_MS);
}

static bool add_victim(struct preempt *p, const struct preemptpick_who *who,
		       const struct policy_victim *chosen, bool notice_only)
{
	const struct pressure *host = p->host->pressure;
	struct preempt_victim *v = NULL;

	if (preemptvictim_new(who, chosen, &v) < 0 || !v)
		return false;
	v->of = p;
	v->poll.fn = on_dead;
	if (loop_poll(p->host->loop, &v->poll, v->pidfd, POLLIN, true) < 0) {
		preemptvictim_free(v, p->host->loop);
		return false;
	}
	v->record.number = ++p->last_number;
	v->record.time_ns = host->time_ns;
	v->record.used = host->used.bytes;
	v->record.notice_only = notice_only;
	v->record.delay_ms = delay_of(p, v->record.uid);
	v->has_actors = has_actors(p, v->record.pid);
	v->next = p->wave;
	p->wave = v;
	note_step(p, v, PREEMPT_NOTICED);
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
	bool above = is_above(host), any = false;
	struct preemptpick pick;
	size_t n;

	/* Ray's policies choose a process whenever they are asked, so they are asked only above
	 * the threshold. */
	if (!above && (policy.kind != POLICY_SHM || policy_need(&policy, host->used) <= 0))
		return;
	if (preemptpick_init(&pick, p->host) < 0)
		return;
	for (size_t i = 0; i < pick.n; i++)
		if (find_victim(p, pick.who[i].conn->peer.pid) ||
		    was_asked(p, pick.who[i].conn->peer.pid, above))
			pick.workers[i].life = POLICY_DEAD;
	n = policy_select(&policy, host->used, pick.workers, pick.n, pick.victims);
	for (size_t i = 0; i < n; i++)
		any |= add_victim(p, &pick.who[pick.victims[i].worker->id], &pick.victims[i],
				  !above);
	p->counts.n_waves += any;
	preemptpick_deinit(&pick);
	for (const struct preempt_victim *v = p->wave; v; v = v->next)
		if (v->record.step == PREEMPT_NOTICED)
			preempttell(p->host, v);
	for (const struct preempt_victim *v = p->wave; v; v = v->next)
		if (v->record.step == PREEMPT_NOTICED)
			evacuate(p, v);
	step_all(p); /* one may have no time at all */
}

/*
 * An actor's process has died, and the place of a child of it was told to drop the child, and does
 * not: what it computes there nobody wants. If nothing else is known of that process, it is killed.
 */
static void end_orphans(struct preempt *p)
{
	struct conn *c = NULL;

	while (p->host->actord->stuck &&
	       (c = p->host->actord->stuck(p->host, config_of(p)->grace_ns / MS, c)) != NULL) {
		int fd = preemptpick_has_tasks(p->host, c->peer.pid) ? -1 : conn_pidfd(c);

		if (fd < 0)
			continue;
		if (syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0)
			log_say(LOG_NOTICE, LOG_FIELDS(.conn = c->name),
				"process %d of user %u was sent SIGKILL: the parent of its actors "
				"has died, and it did not drop them",
				(int)c->peer.pid, (unsigned)c->peer.uid);
		close(fd);
	}
}

static void on_sample(struct pressure_watch *w)
{
	struct preempt *p = CONTAINER_OF(w, preempt, watch);

	step_all(p);
	if (config_of(p)->preempt && !p->host->draining)
		end_orphans(p);
	if (config_of(p)->preempt && !p->host->draining && !is_under_way(p))
		choose(p);
}

/* ---- its life -------------------------------------------------------------------------------- */

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
		struct preempt_victim *v = p->wave;

		p->wave = v->next;
		preemptvictim_free(v, p->host->loop);
	}
	free(p);
	return NULL;
}

/* ---- for those who show it ------------------------------------------------------------------- */

void preempt_counts(const struct preempt *p, struct preempt_counts *ret)
{
	const struct preempt_victim *v;

	*ret = p->counts;
	LL_COUNT(p->wave, v, ret->n_alive);
}

size_t preempt_recent(const struct preempt *p, struct preempt_record ret[PREEMPT_RECENT])
{
	size_t n = 0;

	for (const struct preempt_victim *v = p->wave; v && n < PREEMPT_RECENT; v = v->next)
		ret[n++] = v->record;
	for (uint64_t i = p->n_recent;
	     i > 0 && p->n_recent - i < PREEMPT_RECENT && n < PREEMPT_RECENT; i--)
		ret[n++] = p->recent[(i - 1) % PREEMPT_RECENT];
	return n;
}

static void add_plan(const struct preempt *p, const struct preemptpick *pick,
		     const struct policy_victim *v, bool now, struct preempt_plans *to)
{
	const struct preemptpick_who *who = &pick->who[v->worker->id];
	struct actord_leaving leaving = preemptpick_leaving(p->host, who);

	to->plans[to->n++] = (struct preempt_plan){.pid = who->conn->peer.pid,
						   .uid = who->conn->peer.uid,
						   .n_tasks = preemptpick_n_tasks(who),
						   .n_actors = leaving.n,
						   .n_movable = leaving.n_movable,
						   .level = v->worker->level,
						   .why = v->why,
						   .retry = v->retry,
						   .now = now,
						   .bytes = v->bytes};
}

/* Plans wave after wave as if memory stayed full, each wave dead before the next. */
static void plan_rest(const struct preempt *p, const struct policy *policy,
		      struct preemptpick *pick, struct preempt_plans *to)
{
	struct amount full = policy->kill.known ? amount_of(INT64_MAX) : AMOUNT_UNKNOWN;
	size_t n;

	for (size_t i = 0; i < pick->n; i++)
		if (pick->workers[i].life == POLICY_TAKEN)
			pick->workers[i].life = POLICY_DEAD;
	while ((n = policy_select(policy, full, pick->workers, pick->n, pick->victims)) > 0) {
		for (size_t i = 0; i < n; i++) {
			pick->victims[i].worker->life = POLICY_DEAD;
			add_plan(p, pick, &pick->victims[i], false, to);
		}
	}
}

int preempt_plan(const struct preempt *p, struct preempt_plans *ret)
{
	const struct pressure *host = p->host->pressure;
	struct policy how = preemptpick_policy(p->host, kind_of(p));
	struct preemptpick pick;
	int r = preemptpick_init(&pick, p->host);
	size_t n = 0;

	if (r < 0)
		return r;
	*ret = (struct preempt_plans){.policy = how.kind,
				      .need = is_above(host) || how.kind == POLICY_SHM
						      ? policy_need(&how, host->used)
						      : 0,
				      .n_never = pick.n_never,
				      .n_foreign = pick.n_foreign,
				      .n_kept = pick.n_kept,
				      .plans = calloc(pick.n + 1, sizeof(*ret->plans))};
	if (!ret->plans) {
		preemptpick_deinit(&pick);
		return -ENOMEM;
	}
	/* A stuck process gives no memory: it counts as dead, and is no candidate. */
	for (size_t i = 0; i < pick.n; i++) {
		const struct preempt_victim *v = find_victim(p, pick.who[i].conn->peer.pid);

		if (v && v->record.step == PREEMPT_STUCK)
			pick.workers[i].life = POLICY_DEAD;
	}
	if (ret->need > 0)
		n = policy_select(&how, host->used, pick.workers, pick.n, pick.victims);
	for (size_t i = 0; i < n; i++)
		add_plan(p, &pick, &pick.victims[i], true, ret);
	plan_rest(p, &how, &pick, ret);
	preemptpick_deinit(&pick);
	return 0;
}
