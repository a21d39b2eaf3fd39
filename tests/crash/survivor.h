/* SPDX-License-Identifier: Apache-2.0 */
/* survivor.h: a process with a store of its own, whom no neighbour's death may harm. */
#ifndef SURVIVOR_H
#define SURVIVOR_H

#include "scenario.h"

struct survivor {
	pid_t pid;
	int fd;
};

/* Starts it and waits until its store is open and filled. 0, or -1 with a message. */
int survivor_start(struct survivor *v, struct world *w);
/* Its objects and views have the right bytes. 0, or -1 with a message. */
int survivor_verify(struct survivor *v, struct world *w);
/* Hands "s1" off to shared.in. */
int survivor_handoff(struct survivor *v, struct world *w);
/* Adopts shared.out, checks it, deletes it. An expired ticket may be refused, a good one not. */
int survivor_adopt(struct survivor *v, struct world *w);
/* Opens VICTIM to be read, has a view of its "a", and lists it. */
int survivor_begins_to_read(struct survivor *v, struct world *w);
/* The same handle finds each key as one of before and after, and the view has its bytes. */
int survivor_reads_on(struct survivor *v, struct world *w);
/* It finds what VICTIM's next owner, the survivor for a moment, puts and
 * replaces. Gives both back. */
int survivor_ends_reading(struct survivor *v, struct world *w);
/* Closes its store and ends. */
int survivor_stop(struct survivor *v, struct world *w);

#endif
