/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lateness.h: how late the loop is: a timer of one second, and by how much each call of it came too
 * late. Anything that keeps the loop from its work shows here.
 */
#ifndef LATENESS_H
#define LATENESS_H

#include <stdint.h>

#define LATENESS_BUCKETS 8u  /* the last one is "more" */
#define LATENESS_RECENT  10u /* seconds of which the worst is kept */

struct lateness {
	uint64_t interval_ns;
	uint64_t expected_ns; /* the next call; CLOCK_MONOTONIC */
	uint64_t counts[LATENESS_BUCKETS];
	uint64_t n, sum_ns;
	uint64_t recent_ns[LATENESS_RECENT];
};

/* The upper bounds of the buckets but for the last one, in ns. */
extern const uint64_t lateness_bounds[LATENESS_BUCKETS - 1];

/* The first call is expected at first_ns. */
void lateness_init(struct lateness *l, uint64_t first_ns, uint64_t interval_ns);
/* A call came at now_ns. Calls that were left out meanwhile are not counted: the one
 * that came is that much later. */
void lateness_note(struct lateness *l, uint64_t now_ns);
/* Of the last LATENESS_RECENT calls. */
uint64_t lateness_worst(const struct lateness *l);

#endif
