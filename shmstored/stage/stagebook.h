/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stagebook.h: the ids of stage profiles, and which session runs a stage with which. Pure: messages and time in, grants out.
 *
 * Equal amounts have one id, 0 is the base, and no other id ever means something else in the book's life. Of too many profiles the one that was asked for longest ago is
 * forgotten, unless a session has it or waits for it: the next request for it gets a new id. A session that begins a
 * stage gets its amounts if together with what the others hold they are within the total; else it waits, at most
 * wait_ms, and then runs with what is there: degraded, never for ever. Its end gives it the base back: what of that
 * others hold then, as soon as they give it back and nobody waits. Sessions are served in the order of their asking.
 */
#ifndef STAGEBOOK_H
#define STAGEBOOK_H

#include <stdbool.h>
#include <stdint.h>

#include "stageprofile.h"

#define STAGEBOOK_PROFILES 4096u /* that are remembered at once */

struct stagebook;

/* A session's present amounts. */
struct stagebook_grant {
	uint64_t session;
	uint32_t profile;
	struct stage_amounts amounts;
	bool degraded; /* less than the profile */
};

/* A session that waited may begin, also degraded. It must not call back. */
typedef void stagebook_granted(void *arg, const struct stagebook_grant *g);

/* total_mib: of all sessions' private and shared memory. NULL: no memory. base fits. */
struct stagebook *stagebook_new(const struct stage_amounts *base, int64_t total_mib, stagebook_granted *granted,
				void *arg);
/* Returns NULL. */
struct stagebook *stagebook_free(struct stagebook *b);

/* Another base: id 0 is this from now on. Sessions outside of a stage get it at their next stage's end. */
void stagebook_set_base(struct stagebook *b, const struct stage_amounts *base);
/* The id of these amounts, a new one if need be. Return: 0; -ENOSPC: there are no more ids, or STAGEBOOK_PROFILES are in use; -ENOMEM. */
int stagebook_id(struct stagebook *b, const struct stage_amounts *amounts, uint32_t *ret);
/* false: there is none of this id, or not any more. */
bool stagebook_amounts(const struct stagebook *b, uint32_t id, struct stage_amounts *ret);
/* Those that are remembered, but for the base; the one that was asked for last first. fn must not call back; false ends it. */
void stagebook_each(const struct stagebook *b, bool (*fn)(uint32_t id, const struct stage_amounts *amounts, void *arg),
		    void *arg);

/* A session comes and has the base, or what is left of the total. Return: 0; -EEXIST; -ENOMEM. */
int stagebook_join(struct stagebook *b, uint64_t session);
/* It left: its amounts are free, and waiting sessions are served. Return: 0; -ENOENT. */
int stagebook_leave(struct stagebook *b, uint64_t session);
/*
 * It begins a stage with this profile, in the place of the one that it is in; until it is granted it keeps what it has.
 * Return: 1: granted, see stagebook_grant(); 0: it waits; -ENOENT: no such session or profile.
 */
int stagebook_begin(struct stagebook *b, uint64_t session, uint32_t profile, int64_t wait_ms, uint64_t now_ms);
/* It ends the stage, or gives up waiting. Return: 0: it has the base again, or what is left; -ENOENT. */
int stagebook_end(struct stagebook *b, uint64_t session);
/* Time has passed: sessions that waited long enough begin with the free amounts. */
void stagebook_tick(struct stagebook *b, uint64_t now_ms);

/* false: no such session. */
bool stagebook_grant(const struct stagebook *b, uint64_t session, struct stagebook_grant *ret);
int64_t stagebook_held_mib(const struct stagebook *b);
/* When the next one has waited long enough. UINT64_MAX: nobody waits. */
uint64_t stagebook_next_ms(const struct stagebook *b);

#endif
