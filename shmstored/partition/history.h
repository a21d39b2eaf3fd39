/* SPDX-License-Identifier: Apache-2.0 */
/* history.h: the last minutes of a partition, for the page: one sample a second for
 * HISTORY_SECONDS, then one in ten for as many more. Pure. */
#ifndef HISTORY_H
#define HISTORY_H

#include <stddef.h>
#include <stdint.h>

#define HISTORY_SECONDS 600u

struct history_sample {
	int64_t time_ns; /* CLOCK_REALTIME */
	uint64_t size, used, linked, pool, ghosts, inflight, foreign;
	uint64_t n_members;
	uint64_t put_n, get_n, handoff_n, adopt_n, put_bytes; /* ever */
};

struct history_ring {
	struct history_sample samples[HISTORY_SECONDS];
	size_t n, next;
};

/* Zeroed: nothing yet. */
struct history {
	struct history_ring seconds, tens;
	uint64_t n_added;
};

void history_add(struct history *h, const struct history_sample *s);
/* Of r->n samples, oldest first. NULL: there are fewer. */
const struct history_sample *history_at(const struct history_ring *r, size_t i);

#endif
