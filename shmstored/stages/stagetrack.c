/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stagetrack.c: a stage is a task of the profile store, of kind "stage:NAME" (language "shmstore").
 * Its number is 0, which no client's task has.
 */
#include "stagetrack.h"

#include <stdio.h>
#include <string.h>

#include "account.h"
#include "conn.h"
#include "host.h"
#include "loop.h"
#include "member.h"
#include "profiletasks.h"
#include "wire.h"

#define MIB   UINT64_C(1048576)
#define TASK  0u
#define LEAST UINT64_C(4096) /* a limit of 0 is none */

/* ---- the store's limit --------------------------------------------------------------------------------------------- */

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

static void unlimit(struct stages_session *s)
{
	struct account *a = s->of->account;
	uint64_t hard;

	if (s->limited && limits_of(a->quota, s->member->name, &hard).hard == s->is.hard)
		(void)quota_limit(a->quota, WIRE_LIMIT_STORE, s->member->name, &s->was, loop_now(a->host->loop));
	s->limited = false;
}

/* ---- what it used -------------------------------------------------------------------------------------------------- */

static struct profile_name name_of(const char *stage, char room[PROFILE_NAME + 1])
{
	snprintf(room, PROFILE_NAME + 1, "stage:%s", stage);
	return (struct profile_name){"shmstore", room, ""};
}

int64_t stagetrack_measured(const struct member *m, const char *name)
{
	static const uint64_t nothing[PROFILE_RESOURCES];
	const struct host *h = m->account->host;
	char room[PROFILE_NAME + 1];
	struct profile_name kind = name_of(name, room);
	struct profiles_estimate e;

	if (!h->profiles)
		return 0;
	e = profiles_estimate(h->profiles, m->uid, &kind, nothing);
	return e.n < PROFILE_WARM ? 0 : (int64_t)(e.used[PROFILE_PRIVATE] / MIB + 1);
}

void stagetrack_begin(struct stages_session *s, const struct stages_answer *a)
{
	struct member *m = s->member;
	struct host *h = s->of->account->host;
	char room[PROFILE_NAME + 1];
	struct profile_name kind = name_of(s->name, room);

	if (a->profile || a->degraded)
		limit(s, (uint64_t)a->amounts.shared_mib * MIB);
	member_refresh(m);
	s->put_bytes = m->last.put_bytes;
	s->profiled = h->profiletasks && m->conn && profiletasks_begin(h->profiletasks, m->conn, TASK, &kind) == 0;
}

void stagetrack_end(struct stages_session *s, const struct stages_told *told)
{
	struct member *m = s->member;
	struct host *h = s->of->account->host;
	struct profile_task used = {.used = {[PROFILE_PRIVATE] = told->private_bytes},
				    .has = {[PROFILE_PRIVATE] = told->has_private}};

	unlimit(s);
	if (!s->profiled)
		return;
	s->profiled = false;
	if (told->learn) {
		member_refresh(m);
		used.used[PROFILE_SHARED] = m->last.put_bytes - s->put_bytes;
		used.has[PROFILE_SHARED] = true;
	}
	/* If the connection has ended, its tasks have, too. */
	if (m->conn)
		(void)profiletasks_end(h->profiletasks, m->conn, TASK, &used,
				       told->learn ? PROFILES_DONE : PROFILES_DROPPED);
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
