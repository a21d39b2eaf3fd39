/* SPDX-License-Identifier: Apache-2.0 */
/* fakearblook.c: the leases of the fake arbiter (of each pool what is held, and what is unspent,
 * which is reclaimable), and what a test sees of its books. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fakearb_private.h"
#include "fakearbiter.h"
#include "scratch.h"

uint64_t fakearb_used(struct fakearb *a)
{
	struct arb_pool_info i;

	pthread_mutex_lock(&a->private->lock);
	ENSURE(arb_pool(a->private->core, 1, &i));
	pthread_mutex_unlock(&a->private->lock);
	return i.used;
}

uint64_t fakearb_objects(struct fakearb *a)
{
	uint64_t n;

	pthread_mutex_lock(&a->private->lock);
	n = a->private->objects;
	pthread_mutex_unlock(&a->private->lock);
	return n;
}

size_t fakearb_parked(struct fakearb *a)
{
	size_t n;

	pthread_mutex_lock(&a->private->lock);
	n = arb_n_parked(a->private->core);
	pthread_mutex_unlock(&a->private->lock);
	return n;
}

struct becomes {
	struct fakearb *a;
	uint64_t n;
};

static bool parks(void *arg)
{
	struct becomes *b = arg;

	return fakearb_parked(b->a) == b->n;
}

static bool uses(void *arg)
{
	struct becomes *b = arg;

	return fakearb_used(b->a) == b->n;
}

bool fakearb_waits(struct fakearb *a, size_t n)
{
	return wait_until(parks, &(struct becomes){a, n}, 10000);
}

bool fakearb_uses(struct fakearb *a, uint64_t used)
{
	return wait_until(uses, &(struct becomes){a, used}, 10000);
}

/* Of all leases: what may be charged still. */
static uint64_t unspent(struct fakearb *a)
{
	struct fakearb_private *k = a->private;
	struct arb_reservation_info r;
	uint64_t n = 0;

	for (size_t i = 0; i < CLIENTS; i++) {
		for (unsigned slot = 0; slot < WIRE_LEASES; slot++) {
			const struct client *c = &k->clients[i];

			if (c->fd >= 0 && c->has[slot] &&
			    arb_reservation(k->core, fakearb_lease_id(c, slot, true), &r) &&
			    r.pool == 1)
				n += r.bytes;
		}
	}
	return n;
}

static bool settled(void *arg)
{
	struct becomes *b = arg;
	struct fakearb *a = b->a;
	struct arb_pool_info i;
	bool so;

	/* At once: what is sealed leaves one sum for the other. */
	pthread_mutex_lock(&a->private->lock);
	ENSURE(arb_pool(a->private->core, 1, &i));
	so = i.used == a->private->objects + (b->n ? unspent(a) : 0);
	pthread_mutex_unlock(&a->private->lock);
	return so;
}

bool fakearb_settled(struct fakearb *a, bool leased)
{
	return wait_until(settled, &(struct becomes){a, leased}, 10000);
}

struct wire_lease *fakearb_lease(struct fakearb *a)
{
	return (struct wire_lease *)(void *)((char *)fake_credit(a->f) - WIRE_CREDIT_OFF +
					     WIRE_LEASE_OFF);
}

uint64_t fakearb_lease_id(const struct client *c, unsigned slot, bool unspent)
{
	return OURS | c->number << 8 | 16 | slot << 1 | unspent;
}

struct wire_lease *fakearb_lease_of(struct fakearb *a, const struct client *c, unsigned slot)
{
	char *page = fake_page(a->f, c->fd);

	return page ? (struct wire_lease *)(void *)(page + WIRE_LEASE_OFF) + slot : NULL;
}

void fakearb_set(struct fakearb *a, uint64_t reservation, uint64_t bytes)
{
	struct arb_message m = {.op = ARB_OP_RESIZE,
				.flags = ARB_FORCE,
				.reservation = reservation,
				.bytes = bytes};

	fakearb_step(a, &m);
}

/* Books what the page says. */
void fakearb_book_lease(struct fakearb *a, const struct client *c, unsigned slot)
{
	struct wire_lease *l = fakearb_lease_of(a, c, slot);
	uint64_t settled, charged, granted;

	if (!l || !c->has[slot])
		return;
	settled = atomic_load(&l->settled);
	charged = atomic_load(&l->charged);
	granted = atomic_load(&l->granted);
	granted = granted > charged ? granted : charged;
	fakearb_set(a, fakearb_lease_id(c, slot, false), charged - settled);
	fakearb_set(a, fakearb_lease_id(c, slot, true), granted - charged);
}

void fakearb_recall(struct fakearb *a, const struct client *c, unsigned slot)
{
	struct wire_lease *l = fakearb_lease_of(a, c, slot);
	struct arb_message spilled = {.op = ARB_OP_SPILLED,
				      .flags = ARB_ALL,
				      .reservation = fakearb_lease_id(c, slot, true)};

	if (l) {
		atomic_store(&l->wanted, 1);
		wire_lease_revoke(l, atomic_load(&l->charged));
	}
	fakearb_book_lease(a, c, slot);
	fakearb_step(a, &spilled);
}

static bool make_lease(struct fakearb *a, struct client *c, uint32_t pool)
{
	struct arb_message m = {
		.op = ARB_OP_RESERVE, .flags = ARB_FORCE, .pool = fakearb_pool_id(c, pool)};
	unsigned slot = pool - 1;

	if (c->has[slot])
		return true;
	m.reservation = fakearb_lease_id(c, slot, false);
	ENSURE(fakearb_step(a, &m) == ARB_OK);
	m.reservation = fakearb_lease_id(c, slot, true);
	ENSURE(fakearb_step(a, &m) == ARB_OK);
	m = (struct arb_message){.op = ARB_OP_UNPIN, .reservation = m.reservation};
	ENSURE(fakearb_step(a, &m) == ARB_OK);
	c->has[slot] = true;
	return true;
}

int fakearb_raise_lease(struct fakearb *a, struct client *c, const struct wire_arb *w)
{
	struct wire_lease *l =
		w->pool && w->pool <= WIRE_LEASES ? fakearb_lease_of(a, c, w->pool - 1) : NULL;
	uint64_t n = a->lease > w->bytes ? a->lease : w->bytes, granted, charged;
	struct arb_pool_info i;

	if (!l || !a->lease || !arb_pool(a->private->core, fakearb_pool_id(c, w->pool), &i) ||
	    i.n_waiting || n > i.capacity - i.used)
		return ARB_AGAIN;
	make_lease(a, c, w->pool);
	granted = atomic_load(&l->granted);
	charged = atomic_load(&l->charged);
	atomic_store(&l->max, a->small);
	atomic_store(&l->wanted, 0);
	atomic_store(&l->granted, (granted > charged ? granted : charged) + n);
	atomic_store(&l->epoch, a->f->epoch);
	fakearb_book_lease(a, c, w->pool - 1);
	return ARB_OK;
}
