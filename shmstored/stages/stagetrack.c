/* SPDX-License-Identifier: Apache-2.0 */
/* stagetrack.c: see stagetrack.h. A stage's limit of its store is put in the place of the store's own, and that is put back. */
#include "stagetrack.h"

#include "account.h"
#include "host.h"
#include "loop.h"
#include "member.h"
#include "wire.h"

#define MIB   UINT64_C(1048576)
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
	s->limited = quota_limit(a->quota, WIRE_LIMIT_STORE, s->member->name, &s->is, loop_now(a->host->loop)) == 0;
}

void stagetrack_begin(struct stages_session *s, const struct stages_answer *a)
{
	if (a->profile || a->degraded)
		limit(s, (uint64_t)a->amounts.shared_mib * MIB);
}

void stagetrack_end(struct stages_session *s)
{
	struct account *a = s->of->account;
	uint64_t hard;

	if (s->limited && limits_of(a->quota, s->member->name, &hard).hard == s->is.hard)
		(void)quota_limit(a->quota, WIRE_LIMIT_STORE, s->member->name, &s->was, loop_now(a->host->loop));
	s->limited = false;
}

void stagetrack_staged(const struct stages_answer *a, struct wire_staged *ret)
{
	uint64_t slots = a->amounts.slots > 0 ? (uint64_t)a->amounts.slots : 1;

	*ret = (struct wire_staged){
		.profile = a->profile,
		.flags = (a->clamped ? WIRE_STAGED_CLAMPED : 0) | (a->degraded ? WIRE_STAGED_DEGRADED : 0),
		.rules = a->rules,
		.slots = (uint32_t)slots,
		.private_bytes = (uint64_t)a->amounts.private_mib * MIB,
		.shared_bytes = (uint64_t)a->amounts.shared_mib * MIB,
		.expires_ms = STAGES_EXPIRES_MS,
	};
	ret->private_per_slot = ret->private_bytes / slots;
	ret->shared_per_slot = ret->shared_bytes / slots;
}
