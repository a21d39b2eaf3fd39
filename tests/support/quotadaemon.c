/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon of quotamodel.h's world: what quota asks of it, limits, surveys,
 * its beginning and its death. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "quotamodel.h"

static uint64_t used(void *arg)
{
	struct world *w = arg;

	/* Everybody else goes on while it asks. */
	for (uint64_t n = w->inside ? 0 : qm_draw(w, 6); n; n--) {
		w->inside = true;
		qm_step_owner(w);
		w->inside = false;
	}
	return qm_truth(w, 0);
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

static void answer(void *arg, struct quota_store *s, uint64_t serial, int error,
		   const struct quota_answer *a)
{
	struct world *w = arg;
	struct process *p = quota_user(s);
	struct arrival *wait = qm_arrival_of(w, serial);

	FAIL_IF(w, !wait, "an answer to nobody");
	wait->used = false;
	p->ops[wait->op].stage = error ? IDLE : AGAIN;
	FAIL_IF(w, error && error != -ETIMEDOUT && error != -ENOSPC && error != -EDQUOT,
		"a wait ended with %d", error);
	if (error == 0 && a->bytes) {
		w->n_granted++;
		qm_check_order(w, p, wait->number);
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

void qm_name_group(int group, enum wire_limit *kind, char id[16])
{
	*kind = group == 0       ? WIRE_LIMIT_PARTITION
		: group <= USERS ? WIRE_LIMIT_USER
				 : WIRE_LIMIT_LABEL;
	id[0] = '\0';
	if (group)
		snprintf(id, 16, group <= USERS ? "%d" : "label%d",
			 group <= USERS ? group - 1 : group - 1 - USERS);
}

/* A limit that is set below what is there. */
void qm_allow(struct world *w, int group)
{
	uint64_t now = qm_truth(w, group) + qm_potential(w, group);

	w->cap[group] = w->hard[group] == 0    ? UINT64_MAX
			: now > w->hard[group] ? now
					       : w->hard[group];
}

/* A store's bytes in flight are believed up to its limits: no limit below them is set here
 * (quota_credit.c, doubt). */
static uint64_t at_least_flight(const struct world *w, int group, uint64_t hard)
{
	for (size_t i = 0; hard && i < STORES; i++) {
		const struct process *p = &w->processes[i];
		uint64_t flight = p->page.charged - p->page.settled;

		if (p->alive && qm_in_group(group, p->uid, p->label) && flight > hard)
			hard = flight;
	}
	return hard;
}

void qm_set_limit(struct world *w, int group, uint64_t hard)
{
	struct quota_limits l = {0};
	enum wire_limit kind;
	char id[16];

	qm_name_group(group, &kind, id);
	hard = at_least_flight(w, group, hard);
	l.hard = w->hard[group] = hard;
	/* While it is being set, stores go on under the old one. */
	w->cap[group] = UINT64_MAX;
	cr_assert_eq(quota_limit(w->q, kind, id, &l, w->now), 0);
	qm_allow(w, group);
}

void qm_name_label(const struct process *p, char ret[16])
{
	ret[0] = '\0';
	if (p->label >= 0)
		snprintf(ret, 16, "label%d", p->label);
}

void qm_add_store(struct world *w, struct process *p)
{
	char label[16], name[16];

	qm_name_label(p, label);
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

		/* A group that takes nothing is not named. */
		qm_name_group(g, &kind, id);
		if (w->seen[g])
			quota_rebase(w->q, kind, id, w->seen[g]);
	}
	quota_rebased(w->q, w->now);
	w->marked = false;
}

void qm_step_survey(struct world *w)
{
	if (!w->marked) {
		quota_mark(w->q);
		w->marked = true;
		w->n_marks++;
		w->cursor = 0;
		memset(w->seen, 0, sizeof(w->seen));
		return;
	}
	for (uint64_t n = 1 + qm_draw(w, OBJECTS / 3); n && w->cursor < OBJECTS; n--) {
		const struct object *o = &w->objects[w->cursor++];

		for (int g = 1; g < GROUPS; g++)
			w->seen[g] +=
				o->n && (o->links || o->ghost) && qm_in_group(g, o->uid, o->label)
					? o->n
					: 0;
	}
	if (w->cursor == OBJECTS && !counting_somewhere(w)) {
		/* Memory that is not named yet is found in /proc, at the end. */
		for (size_t i = 0; i < STORES; i++) {
			const struct process *p = &w->processes[i];

			for (size_t k = 0; p->alive && k < OPS; k++) {
				for (int g = 1; g < GROUPS; g++)
					w->seen[g] +=
						qm_has_memory(&p->ops[k]) &&
								qm_in_group(g, p->uid, p->label)
							? p->ops[k].n
							: 0;
			}
		}
		survey_ends(w);
	}
}

/* A user or a label of which nobody lives has no page that a daemon could read;
 * so it begins with a survey. */
static void first_survey(struct world *w)
{
	bool alive[GROUPS] = {false}, all = true;

	for (size_t i = 0; i < STORES; i++) {
		for (int g = 1; w->processes[i].alive && g < GROUPS; g++)
			alive[g] |= qm_in_group(g, w->processes[i].uid, w->processes[i].label);
	}
	for (int g = 1; g < GROUPS; g++)
		all &= alive[g];
	if (all)
		return;
	for (size_t i = 0; i < OBJECTS; i++) {
		if (w->objects[i].counting)
			qm_step_delete(w, &w->processes[w->objects[i].counting - 1],
				       &w->objects[i]);
	}
	do
		qm_step_survey(w);
	while (w->marked);
}

void qm_start_daemon(struct world *w)
{
	struct quota_config config = {.epoch = ++w->life,
				      .credit = CREDIT,
				      .idle_ns = 500,
				      .pledge_ns = 100,
				      .waits_max = OPS};
	struct quota_ops ops = {used, credit, share, answer, ask, level, liar, w};

	w->n_lives++;
	cr_assert_eq(quota_new(&config, &ops, &w->q), 0);
	/* The configuration may be another one now, before or after the stores are found. */
	for (int g = 0; g < GROUPS; g++) {
		if (qm_draw(w, 4))
			qm_set_limit(w, g, w->hard[g]);
		else
			qm_set_limit(w, g, qm_draw(w, 3) ? (20 + qm_draw(w, 400)) * PAGE : 0);
	}
	for (size_t i = 0; i < STORES; i++) {
		struct process *p = &w->processes[i];
		char label[16];

		qm_name_label(p, label);
		if (p->alive)
			qm_add_store(w, p);
		else if (p->open)
			quota_found(w->q, (uid_t)p->uid, label, 0, &p->page);
	}
	first_survey(w);
	for (int g = 0; g < GROUPS; g++)
		qm_allow(w, g);
}

void qm_kill_daemon(struct world *w)
{
	/* All that it knew is gone; the pages stay. A waiting store finds its connection closed. */
	w->marked = false;
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
