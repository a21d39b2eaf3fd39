/* SPDX-License-Identifier: Apache-2.0 */
/* memtext.c: the kernel writes names, blanks, digits, and perhaps a unit. */
#include "memtext.h"

#include <string.h>
#include <sys/param.h>

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* [text, end) is a line without its end: blanks, digits, blanks, perhaps "kB", blanks. */
static struct amount read_number(const char *text, const char *end)
{
	struct amount a = amount_of(0);
	const char *first;

	while (text < end && is_blank(*text))
		text++;
	for (first = text; text < end && *text >= '0' && *text <= '9'; text++)
		if (__builtin_mul_overflow(a.bytes, 10, &a.bytes) ||
		    __builtin_add_overflow(a.bytes, *text - '0', &a.bytes))
			return AMOUNT_UNKNOWN;
	if (text == first)
		return AMOUNT_UNKNOWN;
	while (text < end && is_blank(*text))
		text++;
	if (end - text >= 2 && text[0] == 'k' && text[1] == 'B') {
		if (__builtin_mul_overflow(a.bytes, 1024, &a.bytes))
			return AMOUNT_UNKNOWN;
		text += 2;
	}
	while (text < end && is_blank(*text))
		text++;
	return text == end ? a : AMOUNT_UNKNOWN;
}

struct amount memtext_field(const char *text, size_t size, const char *name)
{
	const char *end = text + size;
	size_t n = strlen(name);

	for (const char *next; text < end; text = next) {
		const char *line_end = memchr(text, '\n', (size_t)(end - text));

		/* A line that was cut off may have lost digits. */
		if (!line_end)
			return AMOUNT_UNKNOWN;
		next = line_end + 1;
		if ((size_t)(line_end - text) <= n || memcmp(text, name, n) != 0)
			continue;
		if (text[n] == ':' || is_blank(text[n]))
			return read_number(text + n + 1, line_end);
	}
	return AMOUNT_UNKNOWN;
}

struct amount memtext_number(const char *text, size_t size)
{
	/* A file that was cut off may have lost digits. */
	if (!size || text[size - 1] != '\n')
		return AMOUNT_UNKNOWN;
	return read_number(text, text + size - 1);
}

struct memlimit_use memlimit_clamp(struct memlimit_use use)
{
	if (use.used.known && use.total.known && use.used.bytes > use.total.bytes)
		use.used = use.total;
	if (use.used.known && use.used.bytes < 0)
		use.used = amount_of(0);
	return use;
}

bool memlimit_fills(struct memlimit_use use, struct amount grown, uint64_t grown_ns,
		    uint64_t ahead_ns)
{
	struct amount room = amount_subtract(use.total, use.used);

	if (!room.known)
		return false;
	if (room.bytes <= 0)
		return true;
	return grown.known && grown.bytes > 0 && grown_ns > 0 &&
	       (unsigned __int128)grown.bytes * ahead_ns >=
		       (unsigned __int128)room.bytes * grown_ns;
}

struct amount memlimit_buffer(struct amount total, struct ratio fraction, int64_t most)
{
	return total.known ? amount_of(MIN(ratio_floor(fraction, total.bytes), most)) : total;
}

int64_t memlimit_delay_ms(int64_t attempt, int64_t base_ms, int64_t most_ms)
{
	int64_t delay = base_ms;

	if (attempt < 1 || base_ms <= 0)
		return 0;
	for (int64_t i = 1; i < attempt && delay < most_ms; i++)
		delay = amount_product(delay, 2);
	return delay < most_ms ? delay : most_ms;
}

/* /proc/meminfo. */
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

struct memlimit_use memhost_use(const struct memhost_fields *f, bool count_swap)
{
	struct amount cache = amount_subtract(amount_add(f->cached, f->buffers), f->shmem);
	struct amount available = f->available.known && f->available.bytes > 0
					  ? f->available
					  : amount_add(f->free, cache);
	struct memlimit_use use = {.used = amount_subtract(f->total, available), .total = f->total};

	if (count_swap && f->swap_total.known) {
		use.used = amount_add(use.used, amount_subtract(f->swap_total, f->swap_free));
		use.total = amount_add(use.total, f->swap_total);
	}
	return use;
}

/* Processes by their own memory. */
struct amount memproc_private(const char *text, size_t size)
{
	struct amount anon = memtext_field(text, size, "RssAnon"),
		      swap = memtext_field(text, size, "VmSwap");

	/* A kernel without swap says nothing of it. */
	return swap.known ? amount_add(anon, swap) : anon;
}

/* The arithmetic of both versions. */

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
		/* Both files or none: one without the other would compare
		 * memory with memory and swap. */
		if (!f->swap_limit.known || !f->swap_current.known)
			return use;
		use.used = amount_subtract(amount_subtract(f->swap_current, f->inactive_file),
					   f->active_file);
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
	f->inactive_file =
		memtext_field(text, size, version == 1 ? "total_inactive_file" : "inactive_file");
	f->active_file =
		memtext_field(text, size, version == 1 ? "total_active_file" : "active_file");
}

struct amount memcgroup_read_limit(const char *text, size_t size)
{
	return limit_of(memtext_number(text, size));
}
