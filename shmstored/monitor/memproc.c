/* SPDX-License-Identifier: Apache-2.0 */
/* memproc.c: processes by their own memory. */
#include "memproc.h"

#include <stdlib.h>

#include "memtext.h"

void memproc_read_rollup(struct memproc_pages *p, const char *text, size_t size)
{
	*p = (struct memproc_pages){
		.clean = memtext_field(text, size, "Private_Clean"),
		.dirty = memtext_field(text, size, "Private_Dirty"),
		.hugetlb = memtext_field(text, size, "Private_Hugetlb"),
	};
}

struct amount memproc_unique(const struct memproc_pages *p)
{
	struct amount sum = amount_add(p->clean, p->dirty);

	if (p->hugetlb.known)
		sum = amount_add(sum, p->hugetlb);
	return sum.known && sum.bytes > 0 ? sum : AMOUNT_UNKNOWN;
}

struct amount memproc_private(const char *text, size_t size)
{
	struct amount anon = memtext_field(text, size, "RssAnon"), swap = memtext_field(text, size, "VmSwap");

	/* A kernel without swap says nothing of it. */
	return swap.known ? amount_add(anon, swap) : anon;
}

static int compare(const void *a, const void *b)
{
	const struct memproc_entry *x = a, *y = b;

	if (x->used.known != y->used.known)
		return x->used.known ? -1 : 1;
	if (x->used.bytes != y->used.bytes)
		return x->used.bytes > y->used.bytes ? -1 : 1;
	return (x->id > y->id) - (x->id < y->id);
}

size_t memproc_top(struct memproc_entry *entries, size_t n, size_t n_top)
{
	size_t n_known = 0;

	qsort(entries, n, sizeof(*entries), compare);
	while (n_known < n && n_known < n_top && entries[n_known].used.known)
		n_known++;
	return n_known;
}
