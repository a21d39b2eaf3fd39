/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stages.c: sessions, their waits, and the answers that were withheld.
 *
 * The book decides, and settle() answers those that may begin afterwards. The timer runs while a
 * session waits, until the first wait is over.
 */
#include "stages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>
#include <utlist.h>

#include "account.h"
#include "config.h"
#include "conn.h"
#include "fields.h"
#include "host.h"
#include "log.h"
#include "loop.h"
#include "member.h"
#include "wire.h"

#define MIB INT64_C(1048576)
#define MS  UINT64_C(1000000)

static const struct config_stage *config_of(const struct stages *t)
{
	return &t->account->host->config->stage;
}

static struct stage_config rules_of(const struct stages *t)
{
	struct stage_config c = config_of(t)->rules;

	c.cap_mib = config_of(t)->cap ? (int64_t)(config_of(t)->cap / (uint64_t)MIB)
				      : 2 * STAGE_MIB_MAX;
	return c;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void tell(const struct stages_session *s, const char *state)
{
	struct json_object *o = account_json(s->of->account);
	const struct member *m = s->member;

	fields_of(o, m, FIELD(name, "store"), SAME(uid), SAME(pid));
	jsonmake_text(o, "stage", s->name);
	jsonmake_text(o, "state", state);
	jsonmake_u64(o, "profile", s->at.profile);
	jsonmake_i64(o, "private", s->at.has.private_mib * MIB);
	jsonmake_i64(o, "shared", s->at.has.shared_mib * MIB);
	jsonmake_i64(o, "slots", s->at.has.slots);
	jsonmake_u64(o, "waited_ms", s->waited_ns / MS);
	events_emit(s->of->account->host->events, EVENT_STAGE, NULL, o);
}

/* A stage's limit of its store is put in the place of the store's own, and that is put back. */
#define LEAST UINT64_C(4096) /* a limit of 0 is none */

/* Returns the store's own limits, and the limit in force. */
static struct quota_limits limits_of(struct quota *q, const char *name, uint64_t *ret_hard)
{
	struct quota_limits own = {QUOTA_DEFAULT, QUOTA_DEFAULT, 0}, all = {0};

	(void)quota_limit_get(q, WIRE_LIMIT_STORE, name, &own);
	(void)quota_limit_get(q, WIRE_LIMIT_STORE, "*", &all);
	*ret_hard = own.hard != QUOTA_DEFAULT ? own.hard : all.hard == QUOTA_DEFAULT ? 0 : all.hard;
	return own;
}

static void limit(struct stages_session *s, uint64_t shared)
{
	struct account *a = s->of->account;
	uint64_t hard;

	s->was = limits_of(a->quota, s->member->name, &hard);
	if (shared < LEAST)
		shared = LEAST;
	if (hard && hard <= shared)
		return;
	s->is = s->was;
	s->is.hard = shared;
	if (s->is.soft != QUOTA_DEFAULT && s->is.soft > shared)
		s->is.soft = shared;
	s->limited = quota_limit(a->quota, WIRE_LIMIT_STORE, s->member->name, &s->is,
				 loop_now(a->host->loop)) == 0;
}

static void limit_end(struct stages_session *s)
{
	struct account *a = s->of->account;
	uint64_t hard;

	if (s->limited && limits_of(a->quota, s->member->name, &hard).hard == s->is.hard)
		(void)quota_limit(a->quota, WIRE_LIMIT_STORE, s->member->name, &s->was,
				  loop_now(a->host->loop));
	s->limited = false;
}

int stages_send(struct conn *c, uint64_t serial, const struct stages_answer *a)
{
	uint64_t slots = a->amounts.slots > 0 ? (uint64_t)a->amounts.slots : 1;
	struct wire_staged body = {
		.profile = a->profile,
		.flags = (a->clamped ? WIRE_STAGED_CLAMPED : 0) |
			 (a->degraded ? WIRE_STAGED_DEGRADED : 0),
		.rules = a->rules,
		.slots = (uint32_t)slots,
		.private_bytes = (uint64_t)(a->amounts.private_mib * MIB),
		.shared_bytes = (uint64_t)(a->amounts.shared_mib * MIB),
		.expires_ms = STAGES_EXPIRES_MS,
	};

	body.private_per_slot = body.private_bytes / slots;
	body.shared_per_slot = body.shared_bytes / slots;
	return conn_send(c, WIRE_STAGED, serial, &body, NULL, 0);
}

/* ---- sessions -------------------------------------------------------------------------------- */

static struct stages_answer answer_of(const struct stages_session *s)
{
	return (struct stages_answer){
		.profile = s->at.profile, .amounts = s->at.has, .degraded = s->at.degraded};
}

/* The session has what it asked for, or what there is of it. */
static void begun(struct stages_session *s)
{
	struct stages *t = s->of;
	struct stages_answer a = answer_of(s);

	s->began_ns = loop_clock();
	s->waited_ns = s->began_ns - s->asked_ns;
	t->wait_ns += s->waited_ns;
	t->n_begun++;
	t->n_degraded += a.degraded;
	if (a.profile || a.degraded)
		limit(s, (uint64_t)(a.amounts.shared_mib * MIB));
	tell(s, a.degraded ? "degraded" : "begun");
}

/* ---- withheld answers ------------------------------------------------------------------------ */

static int arm(struct stages *t)
{
	uint64_t next_ms = stagebook_next_ms(t->book);

	if (next_ms == UINT64_MAX || t->closed)
		return 0;
	return loop_timer_by(t->account->host->loop, &t->timer, (next_ms + 1) * MS);
}

/* Answers the sessions that may begin now. */
static void settle(struct stages *t)
{
	struct stagebook_session *next;

	while ((next = stagebook_next(t->book))) {
		struct stages_session *s = CONTAINER_OF(next, stages_session, at);
		struct conn *c = s->member->conn;
		struct stages_answer a;

		begun(s);
		a = answer_of(s);
		if (c)
			stages_send(c, s->serial, &a);
	}
	if (arm(t) < 0 && !t->closed) {
		/* Without a timer no session may wait; after this none does. */
		stagebook_tick(t->book, UINT64_MAX);
		settle(t);
	}
}

static void on_timer(struct loop_op *op, UNUSED int result, UNUSED unsigned flags)
{
	struct stages *t = CONTAINER_OF(op, stages, timer);

	stagebook_tick(t->book, loop_clock_ms());
	settle(t);
}

/* ---- the part -------------------------------------------------------------------------------- */

/*
 * Sets what a worker has outside of stages: what is configured; else its share of the partition,
 * and of the rest of the host's memory.
 */
static void set_base(struct stages *t)
{
	const struct config_stage *c = config_of(t);
	uint64_t host = t->account->host->config->pressure.host_total, size = t->account->tick.size,
		 workers = c->workers;
	uint64_t private, shared;
	int64_t most;

	if (!host)
		host = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	if (!workers)
		workers = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
	if (!size || size > host / 2)
		size = size ? size : host / 2;
	private = c->base_private ? c->base_private
				  : (host - (size < host / 2 ? size : host / 2)) / workers;
	shared = c->base_shared ? c->base_shared : size / workers;
	t->base = (struct stage_amounts){.private_mib = (int64_t)(private / (uint64_t)MIB),
					 .shared_mib = (int64_t)(shared / (uint64_t)MIB),
					 .slots = c->slots};
	/* All that the rules can make of the workers' bases: nobody waits, and nobody's store
	 * starves, unless a total is configured. */
	most = MAX(ratio_floor(c->rules.private_ratio, t->base.private_mib), t->base.private_mib);
	t->total_mib = c->total ? (int64_t)(c->total / (uint64_t)MIB)
				: (most + t->base.shared_mib) * (int64_t)workers;
}

static int open_stages(struct account *a)
{
	struct stages *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->account = a;
	t->timer.fn = on_timer;
	set_base(t);
	t->book = stagebook_new(&t->base, t->total_mib);
	if (!t->book) {
		free(t);
		return -ENOMEM;
	}
	a->stages = t;
	return 0;
}

static void leave(struct member *m)
{
	struct stages_session *s = m->stage;
	struct stages *t;

	if (!s)
		return;
	t = s->of;
	if (s->name[0] && !s->at.waits) {
		limit_end(s);
		tell(s, "left");
	}
	stagebook_leave(t->book, &s->at);
	DL_DELETE(t->sessions, s);
	m->stage = NULL;
	free(s);
	settle(t);
}

static void close_stages(struct account *a)
{
	struct stages *t = a->stages;

	if (!t)
		return;
	t->closed = true;
	while (t->sessions)
		leave(t->sessions->member);
	a->stages = NULL;
	stagebook_free(t->book);
	loop_release(a->host->loop, &t->timer, t);
}

const struct part stages_part = {
	.name = "stages", .open = open_stages, .close = close_stages, .left = leave};

/* ---- requests -------------------------------------------------------------------------------- */

int stages_query(struct member *m, const struct stage_ask *ask, struct stages_answer *ret)
{
	struct stages *t = m->account->stages;
	struct stage_config rules = rules_of(t);
	struct stage_reply reply;
	uint32_t id = 0;
	int r;

	t->n_queries++;
	reply = stage_evaluate(&rules, &t->base, ask);
	r = stagebook_id(t->book, &reply.amounts, &id);
	if (r < 0)
		return r;
	*ret = (struct stages_answer){.profile = id,
				      .amounts = reply.amounts,
				      .rules = reply.rules,
				      .clamped = reply.clamped};
	return 0;
}

/* Makes one profile of two. */
static int merge(struct stages *t, uint32_t profile, uint32_t other, uint32_t *ret)
{
	struct stage_amounts a, b, both;

	if (!stagebook_amounts(t->book, profile, &a) || !stagebook_amounts(t->book, other, &b))
		return -ENOENT;
	if (profile == other) {
		*ret = profile;
		return 0;
	}
	if (!stage_merge(&a, &b, config_of(t)->conflict, rules_of(t).cap_mib, &both))
		return -EEXIST;
	return stagebook_id(t->book, &both, ret);
}

int stages_begin(struct member *m, uint64_t serial, const char *name, uint32_t profile,
		 uint32_t other, uint64_t wait_ms, struct stages_answer *ret)
{
	struct stages *t = m->account->stages;
	struct stages_session *s = m->stage;
	int64_t most = config_of(t)->rules.wait_ms;
	int r = merge(t, profile, other, &profile);

	if (r < 0)
		return r;
	if (!config_of(t)->rules.enabled) {
		*ret = (struct stages_answer){.amounts = t->base};
		return 0;
	}
	if (s && s->name[0])
		return -EBUSY;
	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s)
			return -ENOMEM;
		s->of = t;
		s->member = m;
		stagebook_join(t->book, &s->at);
		DL_PREPEND(t->sessions, s);
		m->stage = s;
	}
	strncpy(s->name, name, STAGES_NAME);
	s->serial = serial;
	s->asked_ns = loop_clock();
	r = stagebook_begin(t->book, &s->at, profile,
			    wait_ms < (uint64_t)most ? (int64_t)wait_ms : most, loop_clock_ms());
	if (r < 0) {
		s->name[0] = '\0';
		return r;
	}
	if (r == 1) {
		begun(s);
		*ret = answer_of(s);
		return 0;
	}
	t->n_waited++;
	tell(s, "waiting");
	settle(t);
	return 1;
}

int stages_end(struct member *m, struct stages_answer *ret)
{
	struct stages *t = m->account->stages;
	struct stages_session *s = m->stage;
	struct conn *c = m->conn;

	if (!config_of(t)->rules.enabled && !s) {
		*ret = (struct stages_answer){.amounts = t->base};
		return 0;
	}
	if (!s || !s->name[0])
		return -ENOENT;
	if (s->at.waits && c)
		(void)conn_refuse(c, s->serial, -ECANCELED, "the stage was ended while it waited");
	if (!s->at.waits)
		limit_end(s);
	stagebook_end(t->book, &s->at);
	tell(s, "ended");
	s->name[0] = '\0';
	*ret = answer_of(s);
	settle(t);
	return 0;
}

uint64_t stages_private(const struct member *m)
{
	const struct stages *t = m->account->stages;

	if (!config_of(t)->rules.enabled)
		return UINT64_MAX;
	return (uint64_t)((m->stage ? m->stage->at.has.private_mib : t->base.private_mib) * MIB);
}
