/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simtasks.c: what clients do beside storing: tasks of the memory arbiter, which reserve, wait,
 * roll back and end; tasks that ask the gate whether they may begin; stages of a job.
 */
#include "simtasks.h"

#include "arbiter.h"
#include "simclock.h"
#include "simproc.h"
#include "simtrace.h"
#include "simworld.h"

#define NOW_MS 500u
#define TASK   1u /* a client has one task and one context of the arbiter at a time */

static uint64_t pages(struct simworld *w, unsigned most)
{
	return (1 + simworld_below(w, most)) * SIMSTORE_UNIT;
}

/* ---- the arbiter ----------------------------------------------------------------------------- */

/* ret: NULL, or the request. */
static bool arb(struct simclient *c, struct wire_arb *body, const char *tail, uint64_t within_ms,
		struct simrequest **ret)
{
	struct simrequest *q;

	if (!simclient_ask(c, WIRE_ARB, body, tail, within_ms, &q))
		return false;
	q->op = body->op;
	q->need = body->reservation;
	simtrace_say("c%u   op %u, reservation %u, %llu KiB", c->number, body->op,
		     body->reservation, (unsigned long long)body->bytes >> 10);
	if (ret)
		*ret = q;
	return true;
}

static void begin(struct simclient *c)
{
	struct wire_arb body = {
		.op = WIRE_ARB_TASK_BEGIN, .task = TASK, .value = ARB_PRIORITY_DEFAULT};

	if (!arb(c, &body, "task", NOW_MS, NULL))
		return;
	c->arb_task = TASK;
	c->reservations = 0;
	c->arb_rolls = false;
	body = (struct wire_arb){.op = WIRE_ARB_BIND, .kind = ARB_DEDICATED, .context = TASK};
	arb(c, &body, "1", NOW_MS, NULL);
}

static void end(struct simclient *c)
{
	struct wire_arb body = {
		.op = WIRE_ARB_TASK_END, .task = TASK, .flags = WIRE_ARB_RELEASED | WIRE_ARB_ALL};

	if (arb(c, &body, NULL, NOW_MS, NULL))
		c->arb_task = 0;
}

static void release(struct simclient *c, bool all)
{
	for (uint32_t i = 1; i < 32; i++) {
		struct wire_arb body = {.op = WIRE_ARB_RELEASE, .reservation = i};

		if (!(c->reservations & 1u << i))
			continue;
		if (!arb(c, &body, NULL, NOW_MS, NULL))
			return;
		c->reservations &= ~(1u << i);
		if (!all)
			return;
	}
}

/* A call that may be withheld; the context makes no other one before its answer. */
static void call(struct simclient *c, struct wire_arb *body)
{
	struct simrequest *q;

	body->context = TASK;
	body->timeout_ms = simworld_below(c->world, 4) ? 1 + simworld_below(c->world, 2000) : 0;
	c->arb_waits =
		arb(c, body, NULL, body->timeout_ms ? body->timeout_ms : SIMTASKS_WAIT_MS, &q);
	if (c->arb_waits)
		simtrace_now()->n_waits++;
}

static void reserve(struct simclient *c)
{
	struct wire_arb body = {.op = WIRE_ARB_RESERVE,
				.pool = WIRE_ARB_PARTITION,
				.bytes =
					pages(c->world, simworld_chance(c->world, 10) ? 900 : 100)};

	for (uint32_t i = 1; i < 32 && !body.reservation; i++) {
		if (!(c->reservations & 1u << i))
			body.reservation = i;
	}
	if (simworld_chance(c->world, 10))
		body.flags = WIRE_ARB_NONBLOCK;
	if (body.reservation)
		call(c, &body);
}

void simtasks_arbiter(struct simclient *c)
{
	struct wire_arb ready = {.op = WIRE_ARB_READY};
	struct wire_arb cancel = {.op = WIRE_ARB_CANCEL, .context = TASK};

	if (!c->store.page || !c->registered || c->said_bye || !c->world->arbiter)
		return;
	if (!c->arb_task) {
		begin(c);
	} else if (c->arb_waits) {
		if (simworld_chance(c->world, 10))
			arb(c, &cancel, NULL, NOW_MS, NULL);
	} else if (c->arb_rolls) {
		release(c, true);
		call(c, &ready);
	} else {
		switch (simworld_below(c->world, 8)) {
		case 0:
			end(c);
			return;
		case 1:
		case 2:
			release(c, false);
			return;
		default:
			reserve(c);
			return;
		}
	}
}

static void arbed(struct simclient *c, const struct simrequest *q, const struct wire_arbed *body)
{
	bool mine = q->op == WIRE_ARB_RESERVE || q->op == WIRE_ARB_READY;

	simtrace_say("c%u   op %u: %s", c->number, q->op,
		     arb_outcome_name((enum arb_outcome)body->outcome));
	if (body->outcome == ARB_PENDING)
		simtrace_fail("c%u #%llu is told that its answer is withheld", c->number,
			      (unsigned long long)q->serial);
	if (body->outcome == ARB_TIMEDOUT && simclock_now() < q->not_before_ns)
		simtrace_fail("c%u #%llu is told too early that its time is over", c->number,
			      (unsigned long long)q->serial);
	if (!mine)
		return;
	c->arb_waits = false;
	if (q->op == WIRE_ARB_RESERVE && body->outcome == ARB_OK)
		c->reservations |= 1u << q->need;
	c->arb_rolls = body->outcome == ARB_RETRY || body->outcome == ARB_SPLIT ||
		       (c->arb_rolls && body->outcome != ARB_OK);
	if (body->outcome == ARB_OK)
		simtrace_now()->n_grants++;
}

/* ---- the gate -------------------------------------------------------------------------------- */

void simtasks_gate(struct simclient *c)
{
	struct simworld *w = c->world;
	struct wire_task_admit body = {.form = (uint16_t)(1 + simworld_below(w, 3)),
				       .level = (uint16_t)simworld_below(w, 6),
				       .flags = (uint32_t)simworld_below(w, 8),
				       .uid = WIRE_TASK_MINE,
				       .declared = simworld_chance(w, 70) ? pages(w, 4096) : 0,
				       .timeout_ms = simworld_below(w, 3000)};
	unsigned free = 0;
	struct simrequest *q;

	while (free < SIMCLIENT_TASKS && c->tasks[free])
		free++;
	if (free == SIMCLIENT_TASKS)
		return;
	if (simclient_ask(c, WIRE_TASK_ADMIT, &body, simworld_chance(w, 50) ? "py\nf\ng" : NULL,
			  body.form == WIRE_TASK_WAIT    ? UINT64_MAX
			  : body.form == WIRE_TASK_UNTIL ? body.timeout_ms + NOW_MS
							 : NOW_MS,
			  &q)) {
		q->op = body.form;
		/* the gate counts whole milliseconds */
		q->not_before_ns = simclock_now() + body.timeout_ms * MS - MS;
		simtrace_now()->n_waits += body.form != WIRE_TASK_TRY;
	}
}

void simtasks_done(struct simclient *c)
{
	unsigned which = (unsigned)simworld_below(c->world, SIMCLIENT_TASKS);
	const struct wire_task_done body = {.task = c->tasks[which]};

	if (!body.task || !simclient_ask(c, WIRE_TASK_DONE, &body, NULL, NOW_MS, NULL))
		return;
	c->tasks[which] = 0;
	simproc_grow(c->pid, pages(c->world, 256));
}

/* Its tasks take memory. */
void simtasks_grow(struct simclient *c)
{
	uint64_t bytes = pages(c->world, 4096);

	simtrace_say("c%u has %llu KiB of private memory", c->number,
		     (unsigned long long)bytes >> 10);
	simproc_grow(c->pid, bytes);
}

static void admitted(struct simclient *c, const struct simrequest *q,
		     const struct wire_task_admitted *body)
{
	unsigned free = 0;

	if (body->outcome == WIRE_TASK_TIMEDOUT &&
	    (q->op != WIRE_TASK_UNTIL || simclock_now() < q->not_before_ns))
		simtrace_fail("c%u #%llu is told too early that its time is over", c->number,
			      (unsigned long long)q->serial);
	if (body->outcome == WIRE_TASK_REFUSED && q->op != WIRE_TASK_TRY)
		simtrace_fail("c%u #%llu wanted to wait, and is refused", c->number,
			      (unsigned long long)q->serial);
	simtrace_say("c%u   outcome %u, reason %u", c->number, body->outcome, body->reason);
	if (body->outcome != WIRE_TASK_IN || !body->task)
		return;
	while (free < SIMCLIENT_TASKS && c->tasks[free])
		free++;
	if (free < SIMCLIENT_TASKS) {
		c->tasks[free] = body->task;
	} else {
		const struct wire_task_done done = {.task = body->task};

		simclient_ask(c, WIRE_TASK_DONE, &done, NULL, NOW_MS, NULL);
	}
}

/* ---- stages ---------------------------------------------------------------------------------- */

void simtasks_stage(struct simclient *c)
{
	struct simworld *w = c->world;
	struct wire_stage_query query = {.n_native = simworld_below(w, 5),
					 .n_convert = simworld_below(w, 5),
					 .n_other = simworld_below(w, 5)};
	struct wire_stage_begin first = {
		.profile = c->profile,
		.timeout_ms = simworld_chance(w, 50) ? UINT64_MAX : simworld_below(w, 2000)};
	struct wire_stage_end last = {0};
	uint64_t most = first.timeout_ms < SIMTASKS_STAGE_MS ? first.timeout_ms : SIMTASKS_STAGE_MS;

	if (!c->store.page || !c->registered || c->said_bye)
		return;
	switch (simworld_below(w, 3)) {
	case 0:
		simclient_ask(c, WIRE_STAGE_QUERY, &query, "stage", NOW_MS, NULL);
		return;
	case 1:
		simclient_ask(c, WIRE_STAGE_BEGIN, &first, "stage", most + NOW_MS, NULL);
		return;
	default:
		simclient_ask(c, WIRE_STAGE_END, &last, NULL, NOW_MS, NULL);
		return;
	}
}

void simtasks_answered(struct simclient *c, const struct simrequest *q, uint16_t type,
		       const void *body)
{
	if (type == WIRE_ARBED) {
		arbed(c, q, body);
	} else if (type == WIRE_TASK_ADMITTED) {
		admitted(c, q, body);
	} else if (type == WIRE_STAGED && q->type == WIRE_STAGE_QUERY) {
		c->profile = ((const struct wire_staged *)body)->profile;
	} else if (type == WIRE_REFUSED && q->type == WIRE_ARB) {
		c->arb_waits &= q->op != WIRE_ARB_RESERVE && q->op != WIRE_ARB_READY;
	}
}
