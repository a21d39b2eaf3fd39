/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shellword.c: quotes for the shell. A path with a space or worse must not turn a command that
 * mends something into one that breaks something else. The few quoted words are kept in a list:
 * whoever prints them need not free them.
 */
#include "shellword.h"

#include <stdlib.h>
#include <string.h>

#include "message.h"

static struct word {
	struct word *next;
	char text[];
} * words;

const char *shellword(const char *text)
{
	static const char plain[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./+:@%,=-";
	size_t size = strlen(text);

	if (size && strspn(text, plain) == size)
		return text;
	struct word *word = malloc(sizeof(*word) + size * 4 + 3); /* a quote becomes four bytes */
	if (!word)
		message_no_memory();
	char *out = word->text;
	*out++ = '\'';
	for (; *text; text++) {
		if (*text == '\'') {
			memcpy(out, "'\\''", 4);
			out += 4;
		} else {
			*out++ = *text;
		}
	}
	memcpy(out, "'", 2);
	word->next = words;
	words = word;
	return word->text;
}
