/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbmodel.c: follows one arbiter, message by message.
 *
 * A step is gone through in the order in which things happen: what the message itself does; then
 * the log, one transition after the other, each of which must leave the state in which the one
 * before left its context (invariant 8); then the replies, of which each withheld call must get
 * exactly one, the one that the log announced (invariant 6). Then the books and states are compared
 * with inspection (invariants 1 and 3), the waiting is judged (2 and 4), and now and then the
 * counters (7). The choice of the context to roll back is judged (5) at the transition, with the
 * states and bytes of that moment: arbrules.c.
 */
#include "arbmodel.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "arbcheck.h"

#define U(x) ((unsigned long long)(x))

void arbmodel_fail(struct arbmodel *m, const char *form, ...)
{
	va_list args;

	if (*m->wrong)
		return;
	va_start(args, form);
	vsnprintf(m->wrong, sizeof(m->wrong), form, args);
	va_end(args);
}

struct arbmodel_pool *arbmodel_pool(struct arbmodel *m, uint64_t id)
{
	for (size_t i = 0; id && i < ARBMODEL_POOLS; i++)
		if (m->pools[i].id == id)
			return &m->pools[i];
	return NULL;
}

struct arbmodel_task *arbmodel_task(struct arbmodel *m, uint64_t id)
{
	for (size_t i = m->n_tasks; id && i > 0; i--)
		if (m->tasks[i - 1].id == id)
			return &m->tasks[i - 1];
	return NULL;
}

struct arbmodel_context *arbmodel_context(struct arbmodel *m, uint64_t id)
{
	for (size_t i = 0; id && i < ARBMODEL_CONTEXTS; i++)
		if (m->contexts[i].id == id)
			return &m->contexts[i];
	return NULL;
}

struct arbmodel_bytes *arbmodel_bytes(struct arbmodel *m, uint64_t id)
{
	for (size_t i = 0; id && i < ARBMODEL_BYTES; i++)
		if (m->bytes[i].id == id)
			return &m->bytes[i];
	return NULL;
}

int arbmodel_init(struct arbmodel *m)
{
	*m = (struct arbmodel){.now_ns = UINT64_C(1000000000)};
	for (int i = 0; i < ARBMODEL_CONTEXTS; i++) {
		m->contexts[i].id = (uint64_t)i + 1;
		m->contexts[i].state = ARB_UNKNOWN;
	}
	if (arb_new(&m->core) < 0)
		return -ENOMEM;
	for (int k = ARB_KNOB_MAX_BYPASS; k <= ARB_KNOB_OS_PROBE; k++)
		m->knobs[k] = arb_knob(m->core, (enum arb_knob)k);
	return 0;
}

void arbmodel_deinit(struct arbmodel *m)
{
	m->core = arb_free(m->core);
}

static bool serves(const struct arbmodel_context *c, uint64_t task)
{
	for (uint32_t i = 0; i < c->n_tasks; i++)
		if (c->tasks[i] == task)
			return true;
	return false;
}

/* ---- the message's own outcome --------------------------------------------------------------- */

static bool is_reserve_at_once(const struct arb_message *msg)
{
	return msg->op == ARB_OP_RESERVE && (msg->flags & (ARB_NONBLOCK | ARB_SPILL));
}

static bool may_wait(const struct arb_message *msg)
{
	return (msg->op == ARB_OP_RESERVE && !(msg->flags & (ARB_NONBLOCK | ARB_SPILL))) ||
	       msg->op == ARB_OP_RESIZE || msg->op == ARB_OP_PIN || msg->op == ARB_OP_READY;
}

static bool is_armed(struct arbmodel *m, const struct arbmodel_context *c)
{
	bool armed = c && c->armed;

	for (uint32_t i = 0; c && i < c->n_tasks; i++) {
		const struct arbmodel_task *t = arbmodel_task(m, c->tasks[i]);

		armed |= t && t->armed;
	}
	return armed;
}

static bool is_too_big(struct arbmodel *m, const struct arbmodel_request *r, uint64_t more)
{
	for (uint32_t i = 0; i < r->n; i++) {
		const struct arbmodel_pool *p = arbmodel_pool(m, r->pools[i]);

		if (p &&
		    r->amounts[i] + more >
			    p->capacity - (p->reserve < p->capacity ? p->reserve : p->capacity))
			return true;
	}
	return false;
}

static void check_outcome(struct arbmodel *m, const struct arb_message *msg, enum arb_outcome o)
{
	const struct arbmodel_context *c = arbmodel_context(m, msg->context);
	struct arbmodel_request r = arbbooks_request(m, msg);
	bool injected = may_wait(msg) && is_armed(m, c), fine;

	switch (o) {
	case ARB_OK:
	case ARB_INVALID:
		fine = true;
		break;
	case ARB_PENDING:
		fine = may_wait(msg) && c && c->n_tasks && !c->waits;
		break;
	case ARB_RETRY:
	case ARB_SPLIT:
	case ARB_ERROR:
		fine = injected;
		break;
	case ARB_TOOBIG:
		fine = injected ||
		       ((may_wait(msg) || is_reserve_at_once(msg)) && is_too_big(m, &r, r.grows));
		break;
	case ARB_TIMEDOUT:
		fine = injected ||
		       (may_wait(msg) && msg->deadline_ns && msg->deadline_ns <= m->now_ns);
		break;
	case ARB_AGAIN:
		fine = is_reserve_at_once(msg) || (msg->flags & ARB_NONBLOCK);
		break;
	case ARB_NOMEM:
		fine = may_wait(msg) && (!c || !c->n_tasks);
		break;
	case ARB_DOWN:
		fine = m->down;
		break;
	case ARB_CANCELED:
	case ARB_REMOVED:
	default:
		fine = false;
	}
	if (!fine)
		arbmodel_fail(m, "%s answers %s", arb_op_name(msg->op), arb_outcome_name(o));
	if (o == ARB_PENDING && is_too_big(m, &r, 0))
		arbmodel_fail(m, "a request that can never fit is parked");
}

/* A message of a context clears its wait mark. */
static bool clears_mark(const struct arb_message *msg)
{
	return !is_reserve_at_once(msg) && msg->op != ARB_OP_CANCEL && msg->op != ARB_OP_INJECT &&
	       msg->op != ARB_OP_OSBLOCK;
}

static void take_outcome(struct arbmodel *m, const struct arb_message *msg, enum arb_outcome o)
{
	struct arbmodel_context *c = arbmodel_context(m, msg->context);

	check_outcome(m, msg, o);
	if (c && clears_mark(msg))
		c->wait = 0;
	m->n_retries += o == ARB_RETRY;
	m->n_splits += o == ARB_SPLIT;
	if (o == ARB_OK) {
		arbbooks_apply(m, msg);
	} else if (o == ARB_PENDING && c) {
		c->waits = true;
		c->done = false;
		c->request = arbbooks_request(m, msg);
		if (msg->op == ARB_OP_PIN)
			arbpins_ask(m, c, msg->task);
	}
}

/* ---- the log --------------------------------------------------------------------------------- */

struct reading {
	struct arbmodel *m;
	const struct arb_message *msg;
	bool due; /* a deadline has passed: that comes first, as if a TICK had come */
};

/* The log says that the withheld call of c is over. */
static void complete(struct arbmodel *m, struct arbmodel_context *c, enum arb_outcome o)
{
	c->done = true;
	c->outcome = o;
	arbpins_done(m, c, o == ARB_OK);
	if (o == ARB_OK)
		arbbooks_grant(m, c, &c->request);
}

/* It asked for bytes instead of READY: its request goes on now, and nothing is decided. */
static bool is_let_out(const struct arbmodel_context *c, const struct arb_transition *t)
{
	return t->from == ARB_BUFN && t->to == ARB_RUNNING && t->outcome == ARB_OK &&
	       c->request.op != ARB_OP_READY;
}

static bool read_transition(void *arg, const struct arb_transition *t)
{
	const struct reading *r = arg;
	struct arbmodel *m = r->m;
	struct arbmodel_context *c = arbmodel_context(m, t->context);

	if (t->number != ++m->log_number)
		arbmodel_fail(m, "the log goes on with number %llu, not %llu", U(t->number),
			      U(m->log_number));
	if ((t->op != r->msg->op && !(r->due && t->op == ARB_OP_TICK)) || t->time_ns != m->now_ns)
		arbmodel_fail(m, "the log says %s at %llu of a %s at %llu", arb_op_name(t->op),
			      U(t->time_ns), arb_op_name(r->msg->op), U(m->now_ns));
	if (!c) {
		arbmodel_fail(m, "the log speaks of context %llu", U(t->context));
		return false;
	}
	if (t->from != c->state)
		arbmodel_fail(m, "the log takes context %llu from %s, it is %s", U(c->id),
			      arb_state_name(t->from), arb_state_name(c->state));
	if (t->to == ARB_BUFN_THROW)
		arbrules_retry(m, c);
	if (t->to == ARB_SPLIT_THROW)
		arbrules_split(m, c);
	if (t->outcome == ARB_NOMEM) { /* past the limit: they count, A09 says */
		m->n_retries += t->from == ARB_BUFN_THROW;
		m->n_splits += t->from == ARB_SPLIT_THROW;
	}
	c->state = t->to;
	if (c->waits && !c->done && !arbmodel_is_parked(t->to) && !is_let_out(c, t) &&
	    (t->to == ARB_RUNNING || t->to == ARB_BUFN_WAIT || t->to == ARB_UNKNOWN))
		complete(m, c, t->to == ARB_UNKNOWN ? ARB_REMOVED : t->outcome);
	return !*m->wrong;
}

/* ---- replies --------------------------------------------------------------------------------- */

static void check_done(struct arbmodel *m, const struct arbmodel_context *c,
		       const struct arb_message *msg, enum arb_outcome o)
{
	bool fine = true;

	switch (o) {
	case ARB_TIMEDOUT:
		fine = (c->request.deadline_ns && c->request.deadline_ns <= m->now_ns) ||
		       (msg->op == ARB_OP_CANCEL && msg->kind == ARB_TIMEDOUT);
		break;
	case ARB_CANCELED:
		/* what it is for is gone */
		fine = msg->op == ARB_OP_CANCEL ||
		       ((c->request.op == ARB_OP_PIN || c->request.op == ARB_OP_RESIZE) &&
			!arbmodel_bytes(m, c->request.first));
		break;
	case ARB_REMOVED:
		fine = c->n_tasks == 0;
		break;
	case ARB_TOOBIG:
		fine = (msg->op == ARB_OP_POOL_RESIZE ||
			(msg->op == ARB_OP_SPILLED && c->request.op == ARB_OP_PIN)) &&
		       is_too_big(m, &c->request, c->request.grows);
		break;
	case ARB_OK:
	case ARB_RETRY:
	case ARB_SPLIT:
	case ARB_NOMEM:
		fine = c->n_tasks != 0;
		break;
	case ARB_PENDING:
	case ARB_AGAIN:
	case ARB_DOWN:
	case ARB_ERROR:
	case ARB_INVALID:
	default:
		fine = false;
	}
	if (!fine)
		arbmodel_fail(m, "a withheld %s of context %llu ends with %s at a %s",
			      arb_op_name(c->request.op), U(c->id), arb_outcome_name(o),
			      arb_op_name(msg->op));
}

static void take_done(struct arbmodel *m, const struct arb_message *msg, const struct arb_reply *r)
{
	struct arbmodel_context *c = arbmodel_context(m, r->context);

	if (!c || !c->waits) {
		arbmodel_fail(m, "a reply to context %llu, that has no withheld call",
			      U(r->context));
		return;
	}
	if (!c->done && c->state == ARB_RUNNING && c->request.op != ARB_OP_READY &&
	    r->outcome == ARB_OK)
		complete(m, c, ARB_OK); /* let out, and granted at once */
	if (!c->done)
		arbmodel_fail(m, "a reply to context %llu of which the log knows nothing",
			      U(r->context));
	else if (c->outcome != r->outcome)
		arbmodel_fail(m, "context %llu is told %s, the log says %s", U(c->id),
			      arb_outcome_name(r->outcome), arb_outcome_name(c->outcome));
	check_done(m, c, msg, r->outcome);
	c->waits = c->done = false;
	m->n_retries += r->outcome == ARB_RETRY;
	m->n_splits += r->outcome == ARB_SPLIT;
	m->n_done[r->outcome]++;
}

static void take_spill(struct arbmodel *m, const struct arb_reply *r)
{
	struct arbmodel_bytes *b = arbmodel_bytes(m, r->reservation);
	struct arb_reservation_info i;

	if (!r->bytes) { /* called off; also because it is gone */
		if (b)
			b->wanted = 0;
		return;
	}
	m->n_spills++;
	if (!b || b->pool != r->pool)
		arbmodel_fail(m, "a spill of reservation %llu, which is not there",
			      U(r->reservation));
	else if (!arb_reservation(m->core, b->id, &i) || !i.reclaimable)
		arbmodel_fail(m, "a spill of reservation %llu, which is pinned", U(r->reservation));
	else if (r->bytes > b->bytes)
		arbmodel_fail(m, "a spill of %llu bytes of reservation %llu, which has %llu",
			      U(r->bytes), U(b->id), U(b->bytes));
	else
		b->wanted = r->bytes;
}

/* ---- what must hold afterwards --------------------------------------------------------------- */

static void compare_context(struct arbmodel *m, const struct arbmodel_context *c)
{
	struct arb_context_info i;

	if (!arb_context(m->core, c->id, &i)) {
		if (c->n_tasks)
			arbmodel_fail(m, "context %llu is not there", U(c->id));
		i = (struct arb_context_info){.state = ARB_UNKNOWN};
	}
	if (i.state != c->state)
		arbmodel_fail(m, "context %llu is %s, by the log it is %s", U(c->id),
			      arb_state_name(i.state), arb_state_name(c->state));
	if (c->waits != arbmodel_is_parked(i.state))
		arbmodel_fail(m, "context %llu is %s and has %s", U(c->id), arb_state_name(i.state),
			      c->waits ? "a withheld reply" : "none");
	if (c->waits && c->done)
		arbmodel_fail(m, "context %llu did not get its reply, %s", U(c->id),
			      arb_outcome_name(c->outcome));
	if (i.state == ARB_BUFN_THROW || i.state == ARB_SPLIT_THROW || i.state == ARB_REMOVE_THROW)
		arbmodel_fail(m, "context %llu rests in %s", U(c->id), arb_state_name(i.state));
	if ((c->n_tasks != 0) != (i.state != ARB_UNKNOWN))
		arbmodel_fail(m, "context %llu has %u tasks and is %s", U(c->id), c->n_tasks,
			      arb_state_name(i.state));
	if (!c->n_tasks)
		return;
	if (i.n_tasks != c->n_tasks || i.kind != c->kind || (c->n_tasks && !serves(c, i.task)))
		arbmodel_fail(m, "context %llu serves %u tasks, not %u, or others", U(c->id),
			      i.n_tasks, c->n_tasks);
	if (c->kind != ARB_SERVICE && i.priority != c->priority)
		arbmodel_fail(m, "context %llu has priority %lld, not %lld", U(c->id),
			      (long long)i.priority, (long long)c->priority);
	if (i.wait != c->wait)
		arbmodel_fail(m, "context %llu is marked as waiting in way %d, not %d", U(c->id),
			      (int)i.wait, (int)c->wait);
	if (i.os_blocked != c->os_blocked)
		arbmodel_fail(m, "context %llu: what the kernel says is not what was said",
			      U(c->id));
}

static void compare_bytes(struct arbmodel *m, struct arbmodel_bytes *b)
{
	uint64_t pins[ARBMODEL_PINS + 1];
	struct arb_reservation_info i;

	if (!b->id)
		return;
	if (!arb_reservation(m->core, b->id, &i)) {
		arbmodel_fail(m, "reservation %llu is gone", U(b->id));
		return;
	}
	if (i.bytes != b->bytes || i.spilled != b->spilled || i.owner != b->owner ||
	    i.pool != b->pool || i.sealed != b->sealed)
		arbmodel_fail(m,
			      "reservation %llu has %llu bytes and %llu spilled, owner %llu, "
			      "sealed %d; it is %llu and "
			      "%llu, %llu, %d",
			      U(b->id), U(i.bytes), U(i.spilled), U(i.owner), i.sealed, U(b->bytes),
			      U(b->spilled), U(b->owner), b->sealed);
	if (i.reclaimable && arbpins_of(m, b, pins))
		arbmodel_fail(m, "reservation %llu may be spilled, and task %llu pins it", U(b->id),
			      U(*pins));
}

static void sync_reclaimable(struct arbmodel *m)
{
	struct arb_reservation_info i;

	for (size_t k = 0; k < ARBMODEL_BYTES; k++)
		if (m->bytes[k].id && arb_reservation(m->core, m->bytes[k].id, &i))
			m->bytes[k].reclaimable = i.reclaimable;
}

/* The grants of this step must not have made a pool too full. */
static void check_grants(struct arbmodel *m, const uint64_t *used_before, bool forced)
{
	struct arb_pool_info i;

	for (size_t k = 0; !forced && k < ARBMODEL_POOLS; k++)
		if (m->pools[k].id && arb_pool(m->core, m->pools[k].id, &i) &&
		    i.used > used_before[k] && i.used > i.capacity)
			arbmodel_fail(m, "pool %llu was given out past its capacity", U(i.id));
}

static void check_parked(struct arbmodel *m)
{
	uint64_t first = 0, said = arb_next_deadline(m->core);
	size_t n = 0;

	for (size_t i = 0; i < ARBMODEL_CONTEXTS; i++) {
		const struct arbmodel_context *c = &m->contexts[i];

		if (!c->waits)
			continue;
		n++;
		if (c->request.deadline_ns && (!first || c->request.deadline_ns < first))
			first = c->request.deadline_ns;
	}
	if (arb_n_parked(m->core) != n)
		arbmodel_fail(m, "%zu contexts are parked, it says %zu", n, arb_n_parked(m->core));
	if (first != said)
		arbmodel_fail(m, "the next deadline is %llu, it says %llu", U(first), U(said));
}

static void check_rest(struct arbmodel *m)
{
	const char *why;

	for (size_t i = 0; i < ARBMODEL_CONTEXTS; i++)
		compare_context(m, &m->contexts[i]);
	for (size_t i = 0; i < ARBMODEL_BYTES; i++)
		compare_bytes(m, &m->bytes[i]);
	check_parked(m);
	arbrules_books(m);
	arbrules_waiting(m);
	arbrules_counters(m);
	why = arb_check(m->core);
	if (why)
		arbmodel_fail(m, "it says itself: %s", why);
}

/* ---- one message ----------------------------------------------------------------------------- */

static bool is_deadline_due(const struct arbmodel *m)
{
	for (size_t i = 0; i < ARBMODEL_CONTEXTS; i++)
		if (m->contexts[i].waits && m->contexts[i].request.deadline_ns &&
		    m->contexts[i].request.deadline_ns <= m->now_ns)
			return true;
	return false;
}

static void note_met(struct arbmodel *m, enum arb_op op, enum arb_outcome o)
{
	if (op >= ARB_OP_POOL_CREATE && op <= ARB_OP_SHUTDOWN)
		m->n_met[op][o]++;
}

/* Does it break the silence? What the daemon says by itself does not. */
static bool is_heard(const struct arb_message *msg)
{
	switch ((int)msg->op) {
	case ARB_OP_TICK:
	case ARB_OP_KNOB:
	case ARB_OP_OSBLOCK:
	case ARB_OP_POOL_RESIZE:
		return false;
	case ARB_OP_RESIZE:
	case ARB_OP_SPILLED:
		return msg->context != 0;
	default:
		return true;
	}
}

bool arbmodel_step(struct arbmodel *m, const struct arb_message *msg, enum arb_outcome *ret)
{
	uint64_t used[ARBMODEL_POOLS] = {0}, number = m->log_number;
	bool due = is_deadline_due(m), quiet;
	const struct arb_reply *replies = NULL;
	struct arb_pool_info info;
	size_t n = 0;
	int o;

	for (size_t i = 0; i < ARBMODEL_POOLS; i++)
		if (m->pools[i].id && arb_pool(m->core, m->pools[i].id, &info))
			used[i] = info.used;
	m->n_messages++;
	m->step_number = number;
	m->n_silent = is_heard(msg) ? 0 : m->n_silent + (msg->op == ARB_OP_TICK);
	o = arb_step(m->core, msg, m->now_ns, &replies, &n);
	if (o < 0 || o > ARB_INVALID) {
		arbmodel_fail(m, "arb_step() returned %d", o);
		return false;
	}
	note_met(m, msg->op, (enum arb_outcome)o);
	take_outcome(m, msg, (enum arb_outcome)o);
	sync_reclaimable(m);
	arb_log(m->core, number, read_transition,
		&(struct reading){.m = m, .msg = msg, .due = due});
	for (size_t i = 0; i < n && !*m->wrong; i++)
		if (replies[i].kind == ARB_REPLY_DONE)
			take_done(m, msg, &replies[i]);
		else
			take_spill(m, &replies[i]);
	sync_reclaimable(m);
	quiet = o == ARB_INVALID || (msg->op == ARB_OP_RESERVE && o == ARB_AGAIN);
	if (quiet && !due && (n || m->log_number != number))
		arbmodel_fail(m, "%s that answers %s changed something", arb_op_name(msg->op),
			      arb_outcome_name((enum arb_outcome)o));
	if (m->log_number != number) /* of a TICK the deadlines come first, and then it counts */
		m->n_silent = due && msg->op == ARB_OP_TICK;
	/* both say how it is */
	check_grants(m, used, (msg->flags & ARB_FORCE) || msg->op == ARB_OP_SEAL);
	if (!*m->wrong)
		check_rest(m);
	*ret = (enum arb_outcome)o;
	return !*m->wrong;
}
