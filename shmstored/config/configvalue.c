/* SPDX-License-Identifier: Apache-2.0 */
/* configvalue.c: text to values. Extra text, or no number in range, is an error, never a guess. */
#include "configvalue.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"

struct unit {
	const char *name;
	uint64_t factor;
};

/* A plain decimal number, with a fraction, and a unit after it. 0, -EINVAL. */
static int parse_scaled(const char *text, const struct unit *units, double most, uint64_t *ret)
{
	char *end;
	double value;

	if (*text < '0' || *text > '9' || text[strspn(text, "0123456789.")] == 'x' ||
	    text[strspn(text, "0123456789.")] == 'e')
		return -EINVAL;
	errno = 0;
	value = strtod(text, &end);
	if (errno || !isfinite(value))
		return -EINVAL;
	for (const struct unit *u = units; u->name; u++) {
		if (strcasecmp(end, u->name) == 0) {
			value *= (double)u->factor;
			if (value > most)
				return -EINVAL;
			*ret = (uint64_t)value;
			return 0;
		}
	}
	return -EINVAL;
}

int config_parse_size(const char *text, uint64_t total, uint64_t *ret)
{
	static const struct unit units[] = {
		{"", 1},
		{"B", 1},
		{"K", 1ull << 10},
		{"KiB", 1ull << 10},
		{"M", 1ull << 20},
		{"MiB", 1ull << 20},
		{"G", 1ull << 30},
		{"GiB", 1ull << 30},
		{"T", 1ull << 40},
		{"TiB", 1ull << 40},
		{"kB", 1000},
		{"MB", 1000000},
		{"GB", 1000000000},
		{"TB", 1000000000000},
		{NULL, 0},
	};
	static const struct unit percent[] = {{"%", 1000000}, {NULL, 0}};
	uint64_t millionths;

	if (parse_scaled(text, percent, 100e6, &millionths) == 0) {
		if (!total)
			return -EINVAL;
		*ret = (uint64_t)((double)total / 100e6 * (double)millionths);
		return 0;
	}
	return parse_scaled(text, units, 0x1p62, ret);
}

int configvalue_duration(const char *text, uint64_t *ret_ns)
{
	static const struct unit units[] = {
		{"ms", 1000000ull},
		{"", 1000000000ull},
		{"s", 1000000000ull},
		{"min", 60000000000ull},
		{"h", 3600000000000ull},
		{"d", 86400000000000ull},
		{NULL, 0},
	};

	return parse_scaled(text, units, 0x1p62, ret_ns);
}

int configvalue_number(const char *text, int base, uint64_t min, uint64_t max, uint64_t *ret)
{
	unsigned long long n;
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	n = strtoull(text, &end, base);
	if (errno || *end || n < min || n > max)
		return -EINVAL;
	*ret = n;
	return 0;
}

int configvalue_percent(const char *text, uint64_t min, uint64_t max, uint64_t *ret)
{
	char digits[4] = "";
	size_t n = strlen(text);

	if (n < 2 || n > sizeof(digits) || text[n - 1] != '%')
		return -EINVAL;
	memcpy(digits, text, n - 1);
	return configvalue_number(digits, 10, min, max, ret);
}

int configvalue_word(const char *text, const char *words, int *ret)
{
	size_t length = strlen(text), n;

	for (*ret = 0;; ++*ret) {
		n = strcspn(words, ",");
		if (n == length && memcmp(text, words, n) == 0)
			return 0;
		if (!words[n])
			return -EINVAL;
		words += n + 2;
	}
}

int configvalue_switch(const char *text, bool *ret)
{
	int i;

	if (configvalue_word(text, "no, false, off, yes, true, on", &i) < 0)
		return -EINVAL;
	*ret = i >= 3;
	return 0;
}

int configvalue_watermark(const char *text, uint64_t *ret)
{
	static const struct unit percent[] = {{"%", 10000}, {NULL, 0}};
	uint64_t value;

	if (parse_scaled(text, percent, 1e6, &value) == 0) {
		*ret = value;
		return 0;
	}
	if (config_parse_size(text, 0, &value) < 0 || (value && value <= 1000000))
		return -EINVAL;
	*ret = value;
	return 0;
}

/*
 * The distance of Damerau and Levenshtein in its restricted form (insert, delete, replace, swap of
 * neighbours), row by row. Words longer than WORD_MAX are nobody's key: they have no neighbour.
 */
#define WORD_MAX 64u

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t distance(const char *a, size_t na, const char *b, size_t nb)
{
	size_t rows[3][WORD_MAX + 1], *two = rows[0], *one = rows[1], *now = rows[2], *spare;

	for (size_t j = 0; j <= nb; j++)
		one[j] = j;
	for (size_t i = 1; i <= na; i++) {
		now[0] = i;
		for (size_t j = 1; j <= nb; j++) {
			now[j] = least(least(one[j], now[j - 1]) + 1,
				       one[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				now[j] = least(now[j], two[j - 2] + 1);
		}
		spare = two;
		two = one;
		one = now;
		now = spare;
	}
	return one[nb];
}

const char *nearest(const char *word, const char *const *words, size_t n)
{
	size_t length = strlen(word), best, bound = length / 3 > 2 ? length / 3 : 2;
	const char *found = NULL;

	if (length > WORD_MAX)
		return NULL;
	best = bound + 1;
	for (size_t i = 0; i < n; i++) {
		size_t other = strlen(words[i]), d;

		if (other > WORD_MAX)
			continue;
		d = distance(word, length, words[i], other);
		/* A word that shares nothing but its length is no neighbour. */
		if (d < best && d < length) {
			best = d;
			found = words[i];
		}
	}
	return found;
}
