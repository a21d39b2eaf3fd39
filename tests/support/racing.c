/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that race. */
#include "racing.h"

#include <pthread.h>
#include <stdlib.h>

#include "api.h"

struct racer {
	pthread_t thread;
	void (*fn)(uint64_t random, struct shmstore_view **held);
	unsigned n;
	uint64_t random;
	struct shmstore_view *held;
};

static uint64_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void *race(void *arg)
{
	struct racer *r = arg;

	for (unsigned i = 0; i < r->n; i++)
		r->fn(next(&r->random), &r->held);
	return NULL;
}

void racing_run(void (*fn)(uint64_t random, struct shmstore_view **held), unsigned n,
		struct shmstore_view *ret_held[RACERS])
{
	struct racer racers[RACERS] = {0};
	const char *wanted = getenv("SHMSTORE_TEST_RACERS");
	unsigned long n_racers = wanted ? strtoul(wanted, NULL, 10) : 8;

	ENSURE(n_racers > 0 && n_racers <= RACERS);
	for (unsigned i = 0; i < n_racers; i++) {
		racers[i] = (struct racer){
			.fn = fn, .n = n, .random = (i + 1) * 0x9E3779B97F4A7C15u + 1};
		ENSURE(pthread_create(&racers[i].thread, NULL, race, &racers[i]) == 0);
	}
	for (unsigned i = 0; i < RACERS; i++) {
		if (i < n_racers)
			pthread_join(racers[i].thread, NULL);
		ret_held[i] = racers[i].held;
	}
}

void racing_end(struct shmstore_view *held[RACERS])
{
	for (unsigned i = 0; i < RACERS; i++) {
		if (held[i])
			telling_check(held[i]);
		shmstore_view_unref(held[i]);
	}
}
