/* SPDX-License-Identifier: Apache-2.0 */
/*
 * actors.c: the owner, the receiver, the reader and who recovers them: what each may do in a state.
 * An operation's accesses are those of libshmstore/segment (machine.c); what a store keeps
 * privately about them (does it have the name, does a view live) is here. The beginning of an
 * operation is one step with its first access.
 */
#include <stdio.h>
#include <string.h>

#include "segslot.h"
#include "slotmodel.h"

struct model model = {.n_words = 1, .generations = 2, .leases = 1, .kept = {true, false, true}};

static const char *const NAMES[] = {"owner", "receiver", "reader", "recoverer"};
static const char *const OPS[] = {"-",      "put",   "handoff", "adopt",  "pin",
				  "delete", "unref", "free",    "recover"};

/* ---- operations: of these arguments alone, and of what they see ---- */

/*
 * Whether an adoption holds a bit in views. A process that has views there needs no further bit;
 * nor has a process with the library of before one, whose name's bit may stand on a slot that is
 * about to be freed: the others' guards are against that.
 */
enum {
	ADOPT_PLAIN,
	ADOPT_HOLDS
};

struct call {
	const struct process *p;
	unsigned who;
};

static struct shms_segslot the_slot(void)
{
	return shms_segslot_at(&machine_segment, 0);
}

static int put(void)
{
	struct shms_segslot slot = the_slot();
	uint32_t generation = 0;
	int r = shms_segslot_begin(&slot, &generation);

	if (r < 0)
		return r;
	machine_write_bytes(generation);
	shms_segslot_publish(&slot, generation);
	return (int)generation;
}

static int adopt(const struct call *c)
{
	struct shms_segticket t = {0, c->p->generation, c->p->lease, MACHINE_END_MS};
	struct shms_segslot slot = the_slot();
	unsigned holder = machine_holder[c->who];
	bool holds = c->p->views == ADOPT_HOLDS;
	int r = holds ? shms_segment_hold(&machine_segment, holder, &t)
		      : shms_segment_stands(&machine_segment, &t);

	if (r < 0)
		return r;
	r = shms_segment_adopt(&machine_segment, holder, model.kept[c->who], &t);
	if (holds)
		shms_segslot_unview(&slot, holder);
	return r;
}

static bool free_slot(bool expired)
{
	struct shms_segslot slot = the_slot();

	return shms_segslot_free(&slot, expired ? MACHINE_PAST_END : MACHINE_BEFORE_END);
}

/* The owner frees the slot when it leaves no bit in its word; others give a hint, without which the
 * owner finds the slot by a scan. */
static int let_go(const struct call *c)
{
	struct shms_segslot slot = the_slot();
	unsigned holder = machine_holder[c->who];
	bool left = c->p->op == OP_DROP
			    ? shms_segslot_drop(&slot, holder, (enum shms_segviews)c->p->views)
			    : shms_segslot_unview(&slot, holder);

	return left && c->who == OWNER && free_slot(false);
}

static int run(const void *arg)
{
	const struct call *c = arg;
	struct shms_segslot slot = the_slot();
	uint32_t lease = 0;
	int r;

	switch ((enum op)c->p->op) {
	case OP_PUT:
		return put();
	case OP_HANDOFF:
		r = shms_segslot_handoff(&slot, c->p->generation, 0, 0, MACHINE_END_MS, &lease);
		return r < 0 ? r : (int)lease;
	case OP_ADOPT:
		return adopt(c);
	case OP_PIN:
		return shms_segslot_pin(&slot, machine_holder[c->who], machine_holder[c->p->other],
					c->p->generation);
	case OP_DROP:
	case OP_UNVIEW:
		return let_go(c);
	case OP_FREE:
		return free_slot(c->p->expired);
	case OP_RECOVER:
		shms_segment_recover(&machine_segment, machine_holder[c->p->other],
				     model.kept[c->p->other]);
		return 0;
	case OP_NONE:
		break;
	}
	return 0;
}

/* ---- what is remembered of a step ---- */

static unsigned word_state(const struct state *s)
{
	return s->memory.word & 3;
}

static unsigned word_generation(const struct state *s)
{
	return s->memory.word >> 2 & 3;
}

static unsigned word_leases(const struct state *s)
{
	return s->memory.word >> 4 & 3;
}

/* Notes how the step changed the state word, in the face of what the process was doing. */
static void remember(const struct state *before, struct state *s, struct process *p)
{
	unsigned came = word_leases(s) & ~word_leases(before),
		 went = word_leases(before) & ~word_leases(s);

	if (word_state(s) == SHMS_SEG_WRITING && word_state(before) != SHMS_SEG_WRITING)
		s->memory.bytes = MACHINE_TORN;
	for (unsigned k = 0; k < LEASES; k++) {
		if (came >> k & 1) {
			s->promised[k] = (uint8_t)word_generation(s);
			s->tickets |= (uint8_t)(1 << (2 * (word_generation(s) - 1) + k));
		}
		if (!(went >> k & 1))
			continue;
		/* Taken, or at its end; any other way it is gone, which holds() will find. */
		if (p->op == OP_ADOPT && p->lease == k) {
			s->promised[k] = 0;
			p->name = p->generation;
		} else if (p->op == OP_FREE && p->expired) {
			s->promised[k] = 0;
		}
	}
}

/* The process that was recovered begins anew. */
static void restart(struct state *s, unsigned who)
{
	struct process old = s->p[who], *p = &s->p[who];

	*p = (struct process){.alive = 1, .child = old.child};
	if (s->memory.holders >> 2 * who & 1)
		p->name = word_generation(s) & 3;
	if (who == OWNER)
		p->spare = word_state(s) == SHMS_SEG_FREE;
	if (p->name && p->name != old.had && p->name != old.meant)
		s->wrong = WRONG_NAME;
	if (p->child)
		s->wrong = WRONG_CHILD;
}

static void end_op(struct state *s, struct process *p, unsigned who, int r)
{
	enum op op = (enum op)p->op;

	if (op == OP_PUT && r > 0)
		p->name = (unsigned)r & 3;
	if (op == OP_PIN && r == 0) {
		p->pinned = 1;
		p->view = p->generation;
	}
	if (who == OWNER && r > 0 && (op == OP_FREE || op == OP_DROP || op == OP_UNVIEW))
		p->spare = 1;
	p->op = OP_NONE;
	p->generation = p->views = 0;
	p->lease = p->expired = 0;
	if (op == OP_RECOVER) {
		restart(s, p->other);
		memset(p, 0, sizeof(*p));
	}
	p->other = 0;
}

/* ---- the next states ---- */

struct list {
	const struct state *from;
	struct successor *to;
	unsigned n;
};

static struct state *next(struct list *l, unsigned who, const char *what)
{
	struct successor *n = &l->to[l->n++];

	n->state = *l->from;
	n->who = NAMES[who];
	n->what = what;
	return &n->state;
}

static struct process *process_of(struct state *s, unsigned who)
{
	return who < PROCESSES ? &s->p[who] : &s->g;
}

/*
 * Forgets values that an operation will not use any more, so that states that differ in them are
 * one. Adopt saw a state that does not keep the promise: any other such one would do.
 */
static void forget(struct process *p)
{
	uint8_t *word = &p->log.seen[p->log.n - 1];

	if (p->op == OP_ADOPT && machine_loaded && !model.remember_all &&
	    ((*word & 3) != SHMS_SEG_SEALED || (*word >> 2 & 3u) != p->generation ||
	     !(*word >> (4 + p->lease) & 1)))
		*word = 0;
}

/*
 * One access more of the operation under way. A handoff is one: a load, and a cas that
 * succeeds where the word is what was loaded, are the same as one access at the time of the
 * cas; and else it begins anew.
 */
static void step(struct state *s, unsigned who)
{
	struct process *p = process_of(s, who);
	struct call call = {p, who};
	struct state before = *s;
	int r = 0;
	bool ended = p->op == OP_HANDOFF;

	if (ended)
		r = machine_run(&s->memory, run, &call);
	else
		ended = machine_step(&s->memory, &p->log, run, &call, &r);
	remember(&before, s, p);
	if (!ended)
		forget(p);
	else
		end_op(s, p, who, r);
}

static struct process *begin(struct list *l, unsigned who, enum op op, struct state **ret)
{
	*ret = next(l, who, OPS[op]);
	process_of(*ret, who)->op = op & 15;
	return process_of(*ret, who);
}

static void simple(struct list *l, unsigned who, enum op op)
{
	struct state *s;

	begin(l, who, op, &s);
	step(s, who);
}

/* A view goes; its bit, too, where it has one and neither we nor a child have another view. */
static void unref(struct list *l, unsigned who, const char *what)
{
	struct state *s = next(l, who, what);
	struct process *p = &s->p[who];

	p->view = 0;
	if (model.no_inherit || !p->child)
		p->inherited = 0;
	if (p->inherited || !(p->dropped || p->pinned))
		return;
	p->dropped = p->pinned = 0;
	p->op = OP_UNVIEW;
	step(s, who);
}

static void drop(struct list *l, unsigned who)
{
	struct state *s;
	struct process *p = begin(l, who, OP_DROP, &s);
	bool live = p->view || (p->inherited && p->child);

	p->name = 0;
	if (!live)
		p->inherited = 0;
	p->views = p->dropped || p->pinned ? SHMS_SEGVIEWS_MARKED
		   : live                  ? SHMS_SEGVIEWS_LIVE
					   : SHMS_SEGVIEWS_NONE;
	if (live && p->views == SHMS_SEGVIEWS_LIVE)
		p->dropped = 1;
	step(s, who);
}

/* Any ticket that was ever issued, also a used one. */
static void adopts(struct list *l, unsigned who, unsigned how)
{
	for (unsigned t = 0; t < 2 * model.generations; t++) {
		struct state *s;
		struct process *p;

		if (!(l->from->tickets >> t & 1))
			continue;
		p = begin(l, who, OP_ADOPT, &s);
		p->generation = (t / 2 + 1) & 3;
		p->lease = t & 1;
		p->views = how & 3;
		step(s, who);
		/* An adoption that is refused at the first look has changed nothing. */
		if (s->p[who].op == OP_NONE)
			l->n--;
	}
}

static void idle(struct list *l, unsigned who)
{
	const struct process *p = &l->from->p[who];
	struct state *s;
	struct process *q;

	if (who == OWNER && (p->spare & 1) && word_generation(l->from) < model.generations) {
		q = begin(l, who, OP_PUT, &s);
		q->spare = 0;
		step(s, who);
	}
	if (p->name && word_leases(l->from) != (1u << model.leases) - 1) {
		q = begin(l, who, OP_HANDOFF, &s);
		q->generation = p->name;
		step(s, who);
	}
	if (p->name && !p->view)
		next(l, who, "get")->p[who].view = p->name;
	if (p->view)
		unref(l, who, "unref");
	if (p->name)
		drop(l, who);
	if (who == OWNER && word_state(l->from) == SHMS_SEG_SEALED) {
		simple(l, who, OP_FREE);
		if (word_leases(l->from)) {
			q = begin(l, who, OP_FREE, &s);
			q->expired = 1;
			step(s, who);
		}
	}
	if (!p->name)
		adopts(l, who, ADOPT_PLAIN);
	if (!p->name && !p->dropped && !p->pinned)
		adopts(l, who, ADOPT_HOLDS);
	if (who == READER && !p->name && !p->view && !p->dropped && !p->pinned &&
	    (l->from->memory.holders & 5)) {
		q = begin(l, who, OP_PIN, &s);
		q->generation = word_generation(l->from) & 3;
		q->other = l->from->memory.holders & 1 ? OWNER : RECEIVER;
		step(s, who);
	}
	if (who == RECEIVER && p->view && !p->child) {
		s = next(l, who, "fork");
		s->p[who].child = p->view;
		s->p[who].inherited = 1;
	}
	if (p->inherited && !p->child && !p->view)
		unref(l, who, "no child has views any more");
}

static void killed(struct list *l, unsigned who)
{
	struct process *p = process_of(next(l, who, "killed"), who), old = *p;

	memset(p, 0, sizeof(*p));
	if (who == PROCESSES)
		return;
	p->child = old.child;
	p->had = model.kept[who] ? old.name : 0;
	p->meant = old.op == OP_ADOPT ? old.generation : 0;
}

unsigned actors_next(const struct state *from, struct successor ret[ACTIONS_MAX])
{
	struct list l = {from, ret, 0};
	struct state *s;

	for (unsigned who = 0; who <= PROCESSES; who++) {
		const struct process *p = who < PROCESSES ? &from->p[who] : &from->g;

		if (!p->alive)
			continue;
		if (p->op == OP_NONE)
			idle(&l, who);
		else
			step(next(&l, who, "step"), who);
		killed(&l, who);
	}
	if (from->p[RECEIVER].child)
		next(&l, RECEIVER, "its child ends")->p[RECEIVER].child = 0;
	/* The lock of a dead one's byte can be had when no child has it, either. */
	for (unsigned who = 0; who < PROCESSES && !from->g.alive; who++) {
		if (from->p[who].alive || (from->p[who].child && !model.no_lock))
			continue;
		begin(&l, PROCESSES, OP_RECOVER, &s)->other = who & 3;
		s->g.alive = 1;
		step(s, PROCESSES);
	}
	return l.n;
}

void actors_first(struct state *ret)
{
	memset(ret, 0, sizeof(*ret));
	for (unsigned i = 0; i < PROCESSES; i++)
		ret->p[i].alive = 1;
	ret->p[OWNER].spare = 1;
}

void state_print(const struct state *s)
{
	static const char *const STATES[] = {"FREE", "WRITING", "SEALED", "CLOSING"};

	printf("%s generation %u leases %u holders ", STATES[word_state(s)], word_generation(s),
	       word_leases(s));
	for (unsigned i = 0; i < 2 * PROCESSES; i++)
		putchar(s->memory.holders >> i & 1 ? "OoAaBb"[i] : '-');
	printf(" bytes %u |", s->memory.bytes);
	for (unsigned i = 0; i <= PROCESSES; i++) {
		const struct process *p = i < PROCESSES ? &s->p[i] : &s->g;

		if (i == PROCESSES && !p->alive)
			break;
		printf(" %s%s %s", p->alive ? "" : "dead ", NAMES[i], OPS[p->op]);
		if (p->name || p->view || p->child)
			printf(" name %u view %u child %u", p->name, p->view, p->child);
	}
	putchar('\n');
}
