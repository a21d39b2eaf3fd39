/* SPDX-License-Identifier: Apache-2.0 */
/* configkey.c: text to values. Extra text, or no number in range, is an error, never a guess. */

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "config.h"

/* ---- numbers --------------------------------------------------------------------------------- */

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

int configkey_duration(const char *text, uint64_t *ret_ns)
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

int configkey_number(const char *text, int base, uint64_t min, uint64_t max, uint64_t *ret)
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

/* A whole number of percent, with its sign. */
static int read_percent(const char *text, uint64_t min, uint64_t max, uint64_t *ret)
{
	char digits[4] = "";
	size_t n = strlen(text);

	if (n < 2 || n > sizeof(digits) || text[n - 1] != '%')
		return -EINVAL;
	memcpy(digits, text, n - 1);
	return configkey_number(digits, 10, min, max, ret);
}

/* Is it one of the words, which have ", " between them? Its place. */
static int read_word(const char *text, const char *words, int *ret)
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

/* "90%" as parts per million, else bytes (1000001 at least). */
static int read_watermark(const char *text, uint64_t *ret)
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

/* ---- keys ------------------------------------------------------------------------------------ */

#define ONE_OF "one of "

static const struct {
	enum {
		TEXT,
		OWN,
		WORD,
		SWITCH,
		U16,
		U32,
		U64
	} form;
	const char *help; /* of a WORD the words come after ONE_OF */
} kinds[] = {
#define KIND(NAME, form, help) {form, help},
#include "configkind.def"
#undef KIND
};

const char *configkey_help(enum configkey_kind kind)
{
	return kinds[kind].help;
}

static bool is_text(enum configkey_kind kind, const char *text)
{
	if (kind == KEY_TEXT)
		return *text != '\0';
	if (kind == KEY_SELECTION)
		return !strcmp(text, "resource") || !strcmp(text, "random") ||
		       (!strncmp(text, "fixed:", 6) && text[6]);
	return *text == '/' || (kind == KEY_PATH_OR_NONE && !strcmp(text, "none"));
}

/* Fills in the structure that a value of that kind stands for. False: it is none. */
static bool read_own(const struct configkey *k, const char *text, void *ret)
{
	if (k->kind == KEY_STRATEGY)
		return profile_choice_read(text, ret);
	if (k->kind == KEY_COPIES)
		return ckpt_num_read(text, ret);
	if (k->kind == KEY_STALE)
		return ckpt_stale_read(text, ret);
	return ratio_parse(text, ret) &&
	       ratio_compare(*(const struct ratio *)ret, RATIO(k->most, 1)) <= 0;
}

/* The number that a value of the other kinds stands for. 0, -EINVAL. */
static int parse_number(const struct configkey *k, const char *text, uint64_t *ret)
{
	int word = 0, r;

	*ret = 0;
	switch ((int)k->kind) {
	case KEY_OCTAL:
		return configkey_number(text, 8, k->least, k->most, ret);
	case KEY_COUNT:
	case KEY_PORT:
	case KEY_NUMBER:
		return configkey_number(text, 10, k->least, k->most, ret);
	case KEY_PERCENT:
		return read_percent(text, k->least, k->most, ret);
	case KEY_WATERMARK:
		return read_watermark(text, ret);
	case KEY_SWITCH:
		r = read_word(text, "no, false, off, yes, true, on", &word);
		*ret = word >= 3;
		return r;
	case KEY_SIZE:
	case KEY_SIZE32:
	case KEY_SIZE_OR_NONE:
		if (k->kind == KEY_SIZE_OR_NONE && strcmp(text, "none") == 0)
			return 0;
		r = config_parse_size(text, 0, ret);
		break;
	case KEY_DURATION:
	case KEY_MICROS:
		r = configkey_duration(text, ret);
		*ret /= k->kind == KEY_MICROS ? 1000 : 1;
		break;
	default:
		r = read_word(text, kinds[k->kind].help + strlen(ONE_OF), &word);
		*ret = (uint64_t)(unsigned)word;
		return r;
	}
	return r == 0 && *ret >= k->least && *ret <= k->most ? 0 : -EINVAL;
}

int configkey_check(const struct configkey *k, const char *text)
{
	union {
		struct profile_choice choice;
		struct ckpt_num num;
		struct ckpt_stale stale;
		struct ratio ratio;
		uint64_t number;
	} room;

	if (kinds[k->kind].form == TEXT)
		return is_text(k->kind, text) ? 0 : -EINVAL;
	if (kinds[k->kind].form == OWN)
		return read_own(k, text, &room) ? 0 : -EINVAL;
	return parse_number(k, text, &room.number);
}

static int set_text(char **field, const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		return -ENOMEM;
	free(*field);
	*field = copy;
	return 0;
}

/* The text has passed configkey_check(). */
int configkey_store(const struct configkey *k, const char *text, void *base)
{
	void *at = (char *)base + k->offset;
	uint64_t number = 0;

	if (kinds[k->kind].form == TEXT)
		return set_text(at, text);
	if (kinds[k->kind].form == OWN)
		return read_own(k, text, at) ? 0 : -EINVAL;
	parse_number(k, text, &number);
	if (kinds[k->kind].form == WORD)
		*(int *)at = (int)number;
	else if (kinds[k->kind].form == SWITCH)
		*(bool *)at = number != 0;
	else if (kinds[k->kind].form == U16)
		*(uint16_t *)at = (uint16_t)number;
	else if (kinds[k->kind].form == U32)
		*(uint32_t *)at = (uint32_t)number;
	else
		*(uint64_t *)at = number;
	return 0;
}

void configkey_clear(const struct configkey *k, void *base)
{
	if (kinds[k->kind].form == TEXT)
		free(*(char **)(void *)((char *)base + k->offset));
}

/* ---- the word that was meant ----------------------------------------------------------------- */

/*
 * The distance of Damerau and Levenshtein in its restricted form (insert, delete, replace, swap of
 * neighbours), row by row. Words longer than WORD_MAX are nobody's key: they have no neighbour.
 */
#define WORD_MAX 64u

static size_t distance(const char *a, size_t na, const char *b, size_t nb)
{
	size_t rows[3][WORD_MAX + 1], *two = rows[0], *one = rows[1], *now = rows[2], *spare;

	for (size_t j = 0; j <= nb; j++)
		one[j] = j;
	for (size_t i = 1; i <= na; i++) {
		now[0] = i;
		for (size_t j = 1; j <= nb; j++) {
			now[j] = MIN(MIN(one[j], now[j - 1]) + 1,
				     one[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				now[j] = MIN(now[j], two[j - 2] + 1);
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
