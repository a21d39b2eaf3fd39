/* SPDX-License-Identifier: Apache-2.0 */
/* sweep.h: gc of a whole partition now and then, for what no death announces: leases of live stores that ended, torn leftovers. */
#ifndef SWEEP_H
#define SWEEP_H

struct account;

/* Runs in a worker, after jobs that somebody waits for. Removals are told as events. */
void sweep_start(struct account *a);

#endif
