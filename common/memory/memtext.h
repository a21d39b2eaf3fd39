/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memtext.h: numbers out of the kernel's text files, from buffers of any content: not
 * ended by a zero, cut anywhere, of any length. A value that is missing, no number,
 * or too large is unknown. Pure.
 */
#ifndef MEMTEXT_H
#define MEMTEXT_H

#include <stddef.h>
#include <stdint.h>

#include "amount.h"

/* Of lines like "MemTotal:   16 kB" or "inactive_file 123": the first whose name is this one. kB
 * are multiplied out. */
struct amount memtext_field(const char *text, size_t size, const char *name);
/* A file that is one number and a line's end. "max" is unknown, as no limit is. */
struct amount memtext_number(const char *text, size_t size);

/*
 * How much of a host's memory counts, and from where on it is too much.
 * Pure: numbers in, numbers out.
 *
 * Unknown values stay unknown: a host that cannot be read does not count as above its threshold,
 * and nobody is killed for it.
 */

/* A memory, and what of it is in use. */
struct memlimit_use {
	struct amount used, total;
};

/* used becomes 0 and more, and total at most, if that is known. */
struct memlimit_use memlimit_clamp(struct memlimit_use use);
/*
 * Is it full, or will it be within ahead_ns if it goes on as it grew within the last grown_ns (0:
 * that is not known)? False where its use is unknown.
 */
bool memlimit_fills(struct memlimit_use use, struct amount grown, uint64_t grown_ns,
		    uint64_t ahead_ns);

/* To be freed below the threshold when something is killed: fraction of total, most at most. */
struct amount memlimit_buffer(struct amount total, struct ratio fraction, int64_t most);
/* Before attempt (from 1) of what was killed is made again: base_ms doubled
 * with each, most_ms at most. */
int64_t memlimit_delay_ms(int64_t attempt, int64_t base_ms, int64_t most_ms);

/* The amounts of memory in /proc/meminfo. */
struct memhost_fields {
	struct amount total, available, free, cached, buffers, shmem, swap_total, swap_free;
};

void memhost_read(struct memhost_fields *f, const char *text, size_t size);
/*
 * Used is total without what is available. Kernels that do not say what is available (or 0):
 * without what is free or page cache; the kernel counts tmpfs as page cache, which it is not:
 * nothing but a delete or swap gives it back. A host without swap lines has no swap.
 */
struct memlimit_use memhost_use(const struct memhost_fields *f, bool count_swap);

/* RssAnon and VmSwap of a status file: the private memory, without what is mapped of a store. A
 * kernel thread has neither: unknown. */
struct amount memproc_private(const char *text, size_t size);

/*
 * The limit and the use of a memory cgroup, of version 1 and of version 2.
 *
 * The page cache is given back before anybody is killed, so its two lists are not counted. The
 * pages of a tmpfs are on the anonymous lists: they count, as nothing but a delete or swap
 * gives them back. Both numbers are read one after the other and may be of different moments:
 * the difference can be negative.
 */

/* The values in one cgroup's files; a missing file's are unknown. */
struct memcgroup_files {
	/* v2: memory.max, memory.current; v1: memory.limit_in_bytes, memory.usage_in_bytes.
	 * No limit and 0 are unknown. */
	struct amount limit, current;
	/* v2: inactive_file, active_file; v1: total_inactive_file,
	 * total_active_file: of memory.stat */
	struct amount inactive_file, active_file;
	/* v2: memory.swap.max, memory.swap.current; v1: memory.memsw.limit_in_bytes,
	 * memory.memsw.usage_in_bytes, which have the memory in them, too */
	struct amount swap_limit, swap_current;
};

/* current without the page cache. */
struct amount memcgroup_working_set(const struct memcgroup_files *f);
/* version: 1 or 2. Without swap: the limit, and the working set. With it: both together; where a
 * swap has no limit, the total is without it. */
struct memlimit_use memcgroup_use(const struct memcgroup_files *f, int version, bool count_swap);
/* Both lists out of a memory.stat. */
void memcgroup_read_stat(struct memcgroup_files *f, int version, const char *text, size_t size);
/* A limit: a file's number, where "max", 0, and what v1 says for "none" (the largest that
 * fits, in pages) are no limit. */
struct amount memcgroup_read_limit(const char *text, size_t size);

#endif
