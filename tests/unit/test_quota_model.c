/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_quota_model.c: 1,000 random histories of stores that share a partition, against the kernel's part of the world as this file
 * plays it: memory that is taken and freed, processes that die at any step, a daemon that dies and comes again.
 *
 * A put is five steps (charge, look at granted, take memory, count it as fresh, settle), so are a delete and a death; each may be
 * followed by anybody's. Stores go on with their steps also while the daemon is in the middle of its own: where it asks the kernel what is
 * used. After every step, for the partition, each user and each label:
 *
 *     truth + potential <= hard             truth: the memory that is taken now. potential: what stores may still take
 *                                           without asking: charged and not taken, granted and not charged
 *     truth + potential <= used + outstanding, as the daemon says
 *
 * with allowances: a limit that is set below what is taken or may be, and foreign files, that grow into what was granted, leave
 * more than hard; from there it may only fall. At the end of each history all is deleted, and whoever waits must get what it wants.
 *
 * A user's and a label's truth is what their stores brought into being and what has a name still or none yet: ghosts count for
 * the partition only. Objects are handed over between stores of one user and label. A survey does not end between a delete's last
 * link and its count in the page (a microsecond; a process stopped right there makes the sums wrong by that object until the next one).
 *
 * That it can fail was tried; each of these changes makes it fail, most within the first thirty histories:
 *     quota_credit_take() books granted as it was lowered, without what wire_credit_revoke() read of charged
 *     quota_credit_read() books granted where more is charged
 *     quota_group_used() answers for the partition with what was used before the pages were read
 *     quota_credit_update() does not book what was in flight without limits
 *     quota_credit_inherit() forgets granted, or the bases that the pages have
 *     quota_base_leave() leaves nothing, or not what was in flight
 *     quota_freed() believes a reap during which a survey ended
 *     rebase() adds nothing for what came into being during the survey
 *     quota_queue_walk() or quota_request() lets a request pass others that wait under the same limits
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quota.h"

#define HISTORIES 1000
#define STEPS     3000
#define STORES    6
#define OPS       2 /* threads of a store that put */
#define OBJECTS   96
#define USERS     2
#define LABELS    2
#define PAGE      UINT64_C(4096)
#define CREDIT    (64 * PAGE)
#define GROUPS    (1 + USERS + LABELS)

enum stage {
	IDLE,
	ADDED,   /* charged was raised */
	CHARGED, /* and granted allowed it */
	TAKEN,   /* the memory is there */
	FRESH,   /* fresh was raised */
	SETTLED, /* now it gets its name */
	SHORT,   /* refused by granted: to ask */
	WAITING,
	AGAIN, /* granted: the same once more */
};

struct op {
	enum stage stage;
	uint64_t n, sum, serial;
	uint64_t fresh_at; /* how many surveys had begun when it was counted */
};

struct object {
	uint64_t n;
	uint32_t links; /* of stores, dead ones included */
	bool ghost;     /* no name, still mapped */
	int uid, label;
	int counting; /* 1 + the store that is about to count it as its last */
};

struct process {
	bool open, alive, known; /* known: the daemon has it */
	bool stopped, limited;
	int uid, label; /* label: -1 = none */
	struct wire_credit page;
	struct op ops[OPS];
	struct quota_store *store;
	uint64_t to_free; /* reaped, and the daemon not yet told */
	uint64_t books;   /* of the time when the reap began */
	bool reaped;
};

struct arrival { /* a wait, in the daemon's queue */
	bool used;
	int process, op;
	uint64_t serial, number;
};

struct world {
	uint64_t seed, random;
	uint64_t now, serial, number, life;
	struct process processes[STORES];
	struct object objects[OBJECTS];
	uint64_t foreign;
	struct quota *q; /* NULL: the daemon is dead */
	uint64_t hard[GROUPS], cap[GROUPS];
	struct arrival waits[STORES * OPS];
	bool inside, draining, single;
	/* A survey under way: the mark, and what it has seen up to the cursor. */
	struct quota_mark *mark;
	uint64_t n_marks;
	size_t cursor;
	uint64_t seen[GROUPS];
	uint64_t n_granted, n_waited, n_refused, n_alone, n_lives;
};

static void step(struct world *w);

static uint64_t draw(struct world *w, uint64_t n)
{
	/* SplitMix64 */
	uint64_t z = (w->random += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (z ^ (z >> 31)) % n;
}

#define FAIL_IF(w, condition, ...)                                                                  \
	do {                                                                                        \
		if (condition) {                                                                    \
			fprintf(stderr, "history with seed %llu: ", (unsigned long long)(w)->seed); \
			fprintf(stderr, __VA_ARGS__);                                               \
			fprintf(stderr, "\n");                                                      \
			cr_assert_fail("%s, seed %llu", #condition, (unsigned long long)(w)->seed); \
		}                                                                                   \
	} while (0)

/* ---- the kernel ------------------------------------------------------------------------------------------------------- */

static bool has_memory(const struct op *o)
{
	return o->stage == TAKEN || o->stage == FRESH || o->stage == SETTLED;
}

static bool in_group(int group, int uid, int label)
{
	return group == 0 || (group <= USERS ? uid == group - 1 : label == group - 1 - USERS);
}

static uint64_t truth(const struct world *w, int group)
{
	uint64_t sum = group == 0 ? w->foreign : 0;

	for (size_t i = 0; i < OBJECTS; i++) {
		const struct object *o = &w->objects[i];

		if (o->n && in_group(group, o->uid, o->label) && (o->links || (o->ghost && group == 0)))
			sum += o->n;
	}
	for (size_t i = 0; i < STORES; i++) {
		const struct process *p = &w->processes[i];

		for (size_t k = 0; p->alive && k < OPS && in_group(group, p->uid, p->label); k++)
			sum += has_memory(&p->ops[k]) ? p->ops[k].n : 0;
	}
	return sum;
}

/* What it may still take without a word. Without a limit: what it has charged. */
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

static uint64_t potential(const struct world *w, int group)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < STORES; i++) {
		const struct process *p = &w->processes[i];

		sum += p->alive && in_group(group, p->uid, p->label) ? potential_of(p) : 0;
	}
	return sum;
}

/* ---- stores ----------------------------------------------------------------------------------------------------------- */

static struct object *free_object(struct world *w)
{
	for (size_t i = 0; i < OBJECTS; i++) {
		if (!w->objects[i].n)
			return &w->objects[i];
	}
	return NULL;
}

/* Alone: the limits as the last daemon left them, the sums over all pages; the lock of the marker is held meanwhile. */
static void grant_alone(struct world *w, struct process *p, uint64_t n)
{
	struct wire_credit *c = &p->page;
	uint64_t out[3] = {0}, used, base = c->granted > c->charged ? c->granted : c->charged;
	uint64_t missing = c->charged + n > base ? c->charged + n - base : 0;
	int64_t fresh[3] = {0};
	const uint64_t hard[3] = {c->partition_hard, c->user_hard, c->label_hard};

	for (size_t i = 0; i < STORES; i++) {
		struct process *o = &w->processes[i];
		const bool mine[3] = {true, o->uid == p->uid, o->label == p->label && p->label >= 0};
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
		step(w);
		w->inside = false;
	}
	used = truth(w, 0);
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

static struct arrival *arrival_of(struct world *w, uint64_t serial)
{
	for (size_t i = 0; i < STORES * OPS; i++) {
		if (w->waits[i].used && w->waits[i].serial == serial)
			return &w->waits[i];
	}
	return NULL;
}

/* Somebody got bytes: nobody with the same limits may have waited for longer. */
static void check_order(struct world *w, const struct process *p, uint64_t number)
{
	for (size_t i = 0; i < STORES * OPS; i++) {
		const struct arrival *a = &w->waits[i];
		const struct process *o = &w->processes[a->process];

		FAIL_IF(w, a->used && a->number < number && o->uid == p->uid && o->label == p->label,
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
		.wait = draw(w, 2),
		.deadline_ns = draw(w, 2) ? UINT64_MAX : w->now + draw(w, 3000),
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
				w->waits[i] = (struct arrival){true, (int)(p - w->processes), (int)(o - p->ops),
							       want.serial, number};
				break;
			}
		}
	}
	r = quota_request(w->q, p->store, &want, w->now, &a);
	if (r == 1) {
		w->n_waited++;
		return;
	}
	wait = arrival_of(w, want.serial);
	if (wait)
		wait->used = false;
	o->stage = r == 0 ? AGAIN : IDLE;
	FAIL_IF(w, r != 0 && r != -ENOSPC && r != -EDQUOT, "a request was answered %d", r);
	w->n_refused += r != 0;
	w->n_granted += r == 0;
	if (r == 0 && a.bytes)
		check_order(w, p, number);
}

/* A file that was there before the survey, and is met neither by name nor in /proc, is a residual: made again, it sees it. */
static void named_meanwhile(struct world *w, const struct object *o, const struct op *op)
{
	bool missed = w->mark && op->fresh_at < w->n_marks && (size_t)(o - w->objects) < w->cursor;

	for (int g = 1; missed && g < GROUPS; g++)
		w->seen[g] += in_group(g, o->uid, o->label) ? o->n : 0;
}

static void step_put(struct world *w, struct process *p, struct op *o)
{
	struct wire_credit *c = &p->page;
	struct object *object;

	switch (o->stage) {
	case IDLE:
		if (w->draining)
			return;
		o->n = (1 + draw(w, draw(w, 8) ? 16 : 200)) * PAGE;
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
		if (draw(w, 16) == 0) {
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
		object = free_object(w);
		if (!object)
			return;
		*object =
			(struct object){.n = o->n, .links = 1u << (p - w->processes), .uid = p->uid, .label = p->label};
		named_meanwhile(w, object, o);
		o->stage = IDLE;
		return;
	case WAITING:
		return;
	}
}

/* A link goes; with the last one the memory, and in a step of its own the count. */
static void step_delete(struct world *w, struct process *p, struct object *o)
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
	o->ghost = draw(w, 8) == 0;
	o->counting = 1 + (int)(p - w->processes);
}

static void step_hand_off(struct world *w, const struct process *p, struct object *o)
{
	size_t to = draw(w, STORES);
	const struct process *t = &w->processes[to];

	if ((o->links & (1u << (p - w->processes))) && t->alive && t->uid == p->uid && t->label == p->label)
		o->links |= 1u << to;
}

static void step_owner(struct world *w)
{
	struct process *p = &w->processes[draw(w, STORES)];
	struct object *o = &w->objects[draw(w, OBJECTS)];

	if (!p->alive || (p->stopped && !w->draining))
		return;
	switch (draw(w, 8)) {
	case 0:
	case 1:
		if (o->n)
			step_delete(w, p, o);
		return;
	case 2:
		if (o->n && o->links && !w->draining)
			step_hand_off(w, p, o);
		return;
	default:
		step_put(w, p, &p->ops[draw(w, OPS)]);
	}
}

/* ---- the daemon's world ----------------------------------------------------------------------------------------------- */

static uint64_t used(void *arg)
{
	struct world *w = arg;

	/* Everybody else goes on while it asks. */
	for (uint64_t n = w->inside ? 0 : draw(w, 6); n; n--) {
		w->inside = true;
		step_owner(w);
		w->inside = false;
	}
	return truth(w, 0);
}

static struct wire_credit *credit(void *arg, struct quota_store *s)
{
	(void)arg;
	return &((struct process *)quota_user(s))->page;
}

static void share(void *arg, struct quota_store *s, struct quota_share *ret)
{
	(void)arg;
	(void)s;
	*ret = (struct quota_share){0};
}

static void answer(void *arg, struct quota_store *s, uint64_t serial, int error, const struct quota_answer *a)
{
	struct world *w = arg;
	struct process *p = quota_user(s);
	struct arrival *wait = arrival_of(w, serial);

	FAIL_IF(w, !wait, "an answer to nobody");
	wait->used = false;
	p->ops[wait->op].stage = error ? IDLE : AGAIN;
	FAIL_IF(w, error && error != -ETIMEDOUT && error != -ENOSPC && error != -EDQUOT, "a wait ended with %d", error);
	if (error == 0 && a->bytes) {
		w->n_granted++;
		check_order(w, p, wait->number);
	}
}

static void ask(void *arg, struct quota_store *s, uint64_t bytes)
{
	(void)arg;
	(void)s;
	(void)bytes;
}

static void level(void *arg, const struct quota_line *line)
{
	(void)arg;
	(void)line;
}

static void liar(void *arg, struct quota_store *s, const char *what)
{
	(void)s;
	FAIL_IF((struct world *)arg, true, "an honest store is called a liar: %s", what);
}

static void name_group(int group, enum wire_limit *kind, char id[16])
{
	*kind = group == 0 ? WIRE_LIMIT_PARTITION : group <= USERS ? WIRE_LIMIT_USER : WIRE_LIMIT_LABEL;
	id[0] = '\0';
	if (group)
		snprintf(id, 16, group <= USERS ? "%d" : "label%d", group <= USERS ? group - 1 : group - 1 - USERS);
}

/* A limit that is set below what is there. */
static void allow(struct world *w, int group)
{
	uint64_t now = truth(w, group) + potential(w, group);

	w->cap[group] = w->hard[group] == 0 ? UINT64_MAX : now > w->hard[group] ? now : w->hard[group];
}

/* What one store has in flight is believed up to its limits: less than that is not set here (quota_credit.c, doubt). */
static uint64_t at_least_flight(const struct world *w, int group, uint64_t hard)
{
	for (size_t i = 0; hard && i < STORES; i++) {
		const struct process *p = &w->processes[i];
		uint64_t flight = p->page.charged - p->page.settled;

		if (p->alive && in_group(group, p->uid, p->label) && flight > hard)
			hard = flight;
	}
	return hard;
}

static void set_limit(struct world *w, int group, uint64_t hard)
{
	struct quota_limits l = {0};
	enum wire_limit kind;
	char id[16];

	name_group(group, &kind, id);
	hard = at_least_flight(w, group, hard);
	l.hard = w->hard[group] = hard;
	/* While it is being set, stores go on under the old one. */
	w->cap[group] = UINT64_MAX;
	cr_assert_eq(quota_limit(w->q, kind, id, &l, w->now), 0);
	allow(w, group);
}

static void name_label(const struct process *p, char ret[16])
{
	ret[0] = '\0';
	if (p->label >= 0)
		snprintf(ret, 16, "label%d", p->label);
}

static void add_store(struct world *w, struct process *p)
{
	char label[16], name[16];

	name_label(p, label);
	snprintf(name, sizeof(name), "s%d", (int)(p - w->processes));
	cr_assert_eq(quota_add(w->q, (uid_t)p->uid, label, name, p, w->now, &p->store), 0);
	p->known = true;
}

static bool counting_somewhere(const struct world *w)
{
	for (size_t i = 0; i < OBJECTS; i++) {
		if (w->objects[i].counting)
			return true;
	}
	return false;
}

static void survey_ends(struct world *w)
{
	for (int g = 1; g < GROUPS; g++) {
		enum wire_limit kind;
		char id[16];

		/* Who takes nothing is not named. */
		name_group(g, &kind, id);
		if (w->seen[g])
			quota_rebase(w->q, w->mark, kind, id, w->seen[g]);
	}
	quota_rebased(w->q, w->mark, w->now);
	w->mark = NULL;
}

static void step_survey(struct world *w)
{
	if (!w->mark) {
		w->mark = quota_mark(w->q);
		w->n_marks++;
		cr_assert(w->mark);
		w->cursor = 0;
		memset(w->seen, 0, sizeof(w->seen));
		return;
	}
	for (uint64_t n = 1 + draw(w, OBJECTS / 3); n && w->cursor < OBJECTS; n--) {
		const struct object *o = &w->objects[w->cursor++];

		for (int g = 1; g < GROUPS; g++)
			w->seen[g] += o->n && (o->links || o->ghost) && in_group(g, o->uid, o->label) ? o->n : 0;
	}
	if (w->cursor == OBJECTS && !counting_somewhere(w)) {
		/* What is not named yet is found in /proc, at the end. */
		for (size_t i = 0; i < STORES; i++) {
			const struct process *p = &w->processes[i];

			for (size_t k = 0; p->alive && k < OPS; k++) {
				for (int g = 1; g < GROUPS; g++)
					w->seen[g] += has_memory(&p->ops[k]) && in_group(g, p->uid, p->label)
							      ? p->ops[k].n
							      : 0;
			}
		}
		survey_ends(w);
	}
}

/* A user or a label of which nobody lives has no page that a daemon could read; so it begins with a survey. */
static void first_survey(struct world *w)
{
	bool alive[GROUPS] = {false}, all = true;

	for (size_t i = 0; i < STORES; i++) {
		for (int g = 1; w->processes[i].alive && g < GROUPS; g++)
			alive[g] |= in_group(g, w->processes[i].uid, w->processes[i].label);
	}
	for (int g = 1; g < GROUPS; g++)
		all &= alive[g];
	if (all)
		return;
	for (size_t i = 0; i < OBJECTS; i++) {
		if (w->objects[i].counting)
			step_delete(w, &w->processes[w->objects[i].counting - 1], &w->objects[i]);
	}
	do
		step_survey(w);
	while (w->mark);
}

static void start_daemon(struct world *w)
{
	struct quota_config config = {
		.epoch = ++w->life, .credit = CREDIT, .idle_ns = 500, .pledge_ns = 100, .waits_max = OPS};
	struct quota_ops ops = {used, credit, share, answer, ask, level, liar, w};

	w->n_lives++;
	cr_assert_eq(quota_new(&config, &ops, &w->q), 0);
	/* The configuration may be another one now, before or after the stores are found. */
	for (int g = 0; g < GROUPS; g++) {
		if (draw(w, 4))
			set_limit(w, g, w->hard[g]);
		else
			set_limit(w, g, draw(w, 3) ? (20 + draw(w, 400)) * PAGE : 0);
	}
	for (size_t i = 0; i < STORES; i++) {
		struct process *p = &w->processes[i];
		char label[16];

		name_label(p, label);
		if (p->alive)
			add_store(w, p);
		else if (p->open)
			quota_found(w->q, (uid_t)p->uid, label, 0, &p->page);
	}
	first_survey(w);
	for (int g = 0; g < GROUPS; g++)
		allow(w, g);
}

static void kill_daemon(struct world *w)
{
	/* All that it knew is gone; the pages stay. Who waits finds its connection closed. */
	w->mark = quota_mark_free(w->mark);
	w->q = quota_free(w->q);
	memset(w->waits, 0, sizeof(w->waits));
	for (size_t i = 0; i < STORES; i++) {
		struct process *p = &w->processes[i];

		p->known = false;
		p->store = NULL;
		p->to_free = 0;
		p->open &= !p->reaped;
		for (size_t k = 0; k < OPS; k++) {
			if (p->ops[k].stage == WAITING)
				p->ops[k].stage = IDLE;
		}
	}
}

static void open_store(struct world *w, struct process *p)
{
	/* One that is opened without a daemon is not counted at all: it is not in this model. */
	if (!w->q)
		return;
	memset(p, 0, sizeof(*p));
	p->open = p->alive = true;
	p->uid = (int)draw(w, w->single ? 1 : USERS);
	p->label = (int)draw(w, w->single ? 1 : LABELS + 1) - 1;
	add_store(w, p);
}

static void die(struct world *w, struct process *p)
{
	int i = (int)(p - w->processes);

	/* Between a last unlink and its count: the count never comes. What is written and not named is gone. */
	for (size_t k = 0; k < OBJECTS; k++) {
		struct object *o = &w->objects[k];

		if (o->counting == i + 1) {
			o->counting = 0;
			if (!o->ghost)
				o->n = 0;
		}
	}
	for (size_t k = 0; k < OPS; k++) {
		struct object *named = has_memory(&p->ops[k]) && draw(w, 2) ? free_object(w) : NULL;

		/* Named in its last moment, settled or not. */
		if (named)
			*named = (struct object){.n = p->ops[k].n, .links = 1u << i, .uid = p->uid, .label = p->label};
		if (named)
			named_meanwhile(w, named, &p->ops[k]);
		p->ops[k].stage = IDLE;
	}
	p->alive = false;
}

static void forget_waits(struct world *w, int process)
{
	for (size_t i = 0; i < STORES * OPS; i++) {
		if (w->waits[i].used && w->waits[i].process == process)
			w->waits[i].used = false;
	}
}

/* What the daemon, or the library's gc, does with a dead store: a step at a time. */
static void bury(struct world *w, struct process *p)
{
	size_t i = (size_t)(p - w->processes);
	char label[16];

	name_label(p, label);
	if (w->q && p->known) {
		struct quota_store *s = p->store;

		p->known = false;
		p->store = NULL;
		forget_waits(w, (int)i);
		quota_remove(w->q, s, w->now);
		return;
	}
	if (!p->reaped && w->q) {
		p->books = quota_books(w->q);
		for (size_t k = 0; k < OBJECTS; k++) {
			struct object *o = &w->objects[k];

			if (!(o->links & (1u << i)))
				continue;
			o->links &= ~(1u << i);
			if (!o->links) {
				p->to_free += o->n;
				o->n = 0;
			}
		}
		p->reaped = true;
		return;
	}
	if (p->reaped && w->q) {
		quota_freed(w->q, p->books, (uid_t)p->uid, label, p->to_free, w->now);
		p->to_free = 0;
		p->open = false;
	}
}

static void step_foreign(struct world *w)
{
	w->foreign = draw(w, 2) ? draw(w, 40) * PAGE : 0;
	/* Nobody granted that. */
	allow(w, 0);
}

static void step(struct world *w)
{
	struct process *p = &w->processes[draw(w, STORES)];
	struct object *o = &w->objects[draw(w, OBJECTS)];

	w->now += draw(w, 20);
	if (w->inside || draw(w, 8)) {
		step_owner(w);
		return;
	}
	switch (draw(w, 24)) {
	case 0:
		if (w->q && !w->single)
			kill_daemon(w);
		else if (!w->q)
			start_daemon(w);
		return;
	case 1:
		if (w->q)
			set_limit(w, (int)draw(w, w->single ? 1 : GROUPS), draw(w, 6) ? (20 + draw(w, 400)) * PAGE : 0);
		return;
	case 2:
		if (p->alive && draw(w, 3) == 0)
			die(w, p);
		return;
	case 3:
	case 4:
		if (!p->open)
			open_store(w, p);
		return;
	case 5:
	case 6:
		if (p->open && !p->alive)
			bury(w, p);
		return;
	case 7:
		p->stopped = !p->stopped;
		return;
	case 8:
		if (o->ghost && !o->counting && !o->links)
			*o = (struct object){0};
		return;
	case 9:
		if (draw(w, 4) == 0)
			step_foreign(w);
		return;
	case 10:
	case 11:
	case 12:
	case 13:
		if (w->q && (w->mark || draw(w, 4) == 0))
			step_survey(w);
		return;
	case 14:
	case 15:
		if (w->q)
			quota_serve(w->q, w->now);
		return;
	case 16:
		/* Some wait is given up. */
		for (size_t i = 0; i < STORES * OPS; i++) {
			struct arrival a = w->waits[i];

			if (!a.used || draw(w, 4))
				continue;
			w->waits[i].used = false;
			w->processes[a.process].ops[a.op].stage = IDLE;
			quota_cancel_all(w->q, w->processes[a.process].store);
			for (size_t k = 0; k < STORES * OPS; k++) {
				if (w->waits[k].used && w->waits[k].process == a.process) {
					w->waits[k].used = false;
					w->processes[a.process].ops[w->waits[k].op].stage = IDLE;
				}
			}
			break;
		}
		return;
	default:
		if (w->q)
			quota_tick(w->q, w->now += 50);
	}
}

/* ---- what must hold --------------------------------------------------------------------------------------------------- */

struct said {
	uint64_t sums[GROUPS];
};

static int note(const struct quota_line *line, void *arg)
{
	struct said *said = arg;

	for (int g = 0; g < GROUPS; g++) {
		enum wire_limit kind;
		char id[16];

		name_group(g, &kind, id);
		if (line->kind == kind && strcmp(line->id, id) == 0)
			said->sums[g] = line->used + line->outstanding;
	}
	return 0;
}

static void check(struct world *w)
{
	struct said said = {{0}};

	w->inside = true;
	if (w->q)
		quota_each(w->q, note, &said);
	w->inside = false;
	for (int g = 0; g < GROUPS; g++) {
		uint64_t sum = truth(w, g) + potential(w, g);

		FAIL_IF(w, sum > w->cap[g], "group %d: %llu pages are taken or may be, the limit is %llu", g,
			(unsigned long long)(sum / PAGE), (unsigned long long)(w->cap[g] / PAGE));
		/* Credit of a store without any limit is not outstanding. */
		FAIL_IF(w, w->q && w->hard[g] && sum > said.sums[g],
			"group %d: %llu pages are taken or may be, quota knows of %llu", g,
			(unsigned long long)(sum / PAGE), (unsigned long long)(said.sums[g] / PAGE));
		if (w->hard[g] && w->cap[g] > w->hard[g])
			w->cap[g] = sum > w->hard[g] ? sum : w->hard[g];
	}
}

/* Nobody puts any more, all goes: who waits must be served; half of them have no deadline. */
static void drain(struct world *w)
{
	size_t left = 1;

	w->draining = true;
	if (!w->q)
		start_daemon(w);
	for (int g = 0; g < GROUPS; g++) {
		if (w->hard[g] && w->hard[g] < 201 * PAGE)
			set_limit(w, g, 201 * PAGE);
	}
	w->foreign = 0;
	for (int i = 0; left && i < 20000; i++) {
		for (size_t k = 0; k < OBJECTS; k++) {
			struct object *o = &w->objects[k];

			if (o->ghost && !o->counting && !o->links)
				*o = (struct object){0};
		}
		step_owner(w);
		if (i % 16 == 0) {
			struct process *p = &w->processes[(i / 16) % STORES];

			if (p->open && !p->alive)
				bury(w, p);
			step_survey(w);
			quota_tick(w->q, w->now += 20);
		}
		check(w);
		left = 0;
		for (size_t k = 0; k < STORES * OPS; k++)
			left += w->waits[k].used;
	}
	FAIL_IF(w, left, "%zu requests wait though there is room", left);
}

static void play(uint64_t seed, struct world *w)
{
	*w = (struct world){.seed = seed, .random = seed, .now = 1000, .single = seed % 4 == 0};
	for (int g = 0; g < GROUPS; g++) {
		w->hard[g] = draw(w, 4) ? (50 + draw(w, 400)) * PAGE : 0;
		w->cap[g] = UINT64_MAX;
	}
	start_daemon(w);
	for (int i = 0; i < STEPS; i++) {
		step(w);
		check(w);
	}
	drain(w);
	w->mark = quota_mark_free(w->mark);
	w->q = quota_free(w->q);
}

Test(quota_model, limits_hold_in_a_thousand_histories, .timeout = 300)
{
	uint64_t n_granted = 0, n_waited = 0, n_refused = 0, n_alone = 0, n_lives = 0;
	const char *only = getenv("SHMSTORE_SEED");
	static struct world w;

	for (uint64_t seed = 1; seed <= HISTORIES; seed++) {
		play(only ? strtoull(only, NULL, 10) : seed, &w);
		n_granted += w.n_granted;
		n_waited += w.n_waited;
		n_refused += w.n_refused;
		n_alone += w.n_alone;
		n_lives += w.n_lives;
		if (only)
			return;
	}
	printf("%llu granted, %llu waited, %llu refused, %llu alone, %llu lives of the daemon\n",
	       (unsigned long long)n_granted, (unsigned long long)n_waited, (unsigned long long)n_refused,
	       (unsigned long long)n_alone, (unsigned long long)n_lives);
	/* Histories in which nothing happens would prove nothing. */
	cr_assert_gt(n_granted, 10 * HISTORIES);
	cr_assert_gt(n_waited, HISTORIES);
	cr_assert_gt(n_refused, HISTORIES);
	cr_assert_gt(n_alone, HISTORIES);
	cr_assert_gt(n_lives, 2 * HISTORIES);
}
