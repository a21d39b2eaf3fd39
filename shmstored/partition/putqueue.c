/* SPDX-License-Identifier: Apache-2.0 */
/*
 * putqueue.c: between the pure queue, and the quota, the disk tier and the connections of a
 * partition.
 *
 * An attempt of the queue is a request to the quota that does not wait there. A put is answered
 * after the pass. No connection ends amid a pass, and no member goes: conn_drop() only marks.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <utlist.h>

#include "account.h"
#include "accountquota.h"
#include "config.h"
#include "conn.h"
#include "host.h"
#include "loop.h"
#include "member.h"
#include "part.h"
#include "quota.h"

#define MS          1000000u
/* attempts of one pass that fail: each looks at all stores. Later puts wait for the next pass */
#define FAILED_MOST 32u

struct put {
	struct put *prev, *next;
	struct createqueue_request at;
	struct member *member;
	struct quota_want want;
	struct quota_answer answer; /* of the last attempt */
	int error;                  /* of it */
	bool tried;
	bool now; /* it does not wait: whoever asked takes the result */
};

static uint64_t now_ns(const struct putqueue *p)
{
	return loop_now(p->account->host->loop);
}

/* ---- what the queue asks of us --------------------------------------------------------------- */

/* A request that is above its limit even where nothing else is used. */
static bool is_beyond(const struct quota_want *want, const struct quota_answer *a)
{
	return a->hard && want->need > a->hard;
}

static enum createqueue_got allocate(void *arg, struct createqueue_request *r, bool fallback)
{
	struct putqueue *p = arg;
	struct put *w = CONTAINER_OF(r, put, at);
	struct quota_want want = w->want;

	if (!w->member->quota)
		return CREATEQUEUE_REFUSED;
	if (fallback || p->n_failed >= FAILED_MOST)
		return CREATEQUEUE_NO_ROOM;
	want.wait = false;
	want.probe = !w->now;
	w->error = quota_request(p->account->quota, w->member->quota, &want, now_ns(p), &w->answer);
	w->tried = true;
	if (!w->error)
		return CREATEQUEUE_GOT;
	if ((w->error != -ENOSPC && w->error != -EDQUOT) || is_beyond(&want, &w->answer))
		return CREATEQUEUE_REFUSED;
	p->n_failed++;
	if (r->bytes > p->missing)
		p->missing = r->bytes;
	return CREATEQUEUE_NO_ROOM;
}

static bool is_disk_full(void *arg)
{
	const struct putqueue *p = arg;

	return PART_ANY(p->account, disk_full, p->account);
}

/* One at a time: the one under way may suffice. After a failure the tier rests by itself. */
static bool spill(void *arg)
{
	const struct putqueue *p = arg;

	return PART_ANY(p->account, spill, p->account, 0) ||
	       PART_ANY(p->account, spill, p->account, p->missing);
}

/* ---- its life -------------------------------------------------------------------------------- */

int putqueue_new(struct account *a, struct putqueue **ret)
{
	const struct config_partition *c = a->config;
	struct createqueue_config config = createqueue_defaults;
	struct createqueue_ops ops = {allocate, is_disk_full, spill, NULL};
	struct putqueue *p;

	*ret = NULL;
	if (c->queue == CONFIG_QUEUE_LIMITS)
		return 0;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->account = a;
	config.mode = c->queue == CONFIG_QUEUE_HOST ? CREATEQUEUE_HOST : CREATEQUEUE_FIRST;
	config.grace_ms = c->queue_grace_ns ? c->queue_grace_ns / MS : UINT64_MAX;
	config.per_client = c->queue_per_store;
	config.max_bypass = c->queue_max_bypass;
	ops.arg = p;
	createqueue_init(&p->queue, &config, &ops);
	*ret = p;
	return 0;
}

static void forget(struct putqueue *p, struct put *w)
{
	createqueue_drop(&p->queue, &w->at);
	DL_DELETE(p->puts, w);
	free(w);
}

struct putqueue *putqueue_free(struct putqueue *p)
{
	if (!p)
		return NULL;
	while (p->puts)
		forget(p, p->puts);
	free(p);
	return NULL;
}

/* ---- results --------------------------------------------------------------------------------- */

/* A put that others held back was never tried: the partition is its limit. */
static void fill(const struct putqueue *p, struct put *w)
{
	if (w->tried && w->error)
		return;
	w->answer = (struct quota_answer){.limit = WIRE_LIMIT_PARTITION,
					  .hard = p->account->tick.size,
					  .used = p->account->tick.used};
}

static void say_no_disk(const struct putqueue *p, const struct put *w)
{
	conn_refuse_limit(w->member->conn, w->want.serial, -ETIMEDOUT, w->answer.limit,
			  w->answer.hard, w->answer.used,
			  "no room on %s (%" PRIu64 " of %" PRIu64
			  " bytes are used or granted), and %s: it was not waited for "
			  "longer; delete objects, or make room on the disk",
			  p->account->path, w->answer.used, w->answer.hard,
			  is_disk_full((void *)(uintptr_t)p) ? "the disk tier is full"
							     : "queue-grace is over");
}

static void tell(struct putqueue *p, struct put *w)
{
	struct conn *c = w->member->conn;

	if (!c)
		return;
	switch (w->at.result) {
	case CREATEQUEUE_CREATED:
		accountquota_answer(w->member, w->want.serial, 0, &w->answer);
		break;
	case CREATEQUEUE_WRONG:
		accountquota_answer(w->member, w->want.serial, w->error, &w->answer);
		break;
	case CREATEQUEUE_OUT_OF_DISK:
		fill(p, w);
		p->account->host->counters.n_refusals++;
		say_no_disk(p, w);
		break;
	case CREATEQUEUE_TIMED_OUT:
	case CREATEQUEUE_UNKNOWN:
	case CREATEQUEUE_PENDING:
	default:
		fill(p, w);
		accountquota_answer(w->member, w->want.serial, -ETIMEDOUT, &w->answer);
		break;
	}
}

void putqueue_pass(struct putqueue *p)
{
	if (!p || p->passing || !p->puts)
		return;
	p->passing = true;
	p->missing = p->n_failed = 0;
	createqueue_process(&p->queue, now_ns(p) / MS);
	for (struct put *w = p->puts, *next; w; w = next) {
		next = w->next;
		if (w->now || w->at.result == CREATEQUEUE_PENDING)
			continue;
		tell(p, w);
		forget(p, w);
	}
	p->passing = false;
}

/* ---- requests -------------------------------------------------------------------------------- */

static struct put *find(const struct putqueue *p, const struct member *m, uint64_t serial)
{
	struct put *w = p->puts;

	while (w && (w->member != m || w->want.serial != serial))
		w = w->next;
	return w;
}

static int add(struct putqueue *p, struct member *m, const struct quota_want *want,
	       struct put **ret)
{
	uint64_t now = now_ns(p),
		 left = want->deadline_ns > now ? (want->deadline_ns - now) / MS : 0;
	struct put *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->member = m;
	w->want = *want;
	w->now = !want->wait;
	w->at = (struct createqueue_request){.bytes = want->need, .client = &m->puts};
	if (!createqueue_add(&p->queue, &w->at, left + 1, now / MS)) {
		free(w);
		return -EMFILE;
	}
	DL_APPEND(p->puts, w);
	*ret = w;
	return 0;
}

/* Of one that does not wait. */
static int take_now(struct putqueue *p, struct put *w, struct quota_answer *ret)
{
	enum createqueue_result result = w->at.result;
	int r = result == CREATEQUEUE_CREATED ? 0 : w->tried ? w->error : -ENOSPC;

	if (result != CREATEQUEUE_CREATED)
		fill(p, w);
	p->n_now += result == CREATEQUEUE_PENDING;
	*ret = w->answer;
	forget(p, w);
	return r;
}

int putqueue_request(struct putqueue *p, struct member *m, const struct quota_want *want,
		     struct quota_answer *ret)
{
	struct quota_want once = *want;
	struct put *w = NULL;
	int r;

	if (find(p, m, want->serial))
		return -EINVAL;
	if (!p->puts) {
		once.wait = false;
		once.probe = want->wait;
		r = quota_request(p->account->quota, m->quota, &once, now_ns(p), ret);
		if (!want->wait || (r != -ENOSPC && r != -EDQUOT) || is_beyond(want, ret))
			return r;
	}
	r = add(p, m, want, &w);
	if (r < 0)
		return r;
	putqueue_pass(p);
	return want->wait ? 1 : take_now(p, w, ret);
}

int putqueue_cancel(struct putqueue *p, struct member *m, uint64_t serial)
{
	struct put *w = find(p, m, serial);

	if (!w)
		return -ENOENT;
	forget(p, w);
	accountquota_answer(m, serial, -ECANCELED, &(struct quota_answer){0});
	return 0;
}

void putqueue_left(struct putqueue *p, const struct member *m)
{
	for (struct put *w = p ? p->puts : NULL, *next; w; w = next) {
		next = w->next;
		if (w->member == m)
			forget(p, w);
	}
}
