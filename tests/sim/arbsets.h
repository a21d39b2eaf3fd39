/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbsets.h: the sets of situations that arbiters are compared by, and what the reference model of
 * our rules came to on them. Those figures are data, not results of this program.
 */
#ifndef SIM_ARBSETS_H
#define SIM_ARBSETS_H

#include <stddef.h>
#include <stdint.h>

#include "situation.h"

#define ARBSETS_SITUATIONS 500u
#define ARBSETS_SEED       1u

struct arbset {
	const char *name; /* "D x4" */
	uint64_t digest;  /* XXH3 of its situations, as they are printed: seed 1, 500 of them */
	struct situation_rules rules;
	uint32_t pool_mib;
	unsigned n_runners;
	/* The reference model, seed 1, 500 situations; makespan 0 = it was not run. */
	unsigned n_splits, n_retries;
	double makespan_s, lost_s;
};

extern const struct arbset arbsets[];
extern const size_t n_arbsets;

#endif
