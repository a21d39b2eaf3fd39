/* SPDX-License-Identifier: Apache-2.0 */
/* createqueue.c: the requests in the order of their arrival, and the passes
 * of both modes. One thread. */
#include "createqueue.h"

#include <stddef.h>
#include <utlist.h>

#define NEVER UINT64_MAX

void createqueue_init(struct createqueue *q, const struct createqueue_config *config,
		      const struct createqueue_ops *ops)
{
	*q = (struct createqueue){.config = *config, .ops = *ops, .failing = NEVER};
}

bool createqueue_add(struct createqueue *q, struct createqueue_request *r,
		     struct createqueue_client *client, uint64_t deadline, uint64_t now)
{
	if (client->n >= q->config.per_client)
		return false;
	*r = (struct createqueue_request){.client = client,
					  .result = CREATEQUEUE_PENDING,
					  .added = now,
					  .deadline = deadline,
					  .failing = NEVER};
	client->n++;
	DL_APPEND(q->waiting, r);
	q->counts.waiting++;
	return true;
}

static void finish(struct createqueue *q, struct createqueue_request *r,
		   enum createqueue_result result)
{
	DL_DELETE(q->waiting, r);
	DL_APPEND(q->ended, r);
	r->result = result;
	q->counts.waiting--;
	q->counts.created += result == CREATEQUEUE_CREATED;
	q->counts.refused += result == CREATEQUEUE_WRONG;
	q->counts.out_of_disk += result == CREATEQUEUE_OUT_OF_DISK;
	q->counts.timed_out += result == CREATEQUEUE_TIMED_OUT;
}

/* One attempt for a request; the disk is the last resort. true: it is finished, either way. */
static bool try_it(struct createqueue *q, struct createqueue_request *r, bool fallback)
{
	enum createqueue_got got;

	q->counts.calls++;
	got = q->ops.allocate(q->ops.arg, r, fallback);
	if (got == CREATEQUEUE_NO_ROOM && !fallback)
		return false;
	finish(q, r,
	       got == CREATEQUEUE_GOT       ? CREATEQUEUE_CREATED
	       : got == CREATEQUEUE_NO_ROOM ? CREATEQUEUE_OUT_OF_DISK
					    : CREATEQUEUE_WRONG);
	return true;
}

/* Decides on the first request, which did not fit. OK: it is finished, the pass goes on. */
static enum createqueue_status first_failed(struct createqueue *q, struct createqueue_request *r,
					    uint64_t now)
{
	bool spilling;

	if (q->ops.disk_full(q->ops.arg)) {
		finish(q, r, CREATEQUEUE_OUT_OF_DISK);
		return CREATEQUEUE_DISK;
	}
	if (q->failing == NEVER)
		q->failing = now;
	spilling = q->ops.spill(q->ops.arg);
	if (spilling)
		q->failing = NEVER;
	if (!spilling && now - q->failing >= q->config.grace) {
		try_it(q, r, true);
		return CREATEQUEUE_OK;
	}
	if (now >= r->deadline) {
		finish(q, r, CREATEQUEUE_TIMED_OUT);
		return CREATEQUEUE_OK;
	}
	return spilling ? CREATEQUEUE_TRANSIENT : CREATEQUEUE_FULL;
}

static enum createqueue_status pass_first(struct createqueue *q, uint64_t now)
{
	enum createqueue_status status = CREATEQUEUE_OK;

	while (q->waiting && status == CREATEQUEUE_OK) {
		struct createqueue_request *r = q->waiting;

		if (!try_it(q, r, false))
			status = first_failed(q, r, now);
		else if (r->result == CREATEQUEUE_CREATED)
			q->failing = NEVER;
	}
	return status;
}

struct pass { /* in mode HOST: what it has found out, which it asks once */
	bool asked, spilling, disk_full;
};

/* r does not fit. true: it is finished. */
static bool turn_failed(struct createqueue *q, struct createqueue_request *r, uint64_t now,
			struct pass *p)
{
	if (!p->asked) {
		*p = (struct pass){.asked = true, .disk_full = q->ops.disk_full(q->ops.arg)};
		p->spilling = !p->disk_full && q->ops.spill(q->ops.arg);
	}
	if (r->failing == NEVER || p->spilling)
		r->failing = now;
	if (p->disk_full)
		finish(q, r, CREATEQUEUE_OUT_OF_DISK);
	else if (!p->spilling && now - r->failing >= q->config.grace)
		try_it(q, r, true);
	else if (now >= r->deadline)
		finish(q, r, CREATEQUEUE_TIMED_OUT);
	return r->result != CREATEQUEUE_PENDING;
}

/* One was created: those before it that wait were passed. Returns whether
 * one of them bears no more. */
static bool passed(struct createqueue *q, const struct createqueue_request *upto)
{
	bool enough = false;

	for (struct createqueue_request *r = q->waiting; r && r != upto; r = r->next) {
		r->n_passed++;
		enough |= r->n_passed >= q->config.max_bypass;
	}
	return enough;
}

static enum createqueue_status pass_host(struct createqueue *q, uint64_t now)
{
	struct pass p = {0};
	struct createqueue_request *r, *next;
	bool stop = false, disk = false;

	q->n_passes++;
	for (r = q->waiting; r && !stop; r = next) {
		next = r->next;
		if (r->client->held == q->n_passes)
			continue;
		if (!try_it(q, r, false) && !turn_failed(q, r, now, &p)) {
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

enum createqueue_status createqueue_process(struct createqueue *q, uint64_t now)
{
	enum createqueue_status status =
		q->config.mode == CREATEQUEUE_HOST ? pass_host(q, now) : pass_first(q, now);

	/* Those that this pass left waiting. */
	for (struct createqueue_request *r = q->waiting, *next; r; r = next) {
		next = r->next;
		if (now >= r->deadline)
			finish(q, r, CREATEQUEUE_TIMED_OUT);
	}
	return status;
}

void createqueue_drop(struct createqueue *q, struct createqueue_request *r)
{
	if (r->result == CREATEQUEUE_UNKNOWN)
		return;
	if (r->result == CREATEQUEUE_PENDING) {
		DL_DELETE(q->waiting, r);
		q->counts.waiting--;
		q->counts.dropped++;
	} else {
		DL_DELETE(q->ended, r);
	}
	r->result = CREATEQUEUE_UNKNOWN;
	r->client->n--;
}
