/* SPDX-License-Identifier: Apache-2.0 */
/* preemptpick.h: the processes that run tasks, as policy.h wants them. Private to the room. */
#ifndef PREEMPTPICK_H
#define PREEMPTPICK_H

#include <stddef.h>

#include "admittask.h"
#include "policy.h"

struct host;

struct preemptpick {
	size_t n, n_never, n_foreign;
	struct policy_worker *workers;   /* candidates; id: the index of */
	const struct admit_proc **procs; /* whose */
	struct policy_victim *victims;   /* room for n */
};

/* -ENOMEM. */
int preemptpick_init(struct preemptpick *p, const struct host *h);
void preemptpick_deinit(struct preemptpick *p);

struct policy preemptpick_policy(const struct host *h, enum policy_kind kind);
/* The process of a task at the other end of a connection. */
const struct conn *preemptpick_conn(const struct admit_proc *p);
unsigned preemptpick_n_tasks(const struct admit_proc *p);

#endif
