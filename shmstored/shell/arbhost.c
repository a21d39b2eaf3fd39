/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbhost.c: the core of a partition's arbiter, and what it decides carried out.
 *
 * Every message to the core goes through arbhost_step(). Replies that it sets free are put
 * into their clients' outputs at once; what takes further messages (a lease to be taken back,
 * an eviction, an up-call) is only noted, and done by arbhost_settle() at the end of what the
 * loop called us for: so no message to the core is ever sent from within another one's
 * replies, and no client is freed there.
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

#include "log.h"
#include "part.h"
#include "quota.h"

#define LATELY_NS UINT64_C(1000000000) /* a roll back is "lately" for so long */
#define MS        UINT64_C(1000000)
#define EARLIER   MS /* a timer is set anew for that much */

/* ---- messages -------------------------------------------------------------------------------- */

struct arbguest *arbhost_client(struct arbhost *h, uint64_t number)
{
	uint32_t key = (uint32_t)number;
	struct arbguest *c;

	HASH_FIND(hh, h->clients, &key, sizeof(key), c);
	return c;
}

void arbhost_todo(struct arbguest *c)
{
	if (c->todo)
		return;
	c->todo = true;
	DL_APPEND2(c->host->todo, c, todo_prev, todo_next);
}

static void want_spilled(struct arbhost *h, const struct arb_reply *r)
{
	struct arbguest *c;

	if (r->reservation == ARB_EVICTABLE) {
		arbevict_want(h, r->bytes);
	} else if (r->reservation == ARB_COMING) {
		h->coming_wanted = r->bytes != 0;
	} else if (r->reservation & ARB_OURS) {
		c = arbhost_client(h, (r->reservation & ~ARB_OURS) >> 8);
		if (!c)
			return;
		c->recalls |= 1u << ((r->reservation & 0xff) >> 1);
		arbhost_todo(c);
	} else {
		c = arbhost_client(h, r->reservation >> 32);
		if (c)
			arbcall_want(c, (uint32_t)r->reservation, r->bytes);
	}
}

int arbhost_step(struct arbhost *h, const struct arb_message *m)
{
	const struct arb_reply *replies;
	size_t n;
	int outcome = arb_step(h->core, m, arb_now(h), &replies, &n);

	if (outcome < 0)
		return outcome;
	for (size_t i = 0; i < n; i++) {
		if (replies[i].kind == ARB_REPLY_DONE)
			arbguest_done(h, &replies[i]);
		else
			want_spilled(h, &replies[i]);
	}
	return outcome;
}

int arbhost_about(struct arbhost *h, enum arb_op op, unsigned flags, uint64_t reservation)
{
	struct arb_message m = {.op = op, .flags = flags, .reservation = reservation};

	return arbhost_step(h, &m);
}

void arbhost_set(struct arbhost *h, uint64_t reservation, uint64_t *io_bytes, uint64_t bytes)
{
	struct arb_message m = {.op = ARB_OP_RESIZE,
				.flags = ARB_FORCE,
				.reservation = reservation,
				.bytes = bytes};

	if (bytes == *io_bytes)
		return;
	if (arbhost_step(h, &m) == ARB_OK)
		*io_bytes = bytes;
}

uint64_t arbhost_deadline(const struct arbhost *h, uint64_t timeout_ms)
{
	uint64_t most = arb_config(h)->wait_ns;

	return arb_now(h) + (timeout_ms && timeout_ms < most / MS ? timeout_ms * MS : most);
}

/* ---- the end of a call ----------------------------------------------------------------------- */

void arbhost_pressed(struct arbhost *h)
{
	h->level_until_ns = arb_now(h) + LATELY_NS;
}

static void say_wanted(struct arbhost *h)
{
	bool parked = arb_n_parked(h->core) != 0;

	if (parked == h->wanted)
		return;
	h->wanted = parked;
	for (struct arbguest *c = h->clients; c; c = c->hh.next)
		arbpage_wanted(c, parked);
}

/* Does anybody wait in the partition? Waits in private pools do not matter to others. */
static bool is_pressed(const struct arbhost *h)
{
	struct arb_pool_info i;

	return h->wanted && arb_pool(h->core, WIRE_ARB_PARTITION, &i) &&
	       (i.n_waiting || i.n_rolled);
}

uint32_t arbhost_level(const struct arbhost *h, const struct arb_pool_info *i)
{
	if (i->kind == ARB_PARTITION)
		return h->level;
	return i->n_rolled ? 2 : i->n_waiting != 0;
}

static void say_level(struct arbhost *h)
{
	uint32_t level = arb_now(h) < h->level_until_ns ? 2 : is_pressed(h) ? 1 : 0;

	if (level == h->level)
		return;
	h->level = level;
	arbcall_pressure(h, level);
}

/* Does c's pending work. */
static void settle_client(struct arbguest *c)
{
	for (unsigned slot = 0; slot < WIRE_LEASES; slot++) {
		if (c->recalls & (1u << slot)) {
			c->recalls &= ~(1u << slot);
			arbpage_recall(c, slot);
		}
	}
	arbcall_next(c);
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
	arbhost_about(h, ARB_OP_SPILLED, ARB_ALL, ARB_COMING);
	arbhost_about(h, ARB_OP_UNPIN, 0, ARB_COMING);
}

static void settle_clients(struct arbhost *h)
{
	struct arbguest *c;

	while ((c = h->todo) != NULL) {
		DL_DELETE2(h->todo, c, todo_prev, todo_next);
		c->todo = false;
		settle_client(c);
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
	arbhost_step(h, &m);
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

static void part_surveyed(struct account *a, const struct survey *survey)
{
	if (!a->arb || !survey)
		return;
	arbkernel_surveyed(a->arb, survey);
	arbhost_settle(a->arb);
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

		arbhost_step(h, &m);
	}
}

static int make_pool(struct arbhost *h)
{
	char name[ARB_NAME_MAX + 1];
	struct arb_message pool = {.op = ARB_OP_POOL_CREATE,
				   .kind = ARB_PARTITION,
				   .pool = WIRE_ARB_PARTITION,
				   .name = name};
	struct arb_message objects = {.op = ARB_OP_RESERVE,
				      .flags = ARB_FORCE,
				      .pool = WIRE_ARB_PARTITION,
				      .reservation = ARB_OBJECTS};
	struct arb_message coming = objects, evictable = objects;
	struct arb_message comes = {.op = ARB_OP_UNPIN, .reservation = ARB_COMING};
	struct arb_message unpin = {.op = ARB_OP_UNPIN, .reservation = ARB_EVICTABLE};
	/* In this order: bytes that come by themselves are awaited before anything is evicted. */
	const struct arb_message *all[] = {&pool, &objects, &coming, &comes, &evictable, &unpin};

	snprintf(name, sizeof(name), "shm:%s", h->account->path);
	coming.reservation = ARB_COMING;
	evictable.reservation = ARB_EVICTABLE;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		int r = arbhost_step(h, all[i]);

		if (r != ARB_OK)
			return r < 0 ? r : -EINVAL;
	}
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
	if (h->surveying)
		account_survey_cancel(a, &h->survey);
	while (h->clients)
		arbguest_end(h->clients);
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
	arbguest_end(m->arb);
	if (!a->arb)
		return;
	arbkernel_refresh(a->arb, NULL);
	arbhost_settle(a->arb);
}

static void part_came(struct member *m)
{
	if (m->account->host->config->arbiter.enabled)
		arbpage_cut(m);
}

static void part_reaped(struct account *a)
{
	if (!a->arb)
		return;
	arbkernel_refresh(a->arb, NULL);
	arbhost_settle(a->arb);
}

static void part_evicted(struct account *a)
{
	if (!a->arb)
		return;
	a->arb->evict.demoting = false;
	arbkernel_refresh(a->arb, NULL);
	arbhost_settle(a->arb);
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
	.reaped = part_reaped,
	.evicted = part_evicted,
};
