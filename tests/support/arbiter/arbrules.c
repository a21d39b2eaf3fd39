/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbrules.c: the rules of the arbiter as its caller can check them, from books that are
 * the caller's own (arbmodel.c).
 *
 * Written from the rules, not from the arbiter: where that goes over what has changed, this
 * goes over everything. The arbiter is asked only for what is compared, and for two things
 * that the caller cannot know: which reservations count as reclaimable, and who has closed a
 * pool to those below.
 */
#include <stdio.h>
#include <string.h>

#include "arbmodel.h"

static bool serves(const struct arbmodel_context *c, uint64_t task)
{
	for (uint32_t i = 0; i < c->n_tasks; i++)
		if (c->tasks[i] == task)
			return true;
	return false;
}

/* Cannot go on by itself. A context that waits for a spill can: the spill ends. */
static bool is_stalled(const struct arbmodel_context *c)
{
	return c->state == ARB_BLOCKED || c->state == ARB_BUFN || c->wait;
}

static bool counts_for_silence(const struct arbmodel *m, const struct arbmodel_context *c)
{
	return is_stalled(c) || (c->os_blocked && m->knobs[ARB_KNOB_OS_PROBE]);
}

/* All that serve it are stalled. After silence, any dedicated one is enough, and
 * what the kernel says counts. */
static bool is_task_stalled(const struct arbmodel *m, uint64_t task, bool silent)
{
	bool any = false, all = true, dedicated = false;

	for (size_t i = 0; i < ARBMODEL_CONTEXTS; i++) {
		const struct arbmodel_context *c = &m->contexts[i];

		if (!c->n_tasks || !serves(c, task))
			continue;
		any = true;
		all &= silent ? counts_for_silence(m, c) : is_stalled(c);
		dedicated |= silent && c->kind == ARB_DEDICATED && counts_for_silence(m, c);
	}
	return any && (all || dedicated);
}

static bool is_everybody_stalled(const struct arbmodel *m, bool silent)
{
	for (size_t i = 0; i < ARBMODEL_CONTEXTS; i++) {
		const struct arbmodel_context *c = &m->contexts[i];

		for (uint32_t n = 0; n < c->n_tasks; n++)
			if (!is_task_stalled(m, c->tasks[n], silent))
				return false;
	}
	return true;
}

/* The bytes that all but the spill path may have: the spill path's reserve is its own, and so is
 * what it has beyond that. */
static uint64_t room_of(const struct arbmodel *m, const struct arbmodel_pool *p)
{
	uint64_t spill = 0;

	for (size_t i = 0; i < ARBMODEL_BYTES; i++)
		if (m->bytes[i].id && m->bytes[i].pool == p->id && m->bytes[i].spill)
			spill += m->bytes[i].bytes;
	spill = spill > p->reserve ? spill : p->reserve;
	return p->capacity > spill ? p->capacity - spill : 0;
}

static uint64_t wants(const struct arbmodel_context *c, uint64_t pool)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < c->request.n; i++)
		n += c->request.pools[i] == pool ? c->request.amounts[i] : 0;
	return n;
}

/* ---- sets that can never be served ----------------------------------------------------------- */

/* The task to whose books a request goes: the best of the context's tasks, of equal ones the
 * first. Tasks are in the order in which they began. */
static size_t booked_to(const struct arbmodel *m, const struct arbmodel_context *c)
{
	size_t best = m->n_tasks;

	for (size_t i = m->n_tasks; i-- > 0;)
		if (m->tasks[i].lives && serves(c, m->tasks[i].id) &&
		    (best == m->n_tasks || m->tasks[i].priority >= m->tasks[best].priority))
			best = i;
	return best;
}

/* The tasks that hold it: all that pin it, or of them the one in whose books it is; its owner,
 * where nobody does and it could not be spilled. */
static uint32_t holders(const struct arbmodel *m, const struct arbmodel_bytes *b, bool all,
			uint64_t ret[ARBMODEL_PINS + 1])
{
	uint32_t n = arbpins_of(m, b, ret);

	if (!n && !b->reclaimable)
		ret[n++] = b->owner;
	return all || !n ? n : 1;
}

struct hopeless {
	bool set[ARBMODEL_CONTEXTS];
	bool revived[ARBMODEL_TASKS]; /* had its request met, and may give back */
	size_t n;
};

static bool gives_back(const struct arbmodel *m, const struct hopeless *h, uint64_t task)
{
	for (size_t t = 0; t < m->n_tasks; t++)
		if (m->tasks[t].id == task)
			return h->revived[t] || !is_task_stalled(m, task, false);
	return false;
}

/*
 * Bytes that nobody who can go on could give back. all: what several pin comes back only when
 * all of them give it back. The arbiter has it in the books of one of them, the owner if it
 * pins: so it may find a set later.
 */
static uint64_t kept(const struct arbmodel *m, const struct hopeless *h, uint64_t pool, bool all)
{
	uint64_t who[ARBMODEL_PINS + 1], n = 0;

	for (size_t i = 0; i < ARBMODEL_BYTES; i++) {
		const struct arbmodel_bytes *b = &m->bytes[i];
		bool stays = false;

		if (!b->id || b->pool != pool || b->spill)
			continue;
		for (uint32_t k = holders(m, b, all, who); k-- > 0;)
			stays |= !gives_back(m, h, who[k]);
		n += stays ? b->bytes : 0;
	}
	return n;
}

/*
 * The requests of stalled tasks that do not fit even when all who can go on give back all that they
 * hold: who fits is taken out, and gives back as well, until nobody does.
 */
static void find_hopeless(const struct arbmodel *m, const struct arbmodel_pool *p, bool all,
			  struct hopeless *h)
{
	bool again = true;

	*h = (struct hopeless){0};
	for (size_t i = 0; i < ARBMODEL_CONTEXTS; i++) {
		const struct arbmodel_context *c = &m->contexts[i];
		size_t t = c->n_tasks && c->state == ARB_BLOCKED && wants(c, p->id)
				   ? booked_to(m, c)
				   : m->n_tasks;

		h->set[i] = t < m->n_tasks && is_task_stalled(m, m->tasks[t].id, false);
		h->n += h->set[i];
	}
	while (again) {
		uint64_t taken = kept(m, h, p->id, all),
			 room = room_of(m, p) > taken ? room_of(m, p) - taken : 0;

		again = false;
		for (size_t i = 0; i < ARBMODEL_CONTEXTS; i++)
			if (h->set[i] && wants(&m->contexts[i], p->id) <= room) {
				h->set[i] = false;
				h->revived[booked_to(m, &m->contexts[i])] = true;
				h->n--;
				again = true;
			}
	}
}

/* Does the task that it asks for hold anything in the pool? */
static bool holds(const struct arbmodel *m, const struct arbmodel_context *c, uint64_t pool,
		  bool all)
{
	uint64_t who[ARBMODEL_PINS + 1];

	for (size_t i = 0; i < ARBMODEL_BYTES; i++) {
		const struct arbmodel_bytes *b = &m->bytes[i];

		if (!b->id || b->pool != pool || !b->bytes || b->spill)
			continue;
		for (uint32_t k = holders(m, b, all, who); k-- > 0;)
			if (who[k] == m->tasks[booked_to(m, c)].id)
				return true;
	}
	return false;
}

static bool is_lowest_of(const struct arbmodel *m, const struct arbmodel_context *victim,
			 const struct arbmodel_pool *p, bool all)
{
	static struct hopeless h;

	find_hopeless(m, p, all, &h);
	if (h.n < 2 || !h.set[victim - m->contexts] || !holds(m, victim, p->id, all))
		return false;
	for (size_t i = 0; i < ARBMODEL_CONTEXTS; i++)
		if (h.set[i] && m->contexts[i].priority < victim->priority &&
		    holds(m, &m->contexts[i], p->id, all))
			return false;
	return true;
}

static bool is_lowest_hopeless(const struct arbmodel *m, const struct arbmodel_context *victim,
			       const struct arbmodel_pool *p)
{
	return m->knobs[ARB_KNOB_EARLY_DETECT] &&
	       (is_lowest_of(m, victim, p, true) || is_lowest_of(m, victim, p, false));
}

/* ---- who may be rolled back, who may be told to split ---------------------------------------- */

static const struct arbmodel_context *beyond(const struct arbmodel *m,
					     const struct arbmodel_context *victim,
					     enum arb_state state, bool above)
{
	for (size_t i = 0; i < ARBMODEL_CONTEXTS; i++) {
		const struct arbmodel_context *c = &m->contexts[i];

		if (c->n_tasks && c->state == state && c != victim &&
		    (above ? c->priority > victim->priority : c->priority < victim->priority))
			return c;
	}
	return NULL;
}

/* ---- what fits ------------------------------------------------------------------------------- */

struct sums {
	uint64_t used, reclaimable, spilled, spill;
	uint32_t n;
};

static struct sums sum(const struct arbmodel *m, uint64_t pool)
{
	struct sums s = {0};

	for (size_t i = 0; i < ARBMODEL_BYTES; i++) {
		const struct arbmodel_bytes *b = &m->bytes[i];

		if (!b->id || b->pool != pool)
			continue;
		s.used += b->bytes;
		s.reclaimable += b->reclaimable ? b->bytes : 0;
		s.spilled += b->spilled;
		s.spill += b->spill ? b->bytes : 0;
		s.n++;
	}
	return s;
}

/* Does all that it asks for fit in what is free, and of what could be spilled in this much? */
static bool would_fit(const struct arbmodel *m, const struct arbmodel_context *c,
		      uint64_t (*spillable)(const struct arbmodel *m, uint64_t pool))
{
	for (uint32_t i = 0; i < c->request.n; i++) {
		const uint64_t pool = c->request.pools[i];

		for (size_t k = 0; k < ARBMODEL_POOLS; k++) {
			const struct arbmodel_pool *p = &m->pools[k];
			struct sums s;

			if (!p->id || p->id != pool)
				continue;
			s = sum(m, p->id);
			if (s.used - s.spill + wants(c, p->id) >
			    room_of(m, p) + spillable(m, p->id))
				return false;
		}
	}
	return c->request.n != 0;
}

static uint64_t spillable_at_rest(const struct arbmodel *m, uint64_t pool)
{
	return sum(m, pool).reclaimable;
}

/* Within a step: what was so before, is after it, and is not what a
 * withheld PIN holds meanwhile. */
static uint64_t spillable_for_sure(const struct arbmodel *m, uint64_t pool)
{
	struct arb_reservation_info info;
	uint64_t n = 0;

	for (size_t i = 0; i < ARBMODEL_BYTES; i++) {
		const struct arbmodel_bytes *b = &m->bytes[i];
		bool sure = b->id && b->pool == pool && b->reclaimable &&
			    arb_reservation(m->core, b->id, &info) && info.reclaimable;

		for (size_t k = 0; sure && k < ARBMODEL_CONTEXTS; k++)
			sure = m->contexts[k].request.op != ARB_OP_PIN ||
			       m->contexts[k].request.first != b->id;
		n += sure ? b->bytes : 0;
	}
	return n;
}

/* D0: where all are stalled, who fits comes before anybody is rolled back, also
 * below who closed the pool. */
static void check_nobody_fits(struct arbmodel *m, const struct arbmodel_context *victim)
{
	for (size_t i = 0; i < ARBMODEL_CONTEXTS; i++) {
		const struct arbmodel_context *c = &m->contexts[i];

		if (c->n_tasks && c->state == ARB_BLOCKED && c->waits &&
		    would_fit(m, c, spillable_for_sure))
			arbmodel_fail(
				m,
				"all are stalled, and context %llu is rolled back while %llu fits",
				(unsigned long long)victim->id, (unsigned long long)c->id);
	}
}

/* Invariant 5, first half: RETRY only to the lowest BLOCKED where all are stalled, or to the lowest
 * holder of a hopeless set. */
void arbrules_retry(struct arbmodel *m, const struct arbmodel_context *victim)
{
	const struct arbmodel_context *lower = beyond(m, victim, ARB_BLOCKED, false);
	bool silent = (int64_t)m->n_silent >= m->knobs[ARB_KNOB_SUSPECT_TICKS];
	bool all = is_everybody_stalled(m, false) || (silent && is_everybody_stalled(m, true));

	if (all)
		check_nobody_fits(m, victim);
	if (all && !lower)
		return;
	for (size_t i = 0; i < ARBMODEL_POOLS; i++)
		if (m->pools[i].id && is_lowest_hopeless(m, victim, &m->pools[i])) {
			m->n_early += !all;
			return;
		}
	if (!all)
		arbmodel_fail(m,
			      "context %llu is rolled back while others can go on, and no hopeless "
			      "set has it as "
			      "lowest holder",
			      (unsigned long long)victim->id);
	else
		arbmodel_fail(m, "context %llu is rolled back, %llu is BLOCKED and lower",
			      (unsigned long long)victim->id, (unsigned long long)lower->id);
}

static bool is_task_certain(const struct arbmodel *m, uint64_t task, unsigned depth);

/* Waits for memory and nothing else. A wait mark is certain where those are stalled for certain of
 * whom it says that it waits for them. */
static bool is_certain(const struct arbmodel *m, const struct arbmodel_context *c,
		       unsigned depth) // NOLINT(misc-no-recursion)
{
	bool any = false;

	if (!c->wait)
		return c->state == ARB_BLOCKED || c->state == ARB_BUFN;
	if (c->wait == ARB_WAIT_EXTERNAL)
		return false;
	if (c->wait == ARB_WAIT_TASK)
		return depth && is_task_certain(m, c->waits_for, depth - 1);
	for (size_t i = 0; i < ARBMODEL_CONTEXTS; i++) {
		const struct arbmodel_context *helper = &m->contexts[i];

		if (!helper->n_tasks || helper->kind == ARB_DEDICATED ||
		    !serves(helper, c->tasks[0]))
			continue;
		any = true;
		if (!is_stalled(helper))
			return false;
	}
	return any;
}

// NOLINTNEXTLINE(misc-no-recursion)
static bool is_task_certain(const struct arbmodel *m, uint64_t task, unsigned depth)
{
	bool any = false;

	for (size_t i = 0; i < ARBMODEL_CONTEXTS; i++) {
		const struct arbmodel_context *c = &m->contexts[i];

		if (!c->n_tasks || !serves(c, task))
			continue;
		any = true;
		if (!is_certain(m, c, depth))
			return false;
	}
	return any;
}

/* The other half: SPLIT only to the best BUFN, when nobody is BLOCKED and nobody can go on, for
 * certain or after long silence. */
void arbrules_split(struct arbmodel *m, const struct arbmodel_context *victim)
{
	const struct arbmodel_context *better = beyond(m, victim, ARB_BUFN, true);
	bool silent = (int64_t)m->n_silent >= m->knobs[ARB_KNOB_SPLIT_TICKS];

	if (better)
		arbmodel_fail(m, "context %llu is told to split, %llu is BUFN and better",
			      (unsigned long long)victim->id, (unsigned long long)better->id);
	for (size_t i = 0; i < ARBMODEL_CONTEXTS; i++) {
		const struct arbmodel_context *c = &m->contexts[i];

		if (!c->n_tasks || c == victim || c->state == ARB_BUFN || silent)
			continue;
		if (!c->wait || !is_certain(m, c, ARBMODEL_CONTEXTS))
			arbmodel_fail(m, "context %llu is told to split while %llu is %s%s",
				      (unsigned long long)victim->id, (unsigned long long)c->id,
				      arb_state_name(c->state), c->wait ? " and waits" : "");
	}
	if (silent && !is_everybody_stalled(m, true))
		arbmodel_fail(m, "context %llu is told to split while a task can go on",
			      (unsigned long long)victim->id);
}

/* ---- between two messages -------------------------------------------------------------------- */

static void check_pool(struct arbmodel *m, const struct arbmodel_pool *p)
{
	struct arb_pool_info i;
	struct sums s = sum(m, p->id);

	if (!arb_pool(m->core, p->id, &i))
		arbmodel_fail(m, "pool %llu is not there", (unsigned long long)p->id);
	else if (i.capacity != p->capacity || i.kind != p->kind)
		arbmodel_fail(m, "pool %llu is not as it was made", (unsigned long long)p->id);
	else if (i.used != s.used || i.reclaimable < s.reclaimable || i.spilled != s.spilled ||
		 i.n_reservations != s.n)
		arbmodel_fail(m,
			      "pool %llu says used %llu, reclaimable %llu, spilled %llu of %u "
			      "reservations; they sum "
			      "to %llu, "
			      "%llu, %llu of %u",
			      (unsigned long long)p->id, (unsigned long long)i.used,
			      (unsigned long long)i.reclaimable, (unsigned long long)i.spilled,
			      i.n_reservations, (unsigned long long)s.used,
			      (unsigned long long)s.reclaimable, (unsigned long long)s.spilled,
			      s.n);
}

static void check_task(struct arbmodel *m, const struct arbmodel_task *t)
{
	struct arb_task_info i;
	uint64_t held = 0;
	uint32_t n = 0;

	if (!arb_task(m->core, t->id, &i)) {
		arbmodel_fail(m, "task %llu is not there", (unsigned long long)t->id);
		return;
	}
	for (size_t k = 0; k < ARBMODEL_BYTES; k++)
		held += m->bytes[k].id && m->bytes[k].owner == t->id ? m->bytes[k].bytes : 0;
	for (size_t k = 0; k < ARBMODEL_CONTEXTS; k++)
		n += serves(&m->contexts[k], t->id);
	if (i.held != held || i.n_contexts != n || i.priority != t->priority)
		arbmodel_fail(m,
			      "task %llu says held %llu, %u contexts, priority %lld; it is %llu, "
			      "%u, %lld",
			      (unsigned long long)t->id, (unsigned long long)i.held, i.n_contexts,
			      (long long)i.priority, (unsigned long long)held, n,
			      (long long)t->priority);
}

/* Invariant 1: what is used is the sum of what lives, in each pool and task. */
void arbrules_books(struct arbmodel *m)
{
	struct arb_totals totals;
	uint64_t n = 0;

	for (size_t i = 0; i < ARBMODEL_POOLS; i++)
		if (m->pools[i].id)
			check_pool(m, &m->pools[i]);
	for (size_t i = 0; i < m->n_tasks; i++)
		if (m->tasks[i].lives)
			check_task(m, &m->tasks[i]);
	for (size_t i = 0; i < ARBMODEL_BYTES; i++)
		n += m->bytes[i].id != 0;
	arb_totals(m->core, &totals);
	if (totals.n_reservations != n)
		arbmodel_fail(m, "%llu reservations, and there are %llu",
			      (unsigned long long)totals.n_reservations, (unsigned long long)n);
}

/* Somebody above it has closed one of its pools, or might: it was passed too often. */
static bool is_closed_above(const struct arbmodel *m, const struct arbmodel_context *c)
{
	for (uint32_t i = 0; i < c->request.n; i++) {
		struct arb_pool_info p;

		if (arb_pool(m->core, c->request.pools[i], &p) && p.closed_by &&
		    p.closed_by != c->id)
			return true;
	}
	return false;
}

static bool are_asked_for(const struct arbmodel *m, const struct arbmodel_context *c)
{
	for (size_t i = 0; i < ARBMODEL_BYTES; i++)
		for (uint32_t k = 0; m->bytes[i].id && m->bytes[i].wanted && k < c->request.n; k++)
			if (c->request.pools[k] == m->bytes[i].pool)
				return true;
	return false;
}

/* A context that waits for spills waits for some that were asked for, each of which will be
 * answered; or for another context that does and is served first. */
static bool has_spills(const struct arbmodel *m, const struct arbmodel_context *c)
{
	bool any = are_asked_for(m, c);

	for (size_t i = 0; !any && i < ARBMODEL_CONTEXTS; i++)
		if (m->contexts[i].state == ARB_ALLOC || m->contexts[i].state == ARB_ALLOC_FREE)
			any = m->contexts[i].priority >= c->priority &&
			      are_asked_for(m, &m->contexts[i]);
	return any;
}

/* Invariants 2 and 4: nobody waits for what is there, and not all wait for each other. */
void arbrules_waiting(struct arbmodel *m)
{
	int64_t limit = m->knobs[ARB_KNOB_SPLIT_TICKS] > m->knobs[ARB_KNOB_SUSPECT_TICKS]
				? m->knobs[ARB_KNOB_SPLIT_TICKS]
				: m->knobs[ARB_KNOB_SUSPECT_TICKS];
	size_t n_parked = 0, n_free = 0, n_possible = 0, n_spills = 0;

	for (size_t i = 0; i < ARBMODEL_CONTEXTS; i++) {
		const struct arbmodel_context *c = &m->contexts[i];

		if (!c->n_tasks)
			continue;
		n_parked += c->state == ARB_BLOCKED || c->state == ARB_BUFN;
		n_spills += c->state == ARB_ALLOC || c->state == ARB_ALLOC_FREE;
		n_free += !is_stalled(c);
		n_possible += !counts_for_silence(m, c);
		if (c->state == ARB_BLOCKED && c->waits && would_fit(m, c, spillable_at_rest) &&
		    !is_closed_above(m, c))
			arbmodel_fail(m, "context %llu waits for bytes that are there",
				      (unsigned long long)c->id);
		if ((c->state == ARB_ALLOC || c->state == ARB_ALLOC_FREE) && !has_spills(m, c) &&
		    !is_closed_above(m, c))
			arbmodel_fail(m, "context %llu waits for spills of which there are none",
				      (unsigned long long)c->id);
		if (c->waits && c->request.deadline_ns && c->request.deadline_ns <= m->now_ns)
			arbmodel_fail(m, "context %llu waits past its deadline",
				      (unsigned long long)c->id);
	}
	for (size_t i = 0; n_parked && !n_free && i < ARBMODEL_CONTEXTS; i++)
		n_free += m->contexts[i].n_tasks && m->contexts[i].wait;
	if (n_parked && !n_free && !n_spills)
		arbmodel_fail(m, "all contexts wait for each other");
	if (n_parked && !n_possible && !n_spills && (int64_t)m->n_silent - 5 > limit)
		arbmodel_fail(m, "all contexts are stalled for %llu ticks",
			      (unsigned long long)m->n_silent);
}

/* Invariant 7: what was delivered is what the tasks count, the living and the ended. */
void arbrules_counters(struct arbmodel *m)
{
	uint64_t retries = 0, splits = 0;
	struct arb_totals totals;
	struct arb_stats s;

	for (size_t i = 0; i < m->n_tasks; i++)
		if (arb_stats(m->core, m->tasks[i].id, 0, m->now_ns, 0, &s)) {
			retries += s.n_retries;
			splits += s.n_splits;
		}
	arb_totals(m->core, &totals);
	if (retries != m->n_retries || splits != m->n_splits)
		arbmodel_fail(
			m, "tasks count %llu retries and %llu splits; delivered were %llu and %llu",
			(unsigned long long)retries, (unsigned long long)splits,
			(unsigned long long)m->n_retries, (unsigned long long)m->n_splits);
	if (totals.n_retries != m->n_retries || totals.n_splits != m->n_splits)
		arbmodel_fail(m,
			      "the totals count %llu retries and %llu splits; delivered were %llu "
			      "and %llu",
			      (unsigned long long)totals.n_retries,
			      (unsigned long long)totals.n_splits, (unsigned long long)m->n_retries,
			      (unsigned long long)m->n_splits);
}
