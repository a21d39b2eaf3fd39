/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbscenes.c: the rows of calls. Each goes on where a call does not work, as far as that makes
 * sense: what then is left to be given back is the library's to know.
 */
#include <poll.h>
#include <string.h>

#include "arbvictim.h"
#include "content.h"

#define KIB         UINT64_C(1024)
#define PART        SHMSTORE_ARB_PARTITION
#define OWN_POOL    (4 * ARBSTAGE_MIB)
#define PATIENCE_MS 300                 /* with calls that may not come */
#define MORE        (20 * ARBSTAGE_MIB) /* does not fit beside what the neighbour has */
#define KEY(k)      (k), strlen(k)

static bool reserve(struct arbvictim *v, uint32_t pool, uint64_t bytes,
		    struct shmstore_arb_reservation *ret)
{
	return arbvictim_did(v, "reserve", shmstore_arb_reserve(v->s, pool, bytes, NULL, ret));
}

static void release(struct arbvictim *v, struct shmstore_arb_reservation *r)
{
	arbvictim_did(v, "release", shmstore_arb_release(v->s, r));
}

static void close_store(struct arbvictim *v)
{
	struct shmstore *s = v->s;

	v->s = NULL;
	v->second = NULL;
	arbvictim_did(v, "close", shmstore_close(s));
}

/* ---- a client's life ------------------------------------------------------------------------- */

static void run_life(struct arbvictim *v)
{
	if (!arbvictim_open(v))
		return;
	if (arbvictim_begin(v, &v->task) &&
	    arbvictim_did(v, "bind", shmstore_arb_bind(v->s, NULL, v->task)))
		reserve(v, PART, v->scene->bytes, &v->held);
	release(v, &v->held);
	arbvictim_did(v, "unbind", shmstore_arb_unbind(v->s, NULL, NULL, 0));
	if (v->task)
		arbvictim_did(v, "task end", shmstore_arb_task_end(v->s, v->task));
	close_store(v);
}

/* ---- put under a reservation ----------------------------------------------------------------- */

static void put(struct arbvictim *v, const char *key, uint64_t bytes)
{
	arbvictim_did(v, "put",
		      content_put(v->s, KEY(key), (struct content){7, bytes}, SHMSTORE_REPLACE));
}

static void run_put(struct arbvictim *v)
{
	uint64_t n = v->scene->bytes;

	reserve(v, PART, n, &v->held);
	arbvictim_did(v, "spend", shmstore_arb_spend(v->s, &v->held));
	put(v, "a", n / 4);
	arbvictim_did(v, "create", content_create(v->s, KEY("b"), (struct content){8, n / 4}, 0));
	arbvictim_did(v, "spend", shmstore_arb_spend(v->s, NULL));
	put(v, "a", n / 8); /* reserves by itself, replaces */
	release(v, &v->held);
	shmstore_delete(v->s, KEY("b"));
}

static void run_resize(struct arbvictim *v)
{
	uint64_t n = v->scene->bytes;

	reserve(v, PART, n, &v->held);
	arbvictim_did(v, "resize", shmstore_arb_resize(v->s, &v->held, n / 4, NULL));
	arbvictim_did(v, "resize", shmstore_arb_resize(v->s, &v->held, n / 2, NULL));
	v->more.pool = PART;
	v->more.bytes = n;
	arbvictim_did(v, "reserve many", shmstore_arb_reserve_many(v->s, &v->more, 1, NULL));
	release(v, &v->more);
	release(v, &v->held);
	arbvictim_did(v, "task end", shmstore_arb_task_end(v->s, v->task));
}

/* ---- up-calls -------------------------------------------------------------------------------- */

static uint64_t evict(void *ctx, uint32_t pool, uint64_t bytes, uint32_t reservation)
{
	struct arbvictim *v = ctx;
	uint64_t gone = v->held.bytes;

	(void)pool;
	(void)bytes;
	(void)reservation;
	release(v, &v->held);
	return gone;
}

static void prepare_own(struct arbvictim *v)
{
	const struct shmstore_arb_upcalls calls = {.evict = evict, .ctx = v};

	arbvictim_did(v, "pool", shmstore_arb_pool_create(v->s, "own", OWN_POOL, 0, &v->pool));
	arbvictim_did(v, "up-calls", shmstore_arb_set_upcalls(v->s, &calls));
	arbvictim_did(v, "context", shmstore_arb_context_new(v->s, &v->second));
	if (arbvictim_begin(v, &v->second_task))
		arbvictim_did(v, "bind", shmstore_arb_bind(v->s, v->second, v->second_task));
	shmstore_arb_fd(v->s);
}

/* Serves what comes (not all of it is a call for room), until what the second context asked for has
 * an answer: if need be by being canceled. */
static void await_second(struct arbvictim *v)
{
	struct shmstore_arb_done done = {0};

	for (int patience = 3; shmstore_arb_next(v->s, &done) == 0;) {
		struct pollfd p[2] = {{.fd = shmstore_arb_fd(v->s), .events = POLLIN},
				      {.fd = shmstore_arb_serve_fd(v->s), .events = POLLIN}};

		if (poll(p, 2, v->disturbed ? PATIENCE_MS : (int)ARBSTAGE_WAIT_MS) <= 0) {
			arbvictim_did(v, "the second's reserve does not end",
				      SHMSTORE_ARB_TIMEDOUT);
			if (!patience--)
				return;
			shmstore_arb_cancel(v->s, v->second);
		} else if (p[1].revents) {
			int n = shmstore_arb_serve(v->s, 0);

			arbvictim_did(v, "serve", n < 0 ? n : 0);
		}
	}
	if (arbvictim_did(v, "the second's reserve", done.outcome))
		release(v, &done.reservation);
}

static void run_upcall(struct arbvictim *v)
{
	struct shmstore_arb_how how = {.context = v->second, .flags = SHMSTORE_ARB_ASYNC};
	struct shmstore_arb_reservation later = {0};
	int r;

	if (reserve(v, v->pool, v->scene->bytes, &v->held))
		arbvictim_did(v, "unpin", shmstore_arb_unpin(v->s, &v->held));
	r = shmstore_arb_reserve(v->s, v->pool, OWN_POOL - v->scene->bytes / 2, &how, &later);
	if (r == SHMSTORE_ARB_PENDING)
		await_second(v);
	else
		arbvictim_did(v, "reserve, later", r);
	release(v, &v->held);
	if (!reserve(v, v->pool, v->scene->bytes, &v->held))
		return;
	if (arbvictim_did(v, "unpin", shmstore_arb_unpin(v->s, &v->held)))
		arbvictim_did(v, "pin", shmstore_arb_pin(v->s, &v->held, NULL));
	release(v, &v->held);
}

static void run_channel(struct arbvictim *v)
{
	prepare_own(v);
	if (v->pool)
		arbvictim_did(v, "no pool", shmstore_arb_pool_remove(v->s, v->pool));
	v->pool = 0;
	arbvictim_did(v, "no up-calls", shmstore_arb_set_upcalls(v->s, NULL));
}

/* ---- others wait ----------------------------------------------------------------------------- */

static void prepare_awaited(struct arbvictim *v)
{
	if (reserve(v, PART, ARBSTAGE_HELD, &v->held))
		arbstage_ask(v->st, v->s);
}

static void run_release(struct arbvictim *v)
{
	release(v, &v->held);
	reserve(v, PART, v->scene->bytes, &v->held);
	close_store(v);
}

static int attempt(void *ctx, void *item)
{
	struct arbvictim *v = ctx;

	(void)item;
	v->retried = v->held.bytes == 0;
	return shmstore_arb_reserve(v->s, PART, MORE, NULL, &v->more);
}

static void give_way(void *ctx, void *item)
{
	struct arbvictim *v = ctx;

	(void)item;
	release(v, &v->held);
}

/* It is the lower one of two that wait for each other. */
static void run_retry(struct arbvictim *v)
{
	struct shmstore_arb_work w = {
		.size = sizeof(w), .attempt = attempt, .restore = give_way, .ctx = v};
	void *items[1] = {NULL};

	if (arbvictim_did(v, "with retry", shmstore_arb_with_retry(v->s, items, 1, &w)))
		release(v, &v->more);
	if (!v->disturbed && !v->deserted && !v->retried)
		arbstage_fail(v->st, "it was not told RETRY");
	release(v, &v->held);
}

/* ---- close ----------------------------------------------------------------------------------- */

/* Holds, leases, waits, and serves. */
static void prepare_all(struct arbvictim *v)
{
	struct shmstore_arb_how how = {.flags = SHMSTORE_ARB_ASYNC};
	struct shmstore_arb_reservation small, later;

	prepare_own(v);
	how.context = v->second;
	reserve(v, PART, 8 * KIB, &small);
	reserve(v, PART, ARBSTAGE_HELD, &v->held);
	put(v, "a", 64 * KIB);
	if (!v->st->shared->message[0] && arbstage_ask(v->st, v->s) &&
	    shmstore_arb_reserve(v->s, PART, ARBSTAGE_HELD, &how, &later) != SHMSTORE_ARB_PENDING)
		arbstage_fail(v->st, "the second does not wait");
}

/* ---- for a daemon that dies ------------------------------------------------------------------ */

static void prepare_many(struct arbvictim *v)
{
	prepare_own(v);
	prepare_awaited(v);
}

static void run_many(struct arbvictim *v)
{
	run_retry(v);
	run_put(v);
	run_upcall(v);
}

const struct arbscene arbscene_many = {.name = "many",
				       .prepare = prepare_many,
				       .run = run_many,
				       .bytes = 2 * ARBSTAGE_MIB + 32 * KIB};

const struct arbscene arbscenes[] = {
	{.name = "life", .unopened = true, .run = run_life, .bytes = 8 * ARBSTAGE_MIB},
	{.name = "put", .run = run_put, .bytes = 4 * ARBSTAGE_MIB},
	{.name = "put-leased", .run = run_put, .bytes = 128 * KIB},
	{.name = "resize", .run = run_resize, .bytes = 8 * ARBSTAGE_MIB},
	{.name = "resize-leased", .run = run_resize, .bytes = 64 * KIB},
	{.name = "channel", .run = run_channel},
	{.name = "upcall", .prepare = prepare_own, .run = run_upcall, .bytes = 3 * ARBSTAGE_MIB},
	{.name = "upcall-leased", .prepare = prepare_own, .run = run_upcall, .bytes = 32 * KIB},
	{.name = "release", .prepare = prepare_awaited, .run = run_release, .bytes = ARBSTAGE_HELD},
	{.name = "retry", .prepare = prepare_awaited, .run = run_retry},
	{.name = "close", .prepare = prepare_all, .run = close_store},
};
const size_t n_arbscenes = sizeof(arbscenes) / sizeof(arbscenes[0]);
