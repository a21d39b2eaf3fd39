/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment.c: an owner and five holders of one segment, each a thread with private counts of its
 * own, as processes have: put, hand off, adopt, view, drop, pin, while stale tickets go round and
 * one holder after the other is given up and recovered. Bytes tell their slot and generation;
 * whoever has a view looks at all of them. At the end every slot comes back. Runs under TSan too.
 *
 *   segment [rounds]
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "segments.h"

enum {
	HOLDERS = 5,
	SLOTS = 24,
	TICKETS = 16,
	NAMES = 8, /* the owner's */
	PAST = 2   /* the leases' end, as segnow_of_ms() says it */
};

static struct shms_segment g;
static _Atomic uint64_t tickets[TICKETS]; /* slot, generation, lease: used ones stay */
static _Atomic bool over;
static _Atomic unsigned n_adopted, n_pinned, n_reused;
static unsigned rounds = 500; /* adoptions, or pins, of each holder */

static uint64_t next_random(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

static uint64_t pack(const struct shms_segticket *t)
{
	return (uint64_t)t->slot << 32 | (uint64_t)t->generation << 4 | t->lease |
	       UINT64_C(1) << 63;
}

static struct shms_segticket unpack(uint64_t t)
{
	return (struct shms_segticket){(uint32_t)(t >> 32 & 0x7fffffff),
				       (uint32_t)(t >> 4) & SHMS_SEG_GENERATION, (uint32_t)t & 15,
				       1000};
}

static uint64_t content(uint32_t slot, uint32_t generation)
{
	return (uint64_t)slot << 40 | generation;
}

/* Plain reads: TSan says if they race with the owner's writes. */
static void look(const struct shms_segpacked *o, uint32_t slot, uint32_t generation)
{
	const uint64_t *words = (const uint64_t *)(const void *)(g.bytes + o->extent_off);

	for (uint64_t i = 0; i < o->buffer_size / 8; i++)
		ENSURE(words[i] == content(slot, generation));
}

static void publish_ticket(const struct shms_segslot *slot, uint32_t index, uint32_t generation,
			   uint64_t *random)
{
	struct shms_segticket t = {index, generation, 0, 1000};

	if (shms_segslot_handoff(slot, generation,
				 (unsigned)(next_random(random) % SHMS_SEG_LEASES), 0, t.end_ms,
				 &t.lease) == 0)
		atomic_store(&tickets[next_random(random) % TICKETS], pack(&t));
}

static void *holder(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg;
	uint64_t random = me * 7919;

	for (unsigned i = 0; i < rounds;) {
		uint64_t what = atomic_load(&tickets[next_random(&random) % TICKETS]);
		struct shms_segticket t = unpack(what);
		struct shms_segslot slot;
		struct shms_segpacked o;

		if (!what)
			continue; /* nothing was put yet */
		slot = shms_segslot_at(&g, t.slot);
		if (me == 1) { /* pins without a name */
			if (shms_segslot_pin(&slot, me, (unsigned)(next_random(&random) % 2 * 2),
					     t.generation) < 0) {
				sched_yield();
				continue;
			}
			ENSURE(shms_segpacked_read(&g, &slot, &o) == 0);
			look(&o, t.slot, t.generation);
			atomic_fetch_add(&n_pinned, 1);
			i++;
			if (shms_segslot_unview(&slot, me))
				shms_segment_hint(&g, t.slot);
			continue;
		}
		if (segment_adopt(&g, me, me & 1, &t, &o) < 0) {
			sched_yield();
			continue;
		}
		atomic_fetch_add(&n_adopted, 1);
		i++;
		look(&o, t.slot, t.generation);
		if (next_random(&random) % 4 == 0)
			publish_ticket(&slot, t.slot, t.generation, &random);
		if (next_random(&random) % 8 == 0) {
			/* Killed here, and recovered by whom it concerns. */
			shms_segment_recover(&g, me, false);
			continue;
		}
		if (next_random(&random) % 2) {
			shms_segslot_drop(&slot, me, SHMS_SEGVIEWS_LIVE);
			look(&o, t.slot, t.generation);
			if (shms_segslot_unview(&slot, me))
				shms_segment_hint(&g, t.slot);
		} else if (shms_segslot_drop(&slot, me, SHMS_SEGVIEWS_NONE)) {
			shms_segment_hint(&g, t.slot);
		}
	}
	return NULL;
}

static bool put(struct shms_segalloc *a, uint64_t *random)
{
	uint64_t size = 8 + next_random(random) % 8 * 8;
	static uint32_t names[NAMES], n_names;
	uint32_t index, generation, n_born = a->n_born;
	struct shms_segpacked o;
	struct shms_segslot slot;
	uint64_t *words;

	ENSURE(shms_segpacked_plan(&size, 1, 0, "k", 1, 0, &o) == 0);
	if (shms_segalloc_take(a, o.class, 0, &index) < 0)
		return false;
	slot = shms_segslot_at(&g, index);
	ENSURE(shms_segslot_begin(&slot, &generation) == 0);
	o.extent_off = shms_segalloc_begin(a, index);
	words = (uint64_t *)(void *)(g.books + o.extent_off);
	for (uint64_t i = 0; i < size / 8; i++)
		words[i] = content(index, generation);
	shms_segpacked_write(&slot, &o);
	shms_segslot_publish(&slot, generation);
	atomic_fetch_add(&n_reused, a->n_born == n_born);
	publish_ticket(&slot, index, generation, random);
	/* The oldest of its names goes. */
	slot = shms_segslot_at(&g, names[n_names % NAMES]);
	if (n_names >= NAMES && shms_segslot_drop(&slot, SHMS_SEG_OWNER, SHMS_SEGVIEWS_NONE) &&
	    shms_segslot_free(&slot, 0))
		shms_segalloc_give(a, names[n_names % NAMES]);
	names[n_names++ % NAMES] = index;
	return true;
}

static void *owner(void *arg)
{
	struct shms_segalloc *a = arg;
	uint64_t random = 4711;

	while (!atomic_load(&over)) {
		if (put(a, &random))
			continue;
		/* A full segment: what hints do not tell; now and then leases are over, too. */
		sched_yield();
		shms_segalloc_scan(a, next_random(&random) % 16 ? 0 : PAST);
	}
	shms_segment_recover(&g, SHMS_SEG_OWNER, false);
	return NULL;
}

int main(int argc, char **argv)
{
	struct shms_segalloc a;
	pthread_t threads[HOLDERS], owning;

	if (argc > 1)
		rounds = (unsigned)atoi(argv[1]);
	g = segment_in_memory(SLOTS, 32, 1 << 16);
	ENSURE(shms_segalloc_init(&a, &g) == 0);
	ENSURE(pthread_create(&owning, NULL, owner, &a) == 0);
	for (uintptr_t i = 0; i < HOLDERS; i++)
		ENSURE(pthread_create(&threads[i], NULL, holder, (void *)(i + 1)) == 0);
	for (unsigned i = 0; i < HOLDERS; i++)
		pthread_join(threads[i], NULL);
	atomic_store(&over, true);
	pthread_join(owning, NULL);
	shms_segalloc_scan(&a, PAST);
	ENSURE(a.n_free == a.n_born);
	ENSURE(atomic_load(&n_adopted) > 0 && atomic_load(&n_pinned) > 0 &&
	       atomic_load(&n_reused) > 0);
	printf("%u adopted, %u pinned, %u put into used slots\n", atomic_load(&n_adopted),
	       atomic_load(&n_pinned), atomic_load(&n_reused));
	shms_segalloc_deinit(&a);
	free(g.books);
	return 0;
}
