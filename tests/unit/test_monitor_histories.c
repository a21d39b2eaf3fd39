/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_monitor_histories.c: what the monitor reads and reckons, with files that are whole,
 * cut, damaged or missing in part.
 *
 *     unknown never becomes a number: a sum is known if and only if each term that it needs is
 *     a file that is cut anywhere gives each field as it is, or unknown; never another number
 *     nothing is read beyond a buffer, whatever is in it (ASan)
 *     after clamping 0 <= used <= total; a threshold lies within [0, total], and is exact
 *     what is combined is one of both memories, whole: used and total never come of different ones
 *     nobody is above a threshold if anything about it is unknown
 *
 * That it can fail was tried: unknown terms taken as 0 in amount_add(), lines without an end
 * accepted by memtext, floats in ratio_floor(), clamping that leaves a negative: each fails.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dice.h"
#include "memrules.h"
#include "memtext.h"

#define ROUNDS 20000

static struct dice dice;

static uint64_t draw(uint64_t below)
{
	return dice_draw(&dice, below);
}

static void begin(uint64_t number)
{
	dice.state = number;
}

static struct amount draw_amount(void)
{
	switch (draw(6)) {
	case 0:
		return AMOUNT_UNKNOWN;
	case 1:
		return amount_of(0);
	case 2:
		return amount_of((int64_t)draw(UINT64_C(1) << 62));
	default:
		return amount_of((int64_t)draw(UINT64_C(1) << 40));
	}
}

Test(monitor_histories, sums_are_known_if_all_their_terms_are)
{
	begin(1);
	for (int i = 0; i < ROUNDS; i++) {
		struct memhost_fields f = {draw_amount(), draw_amount(), draw_amount(),
					   draw_amount(), draw_amount(), draw_amount(),
					   draw_amount(), draw_amount()};
		struct memcgroup_files g = {draw_amount(), draw_amount(), draw_amount(),
					    draw_amount(), draw_amount(), draw_amount()};
		bool fallback = !f.available.known || f.available.bytes == 0;
		bool terms = f.total.known && (!fallback || (f.free.known && f.cached.known &&
							     f.buffers.known && f.shmem.known));
		bool stat = g.current.known && g.inactive_file.known && g.active_file.known;
		struct memlimit_use use = memhost_use(&f, false);

		cr_assert_eq(use.used.known, terms);
		cr_assert(amount_equal(use.total, f.total));
		if (terms && !fallback)
			cr_assert_eq(use.used.bytes, f.total.bytes - f.available.bytes);
		use = memhost_use(&f, true);
		cr_assert_eq(use.used.known, terms && (!f.swap_total.known || f.swap_free.known));
		cr_assert_eq(memcgroup_working_set(&g).known, stat);
		cr_assert_eq(memcgroup_use(&g, 2, false).used.known, stat);
		cr_assert_eq(memcgroup_use(&g, 2, true).used.known,
			     stat && (g.swap_current.known || !g.swap_limit.known));
		if (g.swap_limit.known && g.swap_current.known)
			cr_assert_eq(memcgroup_use(&g, 1, true).used.known,
				     g.inactive_file.known && g.active_file.known);
		else
			cr_assert_eq(memcgroup_use(&g, 1, true).used.known, stat);
		/* No limit is none, whatever is added. */
		if (!g.limit.known || g.limit.bytes == 0)
			cr_assert_not(memcgroup_use(&g, 2, true).total.known);
		cr_assert_eq(memcgroup_slice(f.total, f.free, f.cached).known,
			     f.total.known && f.free.known && f.cached.known);
	}
}

/* The smaller of those that are known. */
static struct amount least(struct amount a, struct amount b)
{
	if (!a.known || !b.known)
		return a.known ? a : b;
	return a.bytes <= b.bytes ? a : b;
}

Test(monitor_histories, use_lies_within_its_memory)
{
	begin(2);
	for (int i = 0; i < ROUNDS; i++) {
		struct memlimit_use a = {draw_amount(), draw_amount()},
				    b = {draw_amount(), draw_amount()}, c;
		struct amount threshold = draw_amount();
		bool is_a, is_b;

		if (a.used.known && draw(2))
			a.used.bytes = -a.used.bytes;
		c = memlimit_clamp(a);
		cr_assert_eq(c.used.known, a.used.known);
		cr_assert_geq(c.used.bytes, 0);
		if (c.used.known && c.total.known)
			cr_assert_leq(c.used.bytes, c.total.bytes);
		c = memlimit_combine(a, b);
		is_a = amount_equal(c.used, a.used) && amount_equal(c.total, a.total);
		is_b = amount_equal(c.used, b.used) && amount_equal(c.total, b.total);
		cr_assert(is_a || is_b);
		cr_assert(amount_equal(c.total, least(a.total, b.total)));
		if (!a.used.known || !a.total.known || !threshold.known)
			cr_assert_not(memlimit_above(a, threshold));
	}
}

Test(monitor_histories, a_memory_fills_as_it_grew)
{
	struct memlimit_use use = {amount_of(60), amount_of(100)};

	/* 40 are left; 10 within 5 are 40 within 20. */
	cr_assert_not(memlimit_fills(use, amount_of(10), 5, 19));
	cr_assert(memlimit_fills(use, amount_of(10), 5, 20));
	/* A memory whose use shrinks, stays, or was seen once does not fill. */
	cr_assert_not(memlimit_fills(use, amount_of(-10), 5, UINT64_MAX));
	cr_assert_not(memlimit_fills(use, amount_of(0), 5, UINT64_MAX));
	cr_assert_not(memlimit_fills(use, AMOUNT_UNKNOWN, 5, UINT64_MAX));
	cr_assert_not(memlimit_fills(use, amount_of(10), 0, UINT64_MAX));
	/* A full memory is full, however it came to be; of an unknown use nothing is said. */
	use.used = use.total;
	cr_assert(memlimit_fills(use, AMOUNT_UNKNOWN, 0, 0));
	use.used = AMOUNT_UNKNOWN;
	cr_assert_not(memlimit_fills(use, amount_of(10), 5, 20));
	begin(8);
	for (int i = 0; i < ROUNDS; i++) {
		struct amount grown = draw_amount();
		uint64_t ns = draw(1000000000) + 1, ahead = draw(1000000000);

		use = (struct memlimit_use){draw_amount(), draw_amount()};
		/* Further ahead it is full as well; and with less in use later. */
		if (memlimit_fills(use, grown, ns, ahead))
			cr_assert(memlimit_fills(use, grown, ns, ahead + draw(1000)));
		else if (use.used.known && use.used.bytes > 0 && use.total.known) {
			use.used.bytes -= 1;
			cr_assert_not(memlimit_fills(use, grown, ns, ahead));
		}
	}
}

/* ppm / 10^6 of total, by long division in decimal digits: no products that could overflow. */
static int64_t share(int64_t total, uint64_t ppm)
{
	return (int64_t)((uint64_t)total / 1000000 * ppm +
			 (uint64_t)total % 1000000 * ppm / 1000000);
}

Test(monitor_histories, thresholds_are_exact)
{
	begin(3);
	for (int i = 0; i < ROUNDS; i++) {
		struct amount total = draw_amount(), min_free = draw_amount(),
			      threshold = amount_of(-1);
		uint64_t ppm = draw(1100000);
		struct ratio fraction;
		char text[32];
		int err;
		bool refused = ppm > 1000000 ||
			       (total.known && min_free.known && min_free.bytes > total.bytes);

		snprintf(text, sizeof(text), "%lu.%06lu", (unsigned long)(ppm / 1000000),
			 (unsigned long)(ppm % 1000000));
		cr_assert(ratio_parse(text, &fraction));
		cr_assert_eq(ratio_floor(fraction, 1000000), (int64_t)ppm);
		err = memlimit_threshold(total, fraction, min_free, AMOUNT_UNKNOWN, &threshold);
		cr_assert_eq(err, refused ? -EINVAL : 0);
		if (err)
			continue;
		cr_assert_eq(threshold.known, total.known);
		if (!total.known)
			continue;
		cr_assert(threshold.bytes >= 0 && threshold.bytes <= total.bytes);
		if (!min_free.known || share(total.bytes, ppm) >= total.bytes - min_free.bytes)
			cr_assert_eq(threshold.bytes, share(total.bytes, ppm));
		else
			cr_assert_eq(threshold.bytes, total.bytes - min_free.bytes);
		cr_assert_geq(
			ratio_ceil(fraction, total.bytes) - ratio_floor(fraction, total.bytes), 0);
		cr_assert_leq(
			ratio_ceil(fraction, total.bytes) - ratio_floor(fraction, total.bytes), 1);
	}
}

static const char *const fields[] = {
	"MemTotal",  "MemFree",  "MemAvailable",  "Buffers",     "Cached",
	"SwapTotal", "SwapFree", "SwapCached",    "Shmem",       "ShmemHugePages",
	"Mem",       "Inactive", "inactive_file", "active_file", "total_inactive_file"};

#define N_FIELDS (sizeof(fields) / sizeof(fields[0]))

/* A file of all fields; ret: their numbers. */
static size_t write_file(char *text, size_t room, int64_t ret[N_FIELDS])
{
	size_t n = 0;

	for (size_t i = 0; i < N_FIELDS; i++) {
		bool kb = draw(2);
		int64_t number = (int64_t)draw(draw(2) ? 1000 : UINT64_C(1) << 50);

		n += (size_t)snprintf(text + n, room - n, kb ? "%s:%*s%ld kB\n" : "%s%*s%ld\n",
				      fields[i], 1 + (int)draw(9), " ", (long)number);
		ret[i] = kb ? number * 1024 : number;
	}
	return n;
}

Test(monitor_histories, cut_files_give_what_they_have_or_nothing)
{
	char text[2048];
	int64_t numbers[N_FIELDS];

	begin(4);
	for (int i = 0; i < 200; i++) {
		size_t n = write_file(text, sizeof(text), numbers), seen = 0;

		for (size_t cut = 0; cut <= n; cut++) {
			char *copy = malloc(cut ? cut : 1);

			cr_assert(copy);
			memcpy(copy, text, cut);
			seen = 0;
			for (size_t k = 0; k < N_FIELDS; k++) {
				struct amount a = memtext_field(copy, cut, fields[k]);

				if (a.known)
					cr_assert_eq(a.bytes, numbers[k], "%s, cut at %zu",
						     fields[k], cut);
				seen += a.known;
			}
			free(copy);
		}
		cr_assert_eq(seen, N_FIELDS);
	}
}

Test(monitor_histories, damaged_files_are_read_within_their_bounds)
{
	static const char letters[] = "0123456789 \t\n:kBmax-MemTotal\0_file";
	char text[2048];
	int64_t numbers[N_FIELDS];

	begin(5);
	for (int i = 0; i < ROUNDS; i++) {
		size_t n = write_file(text, sizeof(text), numbers);
		struct memhost_fields f;
		struct memcgroup_files g = {0};
		char *copy;

		for (uint64_t k = draw(40); k; k--)
			text[draw(n)] = letters[draw(sizeof(letters))];
		n = draw(4) ? n : draw(30);
		copy = malloc(n ? n : 1);
		cr_assert(copy);
		memcpy(copy, text, n);
		memhost_read(&f, copy, n);
		memcgroup_read_stat(&g, 1 + (int)draw(2), copy, n);
		cr_assert(f.total.known || f.total.bytes == 0);
		cr_assert_geq(f.total.bytes, 0);
		cr_assert_geq(memtext_number(copy, n).bytes, 0);
		cr_assert_geq(memproc_private(copy, n).bytes, 0);
		free(copy);
	}
}

Test(monitor_histories, single_numbers_are_read_or_unknown)
{
	static const struct {
		const char *text;
		struct amount number, limit;
	} cases[] = {
		{"4096\n", {true, 4096}, {true, 4096}},
		{"0\n", {true, 0}, {false, 0}},
		{"max\n", {false, 0}, {false, 0}},
		{"\n", {false, 0}, {false, 0}},
		{"", {false, 0}, {false, 0}},
		{"4096", {false, 0}, {false, 0}}, /* cut: there may have been more digits */
		{"-5\n", {false, 0}, {false, 0}},
		{"12x\n", {false, 0}, {false, 0}},
		{"1 2\n", {false, 0}, {false, 0}},
		/* v1: no limit */
		{"9223372036854771712\n", {true, INT64_C(9223372036854771712)}, {false, 0}},
		{"9223372036854775808\n", {false, 0}, {false, 0}},
		{"99999999999999999999999\n", {false, 0}, {false, 0}},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t n = strlen(cases[i].text);

		cr_assert(amount_equal(memtext_number(cases[i].text, n), cases[i].number), "%s",
			  cases[i].text);
		cr_assert(amount_equal(memcgroup_read_limit(cases[i].text, n), cases[i].limit),
			  "%s", cases[i].text);
	}
}

Test(monitor_histories, files_of_this_host_make_sense)
{
	char text[8192];
	struct memhost_fields f;
	struct memlimit_use use;
	FILE *file = fopen("/proc/meminfo", "re");
	size_t n;

	cr_assert(file);
	n = fread(text, 1, sizeof(text), file);
	fclose(file);
	memhost_read(&f, text, n);
	use = memhost_use(&f, true);
	cr_assert(use.used.known && use.total.known && use.used.bytes > 0 &&
		  use.used.bytes < use.total.bytes);
	file = fopen("/proc/self/status", "re");
	cr_assert(file);
	n = fread(text, 1, sizeof(text), file);
	fclose(file);
	cr_assert_gt(memproc_private(text, n).bytes, 0);
}

Test(monitor_histories, delays_double_and_stop_growing)
{
	begin(7);
	for (int i = 0; i < 2000; i++) {
		int64_t base = (int64_t)draw(draw(2) ? 5000 : INT64_MAX),
			most = (int64_t)draw(100000), last = 0;

		for (int64_t attempt = 1; attempt < 70; attempt++) {
			int64_t delay = memlimit_delay_ms(attempt, base, most);

			cr_assert(delay >= last && delay <= most);
			if (attempt > 1 && delay < most)
				cr_assert_eq(delay, 2 * last);
			last = delay;
		}
		cr_assert_eq(memlimit_delay_ms(INT64_MAX, base, most), base ? most : 0);
	}
}
