/* SPDX-License-Identifier: Apache-2.0 */
/* arbstate.c: STATE and STATS: a client asks about its own contexts, tasks and pools. One JSON object each, as wire.h has it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "arbhost_state.h"

#define MS UINT64_C(1000000)

static int say_state(struct arbrequest *q)
{
	struct arbguest *c = q->client;
	struct arb_context_info i = {.state = ARB_UNKNOWN};
	uint64_t since_ms = 0;

	if (arb_context(c->host->core, arb_id(c, q->w->context), arb_now(c->host), &i) && i.since_ns)
		since_ms = (arb_now(c->host) - i.since_ns) / MS;
	if (asprintf(&q->text, "{\"state\":\"%s\",\"since_ms\":%" PRIu64 ",\"held\":%" PRIu64 ",\"need\":%" PRIu64 "}",
		     arb_state_name(i.state), since_ms, i.held, i.need) < 0)
		return -ENOMEM;
	return ARB_OK;
}

static int say_pool(struct arbrequest *q, uint64_t pool)
{
	const struct arbhost *h = q->client->host;
	struct arb_pool_info i;

	if (!arb_pool(h->core, pool, &i))
		return ARB_INVALID;
	if (asprintf(&q->text,
		     "{\"capacity\":%" PRIu64 ",\"used\":%" PRIu64 ",\"reclaimable\":%" PRIu64 ",\"spilled\":%" PRIu64
		     ",\"max_used\":%" PRIu64 ",\"waiting\":%u,\"level\":%u}",
		     i.capacity, i.used, i.reclaimable, i.spilled, i.max_used, i.n_waiting, arbhost_level(h, &i)) < 0)
		return -ENOMEM;
	return ARB_OK;
}

static int say_task(struct arbrequest *q, uint64_t pool)
{
	struct arbguest *c = q->client;
	struct arb_stats s;

	if (!arb_stats(c->host->core, arb_id(c, q->w->task), pool, arb_now(c->host), q->w->flags & ARB_RESET, &s))
		return ARB_INVALID;
	if (asprintf(&q->text,
		     "{\"retries\":%" PRIu64 ",\"splits\":%" PRIu64 ",\"grants\":%" PRIu64 ",\"blocked_ns\":%" PRIu64
		     ",\"lost_ns\":%" PRIu64 ",\"blocked_or_lost_ns\":%" PRIu64 ",\"current\":%" PRIu64
		     ",\"max\":%" PRIu64 ",\"footprint\":%" PRIu64 ",\"need\":%" PRIu64 "}",
		     s.n_retries, s.n_splits, s.n_grants, s.blocked_ns, s.lost_ns, s.blocked_or_lost_ns, s.current,
		     s.max, s.footprint, s.need) < 0)
		return -ENOMEM;
	return ARB_OK;
}

int arbstate_make(struct arbrequest *q)
{
	const struct wire_arb *w = q->w;
	uint64_t pool = w->pool ? arb_pool_id(q->client, w->pool) : 0;

	if (w->pool && !arbguest_has_pool(q->client, w->pool))
		return ARB_INVALID;
	/* Its numbers as they are now. */
	arbkernel_refresh(q->client->host, q->client);
	if (w->op == WIRE_ARB_STATE)
		return w->context ? say_state(q) : ARB_INVALID;
	return w->task ? say_task(q, pool) : say_pool(q, pool);
}
