/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbbooks.c: what each message and each grant changes in the caller's own books: pools, tasks, who
 * serves whom, which bytes are whose.
 *
 * Only what was answered OK is applied, as arbiter.h says it. Two things are asked from the
 * arbiter, and compared afterwards in other ways: a task's priority where none was given, and which
 * of its tasks a helper's bytes go to.
 */
#include <string.h>

#include "arbmodel.h"

#define U(x) ((unsigned long long)(x))

static bool serves(const struct arbmodel_context *c, uint64_t task)
{
	for (uint32_t i = 0; i < c->n_tasks; i++)
		if (c->tasks[i] == task)
			return true;
	return false;
}

/* The arbiter says where the bytes went, but only to a task of the context. */
static void add_bytes(struct arbmodel *m, const struct arbmodel_context *c, uint64_t id,
		      uint64_t pool, uint64_t n)
{
	struct arb_reservation_info i;

	for (size_t k = 0; k < ARBMODEL_BYTES; k++)
		if (!m->bytes[k].id) {
			m->bytes[k] = (struct arbmodel_bytes){
				.id = id, .pool = pool, .bytes = n, .owner_pins = true};
			if (!arb_reservation(m->core, id, &i))
				arbmodel_fail(m, "reservation %llu was granted and is not there",
					      U(id));
			else if (i.owner && (!c || !serves(c, i.owner)))
				arbmodel_fail(
					m,
					"reservation %llu is owned by task %llu, that did not ask",
					U(id), U(i.owner));
			else if ((i.owner == 0) != (!c || !c->n_tasks))
				arbmodel_fail(m, "reservation %llu is owned by nobody", U(id));
			m->bytes[k].owner = i.owner;
			return;
		}
	arbmodel_fail(m, "the model has no room for another reservation");
}

static void sync_bytes(struct arbmodel *m, struct arbmodel_bytes *b)
{
	struct arb_reservation_info i;

	if (!arb_reservation(m->core, b->id, &i)) {
		arbmodel_fail(m, "reservation %llu is not there", U(b->id));
		return;
	}
	b->bytes = i.bytes;
	b->spilled = i.spilled;
}

/* Another part of it is away: who waits for it to be back waits for all that is. */
static void away(struct arbmodel *m, const struct arbmodel_bytes *b)
{
	for (size_t i = 0; i < ARBMODEL_CONTEXTS; i++) {
		struct arbmodel_context *c = &m->contexts[i];

		if (c->waits && c->request.op == ARB_OP_PIN && c->request.first == b->id)
			c->request.amounts[0] = b->spilled;
	}
}

/* The bytes that were asked for are there now. */
void arbbooks_grant(struct arbmodel *m, const struct arbmodel_context *c,
		    const struct arbmodel_request *r)
{
	struct arbmodel_bytes *b = arbmodel_bytes(m, r->first);

	for (uint32_t i = 0; r->op == ARB_OP_RESERVE && i < r->n; i++)
		add_bytes(m, r->flags & ARB_SPILL ? NULL : c, r->first + i, r->pools[i],
			  r->amounts[i]);
	for (uint32_t i = 0; r->op == ARB_OP_RESERVE && (r->flags & ARB_SPILL) && i < r->n; i++) {
		b = arbmodel_bytes(m, r->first + i);
		if (b)
			b->spill = true;
	}
	if (r->op == ARB_OP_RESIZE && b)
		b->bytes += r->amounts[0];
	if (r->op == ARB_OP_PIN && b) { /* all of it is back, whoever asked */
		b->bytes += b->spilled;
		b->spilled = 0;
		away(m, b);
	}
}

struct arbmodel_request arbbooks_request(struct arbmodel *m, const struct arb_message *msg)
{
	struct arbmodel_request r = {.op = msg->op,
				     .flags = msg->flags,
				     .first = msg->reservation,
				     .deadline_ns = msg->deadline_ns};
	const struct arbmodel_bytes *b = arbmodel_bytes(m, msg->reservation);

	if (msg->op == ARB_OP_RESERVE && msg->n_list && msg->list) {
		for (uint32_t i = 0; i < msg->n_list && i < ARBMODEL_LIST; i++) {
			r.pools[i] = msg->list[i];
			r.amounts[i] = msg->amounts ? msg->amounts[i] : 0;
		}
		r.n = msg->n_list;
		return r;
	}
	r.n = msg->op != ARB_OP_READY;
	r.pools[0] = msg->pool;
	r.amounts[0] = msg->bytes;
	if (msg->op == ARB_OP_RESIZE && b) {
		r.pools[0] = b->pool;
		r.amounts[0] = msg->bytes > b->bytes ? msg->bytes - b->bytes : 0;
	}
	if (msg->op == ARB_OP_PIN && b) {
		r.pools[0] = b->pool;
		r.amounts[0] = b->spilled;
	}
	if (b && (msg->op == ARB_OP_RESIZE || msg->op == ARB_OP_PIN))
		r.grows = b->bytes;
	return r;
}

static int64_t best_of(struct arbmodel *m, const struct arbmodel_context *c)
{
	int64_t best = INT64_MIN;

	for (uint32_t i = 0; i < c->n_tasks; i++) {
		const struct arbmodel_task *t = arbmodel_task(m, c->tasks[i]);

		if (t && t->priority > best)
			best = t->priority;
	}
	return c->kind == ARB_SERVICE ? INT64_MAX : best;
}

static void drop_task(struct arbmodel *m, struct arbmodel_context *c, uint64_t task)
{
	for (uint32_t i = 0; i < c->n_tasks; i++)
		if (c->tasks[i] == task) {
			memmove(c->tasks + i, c->tasks + i + 1,
				(--c->n_tasks - i) * sizeof(*c->tasks));
			break;
		}
	if (!c->n_tasks)
		c->wait = 0, c->os_blocked = c->armed = c->spill_bracket = false;
	c->priority = best_of(m, c);
}

static void begin_task(struct arbmodel *m, uint64_t id, int64_t priority, uint64_t heir_of)
{
	struct arbmodel_task *t = arbmodel_task(m, id), *elder = arbmodel_task(m, heir_of);
	struct arb_task_info i;

	if (t && t->lives)
		return;
	if (m->n_tasks == ARBMODEL_TASKS || t) {
		arbmodel_fail(m, "the model has no room for task %llu", U(id));
		return;
	}
	t = &m->tasks[m->n_tasks++];
	*t = (struct arbmodel_task){.id = id, .lives = true, .priority = priority};
	if (!arb_task(m->core, id, &i)) {
		arbmodel_fail(m, "task %llu has begun and is not there", U(id));
		return;
	}
	if (elder && i.priority != elder->priority)
		arbmodel_fail(m, "task %llu has not inherited its priority", U(id));
	if (!heir_of && priority != ARB_PRIORITY_DEFAULT && i.priority != priority)
		arbmodel_fail(m, "task %llu has priority %lld", U(id), (long long)i.priority);
	if (!heir_of && priority == ARB_PRIORITY_DEFAULT && i.priority >= 0)
		arbmodel_fail(m, "task %llu has come by itself and has priority %lld", U(id),
			      (long long)i.priority);
	t->priority = i.priority;
}

static void end_task(struct arbmodel *m, const struct arb_message *msg)
{
	struct arbmodel_task *t = arbmodel_task(m, msg->task);

	if (!t)
		return;
	t->lives = false;
	for (size_t i = 0; i < ARBMODEL_CONTEXTS; i++)
		if (serves(&m->contexts[i], msg->task))
			drop_task(m, &m->contexts[i], msg->task);
	arbpins_end_task(m, msg->task);
	for (size_t i = 0; i < ARBMODEL_BYTES; i++) {
		struct arbmodel_bytes *b = &m->bytes[i];

		if (!b->id || b->owner != msg->task)
			continue;
		if (msg->flags & ARB_RELEASE) /* the dead pin nothing */
			arbpins_unpin(m, b, 0);
		b->owner = 0;
		if ((msg->flags & ARB_RELEASE) && (!b->sealed || (msg->flags & ARB_ALL)))
			b->id = 0;
	}
}

static void bind(struct arbmodel *m, struct arbmodel_context *c, const struct arb_message *msg)
{
	for (uint32_t i = 0; i < msg->n_list; i++)
		begin_task(m, msg->list[i], ARB_PRIORITY_DEFAULT, 0);
	if (msg->kind == ARB_DEDICATED && !serves(c, msg->list[0]))
		c->n_tasks = 0;
	for (uint32_t i = 0; i < msg->n_list; i++)
		if (!serves(c, msg->list[i])) {
			if (c->n_tasks == ARBMODEL_LIST)
				arbmodel_fail(m, "the model has no room for a task of context %llu",
					      U(c->id));
			else
				c->tasks[c->n_tasks++] = msg->list[i];
		}
	c->kind = (enum arb_kind)msg->kind;
	c->priority = best_of(m, c);
}

static void unbind(struct arbmodel *m, struct arbmodel_context *c, const struct arb_message *msg)
{
	for (uint32_t i = 0; i < msg->n_list; i++)
		drop_task(m, c, msg->list[i]);
	while ((msg->flags & ARB_ALL) && c->n_tasks)
		drop_task(m, c, c->tasks[0]);
}

static void shut_down(struct arbmodel *m)
{
	m->down = true;
	for (size_t i = 0; i < ARBMODEL_CONTEXTS; i++)
		while (m->contexts[i].n_tasks)
			drop_task(m, &m->contexts[i], m->contexts[i].tasks[0]);
}

/* Messages about pools and knobs, that said OK. */
static void apply_pool(struct arbmodel *m, const struct arb_message *msg)
{
	struct arbmodel_pool *p = arbmodel_pool(m, msg->pool);

	if (msg->op == ARB_OP_POOL_CREATE) {
		for (p = m->pools; p < m->pools + ARBMODEL_POOLS && p->id; p++)
			;
		if (p == m->pools + ARBMODEL_POOLS)
			arbmodel_fail(m, "the model has no room for another pool");
		else
			*p = (struct arbmodel_pool){.id = msg->pool,
						    .capacity = msg->bytes,
						    .reserve = msg->extra,
						    .kind = (enum arb_pool_kind)msg->kind};
	} else if (msg->op == ARB_OP_KNOB) {
		m->knobs[msg->kind] = msg->value;
	} else if (!p) {
		arbmodel_fail(m, "OK about a pool that is not there");
	} else if (msg->op == ARB_OP_POOL_RESIZE) {
		p->capacity = msg->bytes;
	} else {
		p->id = 0;
	}
}

/* Messages about one reservation, that said OK. */
static void apply_bytes(struct arbmodel *m, const struct arb_message *msg)
{
	struct arbmodel_bytes *b = arbmodel_bytes(m, msg->reservation);
	struct arb_reservation_info i;

	if (!b) {
		if (msg->op != ARB_OP_SPILLED)
			arbmodel_fail(m, "OK about a reservation that is not there");
		return;
	}
	if (msg->op == ARB_OP_RELEASE) {
		b->id = 0;
	} else if (msg->op == ARB_OP_SPILLED) {
		b->wanted -= msg->bytes < b->wanted ? msg->bytes : b->wanted;
		if (!msg->bytes || (msg->flags & ARB_ALL))
			b->wanted = 0; /* what could not leave is its owner's to hold */
		b->spilled += msg->bytes < b->bytes ? msg->bytes : b->bytes;
		b->bytes -= msg->bytes < b->bytes ? msg->bytes : b->bytes;
		away(m, b);
	} else if (msg->op == ARB_OP_RESIZE) {
		/* less: it is as large as is said, nothing of it is elsewhere */
		b->spilled = msg->bytes <= b->bytes ? 0 : b->spilled;
		b->bytes = msg->bytes;
		away(m, b);
	} else if (msg->op == ARB_OP_SEAL) {
		b->sealed = true;
		sync_bytes(m, b);
	} else if (msg->op == ARB_OP_OWN) {
		arbpins_own(m, b, msg->task);
	} else if (msg->op == ARB_OP_PIN) {
		arbpins_pin(m, b, msg->task);
		b->bytes += b->spilled;
		b->spilled = 0;
		away(m, b);
	} else {
		arbpins_unpin(m, b, msg->task);
		sync_bytes(m, b);
	}
	if (b->id && msg->op == ARB_OP_UNPIN && arb_reservation(m->core, b->id, &i) &&
	    i.bytes != b->bytes)
		arbmodel_fail(m, "UNPIN changed the bytes of reservation %llu", U(b->id));
}

static void apply_context(struct arbmodel *m, struct arbmodel_context *c,
			  const struct arb_message *msg)
{
	switch ((int)msg->op) {
	case ARB_OP_BIND:
		bind(m, c, msg);
		break;
	case ARB_OP_UNBIND:
		unbind(m, c, msg);
		break;
	case ARB_OP_WAIT_ON:
		c->wait = (enum arb_wait)msg->kind;
		c->waits_for = msg->other;
		break;
	case ARB_OP_OSBLOCK:
		c->os_blocked = msg->value != 0;
		break;
	case ARB_OP_INJECT:
		c->armed |= msg->value > 0;
		break;
	default:
		break;
	}
}

/* The message itself, where it said OK. */
void arbbooks_apply(struct arbmodel *m, const struct arb_message *msg)
{
	struct arbmodel_context *c = arbmodel_context(m, msg->context);
	struct arbmodel_task *t = arbmodel_task(m, msg->task);
	struct arbmodel_request r;

	if (msg->op <= ARB_OP_KNOB) {
		apply_pool(m, msg);
	} else if (msg->op == ARB_OP_TASK_BEGIN) {
		begin_task(m, msg->task, msg->value, msg->other);
	} else if (msg->op == ARB_OP_TASK_END) {
		end_task(m, msg);
	} else if (msg->op == ARB_OP_RESERVE) {
		r = arbbooks_request(m, msg);
		arbbooks_grant(m, c, &r);
	} else if (msg->op >= ARB_OP_RELEASE && msg->op <= ARB_OP_SPILLED) {
		apply_bytes(m, msg);
	} else if (msg->op == ARB_OP_SHUTDOWN) {
		shut_down(m);
	} else if (c) {
		apply_context(m, c, msg);
	} else if (msg->op == ARB_OP_INJECT && t) {
		t->armed |= msg->value > 0;
	}
}
