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
#include "fields.h"
#include "log.h"

#define LATELY_NS UINT64_C(1000000000) /* a roll back is "lately" for so long */
#define MS        UINT64_C(1000000)

struct arbguest *arbguest_find(struct arbhost *h, uint64_t number)
{
	uint32_t key = (uint32_t)number;
	struct arbguest *c;

	HASH_FIND(hh, h->clients, &key, sizeof(key), c);
	return c;
}

/* Something is left to do for it, by arbhost_settle(). */
static void arbguest_todo(struct arbguest *c)
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
	bound = arb_context(c->host->core, arb_id(c, context), &i);
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
	const char *why, *text;
	size_t n;

	/* REMOVED is sent to nobody who has gone. */
	if (!c || c->ended || !r->tag.serial)
		return;
	if (r->outcome == ARB_TOOBIG)
		body.bytes = arbstep_capacity(h, r->pool);
	why = why_of(h, r);
	arbstep_tell(c, body.context, (int)r->outcome, r->pool, r->bytes, why);
	text = r->outcome == ARB_TIMEDOUT ? why : r->why;
	n = text ? strnlen(text, WIRE_TEXT_MAX) : 0;
	if (c->member->conn && (!r->tag.quiet || r->outcome != ARB_OK))
		conn_send(c->member->conn, WIRE_ARBED, r->tag.serial, &body, text, n);
}

/* ---- messages ------------------------------------------------------------------------------- */

/* Of its reservation: arbcall_next() asks for them, or does not any more. */
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

int arbstep_make(struct arbhost *h, uint64_t pool, uint64_t reservation, uint64_t bytes,
		 bool reclaimable)
{
	struct arb_message m = {.op = ARB_OP_RESERVE,
				.flags = ARB_FORCE,
				.pool = pool,
				.reservation = reservation,
				.bytes = bytes};
	int r = arbstep_do(h, &m);

	if (r != ARB_OK || !reclaimable)
		return r;
	r = arbstep_about(h, ARB_OP_UNPIN, 0, reservation);
	if (r != ARB_OK)
		arbstep_about(h, ARB_OP_RELEASE, 0, reservation);
	return r;
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

/* ---- up-calls -------------------------------------------------------------------------------- */

/*
 * A client is asked to make room among its unpinned reservations, and told of pressure, on a second
 * connection of its process.
 *
 * A client has one EVICT out at a time; the core's other wishes wait in its list. It answers by
 * messages of its own (RELEASE, SPILLED) and then EVICTED, within arbiter.call. A client that does
 * not is marked: its unpinned reservations count as pinned for the core, which passes it over until
 * it answers after all or opens a channel anew. The same holds for a client without a channel.
 * Nothing here waits.
 */

static bool can_call(const struct arbguest *c)
{
	return c->serve && !c->failed;
}

/* ---- what may be asked for ------------------------------------------------------------------- */

int arbcall_offer(struct arbguest *c, struct arb_hold *r)
{
	int outcome;

	if (!r->unpinned || !can_call(c))
		return ARB_OK;
	outcome = arbstep_about(c->host, ARB_OP_UNPIN, 0, r->item.id);
	r->offered = outcome == ARB_OK;
	return outcome;
}

/* The next one after c's cursor, or the first one: any step may end a reservation, and moves the
 * cursor on then. */
static struct arb_hold *next_hold(struct arbguest *c, bool first)
{
	struct arb_hold *r =
		first ? CONTAINER_OF(c->group.items[ARB_HOLDS], arb_hold, item) : c->group.cursor;

	c->group.cursor = r ? CONTAINER_OF(r->item.next, arb_hold, item) : NULL;
	return r;
}

static void offer_all(struct arbguest *c)
{
	for (struct arb_hold *r = next_hold(c, true); r; r = next_hold(c, false))
		(void)arbcall_offer(c, r);
}

static void take_back_all(struct arbguest *c)
{
	struct arb_reservation_info i;

	for (struct arb_hold *r = next_hold(c, true); r; r = next_hold(c, false)) {
		if (!r->offered)
			continue;
		r->offered = false;
		/* A spilled reservation (0 bytes) stays so until its owner pins it. */
		if (arb_reservation(c->host->core, r->item.id, &i) && i.bytes)
			arbstep_about(c->host, ARB_OP_PIN, ARB_NONBLOCK, i.id);
	}
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* The core's job on r has ended; the client's messages told the bytes that went. */
static void answer_core(struct arbguest *c, const struct arb_hold *r)
{
	arbstep_about(c->host, ARB_OP_SPILLED, ARB_ALL, r->item.id);
}

static bool send_call(struct arbguest *c, struct arb_hold *r)
{
	const struct arbhost *h = c->host;
	struct arb_reservation_info i = {0};
	struct wire_arb_call body = {
		.kind = WIRE_ARB_CALL_EVICT,
		.reservation = (uint32_t)r->item.id,
		.bytes = r->wanted_bytes,
		.timeout_ms = arb_config(h)->call_ns / MS,
		.level = h->level,
	};

	(void)arb_reservation(h->core, r->item.id, &i);
	body.pool = (uint32_t)i.pool;
	do
		body.call = ++c->host->last_call;
	while (!body.call);
	if (conn_send(c->serve, WIRE_ARB_CALL, 0, &body, NULL, 0) != CONN_OK)
		return false;
	c->call = (struct arbcall){body.call, arb_now(h) + arb_config(h)->call_ns};
	c->group.called = r;
	c->host->n_calls++;
	return true;
}

void arbcall_next(struct arbguest *c)
{
	struct arb_hold *r;

	while (!c->call.id && (r = c->group.wanted) != NULL) {
		arb_unwant(r);
		if (can_call(c) && send_call(c, r))
			return;
		answer_core(c, r);
	}
}

/* ret: what the call was for; NULL: that is gone. */
static struct arb_hold *end_upcall(struct arbguest *c)
{
	struct arb_hold *r = c->group.called;

	if (c->call.id)
		c->host->n_calls--;
	c->call = (struct arbcall){0};
	c->group.called = NULL;
	return r;
}

static void fail(struct arbguest *c)
{
	const struct arb_hold *r = end_upcall(c);

	c->failed = true;
	take_back_all(c);
	if (r)
		answer_core(c, r);
	arbguest_todo(c);
}

void arbcall_tick(struct arbhost *h)
{
	if (!h->n_calls)
		return;
	for (struct arbguest *c = h->clients; c; c = c->hh.next) {
		if (!c->call.id || arb_now(h) < c->call.deadline_ns)
			continue;
		log_say(LOG_WARNING, LOG_FIELDS(.object = c->member->path),
			"it was asked to make room and did not answer in %.3g s: it is passed over "
			"until it does",
			(double)arb_config(h)->call_ns / 1e9);
		fail(c);
	}
}

void arbcall_pressure(struct arbhost *h, uint32_t level)
{
	struct wire_arb_call body = {
		.kind = WIRE_ARB_CALL_PRESSURE, .pool = WIRE_ARB_PARTITION, .level = level};

	/* A client that has not read the last one learns enough from that. */
	for (struct arbguest *c = h->clients; c; c = c->hh.next)
		if (c->serve && conn_waiting(c->serve) < sizeof(struct wire_header) + sizeof(body))
			(void)conn_send(c->serve, WIRE_ARB_CALL, 0, &body, NULL, 0);
}

/* ---- the channel ----------------------------------------------------------------------------- */

static void on_serve_end(struct conn_end *e, UNUSED struct conn *conn)
{
	struct arbguest *c = CONTAINER_OF(e, arbguest, serve_end);

	c->serve = NULL;
	fail(c);
	arbhost_settle(c->host);
}

void arbcall_end(struct arbguest *c)
{
	/* The wishes of the core end with the channel. */
	while (c->group.wanted)
		arb_unwant(c->group.wanted);
	if (c->serve)
		conn_off_end(c->serve, &c->serve_end);
	c->serve = NULL;
	end_upcall(c);
}

static int arbed(struct conn *conn, uint64_t serial, int outcome)
{
	struct wire_arbed body = {.outcome = outcome};

	return conn_send(conn, WIRE_ARBED, serial, &body, NULL, 0);
}

/* The client of the store with that id. NULL: there is none that is the same process's. */
static struct arbguest *find(const struct conn *conn, uint64_t id)
{
	struct member *m = member_by_id(conn->host, id);
	const struct conn_peer *peer = &conn->peer, *owner = m && m->conn ? &m->conn->peer : NULL;

	return owner && m->account->arb && peer->uid == owner->uid && peer->pid == owner->pid
		       ? arbhost_guest(m->account->arb, m)
		       : NULL;
}

int arbcall_serve(struct conn *conn, uint64_t serial, const struct wire_arb *w)
{
	struct arbguest *c = find(conn, w->reservation);
	struct arbhost *h;
	int r;

	if (!c || conn->member || conn_find_end(conn, on_serve_end))
		return arbed(conn, serial, ARB_INVALID);
	h = c->host;
	if (c->serve) {
		conn_off_end(c->serve, &c->serve_end);
		fail(c);
	}
	c->serve = conn;
	c->failed = false;
	c->serve_end = (struct conn_end){.fn = on_serve_end};
	conn_on_end(conn, &c->serve_end);
	offer_all(c);
	/* Before the first call on it: that is what the client waits for. */
	r = arbed(conn, serial, ARB_OK);
	arbhost_settle(h);
	return r;
}

int arbcall_evicted(struct conn *conn, uint64_t serial, const struct wire_arb *w)
{
	struct conn_end *e = conn_find_end(conn, on_serve_end);
	const struct arb_hold *r;
	struct arbguest *c;
	struct arbhost *h;
	bool known;

	if (!e)
		return arbed(conn, serial, ARB_INVALID);
	c = CONTAINER_OF(e, arbguest, serve_end);
	h = c->host;
	if (c->failed) { /* late, but it lives */
		c->failed = false;
		offer_all(c);
	}
	known = c->call.id && c->call.id == w->other;
	if (known) {
		r = end_upcall(c);
		if (r)
			answer_core(c, r);
		arbguest_todo(c);
	}
	arbhost_settle(h);
	return w->flags & WIRE_ARB_QUIET ? CONN_OK
					 : arbed(conn, serial, known ? ARB_OK : ARB_AGAIN);
}
