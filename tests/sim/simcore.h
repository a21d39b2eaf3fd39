/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simcore.h: the arbiter's core in virtual time: a withheld reply parks the runner that asked, its
 * reply wakes it at the same point of time; ticks come while anybody is parked; a spill takes as
 * long as its bytes take at 2 GB/s. Nothing else takes time.
 */
#ifndef SIM_SIMCORE_H
#define SIM_SIMCORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arbiter.h"
#include "vclock.h"

/* A context, whose id is its place in simcore.waiters, from 1. */
struct simcore_waiter {
	struct vrunner *self;
	uint64_t n_calls;         /* that were withheld */
	enum arb_outcome outcome; /* of the last one */
	bool waiting, parked;
};

struct simcore {
	struct arb *arb;
	struct vclock *clock;
	uint64_t base_ns; /* of the core's time: virtual time begins anew, the core's does not */
	struct simcore_waiter *waiters;
	size_t n_waiters;
	bool check;   /* arb_check() after each message */
	bool explain; /* what is wrong is said on stderr */
	bool ticking;
	uint64_t n_messages, n_spills, n_broken;
	uint64_t spill_ns;        /* that all spills took together */
	const char *first_broken; /* static; what was wrong first */
};

/* A message of nobody, or of a waiter (m->context), whose call then is done or
 * withheld. Exits where memory ends. */
enum arb_outcome simcore_step(struct simcore *c, const struct arb_message *m);
/* The same within the waiter's runner: waits for the outcome where it is withheld. */
enum arb_outcome simcore_call(struct simcore *c, const struct arb_message *m);
/* Something that must not be. */
void simcore_broken(struct simcore *c, const char *what, const struct arb_message *m);
/* The core's log, pools and contexts to stderr. */
void simcore_say(const struct simcore *c);

#endif
