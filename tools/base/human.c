/* SPDX-License-Identifier: Apache-2.0 */
/* human.c: sizes for people, in powers of 1024. Integers only: what is printed is never
 * more than there is. The upper half of an id is the client, the lower its own number. */
#include "human.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char units[] = "KMGTPE";

const char *human_text(const char *format, ...)
{
	static _Thread_local char texts[8][32];
	static _Thread_local unsigned next;
	char *text = texts[next++ % 8];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(texts[0]), format, args);
	va_end(args);
	return text;
}

const char *human_size(uint64_t bytes)
{
	unsigned unit = 0;
	uint64_t whole = bytes, rest = 0;

	while (whole >= 1024 && unit < 6) {
		rest = whole % 1024;
		whole /= 1024;
		unit++;
	}
	if (unit == 0)
		return human_text(bytes ? "%" PRIu64 " B" : "0", bytes);
	if (whole >= 100 || (rest == 0 && unit == 1))
		return human_text("%" PRIu64 " %ciB", whole, units[unit - 1]);
	if (whole >= 10)
		return human_text("%" PRIu64 ".%" PRIu64 " %ciB", whole, rest * 10 / 1024,
				  units[unit - 1]);
	return human_text("%" PRIu64 ".%02" PRIu64 " %ciB", whole, rest * 100 / 1024,
			  units[unit - 1]);
}

const char *human_bytes(uint64_t bytes, bool exact)
{
	return exact ? human_text("%" PRIu64, bytes) : human_size(bytes);
}

const char *human_count(uint64_t n, const char *noun)
{
	return human_text("%" PRIu64 " %s%s", n, noun, n == 1 ? "" : "s");
}

const char *human_duration(double seconds)
{
	uint64_t s = seconds > 0 && seconds < 1e15 ? (uint64_t)seconds : 0;

	if (s < 60)
		return human_text("%" PRIu64 " s", s);
	if (s < 3600)
		return human_text("%" PRIu64 " min", s / 60);
	if (s < 86400)
		return human_text("%" PRIu64 " h %" PRIu64 " min", s / 3600, s % 3600 / 60);
	return human_text("%" PRIu64 " d %" PRIu64 " h", s / 86400, s % 86400 / 3600);
}

const char *human_id(uint64_t id)
{
	return id >> 32 ? human_text("%" PRIu64 ":%" PRIu64, id >> 32, id & UINT32_MAX)
			: human_text("%" PRIu64, id);
}

bool human_number(const char *text, uint64_t most, uint64_t *ret)
{
	char *end;

	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)*text) || errno || *end || value > most)
		return false;
	*ret = value;
	return true;
}

bool human_parse_id(const char *text, uint64_t *ret_id)
{
	const char *colon = strchr(text, ':');
	char before[24];
	uint64_t client = 0, own;

	snprintf(before, sizeof(before), "%.*s", colon ? (int)(colon - text) : 0, text);
	if (colon && !human_number(before, UINT32_MAX, &client))
		return false;
	if (!human_number(colon ? colon + 1 : text, colon ? UINT32_MAX : UINT64_MAX, &own) || !own)
		return false;
	*ret_id = client << 32 | own;
	return true;
}

/* The unit behind the digits as a power of two; -1: none. */
static int unit_shift(const char *text)
{
	if (!*text || strcasecmp(text, "b") == 0)
		return 0;
	const char *found = strchr(units, toupper((unsigned char)*text));
	if (!found || !*found)
		return -1;
	text++;
	if (*text == 'i' || *text == 'I')
		text++;
	if (*text == 'b' || *text == 'B')
		text++;
	return *text ? -1 : 10 * (int)(found - units + 1);
}

bool human_parse(const char *text, uint64_t whole, uint64_t *ret_bytes)
{
	const uint64_t limit = (uint64_t)1 << 63;
	uint64_t integer = 0, fraction = 0, scale = 1;

	if (!isdigit((unsigned char)*text))
		return false;
	for (; isdigit((unsigned char)*text); text++) {
		if (integer > limit / 10)
			return false;
		integer = integer * 10 + (uint64_t)(*text - '0');
	}
	if (*text == '.') {
		for (text++; isdigit((unsigned char)*text); text++) {
			if (scale < 1000000) { /* what is finer is cut off */
				fraction = fraction * 10 + (uint64_t)(*text - '0');
				scale *= 10;
			}
		}
	}
	while (*text == ' ')
		text++;
	__uint128_t value = (__uint128_t)integer * scale + fraction;
	if (strcmp(text, "%") == 0) {
		value = value * whole / scale / 100;
	} else {
		int shift = unit_shift(text);
		if (shift < 0)
			return false;
		value = (value << shift) / scale;
	}
	if (value > limit)
		return false;
	*ret_bytes = (uint64_t)value;
	return true;
}
