/* SPDX-License-Identifier: Apache-2.0 */
/* simcheck.c: what must hold, by the simulation's own books of what clients have and wait for. */
#include <errno.h>
#include <stdio.h>
#include <sys/statvfs.h>

#include "account.h"
#include "admit.h"
#include "arbcheck.h"
#include "arbhost.h"
#include "quota.h"
#include "simclock.h"
#include "simloop.h"
#include "simtrace.h"
#include "simworld.h"

#define LATE_NS      (1500 * MS) /* after its deadline an answer is lost */
#define FORGOTTEN_NS (8 * SECOND)

uint64_t simcheck_used(const struct simworld *w)
{
	struct statvfs fs;

	SIM_ENSURE(statvfs(w->partition, &fs) == 0);
	return (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize;
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void check_limit(struct simlimit *l, uint64_t sum, uint64_t slack, const char *what,
			unsigned number)
{
	uint64_t most = l->allowed > l->hard ? l->allowed : l->hard;

	if (sum > most + slack)
		simtrace_fail("%s %u has %llu bytes, used or granted, and its limit is %llu", what,
			      number, (unsigned long long)sum, (unsigned long long)most);
	/* A sum that was above a limit when it was lowered can only become less. */
	l->allowed = sum > l->hard ? sum : l->hard;
}

static void read_limit(const struct simworld *w, struct simlimit *l, enum wire_limit kind,
		       const char *id)
{
	struct quota_limits limits;

	SIM_ENSURE(quota_limit_get(w->host.accounts->quota, kind, id, &limits) == 0);
	l->hard = limits.hard;
}

/* As they are set now: an administrator who has died has maybe set one. */
static void read_limits(struct simworld *w)
{
	char id[16];

	read_limit(w, &w->whole, WIRE_LIMIT_PARTITION, "");
	for (unsigned i = 0; i < SIMWORLD_USERS; i++) {
		snprintf(id, sizeof(id), "%u", w->users[i]);
		read_limit(w, &w->of_user[i], WIRE_LIMIT_USER, id);
	}
}

void simcheck_step(struct simworld *w)
{
	uint64_t of_user[SIMWORLD_USERS] = {0}, outstanding = 0;

	read_limits(w);
	for (unsigned i = 0; i < SIMWORLD_CLIENTS; i++) {
		struct simstore *s = &w->clients[i].store;
		uint64_t mine = simstore_outstanding(s);

		outstanding += mine;
		if (s->path[0] && simstore_is_there(s))
			mine += s->bytes;
		of_user[w->clients[i].user] += mine;
	}
	check_limit(&w->whole, simcheck_used(w) + outstanding, w->overhead, "partition", 0);
	for (unsigned i = 0; i < SIMWORLD_USERS; i++)
		check_limit(&w->of_user[i], of_user[i], 0, "user", i);
}

/* ---- those who wait -------------------------------------------------------------------------- */

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static void check_answers(struct simworld *w)
{
	for (unsigned i = 0; i < SIMWORLD_CLIENTS; i++) {
		const struct simclient *c = &w->clients[i];

		/* A client's requests are not read as long as it reads no answers. */
		if (c->state != SIMCLIENT_LIVES || !c->reads || c->their_fd >= 0)
			continue;
		for (unsigned k = 0; k < SIMCLIENT_REQUESTS; k++) {
			const struct simrequest *q = &c->requests[k];
			uint64_t within = q->deadline_ns - q->sent_ns, due;

			if (!q->serial || q->deadline_ns == UINT64_MAX)
				continue;
			due = later(later(q->sent_ns, c->reads_since_ns) + within, w->jumped_ns);
			if (simclock_now() > due + LATE_NS)
				simtrace_fail(
					"c%u #%llu %s of %llu ms ago has no answer, and was "
					"to be answered within %llu ms",
					c->number, (unsigned long long)q->serial,
					wire_kind(q->type)->name,
					(unsigned long long)((simclock_now() - q->sent_ns) / MS),
					(unsigned long long)(within / MS));
		}
	}
}

/* Would all that waits fit, if unspent credit came back? Then it must not wait for ever. */
static bool all_fits(struct simworld *w, unsigned *ret_n)
{
	uint64_t of_user[SIMWORLD_USERS] = {0}, all = 0;

	*ret_n = 0;
	for (unsigned i = 0; i < SIMWORLD_CLIENTS; i++) {
		struct simclient *c = &w->clients[i];
		struct simstore *s = &c->store;
		uint64_t sum = s->charged;

		if (s->path[0] && simstore_is_there(s))
			sum += s->bytes;
		for (unsigned k = 0; k < SIMCLIENT_REQUESTS; k++) {
			if (c->requests[k].serial && c->requests[k].type == WIRE_GRANT) {
				sum += c->requests[k].need;
				*ret_n += c->requests[k].op && c->reads;
			}
		}
		of_user[c->user] += sum;
		all += sum;
	}
	for (unsigned i = 0; i < SIMWORLD_USERS; i++) {
		if (of_user[i] > w->of_user[i].hard)
			return false;
	}
	return all + w->overhead <= w->whole.hard;
}

/* Where no task runs, the next one goes in whatever it needs. */
static bool gate_is_free(const struct simworld *w)
{
	struct admit_books b;

	if (!w->host.admit)
		return false;
	admit_books(w->host.admit, &b);
	return b.line.n_waiting && !b.line.n_running;
}

static void check_gate(struct simworld *w)
{
	if (!gate_is_free(w) || w->fault_permille)
		w->free_ns = 0;
	else if (!w->free_ns)
		w->free_ns = simclock_now();
	else if (simclock_now() > later(w->free_ns, w->jumped_ns) + FORGOTTEN_NS)
		simtrace_fail("tasks wait at the gate, and none runs for %llu ms",
			      (unsigned long long)((simclock_now() - w->free_ns) / MS));
}

static void check_arbiter(const struct simworld *w)
{
	const struct arbhost *arb = w->host.accounts->arb;
	const char *wrong = arb ? arb_check(arb->core) : NULL;

	if (wrong)
		simtrace_fail("the arbiter's core: %s", wrong);
}

void simcheck_quiet(struct simworld *w)
{
	unsigned n;

	check_gate(w);
	check_arbiter(w);

	check_answers(w);
	if (w->host.failed)
		simtrace_fail("the daemon gives up: %d", w->host.failed);
	if (!all_fits(w, &n) || n == 0 || w->fault_permille)
		w->fits_ns = 0;
	else if (!w->fits_ns)
		w->fits_ns = simclock_now();
	else if (simclock_now() > later(w->fits_ns, w->jumped_ns) + FORGOTTEN_NS)
		simtrace_fail("%u requests wait, and all of them would have fitted for %llu ms", n,
			      (unsigned long long)((simclock_now() - w->fits_ns) / MS));
}

/* ---- the end --------------------------------------------------------------------------------- */

static int check_line(const struct quota_line *line, void *arg)
{
	(void)arg;
	if (line->outstanding || line->n_waiting || line->n_stores)
		simtrace_fail("nobody is there, and of limit %d \"%s\" %llu bytes are granted, %u "
			      "requests wait, %u stores are counted",
			      (int)line->kind, line->id, (unsigned long long)line->outstanding,
			      line->n_waiting, line->n_stores);
	return 0;
}

bool simcheck_is_idle(const struct simworld *w)
{
	struct simloop_counts n = simloop_counts(w->host.loop);

	return !n.n_receives && !n.n_sends && n.n_polls == w->n_polls &&
	       n.n_timers <= w->n_timers && simcheck_used(w) == w->used;
}

static void check_nobody_has(const struct simworld *w)
{
	struct admit_books b = {0};
	struct arb_totals t = {0};

	if (w->host.admit)
		admit_books(w->host.admit, &b);
	if (b.line.n_running || b.line.n_waiting)
		simtrace_fail("nobody is there, and %llu tasks run, %llu wait",
			      (unsigned long long)b.line.n_running,
			      (unsigned long long)b.line.n_waiting);
	if (!w->host.accounts->arb)
		return;
	arb_totals(w->host.accounts->arb->core, &t);
	if (t.n_contexts || t.n_tasks || t.n_parked || t.n_pools != 1 || t.n_reservations > 3 ||
	    w->host.accounts->arb->clients)
		simtrace_fail("nobody is there, and the arbiter has %u contexts, %u tasks, %u "
			      "pools, %llu reservations",
			      t.n_contexts, t.n_tasks, t.n_pools,
			      (unsigned long long)t.n_reservations);
}

void simcheck_end(struct simworld *w)
{
	struct simloop_counts n = simloop_counts(w->host.loop);
	struct account *a = w->host.accounts;

	if (w->host.n_conns || w->host.conns || w->host.clients)
		simtrace_fail("nobody is there, and %u connections are", w->host.n_conns);
	if (a->n_members)
		simtrace_fail("nobody is there, and %zu stores are", a->n_members);
	quota_each(a->quota, check_line, NULL);
	check_nobody_has(w);
	if (n.n_receives || n.n_sends || n.n_polls != w->n_polls || n.n_timers > w->n_timers)
		simtrace_fail("nobody is there, and of operations in flight %u receive, %u send, "
			      "%u poll (%llu before), %u are timers (%llu before)",
			      n.n_receives, n.n_sends, n.n_polls, (unsigned long long)w->n_polls,
			      n.n_timers, (unsigned long long)w->n_timers);
	if (simcheck_used(w) != w->used)
		simtrace_fail("nobody is there, and of the partition %llu bytes are used, %llu "
			      "were before",
			      (unsigned long long)simcheck_used(w), (unsigned long long)w->used);
}
