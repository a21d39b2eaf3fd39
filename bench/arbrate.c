/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbrate.c: every context runs attempts without end: it reserves a few times, then frees as
 * often. The next message is that of a context picked at random among those that wait for
 * nothing. One told RETRY or SPLIT frees all that it has, asks for READY and begins anew. A
 * microsecond of the core's time passes with each message, a tick comes each 100 ms of it, or
 * at once when all are parked.
 */
#include "arbrate.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "arbiter.h"
#include "measure.h"

#define HELD_MAX    8u
#define BYTES_MAX   (64u << 10)
#define MESSAGE_NS  1000u
#define TICK_EACH   100000u /* messages */
#define POOL        1u
#define NO_PROGRESS 1000u /* ticks in a row with everybody parked: a hang */

enum phase {
	PHASE_BEGIN, /* an attempt */
	PHASE_RESERVE,
	PHASE_FREE,
	PHASE_END,
	PHASE_BACK, /* rolling back */
};

struct client {
	uint64_t held[HELD_MAX];
	uint32_t n_held, wants; /* reservations of this attempt */
	uint32_t at;            /* its place among the active; UINT32_MAX = parked */
	enum phase phase;
};

struct drive {
	struct arb *arb;
	struct client *clients;
	uint32_t *active, n_clients, n_active;
	uint64_t random, now_ns, reservation, n_messages, parked_sum;
	struct arbrate_result *result;
	bool wrong;
};

uint64_t arbrate_demand(uint32_t n_contexts)
{
	/* wants 1 to 8: at each of its 2 w steps it holds w / 2 on average; longer
	 * attempts are seen longer. */
	uint64_t steps = 0, held = 0;

	for (uint64_t w = 1; w <= HELD_MAX; w++) {
		steps += 2 * w + 2;
		held += w * w;
	}
	return held * (BYTES_MAX / 2) * n_contexts / steps;
}

static uint64_t next_random(struct drive *d)
{
	uint64_t z = d->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static void deactivate(struct drive *d, uint32_t i)
{
	uint32_t last = d->active[--d->n_active];

	d->active[d->clients[i].at] = last;
	d->clients[last].at = d->clients[i].at;
	d->clients[i].at = UINT32_MAX;
}

static void activate(struct drive *d, uint32_t i)
{
	d->clients[i].at = d->n_active;
	d->active[d->n_active++] = i;
}

/* The outcome of the reserve or ready of client i. */
static void take_outcome(struct drive *d, uint32_t i, enum arb_outcome o)
{
	struct client *c = &d->clients[i];

	if (o == ARB_RETRY || o == ARB_SPLIT || o == ARB_NOMEM) {
		c->n_held -= c->phase == PHASE_RESERVE; /* the one asked for */
		c->phase = PHASE_BACK;
	} else if (o == ARB_OK) {
		if (c->phase == PHASE_BACK)
			c->phase = PHASE_BEGIN;
		else if (c->n_held == c->wants)
			c->phase = PHASE_FREE;
	} else {
		d->wrong = true;
	}
}

static enum arb_outcome send(struct drive *d, const struct arb_message *m)
{
	const struct arb_reply *replies = NULL;
	size_t n = 0;
	int o = arb_step(d->arb, m, d->now_ns, &replies, &n);

	d->now_ns += MESSAGE_NS;
	d->n_messages++;
	d->parked_sum += d->n_clients - d->n_active;
	d->result->n_replies += n;
	if (o == ARB_PENDING) {
		d->result->n_withheld++;
		deactivate(d, (uint32_t)m->context - 1);
	}
	for (size_t k = 0; k < n; k++) {
		uint32_t i = (uint32_t)replies[k].context - 1;

		if (replies[k].kind != ARB_REPLY_DONE || i >= d->n_clients ||
		    d->clients[i].at != UINT32_MAX) {
			d->wrong = true;
			return ARB_ERROR;
		}
		activate(d, i);
		take_outcome(d, i, replies[k].outcome);
	}
	return o < 0 ? ARB_ERROR : (enum arb_outcome)o;
}

static void act(struct drive *d, uint32_t i)
{
	struct client *c = &d->clients[i];
	struct arb_message m = {.context = i + 1};
	enum arb_outcome o;

	if (c->n_held > 0 && (c->phase == PHASE_FREE || c->phase == PHASE_BACK)) {
		m = (struct arb_message){.op = ARB_OP_RELEASE, .reservation = c->held[--c->n_held]};
		if (c->n_held == 0 && c->phase == PHASE_FREE)
			c->phase = PHASE_END;
		d->wrong |= send(d, &m) != ARB_OK;
		return;
	}
	if (c->phase == PHASE_BEGIN || c->phase == PHASE_END) {
		m.op = c->phase == PHASE_BEGIN ? ARB_OP_RETRY_BEGIN : ARB_OP_RETRY_END;
		m.value = c->phase == PHASE_END;
		c->wants = 1 + (uint32_t)(next_random(d) % HELD_MAX);
		c->phase = c->phase == PHASE_BEGIN ? PHASE_RESERVE : PHASE_BEGIN;
		d->wrong |= send(d, &m) != ARB_OK;
		return;
	}
	m.op = ARB_OP_READY;
	if (c->phase == PHASE_RESERVE) {
		m.op = ARB_OP_RESERVE;
		m.pool = POOL;
		m.bytes = 1 + next_random(d) % BYTES_MAX;
		m.reservation = c->held[c->n_held++] = ++d->reservation;
	}
	o = send(d, &m);
	if (o != ARB_PENDING)
		take_outcome(d, i, o);
}

static int drive(struct drive *d, uint64_t n)
{
	uint64_t until = d->n_messages + n, next_tick = d->n_messages + TICK_EACH;
	unsigned n_stuck = 0;

	while (d->n_messages < until && !d->wrong && n_stuck < NO_PROGRESS) {
		if (d->n_active == 0 || d->n_messages >= next_tick) {
			n_stuck = d->n_active == 0 ? n_stuck + 1 : 0;
			d->now_ns += d->n_active == 0 ? (uint64_t)MESSAGE_NS * TICK_EACH : 0;
			next_tick = d->n_messages + TICK_EACH;
			send(d, &(struct arb_message){.op = ARB_OP_TICK});
			continue;
		}
		act(d, d->active[(next_random(d) >> 32) * d->n_active >> 32]);
	}
	return d->wrong || n_stuck == NO_PROGRESS ? -EPROTO : 0;
}

static int set_up(struct drive *d, const struct arbrate_options *o)
{
	struct arb_message pool = {.op = ARB_OP_POOL_CREATE,
				   .pool = POOL,
				   .kind = ARB_PARTITION,
				   .bytes = o->pool_bytes};
	int r = arb_new(&d->arb);

	if (r < 0)
		return r;
	pool.name = "shm:/events";
	send(d, &pool);
	for (uint32_t i = 0; i < o->n_contexts; i++) {
		uint64_t task = i + 1;
		struct arb_message bind = {
			.op = ARB_OP_BIND, .kind = ARB_DEDICATED, .context = i + 1, .n_list = 1};

		bind.list = &task;
		activate(d, i);
		if (send(d, &bind) != ARB_OK)
			return -EPROTO;
	}
	return 0;
}

int arbrate_run(const struct arbrate_options *o, struct arbrate_result *ret)
{
	struct drive d = {
		.n_clients = o->n_contexts, .random = o->seed, .now_ns = 1, .result = ret};
	struct arb_totals before, after;
	uint64_t began_ns;
	int r;

	d.clients = calloc(o->n_contexts, sizeof(*d.clients));
	d.active = calloc(o->n_contexts, sizeof(*d.active));
	r = d.clients && d.active ? set_up(&d, o) : -ENOMEM;
	if (r == 0)
		r = drive(&d, o->n_warm);
	if (r == 0) {
		arb_totals(d.arb, &before);
		memset(ret, 0, sizeof(*ret));
		d.n_messages = d.parked_sum = 0;
		began_ns = measure_now_ns();
		r = drive(&d, o->n_messages);
		ret->ns = measure_now_ns() - began_ns;
		arb_totals(d.arb, &after);
		ret->n_messages = d.n_messages;
		ret->n_retries = after.n_retries - before.n_retries;
		ret->n_splits = after.n_splits - before.n_splits;
		ret->parked = (double)d.parked_sum / (double)d.n_messages;
	}
	arb_free(d.arb);
	free(d.clients);
	free(d.active);
	return r;
}
