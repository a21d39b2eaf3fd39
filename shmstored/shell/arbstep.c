/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbstep.c: messages to the core of a partition's arbiter, and its replies.
 *
 * Every message to the core goes through arbstep_do(). Answers that it sets free are put into their
 * clients' outputs at once; what takes further messages (a lease to be taken back, an eviction, an
 * up-call) is only noted, for arbhost_settle(). So no message to the core is ever sent from within
 * another one's replies, and no client is freed there.
 */
#include <string.h>
#include <utlist.h>

#include "arbhost.h"
#include "events.h"
#include "fields.h"
#include "jsonmake.h"

#define LATELY_NS UINT64_C(1000000000) /* a roll back is "lately" for so long */
#define MS        UINT64_C(1000000)

struct arbguest *arbguest_find(struct arbhost *h, uint64_t number)
{
	uint32_t key = (uint32_t)number;
	struct arbguest *c;

	HASH_FIND(hh, h->clients, &key, sizeof(key), c);
	return c;
}

void arbguest_todo(struct arbguest *c)
{
	if (c->todo)
		return;
	c->todo = true;
	DL_APPEND2(c->host->todo, c, todo_prev, todo_next);
}

bool arbguest_has_pool(const struct arbguest *c, uint32_t pool)
{
	struct arb_pool_info i;

	return arb_pool(c->host->core, arb_pool_id(c, pool), &i);
}

uint64_t arbstep_capacity(const struct arbhost *h, uint64_t pool)
{
	struct arb_pool_info i;

	return arb_pool(h->core, pool, &i) ? i.capacity : 0;
}

uint64_t arbstep_deadline(const struct arbhost *h, uint64_t timeout_ms)
{
	uint64_t most = arb_config(h)->wait_ns;

	return arb_now(h) + (timeout_ms && timeout_ms < most / MS ? timeout_ms * MS : most);
}

/* ---- outcomes ------------------------------------------------------------------------------- */

static void arbguest_send(struct arbguest *c, uint16_t type, uint64_t serial, const void *body,
			  const char *text)
{
	struct conn *conn = c->member->conn;
	size_t n = text ? strlen(text) : 0;

	if (conn)
		conn_send(conn, type, serial, body, text, n < WIRE_TEXT_MAX ? n : WIRE_TEXT_MAX);
}

void arbstep_tell(struct arbguest *c, uint32_t context, int outcome, uint64_t pool, uint64_t bytes,
		  const char *why)
{
	static const enum event events[] = {[ARB_RETRY] = EVENT_ARB_RETRY,
					    [ARB_SPLIT] = EVENT_ARB_SPLIT,
					    [ARB_NOMEM] = EVENT_ARB_NOMEM,
					    [ARB_TIMEDOUT] = EVENT_ARB_TIMEOUT};
	const struct member *m = c->member;
	bool rolled = outcome == ARB_RETRY || outcome == ARB_SPLIT, bound;
	struct arb_context_info i = {0};
	struct json_object *o;

	if (!rolled && outcome != ARB_NOMEM && outcome != ARB_TIMEDOUT)
		return;
	if (rolled && pool == WIRE_ARB_PARTITION)
		c->host->level_until_ns = arb_now(c->host) + LATELY_NS;
	bound = arb_context(c->host->core, arb_id(c, context), arb_now(c->host), &i);
	o = account_json(m->account);
	fields_of(o, m, FIELD(path, "store"), SAME(pid), SAME(uid));
	jsonmake_u64(o, "context", bound ? context : 0);
	jsonmake_null(o, "task");
	if (bound && i.kind == ARB_DEDICATED)
		jsonmake_u64(o, "task", (uint32_t)i.task);
	jsonmake_text(o, "pool",
		      pool == WIRE_ARB_PARTITION ? "partition"
		      : pool                     ? "private"
						 : NULL);
	jsonmake_u64(o, "bytes", bytes);
	jsonmake_text(o, "why", why);
	events_emit(m->account->host->events, events[outcome], m->path, o);
}

/* Outcomes that the core does not report: for events, and to answer timeouts. */
static const char *why_of(struct arbhost *h, const struct arb_reply *r)
{
	if (r->outcome == ARB_RETRY)
		return "everybody who could give memory back waits, and of them this one comes "
		       "last";
	if (r->outcome == ARB_TIMEDOUT)
		return arb_holders(
			h->core, r->pool,
			"it waited as long as it may (its own deadline, or arbiter.wait) for",
			r->bytes);
	return r->why;
}

static void end_call(struct arbhost *h, const struct arb_reply *r)
{
	struct arbguest *c = r->group ? CONTAINER_OF(r->group, arbguest, group) : NULL;
	struct wire_arbed body = {.outcome = (int32_t)r->outcome,
				  .context = (uint32_t)r->context,
				  .reservation = r->tag.reservation,
				  .bytes = r->bytes};
	const char *why;

	/* REMOVED is sent to nobody who has gone. */
	if (!c || c->ended || !r->tag.serial)
		return;
	if (r->outcome == ARB_TOOBIG)
		body.bytes = arbstep_capacity(h, r->pool);
	why = why_of(h, r);
	arbstep_tell(c, body.context, (int)r->outcome, r->pool, r->bytes, why);
	if (!r->tag.quiet || r->outcome != ARB_OK)
		arbguest_send(c, WIRE_ARBED, r->tag.serial, &body,
			      r->outcome == ARB_TIMEDOUT ? why : r->why);
}

/* ---- messages ------------------------------------------------------------------------------- */

/* Of its reservation: arbcall.c asks for them, or does not any more. */
static void want_of_client(struct arbguest *c, struct arb_hold *hold, uint64_t bytes)
{
	if (!hold)
		return;
	hold->wanted_bytes = bytes;
	arbguest_todo(c);
	if (hold->wanted)
		return;
	hold->wanted = true;
	DL_APPEND2(c->group.wanted, hold, wanted_prev, wanted_next);
}

static void want_spilled(struct arbhost *h, const struct arb_reply *r)
{
	struct arbguest *c;

	if (r->reservation == ARB_EVICTABLE) {
		if (r->bytes > h->evict.wanted)
			h->evict.wanted = r->bytes;
	} else if (r->reservation == ARB_COMING) {
		h->coming_wanted = r->bytes != 0;
	} else if (r->reservation & ARB_OURS) {
		c = arbguest_find(h, (r->reservation & ~ARB_OURS) >> 8);
		if (!c)
			return;
		c->recalls |= 1u << ((r->reservation & 0xff) >> 1);
		arbguest_todo(c);
	} else if (r->group) {
		want_of_client(CONTAINER_OF(r->group, arbguest, group),
			       arb_hold(h->core, r->reservation), r->bytes);
	}
}

int arbstep_do(struct arbhost *h, const struct arb_message *m)
{
	const struct arb_reply *replies;
	size_t n;
	int outcome = arb_step(h->core, m, arb_now(h), &replies, &n);

	if (outcome < 0)
		return outcome;
	for (size_t i = 0; i < n; i++) {
		if (replies[i].kind == ARB_REPLY_DONE)
			end_call(h, &replies[i]);
		else
			want_spilled(h, &replies[i]);
	}
	return outcome;
}

int arbstep_about(struct arbhost *h, enum arb_op op, unsigned flags, uint64_t reservation)
{
	struct arb_message m = {.op = op, .flags = flags, .reservation = reservation};

	return arbstep_do(h, &m);
}

void arbstep_set(struct arbhost *h, uint64_t reservation, uint64_t *io_bytes, uint64_t bytes,
		 bool raise)
{
	struct arb_message m = {.op = ARB_OP_RESIZE,
				.flags = ARB_FORCE,
				.reservation = reservation,
				.bytes = bytes};

	if (bytes != *io_bytes && (bytes > *io_bytes) == raise && arbstep_do(h, &m) == ARB_OK)
		*io_bytes = bytes;
}
