/* SPDX-License-Identifier: Apache-2.0 */
/* memhost.c: /proc/meminfo. */
#include "memhost.h"

#include "memtext.h"

void memhost_read(struct memhost_fields *f, const char *text, size_t size)
{
	*f = (struct memhost_fields){
		.total = memtext_field(text, size, "MemTotal"),
		.available = memtext_field(text, size, "MemAvailable"),
		.free = memtext_field(text, size, "MemFree"),
		.cached = memtext_field(text, size, "Cached"),
		.buffers = memtext_field(text, size, "Buffers"),
		.shmem = memtext_field(text, size, "Shmem"),
		.swap_total = memtext_field(text, size, "SwapTotal"),
		.swap_free = memtext_field(text, size, "SwapFree"),
	};
}

static struct amount available_of(const struct memhost_fields *f)
{
	struct amount cache;

	if (f->available.known && f->available.bytes > 0)
		return f->available;
	cache = amount_subtract(amount_add(f->cached, f->buffers), f->shmem);
	return amount_add(f->free, cache);
}

struct memlimit_use memhost_use(const struct memhost_fields *f, bool count_swap)
{
	struct memlimit_use use = {.used = amount_subtract(f->total, available_of(f)), .total = f->total};

	if (count_swap && f->swap_total.known) {
		use.used = amount_add(use.used, amount_subtract(f->swap_total, f->swap_free));
		use.total = amount_add(use.total, f->swap_total);
	}
	return use;
}
