/* SPDX-License-Identifier: Apache-2.0 */
/* memtext.c: the kernel writes names, blanks, digits, and perhaps a unit. */
#include "memtext.h"

#include <string.h>

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
