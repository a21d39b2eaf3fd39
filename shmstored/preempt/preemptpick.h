/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preemptpick.h: lists the processes that run tasks, and idle workers, in the form that policy.h
 * takes. Private to the room.
 */
#ifndef PREEMPTPICK_H
#define PREEMPTPICK_H

#include <stddef.h>

#include "actors.h"
#include "admittask.h"
#include "policy.h"

struct conn;
struct host;

struct preemptpick_who {
	struct conn *conn;             /* one of its connections */
	const struct admit_proc *proc; /* NULL: an idle worker */
};

struct preemptpick {
	size_t n, n_never, n_foreign;
	size_t n_kept;                 /* whose end would lose an actor: no place has memory for it */
	struct policy_worker *workers; /* candidates; id: the index of */
	struct preemptpick_who *who;
	struct policy_victim *victims; /* room for n */
};

/* -ENOMEM. */
int preemptpick_init(struct preemptpick *p, const struct host *h);
void preemptpick_deinit(struct preemptpick *p);

struct policy preemptpick_policy(const struct host *h, enum policy_kind kind);
/* The demands on moves of pid's actors, where its end also frees n_tasks tasks' memory. */
struct actors_want preemptpick_want(const struct host *h, pid_t pid, unsigned n_tasks);
unsigned preemptpick_n_tasks(const struct preemptpick_who *who);

#endif
