/* SPDX-License-Identifier: Apache-2.0 */
/* memhost.h: what a host has and uses, of /proc/meminfo. Pure. */
#ifndef MEMHOST_H
#define MEMHOST_H

#include <stddef.h>

#include "memlimit.h"

struct memhost_fields {
	struct amount total, available, free, cached, buffers, shmem, swap_total, swap_free;
};

void memhost_read(struct memhost_fields *f, const char *text, size_t size);
/*
 * Used is total without what is available. Kernels that do not say what is available (or 0): without what is free or page cache; the kernel
 * counts tmpfs as page cache, which it is not: nothing but a delete or swap gives it back. A host without swap lines has no swap.
 */
struct memlimit_use memhost_use(const struct memhost_fields *f, bool count_swap);

#endif
