/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's part of quotamodel.h's world, and what stores do in it: each
 * of them a step at a time. */
#include <errno.h>

#include "quotamodel.h"

uint64_t qm_draw(struct world *w, uint64_t n)
{
	/* SplitMix64 */
	uint64_t z = (w->random += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (z ^ (z >> 31)) % n;
}
/* ---- the kernel ------------------------------------------------------------------------------ */

bool qm_has_memory(const struct op *o)
{
	return o->stage == TAKEN || o->stage == FRESH || o->stage == SETTLED;
}

bool qm_in_group(int group, int uid, int label)
{
	return group == 0 || (group <= USERS ? uid == group - 1 : label == group - 1 - USERS);
}

uint64_t qm_truth(const struct world *w, int group)
{
	uint64_t sum = group == 0 ? w->foreign : 0;

	for (size_t i = 0; i < OBJECTS; i++) {
		const struct object *o = &w->objects[i];

		if (o->n && qm_in_group(group, o->uid, o->label) &&
		    (o->links || (o->ghost && group == 0)))
			sum += o->n;
	}
	for (size_t i = 0; i < STORES; i++) {
		const struct process *p = &w->processes[i];

		for (size_t k = 0; p->alive && k < OPS && qm_in_group(group, p->uid, p->label); k++)
			sum += qm_has_memory(&p->ops[k]) ? p->ops[k].n : 0;
	}
	return sum;
}

/* Bytes that it may still take without a word. Without a limit: what it has charged. */
static uint64_t potential_of(const struct process *p)
{
	uint64_t granted = p->page.granted, charged = p->page.charged, sum = 0;

	for (size_t k = 0; k < OPS; k++) {
		const struct op *o = &p->ops[k];

		if (o->stage == CHARGED || (o->stage == ADDED && o->sum <= granted))
			sum += o->n;
		/* It fails, and is taken off again. */
		if (o->stage == ADDED && o->sum > granted)
			charged -= o->n;
	}
	return sum + (granted != WIRE_UNLIMITED && granted > charged ? granted - charged : 0);
}

uint64_t qm_potential(const struct world *w, int group)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < STORES; i++) {
		const struct process *p = &w->processes[i];

		sum += p->alive && qm_in_group(group, p->uid, p->label) ? potential_of(p) : 0;
	}
	return sum;
}

/* ---- stores ---------------------------------------------------------------------------------- */

struct object *qm_free_object(struct world *w)
{
	for (size_t i = 0; i < OBJECTS; i++) {
		if (!w->objects[i].n)
			return &w->objects[i];
	}
	return NULL;
}

/* Alone: the limits as the last daemon left them, the sums over all pages; the lock of the
 * marker is held meanwhile. */
static void grant_alone(struct world *w, struct process *p, uint64_t n)
{
	struct wire_credit *c = &p->page;
	uint64_t out[3] = {0}, used, base = c->granted > c->charged ? c->granted : c->charged;
	uint64_t missing = c->charged + n > base ? c->charged + n - base : 0;
	int64_t fresh[3] = {0};
	const uint64_t hard[3] = {c->partition_hard, c->user_hard, c->label_hard};

	for (size_t i = 0; i < STORES; i++) {
		struct process *o = &w->processes[i];
		const bool mine[3] = {true, o->uid == p->uid,
				      o->label == p->label && p->label >= 0};
		uint64_t settled = o->page.settled, most;

		/* Of a dead one that nobody has taken apart the page is there still. */
		if (!o->open || (!o->alive && (o->page.flags & WIRE_CREDIT_GONE)))
			continue;
		for (int k = 0; k < 3; k++)
			fresh[k] += mine[k] ? (int64_t)(o->page.fresh - o->page.last) : 0;
		for (int k = 0; !o->alive && k < 3; k++)
			fresh[k] += mine[k] ? (int64_t)(o->page.charged - settled) : 0;
		if (!o->alive)
			continue;
		most = o->page.granted > o->page.charged ? o->page.granted : o->page.charged;
		for (int k = 0; k < 3; k++)
			out[k] += mine[k] ? most - settled : 0;
	}
	for (int i = 0; !w->inside && i < 3; i++) {
		w->inside = true;
		qm_step(w);
		w->inside = false;
	}
	used = qm_truth(w, 0);
	for (int k = 0; k < 3; k++) {
		int64_t own = (int64_t)used;

		if (k)
			own = (k == 1 ? c->user_base : c->label_base) + fresh[k];
		if (hard[k] && (own > 0 ? (uint64_t)own : 0) + out[k] + missing > hard[k])
			return;
	}
	w->n_alone++;
	c->granted = base + missing;
}

struct arrival *qm_arrival_of(struct world *w, uint64_t serial)
{
	for (size_t i = 0; i < STORES * OPS; i++) {
		if (w->waits[i].used && w->waits[i].serial == serial)
			return &w->waits[i];
	}
	return NULL;
}

/* Somebody got bytes: nobody with the same limits may have waited for longer. */
void qm_check_order(struct world *w, const struct process *p, uint64_t number)
{
	for (size_t i = 0; i < STORES * OPS; i++) {
		const struct arrival *a = &w->waits[i];
		const struct process *o = &w->processes[a->process];

		FAIL_IF(w,
			a->used && a->number < number && o->uid == p->uid && o->label == p->label,
			"request %llu was served before %llu", (unsigned long long)number,
			(unsigned long long)a->number);
	}
}

static void ask_daemon(struct world *w, struct process *p, struct op *o)
{
	struct quota_want want = {
		.serial = ++w->serial,
		.need = o->n,
		.ahead = CREDIT,
		.wait = qm_draw(w, 2),
		.deadline_ns = qm_draw(w, 2) ? UINT64_MAX : w->now + qm_draw(w, 3000),
	};
	uint64_t number = ++w->number;
	struct arrival *wait;
	struct quota_answer a;
	int r;

	o->stage = WAITING;
	o->serial = want.serial;
	if (want.wait) {
		for (size_t i = 0; i < STORES * OPS; i++) {
			if (!w->waits[i].used) {
				w->waits[i] =
					(struct arrival){true, (int)(p - w->processes),
							 (int)(o - p->ops), want.serial, number};
				break;
			}
		}
	}
	r = quota_request(w->q, p->store, &want, w->now, &a);
	if (r == 1) {
		w->n_waited++;
		return;
	}
	wait = qm_arrival_of(w, want.serial);
	if (wait)
		wait->used = false;
	o->stage = r == 0 ? AGAIN : IDLE;
	FAIL_IF(w, r != 0 && r != -ENOSPC && r != -EDQUOT, "a request was answered %d", r);
	w->n_refused += r != 0;
	w->n_granted += r == 0;
	if (r == 0 && a.bytes)
		qm_check_order(w, p, number);
}

/* A file that was there before the survey, and is met neither by name nor in /proc, is a
 * residual: made again, it sees it. */
void qm_named_meanwhile(struct world *w, const struct object *o, const struct op *op)
{
	bool missed =
		w->marked && op->fresh_at < w->n_marks && (size_t)(o - w->objects) < w->cursor;

	for (int g = 1; missed && g < GROUPS; g++)
		w->seen[g] += qm_in_group(g, o->uid, o->label) ? o->n : 0;
}

static void step_put(struct world *w, struct process *p, struct op *o)
{
	struct wire_credit *c = &p->page;
	struct object *object;

	switch (o->stage) {
	case IDLE:
		if (w->draining)
			return;
		o->n = (1 + qm_draw(w, qm_draw(w, 8) ? 16 : 200)) * PAGE;
		o->stage = AGAIN;
		return;
	case AGAIN:
		c->charged += o->n;
		o->sum = c->charged;
		o->stage = ADDED;
		return;
	case ADDED:
		if (o->sum <= c->granted) {
			o->stage = CHARGED;
			return;
		}
		c->charged -= o->n;
		o->stage = SHORT;
		return;
	case SHORT:
		/* The daemon may be at work right now: then the request waits in its socket. */
		if (w->inside)
			return;
		if (w->q && p->known) {
			ask_daemon(w, p, o);
		} else {
			o->stage = IDLE;
			if (!w->q)
				grant_alone(w, p, o->n);
		}
		return;
	case CHARGED:
		if (qm_draw(w, 16) == 0) {
			c->charged -= o->n;
			o->stage = IDLE;
			return;
		}
		o->stage = TAKEN;
		return;
	case TAKEN:
		c->fresh += o->n;
		o->fresh_at = w->n_marks;
		o->stage = FRESH;
		return;
	case FRESH:
		c->settled += o->n;
		o->stage = SETTLED;
		return;
	case SETTLED:
		object = qm_free_object(w);
		if (!object)
			return;
		*object = (struct object){.n = o->n,
					  .links = 1u << (p - w->processes),
					  .uid = p->uid,
					  .label = p->label};
		qm_named_meanwhile(w, object, o);
		o->stage = IDLE;
		return;
	case WAITING:
		return;
	}
}

/* A link goes; with the last one the memory, and in a step of its own the count. */
void qm_step_delete(struct world *w, struct process *p, struct object *o)
{
	uint32_t bit = 1u << (p - w->processes);

	if (o->counting) {
		if (o->counting - 1 != p - w->processes)
			return;
		if (p->page.flags & WIRE_CREDIT_LAST)
			p->page.last += o->n;
		o->counting = 0;
		if (!o->ghost)
			o->n = 0;
		return;
	}
	if (!(o->links & bit))
		return;
	o->links &= ~bit;
	if (o->links)
		return;
	o->ghost = qm_draw(w, 8) == 0;
	o->counting = 1 + (int)(p - w->processes);
}

static void step_hand_off(struct world *w, const struct process *p, struct object *o)
{
	size_t to = qm_draw(w, STORES);
	const struct process *t = &w->processes[to];

	if ((o->links & (1u << (p - w->processes))) && t->alive && t->uid == p->uid &&
	    t->label == p->label)
		o->links |= 1u << to;
}

void qm_step_owner(struct world *w)
{
	struct process *p = &w->processes[qm_draw(w, STORES)];
	struct object *o = &w->objects[qm_draw(w, OBJECTS)];

	if (!p->alive || (p->stopped && !w->draining))
		return;
	switch (qm_draw(w, 8)) {
	case 0:
	case 1:
		if (o->n)
			qm_step_delete(w, p, o);
		return;
	case 2:
		if (o->n && o->links && !w->draining)
			step_hand_off(w, p, o);
		return;
	default:
		step_put(w, p, &p->ops[qm_draw(w, OPS)]);
	}
}
