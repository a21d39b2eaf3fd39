/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbsim.c: runners of vclock.h do what taskwork.h says, against simcore.h. One core lives through
 * all situations, as a daemon does, until one goes wrong.
 *
 * A situation hangs when its runners have not ended after ten times what one runner alone would
 * work and spill, or a second at least. Its core is thrown away then, with what its runners hold of
 * our memory: that is a failed run anyway.
 */
#include "arbsim.h"

#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simcore.h"

#define SECOND_NS      UINT64_C(1000000000)
/* of a task that failed; a killed one is started again without counting */
#define RERUNS_MAX     3u
#define EVENTS_MAX     UINT64_C(20000000) /* of one situation: time stands still */
#define DIES_WITHIN_NS UINT64_C(20000000) /* of parking, where a killed client is parked */
#define SECOND_SHARE   5u                 /* one allocation in so many */
#define POOL           1u
#define SECOND_POOL    2u

struct job {
	const struct situation_task *task;
	unsigned n_failures;
};

struct runner {
	struct sim *sim;
	struct simcore_waiter *waiter;
	uint64_t context, task;
	bool dead;
};

struct sim {
	const struct arbsim_options *options;
	struct arbsim_result *result;
	struct simcore core;
	struct twister random; /* who dies */
	struct situation situation;
	struct runner runners[SITUATION_TASKS_MAX];
	struct simcore_waiter waiters[SITUATION_TASKS_MAX];
	struct job jobs[SITUATION_TASKS_MAX * 64];
	unsigned n_jobs, next_job;
	uint64_t task, reservation; /* ids given out so far */
	bool situation_failed;
};

/* ---- death ----------------------------------------------------------------------------------- */

static void die(struct runner *r)
{
	struct arb_message m = {
		.op = ARB_OP_TASK_END, .flags = ARB_RELEASE | ARB_ALL, .task = r->task};

	r->dead = true;
	r->sim->result->n_kills++;
	if (simcore_step(&r->sim->core, &m) != ARB_OK)
		simcore_broken(&r->sim->core, "a dead client's task cannot be ended", &m);
}

struct death {
	struct runner *runner;
	uint64_t task, call;
};

static void die_parked(void *arg)
{
	struct death *d = arg;
	struct runner *r = d->runner;

	if (r->task == d->task && r->waiter->n_calls == d->call && r->waiter->waiting && !r->dead)
		die(r);
	free(d);
}

/* The runner's next withheld call will not see its reply, unless that comes soon. */
static void doom(struct runner *r)
{
	struct vclock *clock = r->sim->core.clock;
	struct death *d = malloc(sizeof(*d));

	if (!d)
		err(1, "a death");
	*d = (struct death){r, r->task, r->waiter->n_calls + 1};
	vclock_at(clock, vclock_now(clock) + twister_below(&r->sim->random, DIES_WITHIN_NS),
		  die_parked, d);
}

/* ---- the calls of a task --------------------------------------------------------------------- */

static enum work_outcome from_core(struct runner *r, enum arb_outcome o,
				   const struct arb_message *m)
{
	if (r->dead)
		return WORK_DEAD;
	if (o == ARB_OK)
		return WORK_OK;
	if (o == ARB_RETRY)
		return WORK_RETRY;
	if (o == ARB_SPLIT)
		return WORK_SPLIT;
	if (o == ARB_TOOBIG)
		return WORK_TOOBIG;
	if (o != ARB_NOMEM)
		simcore_broken(&r->sim->core, arb_outcome_name(o), m);
	return WORK_FAILED;
}

/* A doomed one dies with its message sent, or while it is parked. */
static enum work_outcome call(struct runner *r, const struct arb_message *m)
{
	struct sim *s = r->sim;
	bool doomed = s->options->kill > 0 && twister_real(&s->random) < s->options->kill;
	enum arb_outcome o;

	if (doomed)
		doom(r);
	o = simcore_call(&s->core, m);
	if (doomed && !r->dead)
		die(r);
	return from_core(r, o, m);
}

static enum work_outcome sim_reserve(void *arg, uint32_t slot, uint64_t bytes, uint64_t *ret_handle)
{
	struct runner *r = arg;
	struct arb_message m = {
		.op = ARB_OP_RESERVE, .context = r->context, .pool = POOL, .bytes = bytes};

	if (r->sim->options->second_pool && slot % SECOND_SHARE == SECOND_SHARE - 1)
		m.pool = SECOND_POOL;
	m.reservation = *ret_handle = ++r->sim->reservation;
	return call(r, &m);
}

static enum work_outcome sim_release(void *arg, uint64_t handle)
{
	return call(arg, &(struct arb_message){.op = ARB_OP_RELEASE, .reservation = handle});
}

static enum work_outcome sim_pin(void *arg, uint64_t handle)
{
	struct runner *r = arg;

	return call(r, &(struct arb_message){
			       .op = ARB_OP_PIN, .context = r->context, .reservation = handle});
}

static enum work_outcome sim_unpin(void *arg, uint64_t handle)
{
	return call(arg, &(struct arb_message){.op = ARB_OP_UNPIN, .reservation = handle});
}

static enum work_outcome sim_ready(void *arg)
{
	struct runner *r = arg;

	return call(r, &(struct arb_message){.op = ARB_OP_READY, .context = r->context});
}

static enum work_outcome sim_attempt_begin(void *arg)
{
	struct runner *r = arg;

	return call(r, &(struct arb_message){.op = ARB_OP_RETRY_BEGIN, .context = r->context});
}

static enum work_outcome sim_attempt_end(void *arg, bool succeeded)
{
	struct runner *r = arg;

	return call(r, &(struct arb_message){
			       .op = ARB_OP_RETRY_END, .context = r->context, .value = succeeded});
}

static enum work_outcome sim_work(void *arg, uint64_t ns)
{
	struct runner *r = arg;

	vclock_sleep(r->sim->core.clock, ns);
	return WORK_OK;
}

static uint64_t sim_now(void *arg)
{
	struct runner *r = arg;

	return vclock_now(r->sim->core.clock);
}

/* ---- runners --------------------------------------------------------------------------------- */

static void begin_task(struct runner *r)
{
	struct simcore *c = &r->sim->core;
	struct arb_message begin = {.op = ARB_OP_TASK_BEGIN, .value = ARB_PRIORITY_DEFAULT};
	struct arb_message bind = {
		.op = ARB_OP_BIND, .context = r->context, .kind = ARB_DEDICATED, .n_list = 1};

	r->dead = false;
	r->task = ++r->sim->task;
	begin.task = r->task;
	bind.list = &r->task;
	r->sim->result->n_tasks++;
	if (simcore_step(c, &begin) != ARB_OK || simcore_step(c, &bind) != ARB_OK)
		simcore_broken(c, "a task cannot be begun", &bind);
}

static void end_task(struct runner *r, struct job job, enum work_outcome o)
{
	struct sim *s = r->sim;
	struct arb_message end = {.op = ARB_OP_TASK_END, .flags = ARB_RELEASE, .task = r->task};

	if (o != WORK_DEAD && simcore_step(&s->core, &end) != ARB_OK)
		simcore_broken(&s->core, "a task cannot be ended", &end);
	if (o == WORK_OK)
		return;
	if (o != WORK_DEAD) {
		s->result->n_failed_tasks++;
		job.n_failures++;
	}
	if (job.n_failures > RERUNS_MAX || s->n_jobs == sizeof(s->jobs) / sizeof(s->jobs[0]))
		s->situation_failed = true;
	else
		s->jobs[s->n_jobs++] = job;
}

static void run_tasks(void *arg)
{
	struct runner *r = arg;
	struct sim *s = r->sim;
	const struct work_calls calls = {.reserve = sim_reserve,
					 .release = sim_release,
					 .pin = sim_pin,
					 .unpin = sim_unpin,
					 .ready = sim_ready,
					 .attempt_begin = sim_attempt_begin,
					 .attempt_end = sim_attempt_end,
					 .work = sim_work,
					 .now = sim_now,
					 .keep_first = s->options->spillable};

	while (s->next_job < s->n_jobs) {
		struct job job = s->jobs[s->next_job++];

		begin_task(r);
		end_task(r, job, work_run(job.task, &calls, r, &s->result->work));
	}
}

/* ---- situations ------------------------------------------------------------------------------ */

static int new_core(struct sim *s)
{
	struct arb_message first = {
		.op = ARB_OP_POOL_CREATE, .kind = ARB_PARTITION, .pool = POOL, .name = "shm:/pool"};
	struct arb_message second = {.op = ARB_OP_POOL_CREATE,
				     .kind = ARB_PRIVATE,
				     .pool = SECOND_POOL,
				     .name = "priv:1"};
	int r = arb_new(&s->core.arb);

	if (r < 0)
		return r;
	first.bytes = s->options->pool_bytes;
	second.bytes = s->options->second_pool;
	if (simcore_step(&s->core, &first) != ARB_OK ||
	    (s->options->second_pool && simcore_step(&s->core, &second) != ARB_OK))
		simcore_broken(&s->core, "a pool cannot be made", &first);
	return 0;
}

static void end_core(struct sim *s)
{
	struct arb_totals t;

	if (!s->core.arb)
		return;
	arb_totals(s->core.arb, &t);
	s->result->core_retries += t.n_retries;
	s->result->core_splits += t.n_splits;
	s->core.arb = arb_free(s->core.arb);
}

static bool is_empty(const struct sim *s, uint64_t pool)
{
	struct arb_pool_info i;

	return !arb_pool(s->core.arb, pool, &i) ||
	       (i.used == 0 && i.spilled == 0 && i.n_reservations == 0 && i.n_waiting == 0);
}

static void say(struct sim *s, uint32_t number, const char *what)
{
	if (!s->options->explain)
		return;
	fprintf(stderr, "situation %u at %.3f s: %s\n", number,
		(double)vclock_now(s->core.clock) / 1e9, what);
	simcore_say(&s->core);
}

static void start_runners(struct sim *s)
{
	s->next_job = 0;
	s->n_jobs = s->situation.n_tasks;
	s->situation_failed = false;
	for (unsigned i = 0; i < s->n_jobs; i++)
		s->jobs[i] = (struct job){&s->situation.tasks[i], 0};
	for (unsigned i = 0; i < s->options->n_runners; i++) {
		s->waiters[i] = (struct simcore_waiter){0};
		s->runners[i] =
			(struct runner){.sim = s, .waiter = &s->waiters[i], .context = i + 1};
		s->waiters[i].self = vclock_start(s->core.clock, run_tasks, &s->runners[i]);
	}
}

static enum vclock_end run_until_limit(struct sim *s)
{
	uint64_t work_ns = situation_work_ns(&s->situation), spilled_ns = s->core.spill_ns,
		 limit_ns = 0, more_ns;
	enum vclock_end end = VCLOCK_LATE;

	start_runners(s);
	for (more_ns = SECOND_NS; end == VCLOCK_LATE && more_ns > limit_ns;) {
		limit_ns = more_ns;
		end = vclock_run(s->core.clock, limit_ns, EVENTS_MAX);
		more_ns = 10 * (work_ns + s->core.spill_ns - spilled_ns);
	}
	return end;
}

/* The situation stands in s->situation. false: what is left cannot be used any more. */
static bool run_situation(struct sim *s, uint32_t number)
{
	enum vclock_end end = run_until_limit(s);

	s->result->makespan_s += (double)vclock_now(s->core.clock) / 1e9;
	s->result->n_failed_situations += s->situation_failed;
	if (end != VCLOCK_DONE) {
		s->result->n_hangs++;
		say(s, number,
		    end == VCLOCK_STUCK ? "nothing will happen any more"
					: "no end within the limit");
		return false;
	}
	vclock_drain(s->core.clock); /* deaths that came too late, a last tick */
	if (!is_empty(s, POOL) || !is_empty(s, SECOND_POOL)) {
		s->result->n_not_empty++;
		say(s, number, "something is booked after the end");
		return false;
	}
	return true;
}

static int next_situation(struct sim *s, struct twister *random, bool new_one)
{
	situation_make(random, &s->options->rules, &s->situation);
	if (s->core.clock)
		s->core.base_ns += vclock_now(s->core.clock);
	vclock_free(s->core.clock);
	s->core.ticking = false;
	s->core.clock = vclock_new();
	if (!s->core.clock)
		return -ENOMEM;
	if (!new_one)
		return 0;
	end_core(s);
	return new_core(s);
}

int arbsim_run(const struct arbsim_options *o, struct arbsim_result *ret)
{
	struct sim *s = calloc(1, sizeof(*s));
	struct twister random;
	bool good = false;
	int r = s ? 0 : -ENOMEM;

	memset(ret, 0, sizeof(*ret));
	if (r < 0)
		return r;
	s->options = o;
	s->result = ret;
	s->core = (struct simcore){.waiters = s->waiters,
				   .n_waiters = o->n_runners,
				   .check = o->check,
				   .explain = o->explain};
	twister_init(&random, o->seed);
	twister_init(&s->random, o->seed + 1);
	for (uint32_t i = 0; i < o->n_situations && r == 0; i++) {
		r = next_situation(s, &random, !good);
		if (r == 0)
			good = run_situation(s, i);
	}
	end_core(s);
	vclock_free(s->core.clock);
	ret->n_messages = s->core.n_messages;
	ret->n_spills = s->core.n_spills;
	ret->n_broken = s->core.n_broken;
	ret->first_broken = s->core.first_broken;
	free(s);
	return r;
}
