/* SPDX-License-Identifier: Apache-2.0 */
/* profiletrack.c: see profiletrack.h. */
#include "profiletrack.h"

#include <string.h>
#include <sys/param.h>

void profiletrack_init(struct profiletrack *t)
{
	*t = (struct profiletrack){.part_ms = 1};
}

/* Each two parts become one. */
static void fold(struct profiletrack *t)
{
	for (unsigned i = 0; i < PROFILETRACK_PARTS / 2; i++)
		t->parts[i] = MAX(t->parts[(size_t)i * 2], t->parts[(size_t)i * 2 + 1]);
	memset(t->parts + PROFILETRACK_PARTS / 2, 0, sizeof(t->parts) / 2);
	t->part_ms *= 2;
	t->at /= 2;
}

void profiletrack_note(struct profiletrack *t, uint64_t age_ms, uint64_t bytes)
{
	while (age_ms / t->part_ms >= PROFILETRACK_PARTS)
		fold(t);
	for (unsigned part = (unsigned)(age_ms / t->part_ms); t->at < part; t->at++)
		t->parts[t->at + 1] = t->now;
	while (t->n_ages < PROFILE_AGES && PROFILE_AGE(t->n_ages) <= age_ms)
		t->by_age[t->n_ages++] = t->peak;
	t->now = bytes;
	t->parts[t->at] = MAX(t->parts[t->at], bytes);
	t->peak = MAX(t->peak, bytes);
	t->n_samples += t->n_samples < UINT32_MAX;
}

/* The peak from one age up to another, which it has not reached. */
static uint64_t peak_between(const struct profiletrack *t, uint64_t from_ms, uint64_t to_ms)
{
	uint64_t peak = 0;

	for (unsigned i = 0; i < PROFILETRACK_PARTS; i++) {
		uint64_t begin = i * t->part_ms;

		if (begin < to_ms && begin + t->part_ms > from_ms)
			peak = MAX(peak, i > t->at ? t->now : t->parts[i]);
	}
	return peak;
}

void profiletrack_end(const struct profiletrack *t, uint64_t life_ms, struct profile_task *ret)
{
	struct profiletrack whole = *t;

	ret->life_ms = life_ms ? life_ms : 1;
	ret->n_phases = ret->n_ages = 0;
	if (t->n_samples > 1) {
		memcpy(ret->by_age, t->by_age, sizeof(ret->by_age));
		ret->n_ages = t->n_ages;
	}
	if (t->n_samples < PROFILE_PHASES || life_ms < PROFILE_PHASES || life_ms > PROFILE_MOST)
		return;
	while (life_ms / whole.part_ms >= PROFILETRACK_PARTS)
		fold(&whole);
	for (unsigned i = 0; i < PROFILE_PHASES; i++)
		ret->phases[i] = peak_between(&whole, life_ms * i / PROFILE_PHASES,
					      life_ms * (i + 1) / PROFILE_PHASES);
	ret->n_phases = PROFILE_PHASES;
}
