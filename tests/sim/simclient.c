/* SPDX-License-Identifier: Apache-2.0 */
#include "simclient.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "simclock.h"
#include "simproc.h"
#include "simtrace.h"
#include "simworld.h"

/* A new connection waits in the daemon's backlog. */
static void connect_to(struct simclient *c)
{
	const struct wire_hello hello = {WIRE_VERSION, WIRE_VERSION, 0};
	int fds[2], size = 20000;

	SIM_ENSURE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
	/* Small, so that who reads nothing soon has a full socket; a packet of DATA fits. */
	SIM_ENSURE(setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0);
	c->fd = fds[0];
	c->their_fd = fds[1];
	c->reads = true;
	c->hostile = simworld_chance(c->world, 3); /* says no HELLO */
	if (!c->hostile)
		simclient_ask(c, WIRE_HELLO, &hello, NULL, 1000, NULL);
}

void simclient_come(struct simclient *c)
{
	struct simworld *w = c->world;
	unsigned number = c->number;

	*c = (struct simclient){.world = w,
				.number = number,
				.state = SIMCLIENT_LIVES,
				.user = number ? (unsigned)simworld_below(w, SIMWORLD_USERS) : 0,
				.their_fd = -1,
				.store = {.lock_fd = -1},
				.n_steps = 2 + (unsigned)simworld_below(w, 40)};
	c->pid = simproc_new(w->users[c->user]);
	simtrace_say("c%u comes, of user %u", number, c->user);
	connect_to(c);
}

static void disconnect(struct simclient *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	memset(c->requests, 0, sizeof(c->requests));
}

void simclient_reconnect(struct simclient *c)
{
	if (c->their_fd >= 0)
		return;
	simtrace_say("c%u connects anew, with %u requests open", c->number, simclient_n_waits(c));
	disconnect(c);
	c->state = SIMCLIENT_LIVES;
	c->registered = c->said_bye = c->watches = c->slow = false;
	c->event = 0;
	c->arb_task = c->reservations = c->profile = 0;
	c->arb_waits = c->arb_rolls = false;
	memset(c->tasks, 0, sizeof(c->tasks));
	c->reads_since_ns = 0;
	connect_to(c);
}

void simclient_leave(struct simclient *c)
{
	simtrace_say("c%u leaves", c->number);
	if (c->store.page)
		simstore_close(&c->store);
	disconnect(c);
	simproc_end(c->pid);
	c->state = SIMCLIENT_NONE;
}

void simclient_die(struct simclient *c)
{
	simtrace_say("c%u dies, with %u requests open and %llu bytes", c->number,
		     simclient_n_waits(c), (unsigned long long)c->store.bytes);
	simtrace_now()->n_deaths++;
	/* The kernel closes a dead process's descriptors in some order, before it is a zombie. */
	if (c->store.page)
		simstore_abandon(&c->store);
	disconnect(c);
	simproc_end(c->pid);
	c->state = SIMCLIENT_NONE;
}

/* ---- asking ---------------------------------------------------------------------------------- */

static struct simrequest *find(struct simclient *c, uint64_t serial)
{
	for (unsigned i = 0; i < SIMCLIENT_REQUESTS; i++) {
		if (c->requests[i].serial == serial)
			return &c->requests[i];
	}
	return NULL;
}

unsigned simclient_n_waits(const struct simclient *c)
{
	unsigned n = 0;

	for (unsigned i = 0; i < SIMCLIENT_REQUESTS; i++)
		n += c->requests[i].serial != 0;
	return n;
}

bool simclient_ask(struct simclient *c, uint16_t type, const void *body, const char *tail,
		   uint64_t within_ms, struct simrequest **ret)
{
	struct simrequest *q = find(c, 0);
	char packet[WIRE_PACKET_MAX];
	size_t n;

	if (ret)
		*ret = NULL;
	if (!q || c->state != SIMCLIENT_LIVES)
		return false;
	n = wire_pack(packet, sizeof(packet), type, c->serial + 1, body, tail,
		      tail ? strlen(tail) : 0);
	SIM_ENSURE(n);
	if (send(c->fd, packet, n, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)n)
		return false;
	c->serial++;
	*q = (struct simrequest){.serial = c->serial,
				 .type = type,
				 .sent_ns = simclock_now(),
				 .deadline_ns = within_ms == UINT64_MAX
							? UINT64_MAX
							: simclock_now() + within_ms * MS};
	simtrace_say("c%u #%llu %s", c->number, (unsigned long long)c->serial,
		     wire_kind(type)->name);
	if (ret)
		*ret = q;
	return true;
}

/* ---- hearing --------------------------------------------------------------------------------- */

/* By what each request may be answered; 0: nothing more. */
static const struct {
	uint16_t request, answers[3];
} pairs[] = {
	{WIRE_HELLO, {WIRE_WELCOME}},
	{WIRE_PING, {WIRE_PONG}},
	{WIRE_CANCEL, {WIRE_DONE}},
	{WIRE_BYE, {WIRE_DONE}},
	{WIRE_REGISTER, {WIRE_REGISTERED, WIRE_REFUSED}},
	{WIRE_GRANT, {WIRE_GRANTED, WIRE_REFUSED}},
	{WIRE_QUERY, {WIRE_DATA, WIRE_REFUSED}},
	{WIRE_REAP, {WIRE_DATA, WIRE_REFUSED}},
	{WIRE_WATCH, {WIRE_DONE, WIRE_REFUSED}},
	{WIRE_SET, {WIRE_DONE, WIRE_REFUSED}},
	{WIRE_TASK_ADMIT, {WIRE_TASK_ADMITTED, WIRE_REFUSED}},
	{WIRE_TASK_DONE, {WIRE_DONE, WIRE_REFUSED}},
	{WIRE_STAGE_QUERY, {WIRE_STAGED, WIRE_REFUSED}},
	{WIRE_STAGE_BEGIN, {WIRE_STAGED, WIRE_REFUSED}},
	{WIRE_STAGE_END, {WIRE_STAGED, WIRE_DONE, WIRE_REFUSED}},
	{WIRE_ARB, {WIRE_ARBED, WIRE_REFUSED}},
};

static bool answers(const struct simrequest *q, uint16_t type)
{
	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		for (size_t k = 0; pairs[i].request == q->type && k < 3; k++) {
			if (pairs[i].answers[k] == type)
				return true;
		}
	}
	return false;
}

static void check_refusal(const struct simclient *c, const struct simrequest *q,
			  const struct wire_refused *body)
{
	bool canceled = false;

	if (body->error >= 0)
		simtrace_fail("c%u #%llu is refused with %d", c->number,
			      (unsigned long long)q->serial, body->error);
	if (body->error == -ETIMEDOUT && simclock_now() < q->not_before_ns)
		simtrace_fail("c%u #%llu is told that its time is over, %llu ms before it is",
			      c->number, (unsigned long long)q->serial,
			      (unsigned long long)((q->not_before_ns - simclock_now()) / MS));
	for (unsigned i = 0; i < SIMCLIENT_REQUESTS; i++)
		canceled |= c->requests[i].serial && c->requests[i].cancels == q->serial;
	if (body->error == -ECANCELED && q->type == WIRE_GRANT && !canceled)
		simtrace_fail("c%u #%llu is cancelled, and nobody has asked for it", c->number,
			      (unsigned long long)q->serial);
}

/* ERROR, or the end of the stream. */
static void ended(struct simclient *c, const char *why)
{
	simtrace_say("c%u's connection ends: %s", c->number, why);
	if (!c->hostile && !c->world->ending && !c->slow && !c->world->fault_permille)
		simtrace_fail("c%u did nothing wrong, and its connection ends: %s", c->number, why);
	c->state = SIMCLIENT_DROPPED;
	disconnect(c);
}

static void answered(struct simclient *c, const struct wire_header *h, const void *body)
{
	struct simrequest *q = find(c, h->serial), was;

	if (!q && c->hostile)
		return;
	if (!q)
		simtrace_fail("c%u #%llu has got an answer already, and here is %s", c->number,
			      (unsigned long long)h->serial, wire_kind(h->type)->name);
	if (!answers(q, h->type))
		simtrace_fail("c%u #%llu %s is answered by %s", c->number,
			      (unsigned long long)h->serial, wire_kind(q->type)->name,
			      wire_kind(h->type)->name);
	if (h->type == WIRE_DATA && ((const struct wire_data *)body)->flags & WIRE_DATA_MORE)
		return;
	simtrace_now()->n_answers++;
	if (h->type == WIRE_REFUSED) {
		simtrace_say("c%u #%llu %s refused: %d", c->number, (unsigned long long)h->serial,
			     wire_kind(q->type)->name, ((const struct wire_refused *)body)->error);
		check_refusal(c, q, body);
	} else {
		simtrace_say("c%u #%llu %s", c->number, (unsigned long long)h->serial,
			     wire_kind(h->type)->name);
	}
	was = *q;
	*q = (struct simrequest){0};
	simprogram_answered(c, &was, h, body);
}

/* One packet. False: there is none. */
static bool hear_one(struct simclient *c)
{
	static char packet[WIRE_PACKET_MAX + 1];
	struct wire_header h;
	const char *reason, *tail;
	ssize_t n;

	do
		n = recv(c->fd, packet, sizeof(packet) - 1, MSG_DONTWAIT);
	/* something of ours was left unread; what the daemon said comes after it */
	while (n < 0 && errno == ECONNRESET);
	if (n < 0 && errno == EAGAIN)
		return false;
	SIM_ENSURE(n >= 0);
	if (n == 0) {
		ended(c, "end of stream");
		return false;
	}
	if (wire_check(packet, (size_t)n, false, &reason) < 0)
		simtrace_fail("c%u hears what is no message: %s", c->number, reason);
	packet[n] = '\0';
	memcpy(&h, packet, sizeof(h));
	tail = packet + (size_t)n - h.tail;
	if (h.type == WIRE_ERROR)
		ended(c, tail);
	else if (h.serial)
		answered(c, &h, packet + sizeof(h));
	else
		simprogram_told(c, &h, packet + sizeof(h));
	return c->state == SIMCLIENT_LIVES;
}

void simclient_hear(struct simclient *c)
{
	while (c->state == SIMCLIENT_LIVES && c->reads && hear_one(c))
		;
}
