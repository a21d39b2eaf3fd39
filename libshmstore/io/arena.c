/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena.c: a bitmap over one mapping; the lowest place that fits is taken, so that an engine with
 * little to do touches little memory. One mapping, because io_uring registers it as one buffer;
 * MADV_DONTFORK, because the disk may be writing to it while the process forks.
 */
#include "arena.h"

#include <errno.h>
#include <sys/mman.h>

#define PAGE 4096u
/* what one frame takes stays, so that objects one at a time cost no page faults */
#define REST (8 * SHMS_ARENA_UNIT)

static unsigned units_of(size_t size)
{
	return (unsigned)((size + SHMS_ARENA_UNIT - 1) / SHMS_ARENA_UNIT);
}

static uint64_t mask_of(unsigned first, unsigned n)
{
	return ((UINT64_C(1) << n) - 1) << first;
}

int shms_arena_init(struct shms_arena *a, unsigned n_units, bool touched)
{
	size_t size = n_units * SHMS_ARENA_UNIT;
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	*a = (struct shms_arena){0};
	if (memory == MAP_FAILED)
		return -ENOMEM;
	if (madvise(memory, size, MADV_DONTFORK) < 0) {
		munmap(memory, size);
		return -ENOMEM;
	}
	if (touched)
		madvise(memory, size, MADV_HUGEPAGE); /* as well without */
	a->memory = memory;
	a->size = size;
	return 0;
}

void shms_arena_touch(struct shms_arena *a)
{
	for (size_t i = 0; i < a->size; i += PAGE)
		*(volatile unsigned char *)(a->memory + i) = 0;
}

void shms_arena_deinit(struct shms_arena *a, bool inherited)
{
	if (a->memory && !inherited)
		munmap(a->memory, a->size);
	*a = (struct shms_arena){0};
}

void *shms_arena_take(struct shms_arena *a, size_t size)
{
	unsigned n = units_of(size), n_units = (unsigned)(a->size / SHMS_ARENA_UNIT);

	for (unsigned first = 0; first + n <= n_units; first++) {
		if (a->taken & mask_of(first, n))
			continue;
		a->taken |= mask_of(first, n);
		if (a->touched < (first + n) * SHMS_ARENA_UNIT)
			a->touched = (first + n) * SHMS_ARENA_UNIT;
		return a->memory + first * SHMS_ARENA_UNIT;
	}
	return NULL;
}

static void free_units(struct shms_arena *a, const void *bytes, unsigned skip, unsigned n)
{
	unsigned first =
		(unsigned)((size_t)((const unsigned char *)bytes - a->memory) / SHMS_ARENA_UNIT) +
		skip;

	a->taken &= ~mask_of(first, n);
}

void shms_arena_give(struct shms_arena *a, const void *bytes, size_t size)
{
	free_units(a, bytes, 0, units_of(size));
}

void shms_arena_trim(struct shms_arena *a, const void *bytes, size_t before, size_t size)
{
	free_units(a, bytes, units_of(size), units_of(before) - units_of(size));
}

void shms_arena_rest(struct shms_arena *a)
{
	if (a->taken || a->touched <= REST)
		return;
	/* The kernel takes the pages when it wants some; until then they are as they were, and
	 * cost nothing to use again. */
	madvise(a->memory + REST, a->touched - REST, MADV_FREE);
	a->touched = REST;
}
