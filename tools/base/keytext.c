/* SPDX-License-Identifier: Apache-2.0 */
/* keytext.c: see keytext.h. */
#include "keytext.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "printable.h"

char *keytext_new(const void *key, size_t key_size)
{
	char *text = printable_new(key, key_size);

	if (!text)
		message_no_memory();
	return text;
}

void keytext_print(const char *text)
{
	char *escaped = keytext_new(text, strlen(text));

	fputs(escaped, stdout);
	free(escaped);
}
