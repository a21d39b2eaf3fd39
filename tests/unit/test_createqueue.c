/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_createqueue.c: random histories of clients, of a store that fills and empties, of a disk
 * that is full at times and of spilling. $SHMSTORE_SEED plays one. After each step:
 *
 *     only a request that waits is tried, and after it was created never again; each ends in one
 *     way mode FIRST tries the oldest only who has a deadline does not wait beyond the first pass
 *     after it; in mode HOST everybody has one in mode HOST at most max_bypass later requests are
 *     created before one that waits a client that left has nothing here; no client has more than
 *     per_client the counts are those of the model
 */
#include <criterion/criterion.h>

#include "createqueue.h"
#include "dice.h"

#define HISTORIES  120u
#define STEPS      200u
#define REQUESTS   (STEPS + 1)
#define CLIENTS    4u
#define PER_CLIENT 8u
#define BYPASS     3u

enum is {
	NOWHERE,
	WAITS,
	CREATED,
	ENDED,
	FETCHED
};

struct request {
	struct createqueue_request at;
	enum is is;
	uint64_t client, bytes, deadline;
	unsigned n_passed;
};

struct world {
	struct dice dice;
	struct createqueue q;
	struct createqueue_client clients[CLIENTS + 1];
	struct createqueue_config config;
	struct request requests[REQUESTS];
	uint64_t n, now, room, wait, n_added, n_calls;
	bool disk_full, spilling;
};

static uint64_t oldest(const struct world *w)
{
	uint64_t i = 1;

	while (i <= w->n && w->requests[i].at.result != CREATEQUEUE_PENDING)
		i++;
	return i;
}

static enum createqueue_got allocate(void *arg, struct createqueue_request *at, bool fallback)
{
	struct world *w = arg;
	struct request *r = (struct request *)(void *)at;
	uint64_t id = (uint64_t)(r - w->requests), bytes = r->bytes;

	w->n_calls++;
	cr_assert(r->is == WAITS, "%lu is tried and does not wait", (unsigned long)id);
	if (w->config.mode == CREATEQUEUE_FIRST)
		cr_assert_eq(id, oldest(w), "not the oldest");
	if (bytes == 13) {
		r->is = ENDED;
		return CREATEQUEUE_REFUSED;
	}
	if (fallback ? dice_draw(&w->dice, 3) == 0 : bytes > w->room) {
		if (fallback)
			r->is = ENDED;
		return CREATEQUEUE_NO_ROOM;
	}
	if (!fallback)
		w->room -= bytes;
	r->is = CREATED;
	for (uint64_t i = 1; i < id; i++)
		w->requests[i].n_passed += w->requests[i].is == WAITS;
	return CREATEQUEUE_GOT;
}

static bool disk_full(void *arg)
{
	return ((struct world *)arg)->disk_full;
}

static bool spill(void *arg)
{
	return ((struct world *)arg)->spilling;
}

static unsigned has(const struct world *w, uint64_t client)
{
	unsigned n = 0;

	for (uint64_t i = 1; i <= w->n; i++)
		n += w->requests[i].client == client && w->requests[i].is != NOWHERE &&
		     w->requests[i].is != FETCHED;
	return n;
}

static void add(struct world *w)
{
	uint64_t id = ++w->n, deadline = dice_draw(&w->dice, 2) ? dice_draw(&w->dice, 200) : 0;
	struct request *r = &w->requests[id];
	unsigned n;
	bool added;

	r->client = 1 + dice_draw(&w->dice, CLIENTS);
	r->bytes = dice_draw(&w->dice, 40);
	n = has(w, r->client);
	if (!deadline && w->config.mode == CREATEQUEUE_HOST)
		deadline = w->wait;
	deadline = deadline ? w->now + deadline : UINT64_MAX;
	added = createqueue_add(&w->q, &r->at, &w->clients[r->client], deadline, w->now);
	cr_assert_eq(added, n < PER_CLIENT);
	if (!added)
		return;
	r->deadline = deadline;
	r->is = WAITS;
	w->n_added++;
}

static void process(struct world *w)
{
	enum createqueue_status status = createqueue_process(&w->q, w->now);

	for (uint64_t i = 1; i <= w->n; i++) {
		struct request *r = &w->requests[i];
		enum createqueue_result result = r->at.result;

		if (result == CREATEQUEUE_TIMED_OUT && r->is == WAITS) {
			cr_assert_geq(w->now, r->deadline);
			r->is = ENDED;
		}
		if (result == CREATEQUEUE_OUT_OF_DISK && r->is == WAITS) {
			cr_assert(w->disk_full);
			r->is = ENDED;
		}
		cr_assert(r->is != WAITS || w->now < r->deadline, "%lu waits beyond its deadline",
			  (unsigned long)i);
		if (r->is == WAITS && w->config.mode == CREATEQUEUE_HOST)
			cr_assert_leq(r->n_passed, BYPASS);
	}
	cr_assert(status != CREATEQUEUE_OK || oldest(w) > w->n, "somebody waits");
}

static void leave(struct world *w)
{
	uint64_t client = 1 + dice_draw(&w->dice, CLIENTS);

	for (uint64_t i = 1; i <= w->n; i++)
		if (w->requests[i].client == client) {
			createqueue_drop(&w->q, &w->requests[i].at);
			cr_assert_eq(w->requests[i].at.result, CREATEQUEUE_UNKNOWN);
			w->requests[i].is = NOWHERE;
		}
}

static void drop(struct world *w)
{
	struct request *r = &w->requests[dice_draw(&w->dice, w->n + 1)];

	createqueue_drop(&w->q, &r->at);
	cr_assert_eq(r->at.result, CREATEQUEUE_UNKNOWN);
	r->is = NOWHERE;
}

static void fetch(struct world *w)
{
	struct request *r = &w->requests[dice_draw(&w->dice, w->n + 1)];
	enum createqueue_result got = r->at.result;

	if (got > CREATEQUEUE_PENDING)
		createqueue_drop(&w->q, &r->at);
	if (r->is == CREATED || r->is == ENDED) {
		cr_assert(got != CREATEQUEUE_PENDING && got != CREATEQUEUE_UNKNOWN);
		cr_assert_eq(got == CREATEQUEUE_CREATED, r->is == CREATED);
		r->is = FETCHED;
	} else {
		cr_assert_eq(got, r->is == WAITS ? CREATEQUEUE_PENDING : CREATEQUEUE_UNKNOWN);
	}
}

static void look(const struct world *w)
{
	struct createqueue_counts c = w->q.counts;
	uint64_t waiting = 0, finished = 0, ended = 0;

	for (uint64_t i = 1; i <= w->n; i++) {
		waiting += w->requests[i].is == WAITS;
		finished += w->requests[i].is == CREATED || w->requests[i].is == ENDED;
	}
	cr_assert_eq(c.waiting, waiting);
	for (const struct createqueue_request *r = w->q.ended; r; r = r->next)
		ended++;
	cr_assert_eq(ended, finished);
	cr_assert_eq(c.created + c.refused + c.out_of_disk + c.timed_out + c.dropped + waiting,
		     w->n_added);
	cr_assert_eq(c.calls, w->n_calls);
	for (uint64_t i = 1; i <= CLIENTS; i++)
		cr_assert_leq(has(w, i), PER_CLIENT);
}

static void step(struct world *w)
{
	switch (dice_draw(&w->dice, 10)) {
	case 0:
	case 1:
	case 2:
		add(w);
		break;
	case 3:
	case 4:
	case 5:
		process(w);
		break;
	case 6:
		fetch(w);
		break;
	case 7:
		w->now += dice_draw(&w->dice, 60);
		w->room = dice_draw(&w->dice, 60);
		break;
	case 8:
		w->disk_full = dice_draw(&w->dice, 8) == 0;
		w->spilling = dice_draw(&w->dice, 3) == 0;
		break;
	default:
		if (dice_draw(&w->dice, 4) == 0)
			leave(w);
		else
			drop(w);
	}
	look(w);
}

static void play(uint64_t seed, enum createqueue_mode mode)
{
	struct world w = {.dice = {seed}, .wait = 150};
	const struct createqueue_ops ops = {allocate, disk_full, spill, &w};

	w.config.mode = mode;
	w.config.grace = 50;
	w.config.per_client = PER_CLIENT;
	w.config.max_bypass = BYPASS;
	createqueue_init(&w.q, &w.config, &ops);
	for (unsigned i = 0; i < STEPS; i++)
		step(&w);
	/* In the end the store has room for all. */
	w.room = UINT32_MAX;
	process(&w);
	for (uint64_t i = 1; i <= w.n; i++)
		cr_assert(w.requests[i].is != WAITS);
}

Test(createqueue, random_histories_keep_its_promises)
{
	uint64_t first, n = dice_seeds(HISTORIES, &first);

	for (uint64_t seed = first; seed < first + n; seed++) {
		play(seed, CREATEQUEUE_FIRST);
		play(seed, CREATEQUEUE_HOST);
	}
}

Test(createqueue, in_mode_host_a_large_request_holds_back_its_own_client_only_and_for_a_while)
{
	struct world w = {.dice = {1}, .room = 10, .n = 6};
	const struct createqueue_ops ops = {allocate, disk_full, spill, &w};

	w.config = (struct createqueue_config){
		.mode = CREATEQUEUE_HOST, .grace = 2000, .per_client = 64, .max_bypass = 2};
	w.spilling = true;
	createqueue_init(&w.q, &w.config, &ops);
	for (uint64_t id = 1; id <= 6; id++) {
		struct request *r = &w.requests[id];

		*r = (struct request){
			.is = WAITS, .bytes = id == 1 ? 30 : 1, .client = id <= 2 ? 1 : 2};
		cr_assert(createqueue_add(&w.q, &r->at, &w.clients[r->client], UINT64_MAX, 0));
	}
	cr_assert_eq(createqueue_process(&w.q, 0), CREATEQUEUE_TRANSIENT);
	cr_assert_eq(w.requests[2].at.result, CREATEQUEUE_PENDING, "of the same client");
	cr_assert_eq(w.requests[4].at.result, CREATEQUEUE_CREATED);
	cr_assert_eq(w.requests[5].at.result, CREATEQUEUE_PENDING, "two have passed the first");
	cr_assert_eq(createqueue_process(&w.q, 1), CREATEQUEUE_TRANSIENT);
	cr_assert_eq(w.requests[5].at.result, CREATEQUEUE_PENDING);
	w.room = 50;
	cr_assert_eq(createqueue_process(&w.q, 2), CREATEQUEUE_OK);
}
