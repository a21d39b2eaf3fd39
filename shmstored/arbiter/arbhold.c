/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbhold.c: what becomes of a reservation: RELEASE, SEAL, UNPIN, OWN, SPILLED. None of them waits;
 * what needs bytes is in arbask.c.
 */
#include "arbcore.h"

void arbhold_destroy(struct arb *a, struct arb_reservation *r)
{
	while (r->askers)
		arbpark_cancel(a, r->askers, ARB_CANCELED);
	arbledger_destroy(a, r);
}

enum arb_outcome arbhold_release(struct arb *a, const struct arb_message *m)
{
	struct arb_reservation *r = arbreservation_find(a, m->reservation);

	if (!r)
		return ARB_INVALID;
	arbhold_destroy(a, r);
	a->look = true;
	return ARB_OK;
}

/* An object that is larger than what was reserved for it is there all the same: its pool may be
 * over its capacity until it fits again. */
enum arb_outcome arbhold_seal(struct arb *a, const struct arb_message *m)
{
	struct arb_reservation *r = arbreservation_find(a, m->reservation);

	if (!r || r->spill || r->askers || r->spilled || m->bytes > ARB_LARGEST)
		return ARB_INVALID;
	if (m->bytes && m->bytes < r->bytes)
		arbledger_shrink(a, r, r->bytes - m->bytes);
	else if (m->bytes > r->bytes)
		arbledger_grow(a, r, m->bytes - r->bytes);
	r->pool->over = r->pool->used > r->pool->capacity;
	arbledger_seal(r);
	arbnote_dirty(a, r->pool);
	a->look = true;
	return ARB_OK;
}

enum arb_outcome arbhold_unpin(struct arb *a, const struct arb_message *m)
{
	struct arb_reservation *r = arbreservation_find(a, m->reservation);
	struct arb_pin *pin;

	if (!r || r->spill)
		return ARB_INVALID;
	if (!m->task || (r->owner->task && r->owner->task->id == m->task)) {
		arbledger_owner_unpins(r);
	} else {
		pin = arbledger_find_pin(r, arbtask_find(a, m->task));
		if (pin)
			arbledger_drop_pin(a, pin);
	}
	arbledger_repin(a, r); /* also where nothing changed: it may be tried again */
	a->look = true;
	return ARB_OK;
}

/* Is there only because of calls that are withheld so far. */
static bool is_of_calls(const struct arb_reservation *r, const struct arb_pin *pin)
{
	const struct arb_context *c;

	DL_FOREACH2(r->askers, c, anext)
	if (c->call_pin.made && c->call_pin.pin == pin)
		return true;
	return false;
}

/* The new owner pinned it as another's, or is about to: now as its own. */
static void pin_as_owner(struct arb *a, struct arb_reservation *r, struct arb_pin *pin)
{
	const bool stays = (r->owner_pins && !is_of_calls(r, NULL)) || !is_of_calls(r, pin);
	struct arb_context *c;

	DL_FOREACH2(r->askers, c, anext)
	{
		if (c->call_pin.pin == pin)
			c->call_pin =
				(struct arb_call_pin){.owner = true, .made = c->call_pin.made};
		if (c->call_pin.owner && stays)
			c->call_pin.made = false;
	}
	arbledger_drop_pin(a, pin);
	r->owner_pins = true;
}

int arbhold_own(struct arb *a, const struct arb_message *m, enum arb_outcome *ret)
{
	struct arb_reservation *r = arbreservation_find(a, m->reservation);
	struct arb_task *t = arbtask_find(a, m->task);
	struct arb_account *to;
	struct arb_pin *pin;

	*ret = ARB_INVALID;
	if (!r || r->spill || (m->task && !t))
		return 0;
	to = t ? arbledger_account(a, t, r->pool) : &r->pool->nobody;
	if (!to)
		return -ENOMEM;
	pin = t ? arbledger_find_pin(r, t) : NULL;
	if (pin)
		pin_as_owner(a, r, pin);
	if (to != r->owner)
		arbledger_own(a, r, to);
	a->look = true;
	*ret = ARB_OK;
	return 0;
}

/* bytes of r have left, or could not; last: nothing more comes of the job that was asked for. */
static void left(struct arb *a, struct arb_reservation *r, uint64_t bytes, bool last)
{
	uint64_t brought = bytes < r->wanted ? bytes : r->wanted;

	r->wanted -= brought;
	r->pool->wanted -= (int64_t)brought;
	arbledger_leave(a, r, bytes);
	if (!last && bytes && r->wanted && r->bytes)
		return;
	if (r->wanted && r->bytes)
		arbledger_refuse(a, r);
	arbspill_end_job(r);
	a->n_unpinned--;
	arbspill_add(a, r);
}

enum arb_outcome arbhold_spilled(struct arb *a, const struct arb_message *m)
{
	struct arb_reservation *r = arbreservation_find(a, m->reservation);

	if (!r || m->bytes > r->bytes || (m->bytes && r->spill))
		return ARB_INVALID;
	if (r->job) {
		left(a, r, m->bytes, m->flags & ARB_ALL);
	} else if (m->bytes) { /* unasked, or its job was called off too late */
		arbspill_remove(a, r);
		arbledger_leave(a, r, m->bytes);
		arbspill_add(a, r);
	}
	arbask_follow(a, r);
	arbnote_dirty(a, r->pool);
	a->look = true;
	return ARB_OK;
}
