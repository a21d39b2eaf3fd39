/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quotamodel.h: the world that test_quota_model.c plays: stores that share a partition, step by
 * step (quotastores.c), and a daemon that holds quota over them, surveys, dies and comes again
 * (quotadaemon.c). The invariants, and the choice of who does what when, are in the test.
 */
#ifndef SHMSTORE_TEST_QUOTAMODEL_H
#define SHMSTORE_TEST_QUOTAMODEL_H

#include <criterion/criterion.h>
#include <stdio.h>

#include "quota.h"

#define STORES  6
#define OPS     2 /* threads of a store that put */
#define OBJECTS 96
#define USERS   2
#define LABELS  2
#define PAGE    UINT64_C(4096)
#define CREDIT  (64 * PAGE)
#define GROUPS  (1 + USERS + LABELS)

enum stage {
	IDLE,
	ADDED,   /* charged was raised */
	CHARGED, /* and granted allowed it */
	TAKEN,   /* the memory is there */
	FRESH,   /* fresh was raised */
	SETTLED, /* now it gets its name */
	SHORT,   /* refused by granted: to ask */
	WAITING,
	AGAIN, /* granted: the same once more */
};

struct op {
	enum stage stage;
	uint64_t n, sum, serial;
	uint64_t fresh_at; /* how many surveys had begun when it was counted */
};

struct object {
	uint64_t n;
	uint32_t links; /* of stores, dead ones included */
	bool ghost;     /* no name, still mapped */
	int uid, label;
	int counting; /* 1 + the store that is about to count it as its last */
};

struct process {
	bool open, alive, known; /* known: the daemon has it */
	bool stopped, limited;
	int uid, label; /* label: -1 = none */
	struct wire_credit page;
	struct op ops[OPS];
	struct quota_store *store;
	uint64_t to_free; /* reaped, and the daemon not yet told */
	uint64_t books;   /* of the time when the reap began */
	bool reaped;
};

struct arrival { /* a wait, in the daemon's queue */
	bool used;
	int process, op;
	uint64_t serial, number;
};

struct world {
	uint64_t seed, random;
	uint64_t now, serial, number, life;
	struct process processes[STORES];
	struct object objects[OBJECTS];
	uint64_t foreign;
	struct quota *q; /* NULL: the daemon is dead */
	uint64_t hard[GROUPS], cap[GROUPS];
	struct arrival waits[STORES * OPS];
	bool inside, draining, single;
	/* A survey under way: the mark, and what it has seen up to the cursor. */
	bool marked;
	uint64_t n_marks;
	size_t cursor;
	uint64_t seen[GROUPS];
	uint64_t n_granted, n_waited, n_refused, n_alone, n_lives;
};

#define FAIL_IF(w, condition, ...)                                                          \
	do {                                                                                \
		if (condition) {                                                            \
			fprintf(stderr,                                                     \
				"history with seed %llu: ", (unsigned long long)(w)->seed); \
			fprintf(stderr, __VA_ARGS__);                                       \
			fprintf(stderr, "\n");                                              \
			cr_assert_fail("%s, seed %llu", #condition,                         \
				       (unsigned long long)(w)->seed);                      \
		}                                                                           \
	} while (0)

uint64_t qm_draw(struct world *w, uint64_t n);
/* Anybody's next step; the test's. Stores go on by it while one of them
 * adds up the pages of all. */
void qm_step(struct world *w);

/* ---- the kernel (quotastores.c) -------------------------------------------------------------- */

bool qm_has_memory(const struct op *o);
/* Groups: 0 is the partition, then the users, then the labels. */
bool qm_in_group(int group, int uid, int label);
uint64_t qm_truth(const struct world *w, int group);
uint64_t qm_potential(const struct world *w, int group);

/* ---- stores (quotastores.c) ------------------------------------------------------------------ */

/* NULL: all are in use. */
struct object *qm_free_object(struct world *w);
/* NULL: nobody waits with that serial. */
struct arrival *qm_arrival_of(struct world *w, uint64_t serial);
void qm_check_order(struct world *w, const struct process *p, uint64_t number);
void qm_named_meanwhile(struct world *w, const struct object *o, const struct op *op);
void qm_step_delete(struct world *w, struct process *p, struct object *o);
/* A random store's next step. */
void qm_step_owner(struct world *w);

/* ---- the daemon (quotadaemon.c) -------------------------------------------------------------- */

void qm_name_group(int group, enum wire_limit *kind, char id[16]);
void qm_name_label(const struct process *p, char ret[16]);
void qm_allow(struct world *w, int group);
void qm_set_limit(struct world *w, int group, uint64_t hard);
void qm_add_store(struct world *w, struct process *p);
void qm_step_survey(struct world *w);
void qm_start_daemon(struct world *w);
void qm_kill_daemon(struct world *w);

#endif
