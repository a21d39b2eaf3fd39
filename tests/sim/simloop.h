/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simloop.h: the daemon's loop (shmstored/loop) in virtual time. It stands in the place of the
 * backends of io_uring and epoll; loop.c is the daemon's own. Of the operations that are ready some
 * are called in each turn, in an order that the seed decides; timers come late as it decides.
 */
#ifndef SIM_SIMLOOP_H
#define SIM_SIMLOOP_H

#include <stdbool.h>
#include <stdint.h>

struct loop;
struct twister;

/* For the loop that is made next. accept: a connection that waits (its descriptor), or -errno. */
void simloop_begin(struct twister *random, int (*accept)(void *arg), void *arg);
/* One turn. False: nothing was ready. */
bool simloop_turn(struct loop *l);
/* When a timer comes next; UINT64_MAX: none runs. */
uint64_t simloop_next_ns(const struct loop *l);
/* Operations in flight, of each kind of the loop. */
struct simloop_counts {
	unsigned n_accepts, n_polls, n_timers, n_receives, n_sends;
};
struct simloop_counts simloop_counts(const struct loop *l);

#endif
