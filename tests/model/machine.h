/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine.h: runs steps of libshmstore/segment one shared access at a time (machine.c).
 */
#ifndef MACHINE_H
#define MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "segment.h"

/* accesses of one operation, at most, since its begin or its loop's last turn */
#define MACHINE_LOG 11

enum machine_size {
	MACHINE_HOLDERS = 3
};

/* The shared memory of one slot, as a state of the model keeps it. */
struct machine_memory {
	/* the state word: 2 bits state, 2 generation, 2 leases, which all end at MACHINE_END_MS */
	uint8_t word;
	uint8_t holders;                  /* bit 2i: holder i's name, 2i + 1: its view */
	uint8_t intents[MACHINE_HOLDERS]; /* 4 set, and the generation */
	uint8_t bytes; /* the generation that the bytes are of; MACHINE_TORN: being written */
};
#define MACHINE_TORN 4u

/* The values that a process has seen since its operation began: enough to run it up to there
 * again. */
struct machine_log {
	uint8_t n;
	uint8_t seen[MACHINE_LOG];
};

/* one slot; its memory is loaded and stored around each step */
extern struct shms_segment machine_segment;
/* Numbers of the three holders in the segment: which words their bits are in. */
extern unsigned machine_holder[MACHINE_HOLDERS];
#define MACHINE_END_MS     UINT64_C(10000) /* of every lease */
#define MACHINE_BEFORE_END 4u              /* now, as segnow_of_ms() says it */
#define MACHINE_PAST_END   6u

extern bool machine_loaded; /* the last access was a load of the whole state word */

void machine_init(unsigned n_words);
/*
 * Runs op(arg) on memory until it has made one access more than log tells of, and returns before
 * the next one; true: it is at its end. log gets that access. *ret: what it returned.
 */
bool machine_step(struct machine_memory *memory, struct machine_log *log, int (*op)(const void *),
		  const void *arg, int *ret);
/* All of it at once. */
int machine_run(struct machine_memory *memory, int (*op)(const void *), const void *arg);
/* An access of an operation to the bytes: they are whole, of that generation. */
void machine_write_bytes(uint32_t generation);

#endif
