/* SPDX-License-Identifier: Apache-2.0 */
/*
 * createqueue.c: the requests in the order of their arrival, a table of them by their ids, and the passes of both modes.
 *
 * A request is in the list while it waits and in the table until it is fetched; its client counts it that long, and goes with the last. One thread.
 */
#include "createqueue.h"

#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "idtable.h"

#define NEVER UINT64_MAX

struct client {
	uint64_t id;
	uint32_t n;
	uint64_t held; /* the pass in which one of its requests did not fit */
	UT_hash_handle hh;
};

struct request {
	uint64_t id, bytes;
	struct client *client;
	enum createqueue_result result;
	uint64_t added_ms, deadline_ms; /* NEVER: none */
	uint64_t failing_ms;            /* since when it does not fit; NEVER: it was not tried, or there is spilling */
	uint32_t n_passed;              /* later ones that were created before it */
	struct request *prev, *next;
	UT_hash_handle hh;
};

struct createqueue {
	struct createqueue_config config;
	struct createqueue_ops ops;
	struct request *waiting, *known;
	struct client *clients;
	uint64_t failing_ms; /* mode FIRST: one for all */
	uint64_t n_passes;
	struct createqueue_counts counts;
};

const struct createqueue_config createqueue_defaults = {
	.mode = CREATEQUEUE_FIRST,
	.grace_ms = 2000,
	.wait_ms = 30000,
	.retry_ms = 10,
	.per_client = 64,
	.max_bypass = 64,
};

struct createqueue *createqueue_new(const struct createqueue_config *config, const struct createqueue_ops *ops)
{
	struct createqueue *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->config = *config;
	q->ops = *ops;
	q->failing_ms = NEVER;
	return q;
}

static struct request *find(const struct createqueue *q, uint64_t id)
{
	struct request *r;

	HASH_FIND(hh, q->known, &id, sizeof(id), r);
	return r;
}

static struct client *client_of(const struct createqueue *q, uint64_t id)
{
	struct client *c;

	HASH_FIND(hh, q->clients, &id, sizeof(id), c);
	return c;
}

static struct client *client_get(struct createqueue *q, uint64_t id)
{
	struct client *c = client_of(q, id);

	if (c)
		return c;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->id = id;
	HASH_ADD(hh, q->clients, id, sizeof(c->id), c);
	if (!c->hh.tbl) {
		free(c);
		return NULL;
	}
	return c;
}

static void client_put(struct createqueue *q, struct client *c)
{
	if (c->n)
		return;
	HASH_DEL(q->clients, c);
	free(c);
}

static void forget(struct createqueue *q, struct request *r)
{
	if (r->result == CREATEQUEUE_PENDING) {
		DL_DELETE(q->waiting, r);
		q->counts.waiting--;
	} else {
		q->counts.finished--;
	}
	HASH_DEL(q->known, r);
	r->client->n--;
	client_put(q, r->client);
	free(r);
}

struct createqueue *createqueue_free(struct createqueue *q)
{
	if (!q)
		return NULL;
	while (q->known)
		forget(q, q->known);
	free(q);
	return NULL;
}

static uint64_t after(uint64_t now_ms, uint64_t ms)
{
	return now_ms > NEVER - ms ? NEVER : now_ms + ms;
}

int createqueue_add(struct createqueue *q, uint64_t id, uint64_t client, uint64_t bytes, uint64_t deadline_ms,
		    uint64_t now_ms)
{
	struct client *c;
	struct request *r;

	if (find(q, id))
		return -EEXIST;
	c = client_of(q, client);
	if (c && c->n >= q->config.per_client)
		return -EAGAIN;
	r = calloc(1, sizeof(*r));
	c = r ? client_get(q, client) : NULL;
	if (!c) {
		free(r);
		return -ENOMEM;
	}
	if (!deadline_ms && q->config.mode == CREATEQUEUE_HOST)
		deadline_ms = q->config.wait_ms;
	*r = (struct request){.id = id,
			      .bytes = bytes,
			      .client = c,
			      .result = CREATEQUEUE_PENDING,
			      .added_ms = now_ms,
			      .deadline_ms = deadline_ms ? after(now_ms, deadline_ms) : NEVER,
			      .failing_ms = NEVER};
	HASH_ADD(hh, q->known, id, sizeof(r->id), r);
	if (!r->hh.tbl) {
		free(r);
		client_put(q, c);
		return -ENOMEM;
	}
	c->n++;
	DL_APPEND(q->waiting, r);
	q->counts.waiting++;
	return 0;
}

static void finish(struct createqueue *q, struct request *r, enum createqueue_result result)
{
	DL_DELETE(q->waiting, r);
	r->result = result;
	q->counts.waiting--;
	q->counts.finished++;
	q->counts.created += result == CREATEQUEUE_CREATED;
	q->counts.refused += result == CREATEQUEUE_WRONG;
	q->counts.out_of_disk += result == CREATEQUEUE_OUT_OF_DISK;
	q->counts.timed_out += result == CREATEQUEUE_TIMED_OUT;
}

static enum createqueue_got attempt(struct createqueue *q, uint64_t id, uint64_t bytes, bool fallback)
{
	q->counts.calls++;
	q->counts.fallbacks += fallback;
	return q->ops.allocate(q->ops.arg, id, bytes, fallback);
}

/* One attempt for a request; the disk is the last resort. true: it is finished, either way. */
static bool try_it(struct createqueue *q, struct request *r, bool fallback)
{
	enum createqueue_got got = attempt(q, r->id, r->bytes, fallback);

	if (got == CREATEQUEUE_NO_ROOM && !fallback)
		return false;
	finish(q, r,
	       got == CREATEQUEUE_GOT       ? CREATEQUEUE_CREATED
	       : got == CREATEQUEUE_NO_ROOM ? CREATEQUEUE_OUT_OF_DISK
					    : CREATEQUEUE_WRONG);
	return true;
}

/* Ends the requests that this pass left waiting and whose deadline has passed. */
static void expire(struct createqueue *q, uint64_t now_ms)
{
	struct request *r, *next;

	for (r = q->waiting; r; r = next) {
		next = r->next;
		if (now_ms >= r->deadline_ms)
			finish(q, r, CREATEQUEUE_TIMED_OUT);
	}
}

/* Decides on the first request, which did not fit. OK: it is finished, the pass goes on. */
static enum createqueue_status first_failed(struct createqueue *q, struct request *r, uint64_t now_ms)
{
	bool spilling;

	if (q->ops.disk_full(q->ops.arg)) {
		finish(q, r, CREATEQUEUE_OUT_OF_DISK);
		return CREATEQUEUE_DISK;
	}
	q->counts.collects++;
	q->ops.collect(q->ops.arg);
	if (q->failing_ms == NEVER)
		q->failing_ms = now_ms;
	spilling = q->ops.spill(q->ops.arg);
	if (spilling)
		q->failing_ms = NEVER;
	if (!spilling && now_ms - q->failing_ms >= q->config.grace_ms) {
		try_it(q, r, true);
		return CREATEQUEUE_OK;
	}
	if (now_ms >= r->deadline_ms) {
		finish(q, r, CREATEQUEUE_TIMED_OUT);
		return CREATEQUEUE_OK;
	}
	return spilling ? CREATEQUEUE_TRANSIENT : CREATEQUEUE_FULL;
}

static enum createqueue_status pass_first(struct createqueue *q, uint64_t now_ms)
{
	enum createqueue_status status = CREATEQUEUE_OK;

	while (q->waiting && status == CREATEQUEUE_OK) {
		struct request *r = q->waiting;

		if (!try_it(q, r, false))
			status = first_failed(q, r, now_ms);
		else if (r->result == CREATEQUEUE_CREATED)
			q->failing_ms = NEVER;
	}
	return status;
}

struct pass { /* in mode HOST: what it has found out, which it asks once */
	bool asked, spilling, disk_full;
};

/* r does not fit. true: it is finished. */
static bool turn_failed(struct createqueue *q, struct request *r, uint64_t now_ms, struct pass *p)
{
	if (!p->asked) {
		*p = (struct pass){.asked = true, .disk_full = q->ops.disk_full(q->ops.arg)};
		if (!p->disk_full) {
			q->counts.collects++;
			q->ops.collect(q->ops.arg);
			p->spilling = q->ops.spill(q->ops.arg);
		}
	}
	if (r->failing_ms == NEVER || p->spilling)
		r->failing_ms = now_ms;
	if (p->disk_full)
		finish(q, r, CREATEQUEUE_OUT_OF_DISK);
	else if (!p->spilling && now_ms - r->failing_ms >= q->config.grace_ms)
		try_it(q, r, true);
	else if (now_ms >= r->deadline_ms)
		finish(q, r, CREATEQUEUE_TIMED_OUT);
	return r->result != CREATEQUEUE_PENDING;
}

/* One was created: those before it that wait were passed. Returns whether one of them bears no more. */
static bool passed(struct createqueue *q, const struct request *upto)
{
	bool enough = false;

	for (struct request *r = q->waiting; r && r != upto; r = r->next) {
		r->n_passed++;
		enough |= r->n_passed >= q->config.max_bypass;
	}
	return enough;
}

static enum createqueue_status pass_host(struct createqueue *q, uint64_t now_ms)
{
	struct pass p = {0};
	struct request *r, *next;
	bool stop = false, disk = false;

	q->n_passes++;
	for (r = q->waiting; r && !stop; r = next) {
		next = r->next;
		if (r->client->held == q->n_passes)
			continue;
		if (!try_it(q, r, false) && !turn_failed(q, r, now_ms, &p)) {
			r->client->held = q->n_passes;
			stop = r->n_passed >= q->config.max_bypass;
		}
		disk |= r->result == CREATEQUEUE_OUT_OF_DISK;
		if (r->result == CREATEQUEUE_CREATED)
			stop |= passed(q, next);
	}
	if (disk)
		return CREATEQUEUE_DISK;
	return !q->waiting ? CREATEQUEUE_OK : p.spilling ? CREATEQUEUE_TRANSIENT : CREATEQUEUE_FULL;
}

enum createqueue_status createqueue_process(struct createqueue *q, uint64_t now_ms)
{
	enum createqueue_status status =
		q->config.mode == CREATEQUEUE_HOST ? pass_host(q, now_ms) : pass_first(q, now_ms);

	expire(q, now_ms);
	return status;
}

enum createqueue_result createqueue_peek(const struct createqueue *q, uint64_t id)
{
	const struct request *r = find(q, id);

	return r ? r->result : CREATEQUEUE_UNKNOWN;
}

enum createqueue_result createqueue_fetch(struct createqueue *q, uint64_t id)
{
	enum createqueue_result result = createqueue_peek(q, id);

	if (result > CREATEQUEUE_PENDING)
		forget(q, find(q, id));
	return result;
}

void createqueue_drop(struct createqueue *q, uint64_t id)
{
	struct request *r = find(q, id);

	if (!r)
		return;
	q->counts.dropped += r->result == CREATEQUEUE_PENDING;
	forget(q, r);
}

uint64_t createqueue_oldest_ms(const struct createqueue *q, uint64_t now_ms)
{
	return q->waiting ? now_ms - q->waiting->added_ms : 0;
}

struct createqueue_counts createqueue_counts(const struct createqueue *q)
{
	return q->counts;
}
