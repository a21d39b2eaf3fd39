/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fakearbiter.h: a fake daemon (fakedaemon.h) with the real arbiter core in it: what is not decided
 * by the core is as simple as can be. Objects of the partition are what was sealed, as long as no
 * FREED comes; the test says how much that gives back.
 */
#ifndef SHMSTORE_TEST_FAKEARBITER_H
#define SHMSTORE_TEST_FAKEARBITER_H

#include <stdatomic.h>

#include "arbiter.h"
#include "fakedaemon.h"

struct fakearb {
	struct fake *f;
	_Atomic uint64_t lease; /* bytes that a lease is raised by; 0: none is given */
	_Atomic uint64_t small; /* largest reservation that is to come from one */
	_Atomic uint64_t freed; /* what the next FREED gives back of the objects */
	_Atomic uint64_t n_ops[WIRE_ARB_OP_END]; /* messages */
	_Atomic uint64_t n_calls;                /* up-calls sent */
	_Atomic bool off;                        /* it says that there is no arbiter */
	_Atomic bool mute;                       /* it reads, and says nothing any more */
	struct fakearb_private *private;
};

/* The partition's pool has capacity bytes, and deadlines default to wait_ms. */
struct fakearb *fakearb_start(struct shmstore_partition *p, uint64_t capacity, uint64_t lease);
void fakearb_stop(struct fakearb *a);
/* Of the partition's pool: what is booked in the core, and of it sealed objects. */
uint64_t fakearb_used(struct fakearb *a);
uint64_t fakearb_objects(struct fakearb *a);
size_t fakearb_parked(struct fakearb *a);
/* fakearb_parked(a) becomes n, in time. */
bool fakearb_waits(struct fakearb *a, size_t n);
/* fakearb_used(a) becomes that, in time. */
bool fakearb_uses(struct fakearb *a, uint64_t used);
/* Nothing is booked but objects, or (leased) what is unspent of leases: so in time. */
bool fakearb_settled(struct fakearb *a, bool leased);
void fakearb_resize(struct fakearb *a, uint64_t capacity);
/* The lease of the partition's pool in the page of the store that registered last. */
struct wire_lease *fakearb_lease(struct fakearb *a);

#endif
