/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simworld.h: one run: the daemon (host_start() of shmstored/daemon.c), a partition of its own,
 * virtual time, and clients that do what the seed decides.
 */
#ifndef SIM_SIMWORLD_H
#define SIM_SIMWORLD_H

#include "host.h"
#include "simclient.h"
#include "twister.h"

#define SIMWORLD_CLIENTS 24u
#define SIMWORLD_USERS   3u
#define MS               UINT64_C(1000000)
#define SECOND           UINT64_C(1000000000)

/* How a limit may be passed: not at all, but for what was above it when it was lowered. */
struct simlimit {
	uint64_t hard, allowed;
};

struct simworld {
	struct host host;
	struct twister random;
	char partition[200], proc[200], cgroup[200];
	uid_t users[SIMWORLD_USERS];
	struct simlimit whole, of_user[SIMWORLD_USERS];
	struct simclient clients[SIMWORLD_CLIENTS];
	unsigned n_stores;  /* ever, for their names */
	uint64_t end_ns;    /* of the run: clients go then */
	uint64_t jumped_ns; /* when a clock has jumped last */
	uint64_t fits_ns;   /* since when all that waits would fit; 0: it does not */
	uint64_t free_ns;   /* since when tasks wait at the gate, and none runs; 0: not so */
	uint64_t overhead;  /* bytes of the partition that no store charges, at most */
	unsigned fault_permille;
	bool ending, arbiter, watched; /* watched: pressure.enabled */
	/* as it was before any client came */
	uint64_t n_timers, n_polls, used;
};

/* Runs it in base, an empty directory on which tmpfs may be mounted. Fails by simtrace_fail(). */
void simworld_run(uint32_t seed, const char *base);

/* ---- what its files share ---- */

static inline uint64_t simworld_below(struct simworld *w, uint64_t n)
{
	return twister_below(&w->random, n);
}
/* True n times of 100. */
static inline bool simworld_chance(struct simworld *w, unsigned n)
{
	return twister_below(&w->random, 100) < n;
}

/* simcheck.c: what must hold after each step, whenever nothing is ready, and at the end. */
uint64_t simcheck_used(const struct simworld *w); /* bytes of the partition */
void simcheck_step(struct simworld *w);
void simcheck_quiet(struct simworld *w);
/* Is no more in flight, and used, than there was before any client came? */
bool simcheck_is_idle(const struct simworld *w);
void simcheck_end(struct simworld *w);

#endif
