/* SPDX-License-Identifier: Apache-2.0 */
/* memproc.h: what one process would give back, and which processes have most. Pure. */
#ifndef MEMPROC_H
#define MEMPROC_H

#include <stddef.h>

#include "amount.h"

/* Pages that nobody else maps, by an smaps_rollup. */
struct memproc_pages {
	struct amount clean, dirty, hugetlb; /* hugetlb: old kernels do not say it */
};

void memproc_read_rollup(struct memproc_pages *p, const char *text, size_t size);
/* Their sum; unknown where the file could not be read, and where it says 0: a process that lives has pages. */
struct amount memproc_unique(const struct memproc_pages *p);
/* RssAnon and VmSwap of a status file: the private memory, without what is mapped of a store. A kernel thread has neither: unknown. */
struct amount memproc_private(const char *text, size_t size);

struct memproc_entry {
	uint64_t id;
	struct amount used;
};

/* Sorts so that the first n_top are those with most, in this order; then by id. Those of which nothing is known come last. Return: how many of n_top are known. */
size_t memproc_top(struct memproc_entry *entries, size_t n, size_t n_top);

#endif
