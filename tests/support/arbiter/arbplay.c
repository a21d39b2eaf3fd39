/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbplay.c: a game of random messages, and its end.
 *
 * The size of the world, how tight it is and how many messages are senseless come of the seed, so
 * that many short games reach more than one long one. The end is a rule of its own (invariant 4):
 * where those who are not parked give back what they hold and leave, the parked ones must all be
 * let out, told to roll back, or refused, within the ticks that suspicion takes; no cancel, no
 * deadline, no shutdown helps.
 */
#include "arbplay.h"

#include <stdlib.h>
#include <string.h>

#define MS        UINT64_C(1000000)
#define MAX_TICKS 64 /* more than any number of silent ticks that a game sets */

struct arbplay *arbplay_new(void)
{
	return calloc(1, sizeof(struct arbplay));
}

void arbplay_free(struct arbplay *p)
{
	if (!p)
		return;
	arbmodel_deinit(&p->f.m);
	free(p->lines);
	free(p);
}

/* Keeps it, with its lists. NULL: no memory. */
static struct arbplay_line *keep(struct arbplay *p, const struct arb_message *msg)
{
	struct arbplay_line *line = p->lines;

	if (p->n == p->n_room) {
		line = realloc(p->lines, (p->n_room * 2 + 256) * sizeof(*line));
		if (!line)
			return NULL;
		p->lines = line;
		p->n_room = p->n_room * 2 + 256;
	}
	line = &p->lines[p->n++];
	*line = (struct arbplay_line){.msg = *msg, .now_ns = p->f.m.now_ns};
	for (uint32_t i = 0; i < msg->n_list && i < ARB_LIST_MAX; i++) {
		line->list[i] = msg->list ? msg->list[i] : 0;
		line->amounts[i] = msg->amounts ? msg->amounts[i] : 0;
	}
	return line;
}

static bool say(struct arbplay *p, struct arb_message msg)
{
	struct arbplay_line *line;

	if (!arbchance_is_followed(&p->f, &msg))
		return true;
	line = keep(p, &msg);
	if (!line) {
		arbmodel_fail(&p->f.m, "no memory for the lines");
		return false;
	}
	return arbmodel_step(&p->f.m, &msg, &line->outcome);
}

/* ---- the beginning --------------------------------------------------------------------------- */

static bool begin(struct arbplay *p, uint64_t seed)
{
	static const uint64_t scales[] = {60, 4096, UINT64_C(1) << 20, UINT64_C(64) << 30};
	static const unsigned wrongness[] = {0, 2, 15};
	struct arbchance *f = &p->f;
	bool fine = true;

	arbmodel_deinit(&f->m);
	*f = (struct arbchance){.random = seed, .next_task = 1, .next_bytes = 1};
	p->n = p->n_random = 0;
	if (arbmodel_init(&f->m) < 0) {
		arbmodel_fail(&f->m, "no memory for an arbiter");
		return false;
	}
	f->n_pools = 1 + (unsigned)arbchance_below(f, ARBMODEL_POOLS - 1);
	f->n_contexts = 2 + (unsigned)arbchance_below(f, ARBMODEL_CONTEXTS - 2);
	f->scale = scales[arbchance_below(f, 4)];
	f->wrongness = wrongness[arbchance_below(f, 3)];
	for (unsigned i = 1; fine && i <= f->n_pools; i++)
		fine = say(p, (struct arb_message){.op = ARB_OP_POOL_CREATE,
						   .pool = i,
						   .kind = 1 + (int)arbchance_below(f, 2),
						   .bytes = f->scale,
						   .extra = arbchance_percent(f, 30) ? f->scale / 10
										     : 0});
	if (fine && arbchance_percent(f, 40))
		fine = say(p, (struct arb_message){.op = ARB_OP_KNOB,
						   .kind = ARB_KNOB_MAX_BYPASS,
						   .value = 1 + (int64_t)arbchance_below(f, 4)});
	if (fine && arbchance_percent(f, 30))
		fine = say(p, (struct arb_message){.op = ARB_OP_KNOB,
						   .kind = ARB_KNOB_RETRY_LIMIT,
						   .value = 1 + (int64_t)arbchance_below(f, 8)});
	for (unsigned i = 0; fine && i < f->n_contexts; i++)
		fine = say(p, arbchance_bind(f));
	return fine;
}

/* ---- the end --------------------------------------------------------------------------------- */

static bool answer_spills(struct arbplay *p)
{
	for (size_t i = 0; i < ARBMODEL_BYTES; i++) {
		struct arbmodel_bytes *b = &p->f.m.bytes[i];

		if (!b->id || !b->wanted)
			continue;
		if (!say(p, (struct arb_message){.op = ARB_OP_SPILLED,
						 .reservation = b->id,
						 .flags = ARB_ALL,
						 .bytes = arbchance_percent(&p->f, 70) ? b->bytes
										       : 0}))
			return false;
	}
	return true;
}

/* Half of them give back first what their tasks hold; of the others it stays, with tasks
 * that nobody serves any more. */
static bool leave(struct arbplay *p, const struct arbmodel_context *c)
{
	bool gives = arbchance_percent(&p->f, 50);

	for (size_t i = 0; gives && i < ARBMODEL_BYTES; i++) {
		const struct arbmodel_bytes *b = &p->f.m.bytes[i];

		for (uint32_t t = 0; b->id && t < c->n_tasks; t++)
			if (b->owner == c->tasks[t]) {
				if (!say(p, (struct arb_message){.op = ARB_OP_RELEASE,
								 .reservation = b->id}))
					return false;
				break;
			}
	}
	return say(p,
		   (struct arb_message){.op = ARB_OP_UNBIND, .context = c->id, .flags = ARB_ALL});
}

static const struct arbmodel_context *one_that_may_leave(const struct arbplay *p)
{
	for (size_t i = 0; i < ARBMODEL_CONTEXTS; i++)
		if (p->f.m.contexts[i].n_tasks && !p->f.m.contexts[i].waits)
			return &p->f.m.contexts[i];
	return NULL;
}

/* Until nobody waits. */
static bool drain(struct arbplay *p)
{
	struct arbmodel *m = &p->f.m;
	const struct arbmodel_context *c;
	unsigned n_ticks = 0;

	while (arb_n_parked(m->core)) {
		if (!answer_spills(p))
			return false;
		c = one_that_may_leave(p);
		if (c) {
			n_ticks = 0;
			if (!leave(p, c))
				return false;
			continue;
		}
		if (n_ticks++ == MAX_TICKS) {
			arbmodel_fail(m,
				      "invariant 4 (somebody goes on): %zu are parked, everybody "
				      "else has left, and "
				      "nothing comes",
				      arb_n_parked(m->core));
			return false;
		}
		m->now_ns += 100 * MS;
		if (!say(p, (struct arb_message){.op = ARB_OP_TICK}))
			return false;
	}
	return true;
}

/* Everything is given back, one by one or by the tasks' end; then nothing may be left. */
static bool go_home(struct arbplay *p)
{
	struct arbmodel *m = &p->f.m;
	bool by_end = arbchance_percent(&p->f, 50), down = arbchance_percent(&p->f, 30);
	struct arb_totals totals;

	if (down && (!say(p, (struct arb_message){.op = ARB_OP_SHUTDOWN}) ||
		     !say(p, arbchance_bind(&p->f))))
		return false;
	for (size_t i = 0; i < m->n_tasks; i++)
		if (m->tasks[i].lives &&
		    !say(p, (struct arb_message){.op = ARB_OP_TASK_END,
						 .task = m->tasks[i].id,
						 .flags = by_end ? ARB_RELEASE | ARB_ALL : 0}))
			return false;
	for (size_t i = 0; i < ARBMODEL_BYTES; i++)
		if (m->bytes[i].id && !say(p, (struct arb_message){.op = ARB_OP_RELEASE,
								   .reservation = m->bytes[i].id}))
			return false;
	for (size_t i = 0; i < ARBMODEL_POOLS; i++)
		if (m->pools[i].id &&
		    !say(p, (struct arb_message){.op = ARB_OP_POOL_REMOVE, .pool = m->pools[i].id}))
			return false;
	arb_totals(m->core, &totals);
	if (totals.n_parked || totals.n_contexts || totals.n_tasks || totals.n_reservations ||
	    totals.n_pools)
		arbmodel_fail(m,
			      "invariant 1 (the books): all has gone home, and %u are parked, %u "
			      "contexts, %u tasks, "
			      "%llu reservations, %u pools are left",
			      totals.n_parked, totals.n_contexts, totals.n_tasks,
			      (unsigned long long)totals.n_reservations, totals.n_pools);
	return !*m->wrong;
}

bool arbplay_run(struct arbplay *p, uint64_t seed, size_t n_messages)
{
	bool fine = begin(p, seed);

	for (size_t i = 0; fine && i < n_messages; i++)
		fine = say(p, arbchance_message(&p->f));
	p->n_random = p->n;
	/* As many games end in a crash of everything as in peace. */
	if (fine && arbchance_percent(&p->f, 70))
		fine = drain(p);
	return fine && go_home(p);
}
