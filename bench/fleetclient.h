/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fleetclient.h: one client process of a fleet (fleet.h): does the tasks that it is given,
 * by the library and the daemon.
 */
#ifndef BENCH_FLEETCLIENT_H
#define BENCH_FLEETCLIENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "situation.h"
#include "taskwork.h"

/* Shared by the fleet and one client; lives on when the client is killed. */
struct fleet_seat {
	struct work_counts counts; /* the client's; added to as it goes */
	uint64_t capacity;         /* of the pool, as the client is told at its start */
	uint64_t n_refused;        /* -ENOSPC and other errors where the arbiter had said yes */
	_Atomic bool doomed;       /* it kills itself */
	char refused[96];          /* the last of those */
};

struct fleet_shared {
	struct situation situation;
	struct fleet_seat seats[SITUATION_TASKS_MAX];
};

struct fleetclient_options {
	const char *partition;
	struct fleet_shared *shared;
	unsigned seat;
	/* asks for tasks: 4 bytes in, the task's number; 4 bytes out, enum
	 * work_outcome; once before the first */
	int fd;
	uint32_t seed;   /* for who dies */
	double kill;     /* share of operations that end in SIGKILL */
	double pace;     /* seconds of a situation's work take so many seconds */
	unsigned shrink; /* bytes >> this */
	bool objects;    /* puts objects; else reserves only */
};

/* Never returns. */
_Noreturn void fleetclient_run(const struct fleetclient_options *o);

#endif
