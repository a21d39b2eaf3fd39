/* SPDX-License-Identifier: Apache-2.0 */
/* printable.c: see printable.h. */
#include "printable.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Controls of the second block, marks of lines and of direction: these could upset a terminal. */
static bool upsets(uint32_t code)
{
	return code < 0xa0 || code == 0x2028 || code == 0x2029 ||
	       (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

size_t printable_sequence(const unsigned char *text, size_t size)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	unsigned char c = size ? text[0] : 0;
	size_t n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
	uint32_t code;

	if (c < 0x80)
		return c >= 0x20 && c != 0x7f;
	if (c < 0xc2 || c >= 0xf5 || n > size)
		return 0;
	code = (uint32_t)c & (0x7fu >> n);
	for (size_t i = 1; i < n; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (text[i] & 0x3f);
	}
	if (code < least[n] || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff || upsets(code))
		return 0;
	return n;
}

bool printable_is(const void *text, size_t size)
{
	const unsigned char *in = text;

	for (size_t i = 0; i < size;) {
		size_t n = printable_sequence(in + i, size - i);

		if (!n)
			return false;
		i += n;
	}
	return true;
}

static bool is_escape(const unsigned char *text, size_t size)
{
	return size >= 4 && text[0] == '\\' && text[1] == 'x' && isxdigit(text[2]) &&
	       isxdigit(text[3]);
}

char *printable_new(const void *text, size_t size)
{
	const unsigned char *in = text;
	char *made = malloc(size * 4 + 1), *out = made;

	if (!made)
		return NULL;
	for (size_t i = 0; i < size;) {
		size_t n = printable_sequence(in + i, size - i);

		if (n && !is_escape(in + i, size - i)) {
			while (n--)
				*out++ = (char)in[i++];
		} else {
			out += sprintf(out, "\\x%02x", in[i++]);
		}
	}
	*out = '\0';
	return made;
}

static unsigned hex(unsigned char c)
{
	return isdigit(c) ? (unsigned)(c - '0') : (unsigned)(tolower(c) - 'a' + 10);
}

bool printable_parse(const char *text, void *ret, size_t room, size_t *ret_size)
{
	unsigned char *out = ret;
	size_t n = 0;

	while (*text) {
		const unsigned char *in = (const unsigned char *)text;

		if (n == room)
			return false;
		/* A NUL ends the text, so is_escape() never looks past it. */
		if (in[0] == '\\' && in[1] == 'x' && in[2] && is_escape(in, 4)) {
			out[n++] = (unsigned char)(hex(in[2]) << 4 | hex(in[3]));
			text += 4;
		} else {
			out[n++] = in[0];
			text++;
		}
	}
	*ret_size = n;
	return true;
}
