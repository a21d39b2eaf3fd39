/* SPDX-License-Identifier: Apache-2.0 */
/*
 * req_arb.c: ARB and ARB_ADMIN: the arbiter's requests. This file finds the client, and does what
 * the client left to do; the operations are in arbbytes.c, arbpage.c and arbstep.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "arbhost.h"
#include "dispatch.h"
#include "log.h"

static int refuse_off(struct conn *c, uint64_t serial)
{
	return conn_refuse(
		c, serial, -ENOTSUP,
		"the arbiter is off here: set arbiter { enabled = true } in shmstored.conf");
}

/* Memory was given back: the kernel says how much. */
static int freed(struct arbrequest *q)
{
	arbkernel_refresh(q->client->host, q->client);
	return ARB_OK;
}

/* The others are not of a registered store's. */
static int (*const handlers[WIRE_ARB_OP_END])(struct arbrequest *q) = {
	[WIRE_ARB_POOL_CREATE] = arbbytes_pool, [WIRE_ARB_POOL_RESIZE] = arbbytes_pool,
	[WIRE_ARB_POOL_REMOVE] = arbbytes_pool, [WIRE_ARB_TASK_BEGIN] = arbscope_begin,
	[WIRE_ARB_TASK_END] = arbscope_end,     [WIRE_ARB_BIND] = arbscope_bind,
	[WIRE_ARB_UNBIND] = arbscope_unbind,    [WIRE_ARB_RESERVE] = arbbytes_reserve,
	[WIRE_ARB_RELEASE] = arbbytes_change,   [WIRE_ARB_RESIZE] = arbbytes_change,
	[WIRE_ARB_SEAL] = arbbytes_change,      [WIRE_ARB_PIN] = arbbytes_change,
	[WIRE_ARB_UNPIN] = arbbytes_change,     [WIRE_ARB_SPILLED] = arbbytes_change,
	[WIRE_ARB_READY] = arbscope_plain,      [WIRE_ARB_RETRY_BEGIN] = arbscope_plain,
	[WIRE_ARB_RETRY_END] = arbscope_plain,  [WIRE_ARB_WAIT_ON] = arbscope_plain,
	[WIRE_ARB_WAIT_OFF] = arbscope_plain,   [WIRE_ARB_SPILL_BEGIN] = arbscope_plain,
	[WIRE_ARB_SPILL_END] = arbscope_plain,  [WIRE_ARB_CANCEL] = arbscope_plain,
	[WIRE_ARB_INJECT] = arbscope_plain,     [WIRE_ARB_FREED] = freed,
	[WIRE_ARB_LEASE] = arbpage_request,     [WIRE_ARB_LEASE_CALLED] = arbpage_request,
	[WIRE_ARB_STATE] = arbstate_make,       [WIRE_ARB_STATS] = arbstate_make,
};

static const struct conn_why refused[] = {
	{-EMFILE,
	 "too many contexts, tasks, pools or reservations of one store: end some, or raise "
	 "arbiter.max-contexts, max-tasks, max-pools or max-reservations in shmstored.conf"},
	{0, NULL}};

static int answer(struct arbrequest *q, struct conn *c, int outcome)
{
	struct wire_arbed body = {
		.outcome = outcome,
		.context = q->w->context,
		.reservation = q->w->reservation,
		.bytes = q->bytes,
	};
	char why[128] = "";

	if (outcome == ARB_PENDING || (outcome == ARB_OK && q->w->flags & WIRE_ARB_QUIET))
		return CONN_OK;
	if (outcome < 0)
		return conn_refuse_why(c, q->serial, outcome, refused);
	if (outcome == ARB_TOOBIG)
		snprintf(why, sizeof(why),
			 "%" PRIu64 " bytes are more than the pool's capacity of %" PRIu64,
			 q->w->bytes, q->bytes);
	if (outcome != ARB_OK)
		arbstep_tell(q->client, q->w->context, outcome,
			     q->w->pool ? arb_pool_id(q->client, q->w->pool) : 0, q->w->bytes,
			     NULL);
	if (q->text)
		return conn_send(c, WIRE_ARBED, q->serial, &body, q->text, strlen(q->text));
	return conn_send(c, WIRE_ARBED, q->serial, &body, why, strlen(why));
}

DISPATCH_HANDLER(arb)
{
	struct member *m = c->member;
	struct arbrequest q = {.w = body, .tail = tail, .serial = serial};
	struct arbhost *h;
	int outcome, r;

	if (!body->op || body->op >= WIRE_ARB_OP_END)
		return conn_fault(c, "ARB: no such operation: %u", body->op);
	if (body->op == WIRE_ARB_SERVE)
		return arbcall_serve(c, serial, body);
	if (body->op == WIRE_ARB_EVICTED)
		return arbcall_evicted(c, serial, body);
	if (!m)
		return conn_refuse(c, serial, -ENOENT,
				   "no store is registered on this connection; register one first");
	h = m->account->arb;
	if (!h)
		return refuse_off(c, serial);
	q.client = arbhost_guest(h, m);
	if (!q.client)
		return conn_refuse_why(c, serial, -ENOMEM, refused);
	outcome = handlers[body->op] ? handlers[body->op](&q) : ARB_INVALID;
	r = answer(&q, c, outcome);
	free(q.text);
	arbhost_settle(h);
	return r;
}

/* ---- operators ------------------------------------------------------------------------------- */

static struct arb_message admin_message(const struct wire_arb_admin *w, const struct arb *core)
{
	struct arb_message m = {.kind = w->kind, .value = w->value};
	struct arb_context_info i;

	switch ((enum wire_arb_admin_op)w->op) {
	case WIRE_ARB_ADMIN_KNOB:
		m.op = ARB_OP_KNOB;
		return m;
	case WIRE_ARB_ADMIN_INJECT:
		m.op = ARB_OP_INJECT;
		m.extra = w->skip;
		m.pool = w->pool;
		break;
	case WIRE_ARB_ADMIN_CANCEL:
	default:
		m = (struct arb_message){.op = ARB_OP_CANCEL};
		break;
	}
	/* Contexts and tasks are numbered apart. */
	if (!(w->flags & WIRE_ARB_ADMIN_TASK) && arb_context(core, w->target, &i))
		m.context = w->target;
	else
		m.task = w->target;
	return m;
}

/* As in the configuration (config.def). */
static const struct {
	int64_t least, most;
} knob_ranges[] = {
#define KNOB(NAME, name, value, least, most) [ARB_KNOB_##NAME] = {least, most},
#include "arbiter.def"
};

DISPATCH_HANDLER(arb_admin)
{
	struct account *a = account_find(c->host, tail);
	struct arb_message m;
	int r;

	if (!conn_is_admin(c))
		return conn_refuse_user(c, serial, "the arbiter is told by");
	if (body->op < WIRE_ARB_ADMIN_KNOB || body->op > WIRE_ARB_ADMIN_CANCEL)
		return conn_fault(c, "ARB_ADMIN: no such operation: %u", body->op);
	if (!a)
		return conn_refuse(c, serial, -ENOENT,
				   "%s is no partition that this daemon watches; \"shmstore-admin "
				   "status\" lists them",
				   tail);
	if (!a->arb)
		return refuse_off(c, serial);
	if (body->op == WIRE_ARB_ADMIN_KNOB &&
	    (body->kind < ARB_KNOB_MAX_BYPASS || body->kind > ARB_KNOB_OS_PROBE))
		return conn_refuse(c, serial, -EINVAL, "there is no knob %u", body->kind);
	if (body->op == WIRE_ARB_ADMIN_KNOB && (body->value < knob_ranges[body->kind].least ||
						body->value > knob_ranges[body->kind].most))
		return conn_refuse(
			c, serial, -EINVAL, "%s is from %" PRId64 " to %" PRId64 ", not %" PRId64,
			arb_knob_name((enum arb_knob)body->kind), knob_ranges[body->kind].least,
			knob_ranges[body->kind].most, body->value);
	m = admin_message(body, a->arb->core);
	r = arbstep_do(a->arb, &m);
	arbhost_settle(a->arb);
	if (r < 0)
		return conn_refuse_why(c, serial, r, refused);
	if (r != ARB_OK)
		return conn_refuse(c, serial, -EINVAL,
				   "%s has no such context or task, or it does not take that",
				   tail);
	log_say(LOG_NOTICE, LOG_FIELDS(.conn = c->name, .object = a->path),
		"the arbiter was told %s, kind %u, target %" PRIu64 ", value %" PRId64,
		arb_op_name(m.op), body->kind, body->target, body->value);
	return conn_send_done(c, serial);
}
