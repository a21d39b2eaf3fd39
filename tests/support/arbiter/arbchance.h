/* SPDX-License-Identifier: Apache-2.0 */
/* arbchance.h: random messages to an arbiter that a model follows. */
#ifndef ARBCHANCE_H
#define ARBCHANCE_H

#include "arbmodel.h"

struct arbchance {
	struct arbmodel m;
	uint64_t random;                /* begins as the seed */
	uint64_t next_task, next_bytes; /* ids */
	unsigned n_pools, n_contexts;   /* that there are */
	uint64_t scale;                 /* a pool's capacity */
	unsigned wrongness;             /* of 100 messages so many are senseless */
	uint64_t list[ARB_LIST_MAX], amounts[ARB_LIST_MAX]; /* of the last message */
};

uint64_t arbchance_below(struct arbchance *f, uint64_t n);
bool arbchance_percent(struct arbchance *f, unsigned percent);
struct arbmodel_context *arbchance_context(struct arbchance *f);
uint64_t arbchance_deadline(struct arbchance *f); /* 0, mostly */
struct arb_message arbchance_bind(struct arbchance *f);
/* Any; may let time pass. Its lists are f's, valid until the next. */
struct arb_message arbchance_message(struct arbchance *f);
/* May it be sent? Of a few that could be answered OK the model has no room for what they mean. */
bool arbchance_is_followed(const struct arbchance *f, const struct arb_message *msg);

#endif
