/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memcgroup.h: what a memory cgroup may use and uses, of version 1 and of version 2.
 *
 * The page cache is given back before anybody is killed, so its two lists are not counted. The pages of a tmpfs are on the anonymous lists: they count,
 * as nothing but a delete or swap gives them back. Both numbers are read one after the other and may be of different moments: the
 * difference can be negative. Pure.
 */
#ifndef MEMCGROUP_H
#define MEMCGROUP_H

#include <stddef.h>

#include "memlimit.h"

/* The values in one cgroup's files; a missing file's are unknown. */
struct memcgroup_files {
	/* v2: memory.max, memory.current; v1: memory.limit_in_bytes, memory.usage_in_bytes. No limit and 0 are unknown. */
	struct amount limit, current;
	/* v2: inactive_file, active_file; v1: total_inactive_file, total_active_file: of memory.stat */
	struct amount inactive_file, active_file;
	/* v2: memory.swap.max, memory.swap.current; v1: memory.memsw.limit_in_bytes, memory.memsw.usage_in_bytes, which have the memory in them, too */
	struct amount swap_limit, swap_current;
};

/* current without the page cache. */
struct amount memcgroup_working_set(const struct memcgroup_files *f);
/* version: 1 or 2. Without swap: the limit, and the working set. With it: both together; where a swap has no limit, the total is without it. */
struct memlimit_use memcgroup_use(const struct memcgroup_files *f, int version, bool count_swap);
/* Both lists out of a memory.stat. */
void memcgroup_read_stat(struct memcgroup_files *f, int version, const char *text, size_t size);
/* A limit: a file's number, where "max", 0, and what v1 says for "none" (the largest that fits, in pages) are no limit. */
struct amount memcgroup_read_limit(const char *text, size_t size);

#endif
