/* SPDX-License-Identifier: Apache-2.0 */
/*
 * history.c: two rings. The fine one takes every sample, the coarse one every tenth:
 * what leaves the first is still in the second, so both together are less than 300 KiB
 * a partition whatever happens.
 */
#include "history.h"

#include <errno.h>
#include <stdlib.h>

#define COARSE 10u

struct ring {
	struct history_sample samples[HISTORY_SECONDS];
	size_t n, next;
};

struct history {
	struct ring fine, coarse;
	uint64_t n_added;
};

int history_new(struct history **ret)
{
	struct history *h = calloc(1, sizeof(*h));

	if (!h)
		return -ENOMEM;
	*ret = h;
	return 0;
}

struct history *history_free(struct history *h)
{
	free(h);
	return NULL;
}

static void ring_add(struct ring *r, const struct history_sample *s)
{
	r->samples[r->next] = *s;
	r->next = (r->next + 1) % HISTORY_SECONDS;
	if (r->n < HISTORY_SECONDS)
		r->n++;
}

void history_add(struct history *h, const struct history_sample *s)
{
	ring_add(&h->fine, s);
	if (h->n_added++ % COARSE == 0)
		ring_add(&h->coarse, s);
}

size_t history_count(const struct history *h, int fine)
{
	return fine ? h->fine.n : h->coarse.n;
}

const struct history_sample *history_at(const struct history *h, int fine, size_t i)
{
	const struct ring *r = fine ? &h->fine : &h->coarse;

	if (i >= r->n)
		return NULL;
	return &r->samples[(r->next + HISTORY_SECONDS - r->n + i) % HISTORY_SECONDS];
}
