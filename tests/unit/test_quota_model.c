/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_quota_model.c: 1,000 random histories (n_rounds()) of stores that share a partition, against
 * the kernel's part of the world as quotamodel.h plays it: memory that is taken and freed,
 * processes that die at any step, a daemon that dies and comes again.
 *
 * A put is five steps (charge, look at granted, take memory, count it as fresh, settle), so are a
 * delete and a death; each may be followed by anybody's. Stores go on with their steps also while
 * the daemon is in the middle of its own: where it asks the kernel what is used. After every step,
 * for the partition, each user and each label:
 *
 *     truth + potential <= hard             truth: the memory that is taken now. potential: what
 *                                           stores may still take without asking: charged and not
 *                                           taken, granted and not charged
 *     truth + potential <= used + outstanding, as the daemon says
 *
 * with allowances: a limit that is set below what is taken or may be, and foreign files, that grow
 * into what was granted, leave more than hard; from there it may only fall. At the end of each
 * history all is deleted, and whoever waits must get what it wants.
 *
 * A user's and a label's truth is what their stores brought into being and what has a name
 * still or none yet: ghosts count for the partition only. Objects are handed over between
 * stores of one user and label. A survey does not end between a delete's last link and its
 * count in the page (a microsecond; a process stopped right there makes the sums wrong by
 * that object until the next one).
 *
 * That it can fail was tried; each of these changes makes it fail, most
 * within the first thirty histories:
 *     quota_credit_take() books granted as it was lowered, without what wire_credit_revoke() read
 *     of charged quota_credit_read() books granted where more is charged quota_group_used() answers
 *     for the partition with what was used before the pages were read quota_credit_update() does
 *     not book what was in flight without limits quota_credit_inherit() forgets granted, or the
 *     bases that the pages have quota_base_leave() leaves nothing, or not what was in flight
 *     quota_freed() believes a reap during which a survey ended rebase() adds nothing for what came
 *     into being during the survey quota_queue_walk() or quota_request() lets a request pass others
 *     that wait under the same limits
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quotamodel.h"
#include "scratch.h"

#define HISTORIES 1000
#define STEPS     3000

static void open_store(struct world *w, struct process *p)
{
	/* A store opened without a daemon is not counted at all: it is not in this model. */
	if (!w->q)
		return;
	memset(p, 0, sizeof(*p));
	p->open = p->alive = true;
	p->uid = (int)qm_draw(w, w->single ? 1 : USERS);
	p->label = (int)qm_draw(w, w->single ? 1 : LABELS + 1) - 1;
	qm_add_store(w, p);
}

static void die(struct world *w, struct process *p)
{
	int i = (int)(p - w->processes);

	/* Between a last unlink and its count: the count never comes. Memory that is written and
	 * not named is gone. */
	for (size_t k = 0; k < OBJECTS; k++) {
		struct object *o = &w->objects[k];

		if (o->counting == i + 1) {
			o->counting = 0;
			if (!o->ghost)
				o->n = 0;
		}
	}
	for (size_t k = 0; k < OPS; k++) {
		struct object *named =
			qm_has_memory(&p->ops[k]) && qm_draw(w, 2) ? qm_free_object(w) : NULL;

		/* Named in its last moment, settled or not. */
		if (named)
			*named = (struct object){.n = p->ops[k].n,
						 .links = 1u << i,
						 .uid = p->uid,
						 .label = p->label};
		if (named)
			qm_named_meanwhile(w, named, &p->ops[k]);
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

/* Removes a dead store, as the daemon or the library's gc does: a step at a time. */
static void bury(struct world *w, struct process *p)
{
	size_t i = (size_t)(p - w->processes);
	char label[16];

	qm_name_label(p, label);
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
	w->foreign = qm_draw(w, 2) ? qm_draw(w, 40) * PAGE : 0;
	/* Nobody granted that. */
	qm_allow(w, 0);
}

void qm_step(struct world *w)
{
	struct process *p = &w->processes[qm_draw(w, STORES)];
	struct object *o = &w->objects[qm_draw(w, OBJECTS)];

	w->now += qm_draw(w, 20);
	if (w->inside || qm_draw(w, 8)) {
		qm_step_owner(w);
		return;
	}
	switch (qm_draw(w, 24)) {
	case 0:
		if (w->q && !w->single)
			qm_kill_daemon(w);
		else if (!w->q)
			qm_start_daemon(w);
		return;
	case 1:
		if (w->q)
			qm_set_limit(w, (int)qm_draw(w, w->single ? 1 : GROUPS),
				     qm_draw(w, 6) ? (20 + qm_draw(w, 400)) * PAGE : 0);
		return;
	case 2:
		if (p->alive && qm_draw(w, 3) == 0)
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
		if (qm_draw(w, 4) == 0)
			step_foreign(w);
		return;
	case 10:
	case 11:
	case 12:
	case 13:
		if (w->q && (w->marked || qm_draw(w, 4) == 0))
			qm_step_survey(w);
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

			if (!a.used || qm_draw(w, 4))
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

/* ---- what must hold -------------------------------------------------------------------------- */

struct said {
	uint64_t sums[GROUPS];
};

static int note(const struct quota_line *line, void *arg)
{
	struct said *said = arg;

	for (int g = 0; g < GROUPS; g++) {
		enum wire_limit kind;
		char id[16];

		qm_name_group(g, &kind, id);
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
		uint64_t sum = qm_truth(w, g) + qm_potential(w, g);

		FAIL_IF(w, sum > w->cap[g],
			"group %d: %llu pages are taken or may be, the limit is %llu", g,
			(unsigned long long)(sum / PAGE), (unsigned long long)(w->cap[g] / PAGE));
		/* Credit of a store without any limit is not outstanding. */
		FAIL_IF(w, w->q && w->hard[g] && sum > said.sums[g],
			"group %d: %llu pages are taken or may be, quota knows of %llu", g,
			(unsigned long long)(sum / PAGE),
			(unsigned long long)(said.sums[g] / PAGE));
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
		qm_start_daemon(w);
	for (int g = 0; g < GROUPS; g++) {
		if (w->hard[g] && w->hard[g] < 201 * PAGE)
			qm_set_limit(w, g, 201 * PAGE);
	}
	w->foreign = 0;
	for (int i = 0; left && i < 20000; i++) {
		for (size_t k = 0; k < OBJECTS; k++) {
			struct object *o = &w->objects[k];

			if (o->ghost && !o->counting && !o->links)
				*o = (struct object){0};
		}
		qm_step_owner(w);
		if (i % 16 == 0) {
			struct process *p = &w->processes[(i / 16) % STORES];

			if (p->open && !p->alive)
				bury(w, p);
			qm_step_survey(w);
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
		w->hard[g] = qm_draw(w, 4) ? (50 + qm_draw(w, 400)) * PAGE : 0;
		w->cap[g] = UINT64_MAX;
	}
	qm_start_daemon(w);
	for (int i = 0; i < STEPS; i++) {
		qm_step(w);
		check(w);
	}
	drain(w);
	w->q = quota_free(w->q);
}

Test(quota_model, limits_hold_in_a_thousand_histories, .timeout = 1500)
{
	uint64_t n_granted = 0, n_waited = 0, n_refused = 0, n_alone = 0, n_lives = 0;
	const unsigned histories = n_rounds(HISTORIES);
	const char *only = getenv("SHMSTORE_SEED");
	static struct world w;

	for (uint64_t seed = 1; seed <= histories; seed++) {
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
	       (unsigned long long)n_granted, (unsigned long long)n_waited,
	       (unsigned long long)n_refused, (unsigned long long)n_alone,
	       (unsigned long long)n_lives);
	/* Histories in which nothing happens would prove nothing. */
	cr_assert_gt(n_granted, 10 * histories);
	cr_assert_gt(n_waited, histories);
	cr_assert_gt(n_refused, histories);
	cr_assert_gt(n_alone, histories);
	cr_assert_gt(n_lives, 2 * histories);
}
