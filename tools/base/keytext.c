/* SPDX-License-Identifier: Apache-2.0 */
/* keytext.c: see keytext.h. */
#include "keytext.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"

size_t keytext_printable(const unsigned char *text, size_t size)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	unsigned char c = size ? text[0] : 0;
	size_t n = c >= 0xf0 && c < 0xf5 ? 4 : c >= 0xe0 ? 3 : 2;
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
	/* too long, a surrogate, out of range, a C1 control, a line or direction mark: these could upset a terminal */
	if (code < least[n] || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff || code < 0xa0)
		return 0;
	if (code == 0x2028 || code == 0x2029 || (code >= 0x202a && code <= 0x202e) ||
	    (code >= 0x2066 && code <= 0x2069))
		return 0;
	return n;
}

/* Whether text is \x and two hex digits. */
static bool is_escape(const unsigned char *text, size_t size)
{
	return size >= 4 && text[0] == '\\' && text[1] == 'x' && isxdigit(text[2]) && isxdigit(text[3]);
}

char *keytext_new(const void *key, size_t key_size)
{
	const unsigned char *in = key;
	char *text = malloc(key_size * 4 + 1);
	char *out = text;

	if (!text)
		message_no_memory();
	for (size_t i = 0; i < key_size;) {
		size_t n = keytext_printable(in + i, key_size - i);
		if (n && !is_escape(in + i, key_size - i)) {
			while (n--)
				*out++ = (char)in[i++];
		} else {
			out += sprintf(out, "\\x%02x", in[i++]);
		}
	}
	*out = '\0';
	return text;
}

void keytext_print(const char *text)
{
	char *escaped = keytext_new(text, strlen(text));

	fputs(escaped, stdout);
	free(escaped);
}

static unsigned hex(unsigned char c)
{
	return isdigit(c) ? (unsigned)(c - '0') : (unsigned)(tolower(c) - 'a' + 10);
}

bool keytext_parse(const char *text, void *ret_key, size_t key_room, size_t *ret_size)
{
	unsigned char *out = ret_key;
	size_t n = 0;

	while (*text) {
		const unsigned char *in = (const unsigned char *)text;
		if (n == key_room)
			return false;
		/* a NUL ends the text, so is_escape never looks past it */
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
