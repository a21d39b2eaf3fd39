/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierwork.h: what the daemon does with a partition's disk tier, each piece from begin to end
 * in a worker thread: it may take as long as a disk takes. By the public calls of
 * shmstore/tier.h alone. Knows no account.
 */
#ifndef TIERWORK_H
#define TIERWORK_H

#include <shmstore/shmstore.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tierplan.h"

enum tierwork_kind {
	TIERWORK_SET,   /* write the configuration, then as LOOK */
	TIERWORK_LOOK,  /* what is in the tier */
	TIERWORK_EVICT, /* demote, then as LOOK */
};

struct tierwork {
	/* in */
	enum tierwork_kind kind;
	struct shmstore_partition *partition;
	/* SET; path NULL: the tier is taken away. The path is owned */
	struct shmstore_tier_config config;
	struct tierplan_step *steps; /* EVICT: these users first, in this order. Owned */
	size_t n_steps;
	uint64_t low; /* EVICT: down to so many bytes used */
	bool background;
	unsigned n_threads;
	int fd; /* of the partition's file system */
	/* Now and then, from the worker: true ends it. */
	bool (*stop)(void *arg);
	void *arg;
	/* While it runs: what it did so far, to be read by anybody. Relaxed: figures to look at. */
	_Atomic uint64_t n_objects, freed, written;
	/* out */
	int result; /* SET: as shmstore_tier_set(). EVICT: as shmstore_partition_evict() */
	struct shmstore_evict_report report; /* the sum of all steps; duration_ns: of the whole */
	/* shmstore_error_detail() and _path() of what failed; "" = none */
	char why[512], path[4096];
	int look_result;                /* as shmstore_tier_info() */
	struct shmstore_tier_info info; /* where that is 0. Its config.path is disk */
	char disk[4096];
	uint64_t look_ns; /* how long the look took */
};

void tierwork_run(struct tierwork *w);
/* Bytes used of the file system of fd; 0: it does not say. */
uint64_t tierwork_used(int fd);
/* Adds the report of an eviction to the sum of those before it. */
void tierwork_add(struct shmstore_evict_report *sum, const struct shmstore_evict_report *r);
/* Frees what it owns and clears it: ready to be filled again. */
void tierwork_deinit(struct tierwork *w);

#endif
