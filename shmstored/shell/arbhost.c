/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbhost.c: the arbiter of a partition: its life, its clients' lives, and what its core decides
 * carried out. arbstep.c notes what takes further messages to the core; arbhost_settle() does it at
 * the end of what the loop called us for.
 *
 * A client ends with its connection, or its store: tasks end with all that they hold, contexts are
 * unbound, what nobody owned is released, pools go.
 *
 * The timer runs only while somebody is parked, or an up-call or a spill is out. It asks the kernel
 * and the ledgers each time: a delete in another process tells nobody.
 *
 * Nothing of it outlives the daemon: the core is made anew from what the kernel counts, and
 * clients see their connection end.
 */
#include "arbhost.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <utlist.h>

#include "account.h"
#include "log.h"
#include "quota.h"

#define EARLIER UINT64_C(1000000) /* a timer is set anew for that much */

/* ---- the end of a call ----------------------------------------------------------------------- */

static void say_wanted(struct arbhost *h)
{
	bool parked = arb_n_parked(h->core) != 0;

	if (parked == h->wanted)
		return;
	h->wanted = parked;
	for (struct arbguest *c = h->clients; c; c = c->hh.next)
		arbpage_wanted(c, parked);
}

uint32_t arbhost_level(const struct arbhost *h, const struct arb_pool_info *i)
{
	if (i->kind == ARB_PARTITION)
		return h->level;
	return i->n_rolled ? 2 : i->n_waiting != 0;
}

static void say_level(struct arbhost *h)
{
	struct arb_pool_info i;
	/* Waits in private pools do not matter to others. */
	bool pressed = h->wanted && arb_pool(h->core, WIRE_ARB_PARTITION, &i) &&
		       (i.n_waiting || i.n_rolled);
	uint32_t level = arb_now(h) < h->level_until_ns ? 2 : pressed;

	if (level == h->level)
		return;
	h->level = level;
	arbcall_pressure(h, level);
}

static void arm(struct arbhost *h)
{
	uint64_t now = arb_now(h), due = now + arb_config(h)->tick_ns,
		 deadline = arb_next_deadline(h->core);

	if (h->closed || (!arb_n_parked(h->core) && !h->n_calls && !h->evict.running && !h->level))
		return;
	if (deadline && deadline < due)
		due = deadline > now ? deadline : now;
	if (h->timer.busy) {
		/* on_timer() sets it anew. */
		if (due + EARLIER < h->due_ns)
			loop_cancel(h->account->host->loop, &h->timer);
		return;
	}
	h->due_ns = due;
	loop_timer(h->account->host->loop, &h->timer, due, 0);
}

/* Nothing is on its way back any more: tells the waiting clients. */
static void end_coming(struct arbhost *h)
{
	if (!h->coming_wanted || h->kernel.core_coming)
		return;
	h->coming_wanted = false;
	arbstep_about(h, ARB_OP_SPILLED, ARB_ALL, ARB_COMING);
	arbstep_about(h, ARB_OP_UNPIN, 0, ARB_COMING);
}

static void settle_clients(struct arbhost *h)
{
	struct arbguest *c;

	while ((c = h->todo) != NULL) {
		DL_DELETE2(h->todo, c, todo_prev, todo_next);
		c->todo = false;
		for (unsigned slot = 0; slot < WIRE_LEASES; slot++) {
			if (c->recalls & (1u << slot)) {
				c->recalls &= ~(1u << slot);
				arbpage_recall(c, slot);
			}
		}
		arbcall_next(c);
	}
}

void arbhost_settle(struct arbhost *h)
{
	if (h->settling)
		return;
	h->settling = true;
	do {
		settle_clients(h);
		arbevict_look(h);
		end_coming(h);
		say_wanted(h);
	} while (h->todo || h->wanted != (arb_n_parked(h->core) != 0));
	h->settling = false;
	say_level(h);
	arm(h);
}

/* ---- time ------------------------------------------------------------------------------------ */

static void look(struct arbhost *h)
{
	struct arb_message m = {.op = ARB_OP_TICK};

	arbkernel_refresh(h, NULL);
	arbkernel_survey_if_old(h);
	arbstep_do(h, &m);
	arbcall_tick(h);
	arbhost_settle(h);
}

static void on_timer(struct loop_op *op, int result, UNUSED unsigned flags)
{
	struct arbhost *h = CONTAINER_OF(op, arbhost, timer);

	if (result == -ECANCELED)
		arm(h);
	else if (result >= 0)
		look(h);
}

static void part_tick(struct account *a)
{
	/* While the timer runs, it does all this more often. */
	if (a->arb && !a->arb->timer.busy)
		look(a->arb);
}

static void refresh(struct account *a)
{
	if (!a->arb)
		return;
	arbkernel_refresh(a->arb, NULL);
	arbhost_settle(a->arb);
}

static void part_surveyed(struct account *a, const struct survey *survey)
{
	if (!a->arb || !survey)
		return;
	arbkernel_surveyed(a->arb, survey);
	arbhost_settle(a->arb);
}

/* ---- clients --------------------------------------------------------------------------------- */

struct arbguest *arbhost_guest(struct arbhost *h, struct member *m)
{
	struct arbguest *c = m->arb;

	if (c)
		return c;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->number = ++h->last_number;
	c->host = h;
	c->member = m;
	HASH_ADD(hh, h->clients, number, sizeof(c->number), c);
	if (!c->hh.tbl) {
		free(c);
		return NULL;
	}
	m->arb = c;
	arbpage_begin(c, 0);
	return c;
}

/* All that it named. Without memory a dead client's task stays in the core until the daemon ends;
 * nothing else can be done. */
static void end_items(struct arbguest *c)
{
	for (unsigned sort = 0; sort < ARB_SORTS; sort++) {
		struct arb_item **first = &c->group.items[sort], *i;

		while ((i = *first) != NULL) {
			const struct arb_message ends[ARB_SORTS] = {
				[ARB_TASKS] = {.op = ARB_OP_TASK_END,
					       .flags = ARB_RELEASE | ARB_ALL,
					       .task = i->id},
				[ARB_CONTEXTS] = {.op = ARB_OP_UNBIND,
						  .flags = ARB_ALL,
						  .context = i->id},
				[ARB_HOLDS] = {.op = ARB_OP_RELEASE, .reservation = i->id},
				[ARB_POOLS] = {.op = ARB_OP_POOL_REMOVE, .pool = i->id},
			};

			arbstep_do(c->host, &ends[sort]);
			if (*first == i)
				arb_leave(i, (enum arb_sort)sort);
		}
	}
}

static void end_guest(struct arbguest *c)
{
	struct arbhost *h = c->host;

	c->member->arb = NULL;
	c->ended = true;
	arbcall_end(c);
	for (unsigned slot = 0; slot < WIRE_LEASES; slot++)
		arbpage_end(c, slot);
	if (c->core_ghosts)
		arbstep_about(h, ARB_OP_RELEASE, 0, arb_ours(c, ARB_GHOSTS));
	end_items(c);
	if (c->todo)
		DL_DELETE2(h->todo, c, todo_prev, todo_next);
	HASH_DEL(h->clients, c);
	free(c);
}

/* ---- its life -------------------------------------------------------------------------------- */

static void set_knobs(struct arbhost *h)
{
	const struct config_arbiter *c = arb_config(h);
	const struct {
		enum arb_knob knob;
		int64_t value;
	} knobs[] = {
		{ARB_KNOB_MAX_BYPASS, c->max_bypass},
		{ARB_KNOB_SUSPECT_TICKS, c->suspect_ticks},
		{ARB_KNOB_SPLIT_TICKS, c->split_ticks},
		{ARB_KNOB_RETRY_LIMIT, c->retry_limit},
		{ARB_KNOB_EARLY_DETECT, c->early_detect},
	};

	for (size_t i = 0; i < sizeof(knobs) / sizeof(knobs[0]); i++) {
		struct arb_message m = {
			.op = ARB_OP_KNOB, .kind = (int)knobs[i].knob, .value = knobs[i].value};

		arbstep_do(h, &m);
	}
}

static int make_pool(struct arbhost *h)
{
	char name[ARB_NAME_MAX + 1];
	struct arb_message pool = {.op = ARB_OP_POOL_CREATE,
				   .kind = ARB_PARTITION,
				   .pool = WIRE_ARB_PARTITION,
				   .name = name};
	int r;

	snprintf(name, sizeof(name), "shm:%s", h->account->path);
	r = arbstep_do(h, &pool);
	if (r == ARB_OK)
		r = arbstep_make(h, WIRE_ARB_PARTITION, ARB_OBJECTS, 0, false);
	/* In this order: bytes that come by themselves are awaited before anything is evicted. */
	if (r == ARB_OK)
		r = arbstep_make(h, WIRE_ARB_PARTITION, ARB_COMING, 0, true);
	if (r == ARB_OK)
		r = arbstep_make(h, WIRE_ARB_PARTITION, ARB_EVICTABLE, 0, true);
	if (r != ARB_OK)
		return r < 0 ? r : -EINVAL;
	arbkernel_refresh(h, NULL);
	return 0;
}

static void part_close(struct account *a)
{
	struct arbhost *h = a->arb;

	if (!h)
		return;
	a->arb = NULL;
	h->closed = true;
	account_survey_cancel(a, &h->survey);
	while (h->clients)
		end_guest(h->clients);
	arb_free(h->core);
	loop_release(a->host->loop, &h->timer, h);
}

static int part_open(struct account *a)
{
	struct arbhost *h;
	int r;

	if (!a->host->config->arbiter.enabled)
		return 0;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->account = a;
	h->timer.fn = on_timer;
	r = arb_new(&h->core);
	if (r < 0) {
		free(h);
		return r;
	}
	a->arb = h;
	set_knobs(h);
	r = make_pool(h);
	if (r < 0) {
		log_say(LOG_ERR, LOG_FIELDS(.object = a->path, .error = r),
			"its memory arbiter cannot be made");
		part_close(a);
	}
	return r;
}

static void part_reload(struct account *a)
{
	if (!a->arb)
		return;
	set_knobs(a->arb);
	look(a->arb);
}

static void part_left(struct member *m)
{
	struct account *a = m->account;

	if (!m->arb)
		return;
	/* Bytes taken but not sealed are booked as the kernel's before their reservations end. */
	m->arb->leaving = true;
	if (a->arb)
		arbkernel_refresh(a->arb, NULL);
	end_guest(m->arb);
	refresh(a);
}

static void part_came(struct member *m)
{
	if (m->account->host->config->arbiter.enabled)
		arbpage_cut(m);
}

static void part_evicted(struct account *a)
{
	if (a->arb)
		a->arb->evict.demoting = false;
	refresh(a);
}

const struct part arbhost_part = {
	.name = "arbiter",
	.open = part_open,
	.close = part_close,
	.reload = part_reload,
	.tick = part_tick,
	.surveyed = part_surveyed,
	.came = part_came,
	.left = part_left,
	.reaped = refresh,
	.evicted = part_evicted,
};
