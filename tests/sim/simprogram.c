/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simprogram.c: what clients do, step by step, as the seed decides: what stores, tools and tasks
 * do; and what a client may do wrong.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "account.h"
#include "simclient.h"
#include "simclock.h"
#include "simtasks.h"
#include "simtrace.h"
#include "simworld.h"

#define LOOK_MS 1200u  /* a grant that does not wait may wait for a survey */
#define ALL_MS  30000u /* what takes a survey or a reap: as long as these take */
#define NOW_MS  500u

static uint64_t units(struct simworld *w, unsigned most)
{
	return (1 + simworld_below(w, most)) * SIMSTORE_UNIT;
}

/* ---- a store --------------------------------------------------------------------------------- */

static void open_store(struct simclient *c)
{
	static const char *const labels[] = {"", "", "red", "blue"};
	struct simworld *w = c->world;
	char name[32];

	if (c->store.page || c->store.path[0])
		return;
	snprintf(name, sizeof(name), "s%u", w->n_stores++);
	simtrace_say("c%u opens %s", c->number, name);
	simstore_open(&c->store, w->partition, name, c->pid, w->users[c->user],
		      labels[simworld_below(w, 4)]);
}

static void register_store(struct simclient *c)
{
	struct wire_register body = {0};
	const char *uuid = c->world->host.accounts->uuid;
	char tail[64];

	if (!c->store.page || c->registered)
		return;
	for (size_t i = 0; i < sizeof(body.uuid); uuid++) {
		unsigned byte;

		if (*uuid == '-')
			continue;
		SIM_ENSURE(sscanf(uuid, "%2x", &byte) == 1);
		body.uuid[i++] = (uint8_t)byte;
		uuid++;
	}
	snprintf(tail, sizeof(tail), "stores/%s", c->store.name);
	if (simclient_ask(c, WIRE_REGISTER, &body, tail, NOW_MS, NULL))
		c->registered = true; /* a second one would be a fault */
}

static void grant(struct simclient *c)
{
	struct simworld *w = c->world;
	struct wire_grant body = {
		.need = units(w, simworld_chance(w, 10) ? 512 : 48),
		.ahead = simworld_below(w, 32) * SIMSTORE_UNIT,
		.timeout_ms = simworld_below(w, 5) ? simworld_below(w, 4000) : 0,
		.flags = simworld_chance(w, 60) ? WIRE_GRANT_WAIT : 0,
	};
	bool waits = body.flags & WIRE_GRANT_WAIT;
	struct simrequest *q;

	if (!c->registered && simworld_chance(w, 90)) {
		(c->store.page ? register_store : open_store)(c);
		return;
	}
	if (!simclient_ask(c, WIRE_GRANT, &body, NULL, waits ? body.timeout_ms : LOOK_MS, &q))
		return;
	q->need = body.need;
	q->op = waits;
	q->not_before_ns = waits ? simclock_now() + body.timeout_ms * MS : 0;
	simtrace_now()->n_waits += waits;
	simtrace_say("c%u   needs %llu KiB, ahead %llu, %s %llu ms", c->number,
		     (unsigned long long)body.need >> 10, (unsigned long long)body.ahead >> 10,
		     waits ? "waits" : "not", (unsigned long long)body.timeout_ms);
}

static void cancel(struct simclient *c)
{
	const struct simrequest *q = &c->requests[simworld_below(c->world, SIMCLIENT_REQUESTS)];
	struct wire_cancel body = {.serial = q->serial};
	struct simrequest *mine;

	if ((q->type != WIRE_GRANT && q->type != WIRE_TASK_ADMIT) || !q->serial)
		return;
	if (simclient_ask(c, WIRE_CANCEL, &body, NULL, NOW_MS, &mine))
		mine->cancels = body.serial;
}

static void put(struct simclient *c)
{
	struct simstore *s = &c->store;
	uint64_t n;

	if (!s->page)
		return;
	if (s->charged) {
		if (simworld_chance(c->world, 85))
			simstore_write(s);
		else
			simstore_uncharge(s);
		simtrace_say("c%u has %llu KiB", c->number, (unsigned long long)s->bytes >> 10);
		return;
	}
	n = units(c->world, 48);
	if (n > simstore_unspent(s))
		n = simstore_unspent(s) / SIMSTORE_UNIT * SIMSTORE_UNIT;
	if (n && simstore_charge(s, n))
		simtrace_say("c%u charges %llu KiB", c->number, (unsigned long long)n >> 10);
}

static void take_away(struct simclient *c)
{
	if (c->store.page && simstore_delete(&c->store, (unsigned)simworld_below(c->world, 64)))
		simtrace_say("c%u deletes, has %llu KiB", c->number,
			     (unsigned long long)c->store.bytes >> 10);
}

static void bye(struct simclient *c)
{
	const struct wire_bye body = {0};

	if (!c->registered || c->said_bye || !simclient_ask(c, WIRE_BYE, &body, NULL, NOW_MS, NULL))
		return;
	c->said_bye = true;
	/* now, or when its process ends */
	if (c->store.page && simworld_chance(c->world, 70))
		simstore_close(&c->store);
}

/* ---- tools ----------------------------------------------------------------------------------- */

static void query(struct simclient *c)
{
	static const uint32_t questions[] = {
		WIRE_QUERY_STATUS,   WIRE_QUERY_WORKERS,  WIRE_QUERY_QUOTA,   WIRE_QUERY_HOLDERS,
		WIRE_QUERY_EVENTS,   WIRE_QUERY_HISTORY,  WIRE_QUERY_ARBITER, WIRE_QUERY_ARB_LOG,
		WIRE_QUERY_MEMORY,   WIRE_QUERY_GATE,     WIRE_QUERY_STAGES,  WIRE_QUERY_ACTORS,
		WIRE_QUERY_PROFILES, WIRE_QUERY_RECONCILE};
	struct wire_query body = {.what = questions[simworld_below(
					  c->world, sizeof(questions) / sizeof(*questions))]};

	simclient_ask(c, WIRE_QUERY, &body, "", body.what == WIRE_QUERY_RECONCILE ? ALL_MS : NOW_MS,
		      NULL);
}

static void ping(struct simclient *c)
{
	const struct wire_ping body = {.cookie = 1};

	simclient_ask(c, WIRE_PING, &body, NULL, NOW_MS, NULL);
}

static void watch(struct simclient *c)
{
	struct wire_watch body = {.since = simworld_chance(c->world, 50) ? 0 : UINT64_MAX};

	if (simclient_ask(c, WIRE_WATCH, &body, "", NOW_MS, NULL))
		c->watches = true;
}

/* Is a SET of this client open? There is one administrator, who sets one limit after the other: it
 * is known then between which two of them anything was granted. */
static bool is_setting(const struct simclient *c)
{
	for (unsigned i = 0; i < SIMCLIENT_REQUESTS; i++) {
		if (c->requests[i].serial && c->requests[i].type == WIRE_SET)
			return true;
	}
	return false;
}

static void reconnect(struct simclient *c)
{
	if (!is_setting(c))
		simclient_reconnect(c);
}

/* The administrator sets a limit: of the partition, or of a user. */
static void set(struct simclient *c)
{
	struct simworld *w = c->world;
	struct wire_set body = {0};
	unsigned user = (unsigned)simworld_below(w, SIMWORLD_USERS + 1);
	uint64_t hard = (user < SIMWORLD_USERS ? 128 : 512) * SIMSTORE_UNIT + units(w, 512);
	char text[64];

	if (c->number || w->users[c->user] != 0 || is_setting(c))
		return;
	if (user < SIMWORLD_USERS)
		snprintf(text, sizeof(text), "user.%u.limit=%llu", w->users[user],
			 (unsigned long long)hard);
	else
		snprintf(text, sizeof(text), "limit=%llu", (unsigned long long)hard);
	if (simclient_ask(c, WIRE_SET, &body, text, NOW_MS, NULL))
		simtrace_say("c%u   %s", c->number, text);
}

/* ---- wrong ones ------------------------------------------------------------------------------ */

static void garbage(struct simclient *c)
{
	struct simworld *w = c->world;
	char packet[256];
	const struct wire_ping body = {0};
	size_t n = wire_pack(packet, sizeof(packet), WIRE_PING, 1, &body, NULL, 0);

	switch (simworld_below(w, 4)) {
	case 0: /* cut */
		n = 1 + simworld_below(w, n - 1);
		break;
	case 1: /* one bit is another one */
		packet[simworld_below(w, 16)] ^= (char)(1 << simworld_below(w, 8));
		break;
	case 2: /* another type with the same bytes */
		packet[4] = (char)simworld_below(w, 130);
		break;
	default:
		for (size_t i = 0; i < sizeof(packet); i++)
			packet[i] = (char)simworld_below(w, 256);
		n = sizeof(packet);
		break;
	}
	simtrace_say("c%u sends garbage", c->number);
	c->hostile = true;
	send(c->fd, packet, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void fall_silent(struct simclient *c)
{
	c->reads = !c->reads;
	c->slow = true;
	c->reads_since_ns = simclock_now();
	simtrace_say("c%u reads %s", c->number, c->reads ? "again" : "nothing any more");
}

/* Its questions fill its socket where it reads no answers. */
static void flood(struct simclient *c)
{
	for (unsigned i = 0; i < SIMCLIENT_REQUESTS; i++)
		query(c);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static const struct step {
	unsigned weight;
	void (*fn)(struct simclient *c);
} steps[] = {
	{10, open_store},    {10, register_store}, {24, grant},        {6, cancel},
	{26, put},           {10, take_away},      {1, bye},           {4, query},
	{3, ping},           {2, watch},           {4, set},           {1, garbage},
	{2, fall_silent},    {1, flood},           {2, reconnect},     {24, simtasks_arbiter},
	{10, simtasks_gate}, {8, simtasks_done},   {4, simtasks_grow}, {4, simtasks_stage},
};

void simprogram_step(struct simclient *c)
{
	struct simworld *w = c->world;
	unsigned sum = 0, dice;

	if (c->n_steps > 1 || !is_setting(c))
		c->n_steps--;
	if (c->n_steps && c->state == SIMCLIENT_DROPPED && simworld_chance(w, 50))
		simclient_reconnect(c);
	if (!c->n_steps || c->state != SIMCLIENT_LIVES) {
		if (simworld_chance(w, 50))
			simclient_die(c);
		else
			simclient_leave(c);
		c->next_ns = simclock_now() + simworld_below(w, 500 * MS);
		return;
	}
	if (c->store.page)
		simstore_give(&c->store);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		sum += steps[i].weight;
	dice = (unsigned)simworld_below(w, sum);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		if (dice < steps[i].weight) {
			steps[i].fn(c);
			break;
		}
		dice -= steps[i].weight;
	}
	c->next_ns = simclock_now() + (simworld_chance(w, 80) ? simworld_below(w, 20 * MS)
							      : simworld_below(w, 800 * MS));
}

void simprogram_answered(struct simclient *c, const struct simrequest *q,
			 const struct wire_header *h, const void *body)
{
	if (h->type == WIRE_GRANTED) {
		const struct wire_granted *g = body;

		simtrace_now()->n_grants++;
		simtrace_say("c%u   %llu KiB more", c->number, (unsigned long long)g->bytes >> 10);
	}
	simtasks_answered(c, q, h->type, body);
	if (q->type == WIRE_REGISTER && h->type == WIRE_REFUSED)
		c->registered = false;
	/* what its store waits for ends without an answer */
	for (unsigned i = 0; q->type == WIRE_BYE && i < SIMCLIENT_REQUESTS; i++) {
		uint16_t type = c->requests[i].type;

		if (c->requests[i].serial < q->serial &&
		    (type == WIRE_GRANT || type == WIRE_ARB || type == WIRE_STAGE_BEGIN))
			c->requests[i] = (struct simrequest){0};
	}
}

void simprogram_told(struct simclient *c, const struct wire_header *h, const void *body)
{
	if (h->type == WIRE_EVENT) {
		const struct wire_event *e = body;

		if (!c->hostile && (!c->watches || e->sequence <= c->event))
			simtrace_fail("c%u is told of event %llu after event %llu", c->number,
				      (unsigned long long)e->sequence,
				      (unsigned long long)c->event);
		c->event = e->sequence;
	} else if (h->type != WIRE_ASK && h->type != WIRE_TASK_PREEMPT &&
		   h->type != WIRE_ARB_CALL) {
		simtrace_fail("c%u is told %s unasked", c->number, wire_kind(h->type)->name);
	}
}
