/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline.h: several demotions under way on one engine, so that the disk never waits for names to
 * be changed and small objects are read, compressed and written side by side. One thread's.
 */
#ifndef SHMS_PIPELINE_H
#define SHMS_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "candidates.h"
#include "demote.h"

#define SHMS_PIPELINE_SLOTS 16u

struct shms_pipeline_slot {
	struct shms_demote d;
	uint32_t candidate;
	bool used;
	bool copied; /* the engine is done with it */
};

struct shms_pipeline {
	/* in; borrowed */
	struct shms_candidates *c;
	const struct shms_evict_user *users;
	struct shms_engine *engine;
	struct shmstore *s; /* the handle of the own store; NULL = none */
	/* One is over: d->error says how, and shmstore_error_detail() why. */
	void (*settle)(uint32_t candidate, const struct shms_demote *d, void *arg);
	void *arg;
	bool canceled; /* what is under way is given up: -ECANCELED */
	/* out */
	unsigned n;     /* under way */
	uint64_t bytes; /* of their memory */
	/* internal */
	struct shms_pipeline_slot slots[SHMS_PIPELINE_SLOTS];
};

/* Begins one; ends others meanwhile. mapped: as in struct shms_demote. */
void shms_pipeline_put(struct shms_pipeline *pl, uint32_t candidate, bool mapped);
/* Until one or more are over; at once where none is under way. */
void shms_pipeline_wait(struct shms_pipeline *pl);
void shms_pipeline_drain(struct shms_pipeline *pl);

#endif
