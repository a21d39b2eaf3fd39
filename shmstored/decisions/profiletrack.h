/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profiletrack.h: a running task's private memory over its life, in a bounded number of parts,
 * until it ends as a task of a profile. Pure: the caller says what time it is.
 *
 * A life has PROFILETRACK_PARTS parts at most. Where it lasts longer each two become one, so that a
 * part is a power of two ms. Between two samples a task has what it had at the first of them.
 */
#ifndef PROFILETRACK_H
#define PROFILETRACK_H

#include <stdint.h>

#include "profile.h"

#define PROFILETRACK_PARTS 64u

struct profiletrack {
	uint64_t part_ms; /* a power of two */
	uint64_t now, peak;
	uint32_t n_samples;
	unsigned at; /* the part of the last sample */
	uint64_t parts[PROFILETRACK_PARTS];
	uint64_t by_age[PROFILE_AGES];
	unsigned n_ages; /* as many are known */
};

void profiletrack_init(struct profiletrack *t);
/* At this age it has so many bytes. An age before the last one's counts as that. */
void profiletrack_note(struct profiletrack *t, uint64_t age_ms, uint64_t bytes);
/*
 * It has ended: its life, its phases, and what it had had at what age. Fewer
 * samples than phases say nothing about these. At an age it has what the samples
 * before that age say, so never too much.
 */
void profiletrack_end(const struct profiletrack *t, uint64_t life_ms, struct profile_task *ret);

#endif
