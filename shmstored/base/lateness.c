/* SPDX-License-Identifier: Apache-2.0 */
/* lateness.c: see lateness.h. Pure: time comes in as an argument. */
#include "lateness.h"

const uint64_t lateness_bounds[LATENESS_BUCKETS - 1] = {100000,   1000000,   5000000,   10000000,
							50000000, 100000000, 1000000000};

void lateness_init(struct lateness *l, uint64_t first_ns, uint64_t interval_ns)
{
	*l = (struct lateness){.interval_ns = interval_ns, .expected_ns = first_ns};
}

void lateness_note(struct lateness *l, uint64_t now_ns)
{
	uint64_t late = now_ns > l->expected_ns ? now_ns - l->expected_ns : 0;
	unsigned bucket = 0;

	while (bucket < LATENESS_BUCKETS - 1 && late > lateness_bounds[bucket])
		bucket++;
	l->counts[bucket]++;
	l->recent_ns[l->n++ % LATENESS_RECENT] = late;
	l->sum_ns += late;
	l->expected_ns += (late / l->interval_ns + 1) * l->interval_ns;
}

uint64_t lateness_worst(const struct lateness *l)
{
	uint64_t worst = 0;

	for (unsigned i = 0; i < LATENESS_RECENT; i++)
		if (l->recent_ns[i] > worst)
			worst = l->recent_ns[i];
	return worst;
}
