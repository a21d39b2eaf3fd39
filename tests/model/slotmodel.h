/* SPDX-License-Identifier: Apache-2.0 */
/* slotmodel.h: a state of the model, its processes, and what they may do next (actors.c); what
 * must hold in it (holds.c). */
#ifndef SLOTMODEL_H
#define SLOTMODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "machine.h"

enum {
	OWNER,
	RECEIVER, /* adopts, and forks */
	READER,   /* adopts, and pins without a name */
	PROCESSES = MACHINE_HOLDERS,
	LEASES = 2,
	GENERATIONS = 3
};

enum op {
	OP_NONE,
	OP_PUT,
	OP_HANDOFF,
	OP_ADOPT,
	OP_PIN,
	OP_DROP,
	OP_UNVIEW,
	OP_FREE,
	OP_RECOVER
};

/* The private knowledge of a process. Of generations 0 is none. All of it is gone when it is
 * killed, but what is marked: that the model remembers. */
struct process {
	uint8_t alive : 1;
	uint8_t op : 4;      /* under way; what it saw is in log */
	uint8_t dropped : 1; /* the name went, views live on: the view bit is ours */
	uint8_t pinned : 1;
	uint8_t inherited : 1; /* a forked child may have views */
	uint8_t name : 2;      /* the generation that it holds by name */
	uint8_t view : 2;
	uint8_t child : 2;      /* what a child sees, which lives on */
	uint8_t had : 2;        /* marked: a dead kept store's name */
	uint8_t meant : 2;      /* marked: what a dead one was adopting */
	uint8_t generation : 2; /* of the operation, as the next three */
	uint8_t lease : 1;
	uint8_t views : 2;
	uint8_t expired : 1;
	uint8_t other : 2; /* whose name is pinned; whom G recovers */
	uint8_t spare : 6; /* the owner's: bit 0, the slot is free, and it knows */
	struct machine_log log;
};

enum {
	WRONG_NAME = 1,
	WRONG_CHILD
};

struct state {
	struct machine_memory memory;
	uint8_t wrong;   /* marked: a store that began anew should not have */
	uint8_t tickets; /* marked: those that were ever issued, bit 2 (generation - 1) + lease */
	uint8_t promised[LEASES]; /* marked: the generation whose lease stands, and nobody took */
	struct process p[PROCESSES];
	struct process g; /* who recovers the dead, alive while it does */
};

struct model {
	unsigned n_words;
	unsigned second_word; /* of two words: which of RECEIVER and READER is in it */
	unsigned generations, leases;
	bool kept[PROCESSES];
	bool effects; /* look at objects, views and leases only, not at the books in between */
	/* also what an operation will not use any more: for steps that are changed */
	bool remember_all;
	/* Duties of callers that are left out. */
	bool no_inherit;
	bool no_lock;
};
extern struct model model;

enum {
	ACTIONS_MAX = 96
};
struct successor {
	struct state state;
	const char *who, *what;
};

void actors_first(struct state *ret);
/* Fills ret with what may come next. How many. */
unsigned actors_next(const struct state *s, struct successor ret[ACTIONS_MAX]);
/* Returns what is wrong with a state, or NULL. */
const char *holds(const struct state *s);
void state_print(const struct state *s);

#endif
