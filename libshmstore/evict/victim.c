/* SPDX-License-Identifier: Apache-2.0 */
/*
 * victim.c: what to demote first.
 *
 * Model: costs are in bytes moved to or from the disk. An object that is not clean is written once
 * and perhaps read once; a write counts four reads, for somebody waits for it, it wears the disk,
 * and it happens for certain. Compressed objects move fewer bytes but take the processor's time.
 * Each object and each of its names cost a little however small it is, so that of two equally old
 * ones the larger goes, and a page goes after everything else. Age enters as a factor: of what is
 * equally dear the least recently used goes, and what was used a moment ago goes last, clean or
 * not: a copy that is free to drop is not free to read again.
 *
 * Rejected: clean ones always before all others (throws out what was promoted a moment ago and is
 * about to be used); frequency counters (memory that all stores would have to share and write on
 * each get; the inode's ctime is there anyway).
 */
#include "victim.h"

#include <stdlib.h>

/* bytes that could be moved in the time that an object's opening, header and names take */
#define COST_OBJECT (128u << 10)
#define COST_NAME   (32u << 10)
#define COST_WRITE  4u             /* reads */
#define AGE_SHIFT   16             /* ages in 65 us, so that the product fits */
#define AGE_MAX     (1ull << 36)   /* 52 days */
#define IDLE_NS     30000000000ull /* a store that does nothing for so long idles */
#define OVER_MAX    4ull
#define BATCH_MIN   (4ull << 20)
#define BATCH_MAX   (256ull << 20)
#define BATCH_PART  64u /* of the partition */

uint32_t shms_victim_weight(const struct shms_victim_store *s)
{
	uint64_t weight = SHMS_VICTIM_ONE;

	if (s->share && s->uss > s->share) {
		/* In pages, so that the product fits. */
		weight = (s->uss >> 12) * SHMS_VICTIM_ONE / ((s->share >> 12) + 1);
		if (weight > OVER_MAX * SHMS_VICTIM_ONE)
			weight = OVER_MAX * SHMS_VICTIM_ONE;
		if (weight < SHMS_VICTIM_ONE)
			weight = SHMS_VICTIM_ONE;
	}
	return (uint32_t)(s->idle_ns >= IDLE_NS ? 2 * weight : weight);
}

/* age 36 bits, efficiency 13, weight 11: the product fits. */
static uint64_t score(const struct shms_victim *v)
{
	uint64_t age = v->age_ns >> AGE_SHIFT, pages = v->bytes >> 12;
	uint64_t stored = (pages * v->ratio / SHMS_VICTIM_ONE) << 12;
	uint64_t cost = COST_OBJECT + (uint64_t)COST_NAME * v->n_names + stored;

	if (!v->clean)
		cost += COST_WRITE * stored;
	/* A processor decompresses about twice as fast as a disk reads,
	 * and compresses half as fast. */
	if (v->ratio < SHMS_VICTIM_ONE)
		cost += v->clean ? v->bytes / 2 : v->bytes / 2 + v->bytes;
	if (age > AGE_MAX)
		age = AGE_MAX;
	return (age + 1) * ((pages << 24) / cost) * v->weight;
}

/* No two have one id. */
static int by_turn(const void *x, const void *y)
{
	const struct shms_victim *a = x, *b = y;

	if (a->mapped != b->mapped)
		return a->mapped ? 1 : -1;
	if (a->near != b->near)
		return a->near ? -1 : 1;
	if (a->score != b->score)
		return a->score > b->score ? -1 : 1;
	if (a->age_ns != b->age_ns)
		return a->age_ns > b->age_ns ? -1 : 1;
	return a->id < b->id ? -1 : 1;
}

void shms_victims_sort(struct shms_victim *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		v[i].score = score(&v[i]);
	if (n)
		qsort(v, n, sizeof(*v), by_turn);
}

/* Percent without an overflow, and without losing more than a hundred bytes. */
static uint64_t percent(uint64_t size, unsigned n)
{
	return size / 100 * n;
}

uint64_t shms_victim_goal(uint64_t size, uint64_t used, unsigned high, unsigned low)
{
	uint64_t floor = percent(size, low);

	return used > percent(size, high) && used > floor ? used - floor : 0;
}

uint64_t shms_victim_batch(uint64_t size)
{
	uint64_t batch = size / BATCH_PART;

	if (batch < BATCH_MIN)
		return BATCH_MIN;
	return batch > BATCH_MAX ? BATCH_MAX : batch;
}

uint64_t shms_victim_part(uint64_t goal, uint64_t bytes, uint64_t used)
{
	if (bytes >= used)
		return used ? goal : 0;
	return (uint64_t)((__uint128_t)goal * bytes / used);
}
