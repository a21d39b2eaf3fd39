/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbsend.c: a message as it is, member by member: what the fuzz says
 * (tests/unit/test_arbiter_fuzz.c), that no other command can say. Ids are numbers; contexts, pools
 * and tasks have these numbers as names from then on, so that "state 3 BLOCKED" looks at context 3.
 * Spills are held: they are answered by SPILLED messages only.
 *
 *   send OP [context=N] [task=N] [other=N] [pool=N] [reservation=N] [bytes=N] [extra=N] [value=N]
 *   [kind=N] [flags=N] [deadline=NS]
 *        [list=N,N] [amounts=N,N] [n_list=N] [at=NS] -> outcome of the message itself, PENDING too
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arbcommand.h"

#define N_NAMES 512

static const char *name_of(uint64_t id)
{
	static char names[N_NAMES][4];

	snprintf(names[id - 1], sizeof(names[0]), "%u", (unsigned)id);
	return names[id - 1];
}

static uint64_t number(const struct arbcommand *c, const char *key, struct arbanswer *a)
{
	const char *word = arbcommand_option(c, key);

	return word ? arbcommand_bytes(word, a) : 0;
}

/* "1,2": into to of ARB_LIST_MAX. NULL: not given. */
static const uint64_t *list_of(const struct arbcommand *c, const char *key, uint64_t *to,
			       uint32_t *ret_n, struct arbanswer *a)
{
	const char *word = arbcommand_option(c, key);
	char *copy = word ? strdup(word) : NULL, *rest = copy, *one;
	uint32_t n = 0;

	while (copy && (one = strsep(&rest, ",")) != NULL && !a->wrong) {
		if (n == ARB_LIST_MAX)
			a->wrong = "too many in a list";
		else
			to[n++] = arbcommand_bytes(one, a);
	}
	if (word && !copy)
		a->wrong = "out of memory";
	free(copy);
	*ret_n = n > *ret_n ? n : *ret_n;
	return word ? to : NULL;
}

/* Names for the numbers, as far as this one. */
static void name(struct arbworld *w, const struct arb_message *m, struct arbanswer *a)
{
	if (m->context > N_NAMES || m->task > N_NAMES || m->pool > N_NAMES)
		return; /* nobody asks for these by name */
	while (w->n_threads < m->context && !a->wrong)
		arbcommand_thread(w, name_of(w->n_threads + 1), a);
	while (w->n_tasks < m->task && !a->wrong)
		arbcommand_task(w, name_of(w->n_tasks + 1), a);
	while (w->n_pools < m->pool && !a->wrong)
		if (!arbworld_pool_new(w, name_of(w->n_pools + 1)))
			a->wrong = "out of memory";
	for (uint32_t i = 0; m->op == ARB_OP_BIND && i < m->n_list && i < ARB_LIST_MAX && m->list;
	     i++)
		while (m->list[i] <= N_NAMES && w->n_tasks < m->list[i] && !a->wrong)
			arbcommand_task(w, name_of(w->n_tasks + 1), a);
}

static enum arb_op op_of(const char *word, struct arbanswer *a)
{
	for (int op = ARB_OP_POOL_CREATE; op <= ARB_OP_SHUTDOWN; op++)
		if (!strcmp(word, arb_op_name((enum arb_op)op)))
			return (enum arb_op)op;
	a->wrong = "no such operation";
	return ARB_OP_TICK;
}

static void do_send(struct arbworld *w, const struct arbcommand *c, struct arbanswer *a)
{
	uint64_t list[ARB_LIST_MAX], amounts[ARB_LIST_MAX], at = number(c, "at", a);
	struct arb_message m = {
		.op = op_of(c->args[0], a),
		.context = number(c, "context", a),
		.task = number(c, "task", a),
		.other = number(c, "other", a),
		.pool = number(c, "pool", a),
		.reservation = number(c, "reservation", a),
		.bytes = number(c, "bytes", a),
		.extra = number(c, "extra", a),
		.value = arbcommand_option_integer(c, "value", a),
		.kind = (int)arbcommand_option_integer(c, "kind", a),
		.flags = (uint32_t)number(c, "flags", a),
		.deadline_ns = number(c, "deadline", a),
		.n_list = (uint32_t)number(c, "n_list", a),
	};

	m.list = list_of(c, "list", list, &m.n_list, a);
	m.amounts = list_of(c, "amounts", amounts, &m.n_list, a);
	if (a->wrong)
		return;
	name(w, &m, a);
	w->held = true;
	if (at > w->now_ns)
		w->now_ns = at;
	if (!a->wrong)
		arbcommand_say(a, arbworld_say(w, &m));
}

const struct arbverb arbsend_verbs[] = {
	{"send", 1, 1,
	 "context,task,other,pool,reservation,bytes,extra,value,kind,flags,deadline,list,amounts,n_"
	 "list,at",
	 NULL, do_send},
	{0},
};
