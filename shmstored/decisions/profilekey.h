/* SPDX-License-Identifier: Apache-2.0 */
/* profilekey.h: one key of a profile, as profile.c fills, profileask.c reads and profiletext.c
 * writes it. Private to the room. */
#ifndef PROFILEKEY_H
#define PROFILEKEY_H

#include "idtable.h"
#include "profile.h"

/* The last values: from values[from] on in the order of their coming, around the end; and once more
 * in the order of their sizes. */
struct profilering {
	uint32_t n, from;
	uint64_t values[PROFILE_RING], sorted[PROFILE_RING];
};

struct profilevalues {
	uint64_t n, sum;
	uint64_t prior_peak;   /* of what was loaded */
	uint64_t session_peak; /* since then */
	/* of the values since then, or since prior_peak last approached session_peak */
	uint64_t n_session;
	struct profilering ring;
	uint32_t buckets[PROFILE_BUCKETS];
};

/* The peaks of the phases in the last one or two times PROFILE_RING tasks: what
 * was longer ago is forgotten. */
struct profilephases {
	unsigned n, n_tasks;
	uint64_t now[PROFILE_PHASES], before[PROFILE_PHASES];
};

/*
 * Of tasks that became so old: how many; and the largest quotient of what one had in the end
 * and what it had until then, in PROFILEGROWTH_ONE-ths, of the last one or two times
 * PROFILE_RING tasks. It is not in a profile's text: a kind that was loaded is estimated by its
 * peak until it is known anew.
 */
struct profilegrowth {
	unsigned n[PROFILE_AGES], n_tasks;
	uint32_t now[PROFILE_AGES], before[PROFILE_AGES];
};
#define PROFILEGROWTH_ONE 256u

void profilegrowth_add(struct profilegrowth *g, const struct profile_task *t);
void profilegrowth_merge(struct profilegrowth *a, const struct profilegrowth *b);

struct profile_key {
	uint8_t hash[16];
	char *names; /* three, each with its NUL: what name points to */
	struct profile_name name;
	uint64_t fed; /* profile's count when it was fed last */
	struct profilevalues of[PROFILE_RESOURCES];
	struct profilering lives;
	struct profilephases phases;
	struct profilegrowth growth;
	uint64_t killed_had;  /* the most that a killed task had; 0: none, or long ago */
	uint32_t killed_left; /* so many more must end well until it is forgotten */
	uint32_t preempted_left;
	UT_hash_handle hh;
};

struct profile {
	uint32_t max_keys;
	uint64_t n_fed;
	struct profile_key *keys;
};

/* The key of this name, made if need be. NULL: no memory. The name's parts are no
 * longer than PROFILE_NAME. */
struct profile_key *profilekey_get(struct profile *p, const struct profile_name *name);
/* n and what they sum up to: at least one remains, and the average stays. */
void profilekey_halve(uint64_t *n, uint64_t *sum);
void profilekey_to_prior(struct profile_key *k);

void profilering_add(struct profilering *ring, uint64_t value);
uint64_t profilering_at(const struct profilering *ring, uint32_t i);
/* Those of a and b in turn, the newest last. */
void profilering_interleave(struct profilering *a, const struct profilering *b);

uint64_t profilevalues_peak(const struct profilevalues *v);

#endif
