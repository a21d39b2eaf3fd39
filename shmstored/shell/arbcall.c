/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbcall.c: up-calls: a client is asked to make room in what it unpinned, and told of pressure, on
 * a second connection of its process.
 *
 * A client has one EVICT out at a time; the core's other wishes wait in its list. It answers by
 * messages of its own (RELEASE, SPILLED) and then EVICTED, within arbiter.call. A client that does
 * not is marked: its unpinned reservations count as pinned for the core, which passes it over
 * until it answers after all or opens a channel anew. The same holds for a client without a
 * channel. Nothing here waits.
 */

#include "arbhost.h"
#include "log.h"

#define MS UINT64_C(1000000)

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
static struct arb_hold *end_call(struct arbguest *c)
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
	const struct arb_hold *r = end_call(c);

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

static void close_channel(struct arbguest *c)
{
	if (!c->serve)
		return;
	conn_off_end(c->serve, &c->serve_end);
	c->serve = NULL;
	fail(c);
}

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
	end_call(c);
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
	close_channel(c);
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
		r = end_call(c);
		if (r)
			answer_core(c, r);
		arbguest_todo(c);
	}
	arbhost_settle(h);
	return w->flags & WIRE_ARB_QUIET ? CONN_OK
					 : arbed(conn, serial, known ? ARB_OK : ARB_AGAIN);
}
