/* SPDX-License-Identifier: Apache-2.0 */
/*
 * history.c: two rings. The one takes every sample, the other one every tenth:
 * what leaves the first is still in the second, so both together are less than 300 KiB
 * a partition whatever happens.
 */
#include "history.h"

#define TENS 10u

static void ring_add(struct history_ring *r, const struct history_sample *s)
{
	r->samples[r->next] = *s;
	r->next = (r->next + 1) % HISTORY_SECONDS;
	if (r->n < HISTORY_SECONDS)
		r->n++;
}

void history_add(struct history *h, const struct history_sample *s)
{
	ring_add(&h->seconds, s);
	if (h->n_added++ % TENS == 0)
		ring_add(&h->tens, s);
}

const struct history_sample *history_at(const struct history_ring *r, size_t i)
{
	if (i >= r->n)
		return NULL;
	return &r->samples[(r->next + HISTORY_SECONDS - r->n + i) % HISTORY_SECONDS];
}
