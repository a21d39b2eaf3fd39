/* SPDX-License-Identifier: Apache-2.0 */
/*
 * situation.h: random situations for an arbiter: tasks that take and give back memory in a fixed
 * order and work in between. Made of a seed; nothing is run here.
 */
#ifndef SIM_SITUATION_H
#define SIM_SITUATION_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "twister.h"

#define SITUATION_SLOTS_MAX 64u
#define SITUATION_TASKS_MAX 16u

struct situation_op {
	uint32_t slot;    /* each slot is taken once and given back once */
	uint64_t bytes;   /* taken; 0 = given back */
	uint64_t work_ns; /* after it was taken */
};

struct situation_task {
	struct situation_op ops[2 * SITUATION_SLOTS_MAX];
	uint32_t n_ops, n_slots;
};

struct situation {
	struct situation_task tasks[SITUATION_TASKS_MAX];
	uint32_t n_tasks;
};

/* How they are made. Sizes vary, with a template, by or (as the original does it) to +-5 %. */
struct situation_rules {
	uint32_t n_tasks;      /* 12; at most SITUATION_TASKS_MAX */
	uint32_t task_max_mib; /* of one task at a time; 300 */
	uint32_t slots_max;    /* 50; at most SITUATION_SLOTS_MAX */
	uint32_t work_max_ms;  /* of one task; 100 */
	bool use_template;     /* all tasks are like the first one */
	/* sizes times 1 +- 5 %; else times +- 5 %, which makes half of them one byte */
	bool vary_by;
	bool skewed; /* one task's sizes are doubled */
};
#define SITUATION_RULES_INIT                                                            \
	{                                                                               \
		.n_tasks = 12, .task_max_mib = 300, .slots_max = 50, .work_max_ms = 100 \
	}

/* The next one. */
void situation_make(struct twister *random, const struct situation_rules *rules,
		    struct situation *ret);
/* Work of all its tasks, ns: what one runner takes that never waits. */
uint64_t situation_work_ns(const struct situation *s);
/* One line each: S, T, "A slot bytes work", "F slot". */
void situation_print(const struct situation *s, FILE *f);

#endif
