/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbpark.c: a context's state, its withheld call, and its place in the lines of pools.
 *
 * A call is withheld from arbpark_park() to arbpark_complete(), exactly one per context, and
 * meanwhile the state is one of BLOCKED, ALLOC, ALLOC_FREE, BUFN. Every change of a state goes
 * through arbpark_state(), which writes the log and has the tasks counted.
 */
#include "arbcore.h"

int arbpark_room(struct arb *a, size_t more)
{
	size_t need = HASH_COUNT(a->contexts) + 2 * a->n_unpinned + more + 2,
	       size = a->out_size ? a->out_size : 64;
	struct arb_reply *out;

	if (need <= a->out_size)
		return 0;
	while (size < need)
		size *= 2;
	out = reallocarray(a->out, size, sizeof(*out));
	if (!out)
		return -ENOMEM;
	a->out = out;
	a->out_size = size;
	return 0;
}

static void refresh_tasks(struct arb *a, const struct arb_context *c)
{
	for (const struct arb_binding *b = c->bindings; b; b = b->cnext)
		if (b->task->n_waiting)
			arbstuck_refresh(a, b->task);
}

void arbpark_state(struct arb *a, struct arb_context *c, enum arb_state to, enum arb_outcome o,
		   const char *note)
{
	enum arb_state from = c->state;

	arbnote_transition(a, c, from, to, o, note);
	if (from == to)
		return;
	a->silent = 0; /* what may only be stalled is given time again */
	a->n_blocked += (uint32_t)(to == ARB_BLOCKED) - (uint32_t)(from == ARB_BLOCKED);
	a->n_bufn += (uint32_t)(to == ARB_BUFN) - (uint32_t)(from == ARB_BUFN);
	c->state = to;
	c->since_ns = a->now_ns;
	c->reason = note;
	arbtask_count(a, c);
	if (c->line == ARB_LINE_WAITING)
		refresh_tasks(a, c);
	a->look = true;
}

/* A PIN of r has failed: drops its provisional pins. Another's, for the same, keeps it. */
void arbpark_take_back_pin(struct arb *a, struct arb_reservation *r, struct arb_call_pin what)
{
	struct arb_context *c;

	DL_FOREACH2(r->askers, c, anext)
	if (what.made && c->call_pin.pin == what.pin && c->call_pin.owner == what.owner) {
		c->call_pin.made = true;
		return;
	}
	if (what.made && what.pin)
		arbledger_drop_pin(a, what.pin);
	else if (what.made)
		r->owner_pins = false;
	arbledger_repin(a, r);
}

/* Also of a request that was granted: there is nothing left to undo then. */
void arbpark_clear(struct arb *a, struct arb_context *c)
{
	struct arb_reservation *r;

	if ((c->call == ARB_CALL_RESIZE || c->call == ARB_CALL_PIN) && c->ask->n) {
		r = c->ask->want[0].res;
		DL_DELETE2(r->askers, c, aprev, anext);
	}
	if (c->call_pin.made)
		arbpark_take_back_pin(a, c->ask->want[0].res, c->call_pin);
	c->call_pin = (struct arb_call_pin){0};
	for (uint32_t i = 0; i < c->ask->n; i++) {
		r = c->ask->want[i].res;
		if (r && !r->owner)
			arbledger_forget(a, r);
		c->ask->want[i].res = NULL;
	}
	c->ask->n = 0;
}

/* The time since the last start, and before that since the last wait began, was for nothing. */
void arbpark_lose(struct arb *a, struct arb_context *c, struct arb_account *account)
{
	if (!c->in_retry)
		return;
	if (!arbcontext_parked(c))
		c->lost_ns += a->now_ns - c->run_ns;
	account->stats.lost_ns += c->lost_ns;
	account->stats.blocked_or_lost_ns += c->lost_ns;
	c->lost_ns = 0;
	c->run_ns = a->now_ns;
}

void arbpark_park(struct arb *a, struct arb_context *c, enum arb_call call, uint64_t deadline_ns)
{
	c->call = call;
	c->tag = a->message->tag;
	c->parked_ns = a->now_ns;
	if (c->in_retry)
		c->lost_ns += a->now_ns - c->run_ns;
	a->n_parked++;
	arbclock_set(a, c, deadline_ns);
}

void arbpark_complete(struct arb *a, struct arb_context *c, enum arb_outcome o, const char *why)
{
	const struct arb_want *w = arbcontext_about(c);

	a->out[a->n_out++] = (struct arb_reply){.kind = ARB_REPLY_DONE,
						.outcome = o,
						.context = c->id,
						.pool = w ? w->pool->id : 0,
						.reservation = c->call_reservation,
						.bytes = w ? w->bytes : 0,
						.group = c->item.group,
						.tag = c->tag,
						.why = why};
	if (w && w->account) {
		w->account->stats.blocked_ns += a->now_ns - c->parked_ns;
		w->account->stats.blocked_or_lost_ns += a->now_ns - c->parked_ns;
	}
	arbpark_clear(a, c);
	c->call = ARB_CALL_NONE;
	c->call_reservation = 0;
	c->run_ns = a->now_ns;
	a->n_parked--;
	arbclock_set(a, c, 0);
	a->totals.n_timeouts += o == ARB_TIMEDOUT;
	a->totals.n_canceled += o == ARB_CANCELED;
	a->totals.n_removed += o == ARB_REMOVED;
	a->totals.n_toobig += o == ARB_TOOBIG;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void set_alloc(struct arb_want *w, bool alloc)
{
	if (w->fresh)
		DL_DELETE2(w->pool->fresh, w, fprev, fnext);
	w->fresh = alloc;
	if (alloc)
		DL_APPEND2(w->pool->fresh, w, fprev, fnext);
	if (alloc != w->alloc)
		w->pool->alloc += alloc ? (int64_t)w->bytes : -(int64_t)w->bytes;
}

static void line_up_rolled(struct arb *a, struct arb_context *c)
{
	ARB_EACH_WANT(w, c->attempt) {
		w->alloc = false;
		w->passed = 0;
		arbline_insert(a, &w->pool->rolled, w, arbledger_lacking(w));
		w->pool->n_rolled++;
	}
}

static void line_up_waiting(struct arb *a, struct arb_context *c, bool alloc)
{
	ARB_EACH_WANT(w, c->ask) {
		/* where it asks for nothing it waits for no spill */
		set_alloc(w, alloc && w->bytes);
		w->alloc = alloc && w->bytes;
		arbline_insert(a, &w->pool->waiting, w, (int64_t)w->bytes);
		w->pool->closer_known = false;
		w->pool->n_waiting++;
		w->pool->n_several += c->ask->n > 1;
		arbnote_newcomer(a, w);
	}
}

static void count_line(struct arb_context *c, uint32_t by)
{
	for (struct arb_binding *b = c->bindings; b; b = b->cnext)
		b->task->n_waiting += by;
}

void arbpark_line_up(struct arb *a, struct arb_context *c, enum arb_line line, bool alloc)
{
	c->line = line;
	count_line(c, 1);
	if (line == ARB_LINE_ROLLED)
		line_up_rolled(a, c);
	else
		line_up_waiting(a, c, alloc);
	refresh_tasks(a, c);
}

void arbpark_leave_line(struct arb *a, struct arb_context *c)
{
	struct arb_ask *ask = c->line == ARB_LINE_ROLLED ? c->attempt : c->ask;

	if (!c->line)
		return;
	if (a->past == c)
		a->past = NULL;
	ARB_EACH_WANT(w, ask) {
		if (c->line == ARB_LINE_ROLLED) {
			arbline_remove(&w->pool->rolled, w);
			w->pool->n_rolled--;
			continue;
		}
		set_alloc(w, false);
		w->passed = arbline_passed(w);
		arbline_remove(&w->pool->waiting, w);
		w->pool->closer_known = false;
		w->alloc = false;
		arbstuck_drop(w);
		w->pool->n_waiting--;
		w->pool->n_several -= ask->n > 1;
		arbnote_dirty(a, w->pool);
	}
	c->line = ARB_LINE_NONE;
	refresh_tasks(a, c);
	count_line(c, (uint32_t)-1);
}

/* In line already: ALLOC from now on, or BLOCKED. */
void arbpark_set_alloc(struct arb *a, struct arb_context *c, bool alloc)
{
	if (a->past == c && !alloc)
		a->past = NULL;
	ARB_EACH_WANT(w, c->ask) {
		set_alloc(w, alloc && w->bytes);
		arbline_weigh(w, w->weight, alloc && w->bytes);
		arbnote_dirty(a, w->pool);
	}
	arbpark_state(a, c, alloc ? ARB_ALLOC : ARB_BLOCKED, ARB_OK,
		      alloc ? "bytes can be spilled for it" : "its spills were not enough");
}

void arbpark_end_promise(struct arb_context *c)
{
	ARB_EACH_WANT(w, c->attempt)
		if (w->account)
			arbledger_promise(w->account, c, 0);
}

void arbpark_end_attempt(struct arb *a, struct arb_context *c)
{
	if (c->line == ARB_LINE_ROLLED)
		arbpark_leave_line(a, c);
	arbpark_end_promise(c);
	c->attempt->n = 0;
}

void arbpark_cancel(struct arb *a, struct arb_context *c, enum arb_outcome o)
{
	if (!arbcontext_parked(c))
		return;
	arbpark_leave_line(a, c);
	arbpark_complete(a, c, o, NULL);
	arbpark_end_attempt(a, c);
	arbpark_state(a, c, ARB_RUNNING, o, NULL);
}

/*
 * Deadlines and ticks.
 *
 * A tick is silent if since the one before no client said anything and nothing changed its state;
 * what may only be stalled counts after some of them.
 */
void arbclock_set(struct arb *a, struct arb_context *c, uint64_t deadline_ns)
{
	if (c->deadline.at)
		deadline_remove(&a->deadlines, &c->deadline);
	c->deadline.at = 0;
	if (deadline_ns)
		deadline_add(&a->deadlines, &c->deadline, deadline_ns);
}

enum arb_outcome arbclock_tick(struct arb *a)
{
	a->silent++;
	a->look = true;
	return ARB_OK;
}
