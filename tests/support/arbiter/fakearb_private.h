/* SPDX-License-Identifier: Apache-2.0 */
/* fakearb_private.h: what the files of the fake arbiter share. */
#ifndef FAKEARB_PRIVATE_H
#define FAKEARB_PRIVATE_H

#include <pthread.h>

#include "fakearbiter.h"

#define CLIENTS 16
#define CALLS   256
#define OURS    (UINT64_C(1) << 63)
#define OBJECTS (OURS | 1)

struct client {
	int fd, channel; /* -1 = none */
	uint64_t number, id;
	bool has[WIRE_LEASES]; /* a lease that the core knows */
	bool leaving;
};

struct withheld {
	uint64_t context, serial;
	int fd;
};

struct fakearb_private {
	pthread_mutex_t lock;
	struct arb *core;
	uint64_t last_number, objects;
	uint32_t last_call;
	struct client clients[CLIENTS];
	struct withheld calls[CALLS];
	size_t n_calls;
	struct {
		uint32_t call;
		uint64_t reservation;
	} evict;
	uint64_t spills[CALLS];
	size_t n_spills;
};

uint64_t fakearb_pool_id(const struct client *c, uint32_t pool);
int fakearb_step(struct fakearb *a, const struct arb_message *m);
uint64_t fakearb_lease_id(const struct client *c, unsigned slot, bool unspent);
struct wire_lease *fakearb_lease_of(struct fakearb *a, const struct client *c, unsigned slot);
void fakearb_set(struct fakearb *a, uint64_t reservation, uint64_t bytes);
void fakearb_book_lease(struct fakearb *a, const struct client *c, unsigned slot);
void fakearb_recall(struct fakearb *a, const struct client *c, unsigned slot);
int fakearb_raise_lease(struct fakearb *a, struct client *c, const struct wire_arb *w);

#endif
