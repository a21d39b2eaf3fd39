/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierscrub.h: reads a partition's tier files now and then, slowly, and says which of them are
 * damaged while their objects can still be made anew. Loop's thread only; the reading is a job of
 * the scanner's SCANNER_SCRUB.
 */
#ifndef TIERSCRUB_H
#define TIERSCRUB_H

#include <stdbool.h>
#include <stdint.h>

struct account;

struct tierscrub_view {
	bool running;
	uint64_t bytes; /* by the one that runs, so far */
	/* CLOCK_REALTIME of the end of the last one that came to its end; 0: none did */
	int64_t time_ns;
	uint64_t n_files, n_damaged;  /* by that one */
	uint64_t n_scrubs, bytes_all; /* ever: those that came to their end; bytes read */
};

/* 0, -ENOMEM. */
int tierscrub_open(struct account *a);
/* Idempotent; its job is over, or ends on its own. */
void tierscrub_close(struct account *a);
/* Each second: begins one where it is time. there: the partition has a tier that can be used. */
void tierscrub_tick(struct account *a, bool there);
void tierscrub_view(const struct account *a, struct tierscrub_view *ret);

#endif
