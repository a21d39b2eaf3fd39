/* SPDX-License-Identifier: Apache-2.0 */
/* memcgroup.c: the arithmetic of both versions. */
#include "memcgroup.h"

#include "memtext.h"

/* v1 says LONG_MAX rounded down to pages where there is no limit; pages are at most 64 KiB. */
#define NO_LIMIT (INT64_MAX - 65535)

struct amount memcgroup_working_set(const struct memcgroup_files *f)
{
	return amount_subtract(amount_subtract(f->current, f->inactive_file), f->active_file);
}

static struct amount limit_of(struct amount a)
{
	return a.known && (a.bytes <= 0 || a.bytes >= NO_LIMIT) ? AMOUNT_UNKNOWN : a;
}

struct memlimit_use memcgroup_use(const struct memcgroup_files *f, int version, bool count_swap)
{
	struct memlimit_use use = {.used = memcgroup_working_set(f), .total = limit_of(f->limit)};
	bool has_swap = f->swap_limit.known || f->swap_current.known;

	if (!count_swap || !has_swap)
		return use;
	if (version == 1) {
		/* Both files or none: one without the other would compare memory with memory and swap. */
		if (!f->swap_limit.known || !f->swap_current.known)
			return use;
		use.used = amount_subtract(amount_subtract(f->swap_current, f->inactive_file), f->active_file);
		use.total = limit_of(f->swap_limit);
		return use;
	}
	use.used = amount_add(use.used, f->swap_current);
	if (f->swap_limit.known && f->swap_limit.bytes < NO_LIMIT)
		use.total = amount_add(use.total, f->swap_limit);
	return use;
}

void memcgroup_read_stat(struct memcgroup_files *f, int version, const char *text, size_t size)
{
	/* A name that only one version has says nothing in the other. */
	f->inactive_file = memtext_field(text, size, version == 1 ? "total_inactive_file" : "inactive_file");
	f->active_file = memtext_field(text, size, version == 1 ? "total_active_file" : "active_file");
}

struct amount memcgroup_read_limit(const char *text, size_t size)
{
	return limit_of(memtext_number(text, size));
}
