/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbchance.c: messages by chance. Most make sense where things stand: contexts that may speak,
 * reservations that are there, spills that were asked for. Some have one or two members replaced by
 * anything. The messages depend only on the seed and on the arbiter's answers.
 */
#include "arbchance.h"

#define MS UINT64_C(1000000)

uint64_t arbchance_below(struct arbchance *f, uint64_t n)
{
	uint64_t z = f->random += UINT64_C(0x9E3779B97F4A7C15);

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return (z ^ (z >> 31)) % n;
}

bool arbchance_percent(struct arbchance *f, unsigned percent)
{
	return arbchance_below(f, 100) < percent;
}

static uint64_t a_pool(struct arbchance *f)
{
	return 1 + arbchance_below(f, f->n_pools);
}

struct arbmodel_context *arbchance_context(struct arbchance *f)
{
	return &f->m.contexts[arbchance_below(f, f->n_contexts)];
}

/* A context that may send something; any, if none of a few may. */
static struct arbmodel_context *a_free_context(struct arbchance *f)
{
	struct arbmodel_context *c = arbchance_context(f);

	for (int i = 0; i < 8 && (!c->n_tasks || c->waits); i++)
		c = arbchance_context(f);
	return c;
}

/* A living task; now and then a new one. */
static uint64_t a_task(struct arbchance *f)
{
	for (int i = 0; i < 12; i++) {
		const struct arbmodel_task *t;

		if (!f->m.n_tasks)
			break;
		t = &f->m.tasks[arbchance_below(f, f->m.n_tasks)];
		if (t->lives)
			return t->id;
	}
	return f->next_task++;
}

static uint64_t some_bytes(struct arbchance *f)
{
	for (int i = 0; i < 24; i++) {
		const struct arbmodel_bytes *b = &f->m.bytes[arbchance_below(f, 48)];

		if (b->id)
			return b->id;
	}
	return f->next_bytes + 1000;
}

static uint64_t an_amount(struct arbchance *f)
{
	switch (arbchance_below(f, 12)) {
	case 0:
		return 0;
	case 1:
		return f->scale + arbchance_below(f, f->scale); /* too big, mostly */
	case 2:
	case 3:
		return f->scale / 2 + arbchance_below(f, f->scale / 2);
	default:
		return 1 + arbchance_below(f, f->scale / 3);
	}
}

uint64_t arbchance_deadline(struct arbchance *f)
{
	return arbchance_percent(f, 25) ? f->m.now_ns - (arbchance_percent(f, 10) ? MS : 0) +
						  arbchance_below(f, 60) * MS
					: 0;
}

/* ---- messages that make sense ---------------------------------------------------------------- */

static uint32_t some_tasks(struct arbchance *f, uint32_t max)
{
	uint32_t n = 1 + (uint32_t)arbchance_below(f, max);

	for (uint32_t i = 0; i < n; i++)
		f->list[i] = a_task(f);
	for (uint32_t i = 0; i < n; i++) /* each once */
		for (uint32_t k = i + 1; k < n; k++)
			if (f->list[i] == f->list[k])
				f->list[k--] = f->list[--n];
	return n;
}

struct arb_message arbchance_bind(struct arbchance *f)
{
	struct arbmodel_context *c = arbchance_context(f);
	struct arb_message msg = {.op = ARB_OP_BIND, .context = c->id, .list = f->list};

	msg.kind = arbchance_percent(f, 60)   ? ARB_DEDICATED
		   : arbchance_percent(f, 50) ? ARB_HELPER
					      : ARB_SERVICE;
	if (c->n_tasks && arbchance_percent(f, 80))
		msg.kind = (int)c->kind;
	msg.n_list = some_tasks(f, msg.kind == ARB_DEDICATED ? 1 : 3);
	if (c->n_tasks > 3 && msg.kind != ARB_DEDICATED)
		f->list[0] = c->tasks[0], msg.n_list = 1;
	return msg;
}

static struct arb_message an_unbind(struct arbchance *f)
{
	struct arbmodel_context *c = arbchance_context(f);
	struct arb_message msg = {.op = ARB_OP_UNBIND, .context = c->id};

	if (arbchance_percent(f, 40) || !c->n_tasks) {
		msg.flags = ARB_ALL;
	} else {
		msg.list = f->list;
		msg.n_list = 1;
		f->list[0] = arbchance_percent(f, 80) ? c->tasks[arbchance_below(f, c->n_tasks)]
						      : a_task(f);
	}
	return msg;
}

static struct arb_message a_reserve(struct arbchance *f)
{
	struct arb_message msg = {.op = ARB_OP_RESERVE,
				  .context = a_free_context(f)->id,
				  .reservation = f->next_bytes};

	f->next_bytes += 4;
	if (arbchance_percent(f, 12) && f->n_pools > 1) {
		msg.list = f->list;
		msg.amounts = f->amounts;
		msg.n_list = 2 + (uint32_t)arbchance_below(f, f->n_pools - 1);
		for (uint32_t i = 0; i < msg.n_list; i++) {
			f->list[i] = i + 1;
			f->amounts[i] = an_amount(f);
		}
	} else {
		msg.pool = a_pool(f);
		msg.bytes = an_amount(f);
	}
	if (arbchance_percent(f, 10))
		msg.flags = arbchance_percent(f, 60) ? ARB_NONBLOCK : ARB_SPILL;
	if (!msg.flags)
		msg.deadline_ns = arbchance_deadline(f);
	if (arbchance_percent(f, 3))
		msg.context = 0;
	if (!msg.context && arbchance_percent(f, 30))
		msg.flags = ARB_FORCE;
	return msg;
}

static struct arb_message a_resize(struct arbchance *f)
{
	struct arb_message msg = {.op = ARB_OP_RESIZE,
				  .context = a_free_context(f)->id,
				  .reservation = some_bytes(f)};

	msg.bytes = an_amount(f);
	if (arbchance_percent(f, 20))
		msg.flags = ARB_NONBLOCK;
	else
		msg.deadline_ns = arbchance_deadline(f);
	return msg;
}

static struct arb_message a_pin(struct arbchance *f)
{
	struct arb_message msg = {
		.op = ARB_OP_PIN, .context = a_free_context(f)->id, .reservation = some_bytes(f)};

	msg.task = arbchance_percent(f, 30) ? a_task(f) : 0;
	msg.deadline_ns = arbchance_deadline(f);
	return msg;
}

static struct arb_message a_spilled(struct arbchance *f)
{
	struct arb_message msg = {.op = ARB_OP_SPILLED, .reservation = some_bytes(f)};
	const struct arbmodel_bytes *b;

	for (int i = 0; i < 12;
	     /* one that was asked for, if there is any; the rest of them are late, or never come */
	     i++) {
		b = &f->m.bytes[arbchance_below(f, 48)];
		if (b->id && b->wanted)
			msg.reservation = b->id;
	}
	b = arbmodel_bytes(&f->m, msg.reservation);
	msg.bytes = !b || arbchance_percent(f, 15) ? 0
		    : arbchance_percent(f, 60)     ? b->bytes
						   : arbchance_below(f, b->bytes + 1);
	msg.flags = arbchance_percent(f, 40) ? ARB_ALL : 0;
	return msg;
}

static struct arb_message about_context(struct arbchance *f)
{
	static const enum arb_op ops[] = {ARB_OP_RETRY_BEGIN, ARB_OP_RETRY_END, ARB_OP_WAIT_ON,
					  ARB_OP_WAIT_ON,     ARB_OP_WAIT_OFF,  ARB_OP_SPILL_BEGIN,
					  ARB_OP_SPILL_END,   ARB_OP_OSBLOCK};
	struct arb_message msg = {.op = ops[arbchance_below(f, 8)],
				  .context = a_free_context(f)->id};

	if (msg.op == ARB_OP_RETRY_END || msg.op == ARB_OP_OSBLOCK)
		msg.value = arbchance_percent(f, 60);
	if (msg.op == ARB_OP_WAIT_ON) {
		msg.kind = 1 + (int)arbchance_below(f, 3);
		msg.other = msg.kind == ARB_WAIT_TASK ? a_task(f) : 0;
	}
	return msg;
}

static struct arb_message a_cancel_or_inject(struct arbchance *f)
{
	struct arb_message msg = {.op = arbchance_percent(f, 60) ? ARB_OP_CANCEL : ARB_OP_INJECT};

	if (arbchance_percent(f, 70))
		msg.context = arbchance_context(f)->id;
	else
		msg.task = a_task(f);
	if (msg.op == ARB_OP_CANCEL) {
		msg.kind = arbchance_percent(f, 30) ? ARB_TIMEDOUT : 0;
	} else {
		msg.kind = 1 + (int)arbchance_below(f, 5);
		msg.value = (int64_t)arbchance_below(f, 3);
		msg.extra = arbchance_percent(f, 30) ? arbchance_below(f, 3) : 0;
		msg.pool = arbchance_percent(f, 30) ? a_pool(f) : 0;
	}
	return msg;
}

static struct arb_message about_pool(struct arbchance *f)
{
	struct arb_message msg = {.op = ARB_OP_POOL_RESIZE, .pool = a_pool(f)};

	msg.bytes = f->scale / 3 + arbchance_below(f, f->scale);
	if (arbchance_percent(f, 20)) {
		msg = (struct arb_message){.op = ARB_OP_KNOB,
					   .kind = 1 + (int)arbchance_below(f, ARB_KNOB_OS_PROBE)};
		msg.value = msg.kind >= ARB_KNOB_EARLY_DETECT ? (int64_t)arbchance_below(f, 2)
							      : 1 + (int64_t)arbchance_below(f, 12);
	} else if (arbchance_percent(f, 10)) {
		msg = (struct arb_message){.op = ARB_OP_POOL_REMOVE, .pool = msg.pool};
	} else if (arbchance_percent(f, 20)) {
		msg.op = ARB_OP_POOL_CREATE;
		msg.kind = 1 + (int)arbchance_below(f, 2);
		msg.extra = arbchance_percent(f, 50) ? arbchance_below(f, f->scale / 8) : 0;
	}
	return msg;
}

static struct arb_message about_task(struct arbchance *f)
{
	struct arb_message msg = {.op = ARB_OP_TASK_END, .task = a_task(f)};

	if (arbchance_percent(f, 40)) {
		msg.op = ARB_OP_TASK_BEGIN;
		msg.task = f->next_task++;
		msg.value = arbchance_percent(f, 50) ? ARB_PRIORITY_DEFAULT
						     : (int64_t)arbchance_below(f, 9) - 2;
		msg.other = arbchance_percent(f, 15) ? a_task(f) : 0;
		return msg;
	}
	msg.flags = arbchance_percent(f, 40)   ? ARB_RELEASE | ARB_ALL
		    : arbchance_percent(f, 50) ? ARB_RELEASE
					       : 0;
	return msg;
}

/* A message about bytes that are there, which does not wait. */
static struct arb_message about_bytes(struct arbchance *f)
{
	struct arb_message msg = {.op = ARB_OP_RELEASE, .reservation = some_bytes(f)};

	switch (arbchance_below(f, 10)) {
	case 0:
	case 1:
	case 2:
		msg.op = ARB_OP_UNPIN;
		msg.task = arbchance_percent(f, 20) ? a_task(f) : 0;
		break;
	case 3:
		msg.op = ARB_OP_SEAL;
		msg.bytes = arbchance_percent(f, 50) ? an_amount(f) : 0;
		break;
	case 4:
		msg.op = ARB_OP_OWN;
		msg.task = a_task(f);
		break;
	default:
		break;
	}
	return msg;
}

static struct arb_message sensible(struct arbchance *f)
{
	uint64_t n = arbchance_below(f, 100);

	if (n < 7)
		return arbchance_bind(f);
	if (n < 10)
		return an_unbind(f);
	if (n < 38)
		return a_reserve(f);
	if (n < 43)
		return a_resize(f);
	if (n < 47)
		return a_pin(f);
	if (n < 63)
		return about_bytes(f);
	if (n < 72)
		return a_spilled(f);
	if (n < 81)
		return about_context(f);
	if (n < 84)
		return a_cancel_or_inject(f);
	if (n < 86)
		return about_pool(f);
	if (n < 89)
		return about_task(f);
	if (n < 92)
		return (struct arb_message){.op = ARB_OP_READY,
					    .context = a_free_context(f)->id,
					    .deadline_ns = arbchance_deadline(f)};
	f->m.now_ns += arbchance_percent(f, 30) ? 100 * MS : 0;
	return (struct arb_message){.op = ARB_OP_TICK};
}

/* ---- messages that make none ----------------------------------------------------------------- */

static uint64_t nonsense(struct arbchance *f)
{
	switch (arbchance_below(f, 5)) {
	case 0:
		return 0;
	case 1:
		return UINT64_MAX;
	case 2:
		return arbchance_below(f, 40);
	case 3:
		return UINT64_MAX / 2 + arbchance_below(f, 3);
	default:
		return (arbchance_below(f, UINT64_MAX) << 1) ^ arbchance_below(f, UINT64_MAX);
	}
}

/* A message with one or two of its members replaced by anything. A context or task of nobody
 * is not let into the books. */
static struct arb_message senseless(struct arbchance *f)
{
	struct arb_message msg = sensible(f);

	for (uint64_t n = 1 + arbchance_below(f, 2); n > 0; n--)
		switch (arbchance_below(f, 12)) {
		case 0:
			msg.op = (enum arb_op)arbchance_below(f, ARB_OP_SHUTDOWN);
			break;
		case 1:
			msg.flags = (uint32_t)nonsense(f);
			break;
		case 2:
			msg.kind = (int)nonsense(f);
			break;
		case 3:
			msg.context = arbchance_percent(f, 50) ? arbchance_context(f)->id : 0;
			break;
		case 4:
			msg.task = arbchance_percent(f, 50) ? a_task(f) : 0;
			break;
		case 5:
			msg.pool = nonsense(f);
			break;
		case 6:
			msg.reservation = arbchance_percent(f, 50) ? some_bytes(f) : 0;
			break;
		case 7:
			msg.bytes = nonsense(f);
			break;
		case 8:
			msg.extra = nonsense(f);
			break;
		case 9:
			msg.value = (int64_t)nonsense(f);
			break;
		case 10:
			msg.list = arbchance_percent(f, 50) ? f->list : NULL;
			msg.amounts = arbchance_percent(f, 50) ? f->amounts : NULL;
			msg.n_list = arbchance_percent(f, 80) ? (uint32_t)arbchance_below(f, 5)
							      : (uint32_t)nonsense(f);
			break;
		default:
			msg.deadline_ns = arbchance_percent(f, 50) ? 1 : nonsense(f);
			break;
		}
	return msg;
}

/* It may be answered OK, and then the model must know what it means: a list of contexts or tasks
 * that grows without bound does not. */
bool arbchance_is_followed(const struct arbchance *f, const struct arb_message *msg)
{
	if (msg->op == ARB_OP_BIND && msg->n_list > 3 && msg->n_list <= ARB_LIST_MAX)
		return false;
	if ((msg->op == ARB_OP_BIND || msg->op == ARB_OP_TASK_BEGIN) &&
	    f->m.n_tasks + 4 > ARBMODEL_TASKS)
		return false;
	for (uint32_t i = 0;
	     msg->op == ARB_OP_BIND && msg->list && i < msg->n_list && i < ARB_LIST_MAX; i++)
		for (size_t t = 0; t < f->m.n_tasks; t++)
			if (f->m.tasks[t].id == msg->list[i] && !f->m.tasks[t].lives)
				return false;
	if (msg->op == ARB_OP_RESERVE && msg->n_list > ARBMODEL_LIST && msg->n_list <= ARB_LIST_MAX)
		return false;
	if (msg->op == ARB_OP_POOL_CREATE && (msg->pool == 0 || msg->pool > ARBMODEL_POOLS))
		return false;
	return true;
}

struct arb_message arbchance_message(struct arbchance *f)
{
	return arbchance_percent(f, f->wrongness) ? senseless(f) : sensible(f);
}
