/* SPDX-License-Identifier: Apache-2.0 */
/* sweep.h: gc of a whole partition now and then, for what no death announces: leases of live stores that ended, torn leftovers. */
#ifndef SWEEP_H
#define SWEEP_H

struct account;

/* In a worker, behind whatever somebody waits for. What it removed is told as events. */
void sweep_start(struct account *a);

#endif
