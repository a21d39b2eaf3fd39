/* SPDX-License-Identifier: Apache-2.0 */
/* storm_worker.h: what the files of a worker share. */
#ifndef STORM_WORKER_H
#define STORM_WORKER_H

#include <pthread.h>

#include "storm.h"

struct held {
	struct shmstore_view *view;
	uint64_t seed;
};

struct worker {
	struct storm *st;
	unsigned id;
	uint64_t random, reader_random; /* one of each thread */
	struct shmstore_partition *p;
	struct shmstore *s;
	struct held held[STORM_VIEWS];
	unsigned n_children;
	pthread_t reader, writer;
	struct worker *second; /* the writer's */
	_Atomic bool threads_stop;
};

uint64_t worker_next_random(uint64_t *x);
unsigned worker_pick(struct worker *w, unsigned n);
uint64_t worker_random_size(struct worker *w);
bool worker_excused(struct worker *w, int rc);
size_t worker_key_of(unsigned i, char ret[400]);
struct storm_key *worker_book(struct worker *w, unsigned key);
void worker_will_be(struct worker *w, unsigned key, uint64_t seed);
void worker_is_now(struct worker *w, unsigned key, bool done);
int worker_bad(struct worker *w, const char *what, unsigned key, int rc, const char *why);
int worker_look_up(struct worker *w, unsigned key, uint64_t *ret_seed);
int worker_do_put(struct worker *w, enum storm_op op, unsigned key);
int worker_do_abort(struct worker *w, unsigned key);
int worker_do_get(struct worker *w, unsigned key);
int worker_do_view(struct worker *w, unsigned key);
int worker_do_alias(struct worker *w, unsigned key);
int worker_do_handoff(struct worker *w, unsigned key);
int worker_do_adopt(struct worker *w, unsigned key);
int worker_do_delete(struct worker *w, unsigned key);
int worker_do_peek(struct worker *w, unsigned key);
int worker_do_demote(struct worker *w, unsigned key);
int worker_do_promote(struct worker *w, unsigned key, bool pin);
int worker_do_evict(struct worker *w);

#endif
