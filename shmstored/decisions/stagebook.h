/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stagebook.h: the ids of stage profiles, and which session runs a stage with which. Pure:
 * messages and time in, grants out.
 *
 * Equal amounts have one id, 0 is the base, and no other id ever means something else in the book's
 * life. Of too many profiles the one that was asked for longest ago is forgotten, unless a session
 * has it or waits for it: the next request for it gets a new id. A session that begins a stage gets
 * its amounts if together with what the others hold they are within the total; else it waits, at
 * most wait_ms, and then runs with what is there: degraded, never for ever. Its end gives it the
 * base back: what of that others hold then, as soon as they give it back and nobody waits. Sessions
 * are served in the order of their asking.
 */
#ifndef STAGEBOOK_H
#define STAGEBOOK_H

#include <stdbool.h>
#include <stdint.h>

#include "amount.h"

/*
 * How a worker's memory is divided for one stage of a job: private (what the process alone has),
 * shared (its share of a partition), and slots (how many tasks at once). Pure: counts in, amounts
 * out; no clock, no I/O. docs/governor.md says what it is for.
 *
 * Every evaluation begins with the base, never with the last result. Rules:
 *   whole     nothing of the stage can be shared: private * private_ratio, shared /
 *             whole_shared_div
 *   partial   a large part cannot: private * private_ratio, shared * shared_ratio
 * Mode HOST: private + shared stay within the cap, and the share of the bytes that cannot be shared
 * counts beside the operators. Mode FIRST: as Gluten does it: whole or else partial, for stages
 * whose root is an exchange, and nothing bounds the sum.
 *
 * Amounts are MiB, and say so in their names: a number without its unit is what went wrong
 * elsewhere.
 */
#define STAGE_MIB_MAX   (INT64_C(1) << 40)
#define STAGE_NODES_MAX (INT64_C(1) << 40)

enum stage_mode {
	STAGE_HOST,
	STAGE_FIRST
};
enum stage_root {
	STAGE_EXCHANGE,
	STAGE_FINAL
};
/* Whether rules whole and partial are found out, or said. */
enum stage_fallback {
	STAGE_FALLBACK_FOUND,
	STAGE_FALLBACK_NONE,
	STAGE_FALLBACK_PARTIAL,
	STAGE_FALLBACK_WHOLE
};

enum stage_rule {
	STAGE_RULE_WHOLE = 1,
	STAGE_RULE_PARTIAL = 2
};

struct stage_config {
	enum stage_mode mode;
	bool enabled, shared_enabled;
	struct ratio private_ratio, shared_ratio, fallen_threshold;
	int64_t whole_shared_div;
	int64_t cap_mib; /* 0: what the base has together */
	int64_t wait_ms; /* for memory that others hold, at a stage's begin */
};

extern const struct stage_config stage_defaults;

struct stage_amounts {
	int64_t private_mib, shared_mib, slots; /* slots: at least 1 */
};

struct stage_ask {
	int64_t n_native, n_convert,
		/* operators: on shared memory, copies between it and private memory, all others */
		n_other;
	bool has_nonshare;
	/* of the bytes, what cannot be shared: instead of the counts, or beside them */
	struct ratio nonshare;
	enum stage_root root;
	enum stage_fallback fallback;
	int64_t want_slots; /* 0: those of the base */
};

struct stage_reply {
	struct stage_amounts amounts;
	unsigned rules; /* enum stage_rule, 0: the base */
	bool clamped;   /* private is less than the rules say */
};

/* Is this request possible? */
bool stage_ask_fits(const struct stage_ask *ask);
bool stage_amounts_equal(const struct stage_amounts *a, const struct stage_amounts *b);

/* The configuration and the base are possible, and the request fits. */
struct stage_reply stage_evaluate(const struct stage_config *config,
				  const struct stage_amounts *base, const struct stage_ask *ask);

enum stage_conflict {
	STAGE_CONFLICT_ERROR,
	STAGE_CONFLICT_MAX,
	STAGE_CONFLICT_HOST
};

/*
 * Two profiles that are asked for in one stage. ERROR: they must be equal. MAX: the larger of each.
 * HOST: the larger of each within cap_mib (0: the larger of their sums), and the fewer slots.
 * false: they differ, which is an error.
 */
bool stage_merge(const struct stage_amounts *a, const struct stage_amounts *b,
		 enum stage_conflict conflict, int64_t cap_mib, struct stage_amounts *ret);

#define STAGEBOOK_PROFILES 4096u /* that are remembered at once */

/* A worker, in the caller's structure. */
struct stagebook_session {
	uint32_t profile;
	struct stage_amounts has;
	bool degraded; /* less than the profile */
	bool waits;
	/* Private: */
	bool granted;    /* it waited, and stagebook_next() has not told so */
	uint32_t wanted; /* while it waits */
	uint64_t until_ms;
	struct stagebook_session *prev, *next, *waiting_prev, *waiting_next;
};

/* total_mib: of all sessions' private and shared memory. NULL: no memory. base fits. */
struct stagebook *stagebook_new(const struct stage_amounts *base, int64_t total_mib);
/* Returns NULL. */
struct stagebook *stagebook_free(struct stagebook *b);

/* The id of these amounts, a new one if need be. Return: 0; -ENOSPC: there are no more ids, or
 * STAGEBOOK_PROFILES are in use; -ENOMEM. */
int stagebook_id(struct stagebook *b, const struct stage_amounts *amounts, uint32_t *ret);
/* false: there is none of this id, or not any more. */
bool stagebook_amounts(const struct stagebook *b, uint32_t id, struct stage_amounts *ret);
/* Those that are remembered, but for the base; the one that was asked for last first. fn must not
 * call back; false ends it. */
void stagebook_each(const struct stagebook *b,
		    bool (*fn)(uint32_t id, const struct stage_amounts *amounts, void *arg),
		    void *arg);

/* A session comes and has the base, or what is left of the total. */
void stagebook_join(struct stagebook *b, struct stagebook_session *s);
/* It left: its amounts are free, and waiting sessions are served. */
void stagebook_leave(struct stagebook *b, struct stagebook_session *s);
/*
 * It begins a stage with this profile, in the place of the one that it is in; until it is
 * granted it keeps what it has.
 * Return: 1: granted; 0: it waits; -ENOENT: no such profile.
 */
int stagebook_begin(struct stagebook *b, struct stagebook_session *s, uint32_t profile,
		    int64_t wait_ms, uint64_t now_ms);
/* It ends the stage, or gives up waiting: it has the base again, or what is left. */
void stagebook_end(struct stagebook *b, struct stagebook_session *s);
/* Time has passed: sessions that waited long enough begin with the free amounts. */
void stagebook_tick(struct stagebook *b, uint64_t now_ms);
/*
 * A session that waited may begin, also degraded; each is told once. NULL: none. To be called until
 * then, after each of the other calls.
 */
struct stagebook_session *stagebook_next(struct stagebook *b);

int64_t stagebook_held_mib(const struct stagebook *b);
/* When the next one has waited long enough. UINT64_MAX: nobody waits. */
uint64_t stagebook_next_ms(const struct stagebook *b);

#endif
