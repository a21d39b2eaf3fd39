/* SPDX-License-Identifier: Apache-2.0 */
/* policylevel.h: how willing a task is to be preempted, as people write it, and whose word counts. Pure. */
#ifndef POLICYLEVEL_H
#define POLICYLEVEL_H

#include <stdbool.h>
#include <stdint.h>

enum policylevel {
	POLICYLEVEL_NEVER,
	POLICYLEVEL_LOW,
	POLICYLEVEL_MED,
	POLICYLEVEL_HIGH,
	POLICYLEVEL_ALWAYS,
	POLICYLEVEL_AUTO,  /* by what the task is: HIGH where nothing is lost for good */
	POLICYLEVEL_UNSAID /* nobody said anything */
};

/* A task's properties that decide its level. Methods of an actor have their actor's. */
struct policylevel_wish {
	enum policylevel class, instance; /* UNSAID, AUTO, or a level */
	bool automatic;                   /* where neither says anything: as if AUTO was said */
	bool retriable;
	uint64_t n_children; /* tasks that it started, and that would be lost with it */
};

const char *policylevel_name(enum policylevel level);
/* NEVER to ALWAYS. The instance's word counts before its class's. */
enum policylevel policylevel_resolve(const struct policylevel_wish *w);

#endif
