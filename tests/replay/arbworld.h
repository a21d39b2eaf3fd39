/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arbworld.h: one arbiter and what a scenario knows of it: names for ids, virtual
 * time, who waits for a reply and what the last one was, and spills, which are done at
 * once unless they are held back.
 */
#ifndef REPLAY_ARBWORLD_H
#define REPLAY_ARBWORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arbiter.h"

#define ARBWORLD_MS UINT64_C(1000000) /* ns */

struct arbworld_thread {
	const char *name;
	bool waits, answered; /* a reply is withheld; one came */
	enum arb_outcome last;
	char **asked; /* names of the reservations that it waits for; NULL = none is made */
	size_t n_asked;
	uint64_t asked_id;
};

struct arbworld_reservation {
	const char *name;
	uint64_t id;   /* 0 = none now */
	size_t thread; /* who asked for it */
	bool unpinned;
};

struct arbworld {
	struct arb *core;
	uint64_t now_ns, next_reservation;
	uint64_t spill_reserve; /* of pools that are made from now on */
	/* An id is the place here + 1. The names of threads and reservations are the script's. */
	char **pools, **tasks;
	struct arbworld_thread *threads;
	struct arbworld_reservation *reservations;
	struct arb_reply *spills; /* asked for, not answered */
	size_t n_pools, n_tasks, n_threads, n_reservations, n_spills;
	bool held;       /* spills are not done until released */
	bool failing;    /* spills give nothing */
	const char *why; /* what the last NOMEM or SPLIT said; NULL = nothing */
	char *why_copy;
	const char *fault; /* the arbiter broke its contract: static */
};

int arbworld_init(struct arbworld *w); /* 0, -ENOMEM */
void arbworld_deinit(struct arbworld *w);

/* Ids by name. _new: makes it where it is not there yet. 0: not there, or no memory. */
uint64_t arbworld_pool(const struct arbworld *w, const char *name);
uint64_t arbworld_pool_new(struct arbworld *w, const char *name);
uint64_t arbworld_task(const struct arbworld *w, const char *name);
uint64_t arbworld_task_new(struct arbworld *w, const char *name);
/* Valid until the next _new. NULL: as above. */
struct arbworld_thread *arbworld_thread(const struct arbworld *w, const char *name);
struct arbworld_thread *arbworld_thread_new(struct arbworld *w, const char *name);
uint64_t arbworld_context(const struct arbworld *w, const struct arbworld_thread *t);
struct arbworld_reservation *arbworld_reservation(const struct arbworld *w, const char *name);

/* A message, and all that follows of it until nothing moves. */
enum arb_outcome arbworld_send(struct arbworld *w, const struct arb_message *m);
/* The same for one that may wait, of thread t. names: of the reservations that it
 * makes, n of them, from id on. */
enum arb_outcome arbworld_ask(struct arbworld *w, struct arbworld_thread *t,
			      const struct arb_message *m, char **names, size_t n);
/* The same for any message, its context being the thread of that number. */
enum arb_outcome arbworld_say(struct arbworld *w, const struct arb_message *m);
/* n new ids in a row. */
uint64_t arbworld_ids(struct arbworld *w, size_t n);
/* The name means this reservation from now on, and it is one of this thread. */
void arbworld_name(struct arbworld *w, const char *name, uint64_t id, size_t thread);
/* The spills that were held back. */
void arbworld_release(struct arbworld *w);
/* Lets time pass; deadlines on the way are looked at when they are due. */
void arbworld_advance(struct arbworld *w, uint64_t ns);
void arbworld_tick(struct arbworld *w);

enum arb_state arbworld_state(const struct arbworld *w, const struct arbworld_thread *t);

#endif
