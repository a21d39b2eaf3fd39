/* SPDX-License-Identifier: Apache-2.0 */
/* arbvictim.h: the one who is disturbed: a client of the arbiter, its calls in a row,
 * and what they may answer. */
#ifndef ARBVICTIM_H
#define ARBVICTIM_H

#include "arbstage.h"

#define ARBVICTIM "vic"

struct arbscene;

struct arbvictim {
	struct arbstage *st;
	const struct arbscene *scene;
	bool disturbed; /* its system calls or allocations fail: any documented answer will do */
	bool deserted;  /* its daemon is killed: answers are what is documented of that */
	struct shmstore_partition *p;
	struct shmstore *s;
	uint32_t task, second_task, pool;
	struct shmstore_arb_reservation held, more;
	struct shmstore_arb_context *second; /* bound to second_task */
	bool retried;                        /* it was told RETRY */
};

/* A row of calls between the marks, and what is there before. */
struct arbscene {
	const char *name;
	bool unopened; /* the scene opens the store */
	void (*prepare)(struct arbvictim *v);
	void (*run)(struct arbvictim *v);
	uint64_t bytes;
};

extern const struct arbscene arbscenes[];
extern const size_t n_arbscenes;
/* Much of that in a row, for a daemon that is disturbed at each of its own calls. */
extern const struct arbscene arbscene_many;

/* A call of the scene answered r. false: it did not work, as it may where the victim is
 * disturbed; else with a message. */
bool arbvictim_did(struct arbvictim *v, const char *what, int r);

bool arbvictim_open(struct arbvictim *v);
bool arbvictim_begin(struct arbvictim *v, uint32_t *ret_task);
/* Partition, and unless the scene is unopened the store and its task, and then the scene's
 * own. false with a message. */
bool arbvictim_prepare(struct arbvictim *v);
void arbvictim_run(struct arbvictim *v);
/* Ends its tasks and pools: nothing of it is in the daemon's books then but its
 * store. false with a message. */
bool arbvictim_leave(struct arbvictim *v);
void arbvictim_release(struct arbvictim *v);

#endif
