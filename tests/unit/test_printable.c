/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of whoever as text: what stands for itself, what is escaped, and
 * that nothing else comes out. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "fields.h"

static void becomes(const char *bytes, size_t n, const char *text)
{
	char *made = printable_new(bytes, n);

	cr_assert_str_eq(made, text);
	cr_assert(printable_is(made, strlen(made)));
	free(made);
}

Test(printable, text_stands_for_itself)
{
	becomes("", 0, "");
	becomes("a/b c~", 6, "a/b c~");
	becomes("\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82", 9, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82");
	becomes("\\x4", 3, "\\x4");
	becomes("\\n", 2, "\\n");
}

Test(printable, an_escape_cannot_be_forged)
{
	becomes("\\x41", 4, "\\x5cx41");
	becomes("\\\\xff", 5, "\\\\x5cxff");
}

Test(printable, the_rest_is_escaped)
{
	becomes("\0a\n", 3, "\\x00a\\x0a");
	becomes("\x7f\x1b[1m", 5, "\\x7f\\x1b[1m");
	becomes("\xff", 1, "\\xff");
	becomes("\xc3", 1, "\\xc3");          /* cut off */
	becomes("\xc0\xaf", 2, "\\xc0\\xaf"); /* too long for what it says */
	becomes("\xe0\x80\xaf", 3, "\\xe0\\x80\\xaf");
	becomes("\xed\xa0\x80", 3, "\\xed\\xa0\\x80"); /* a surrogate */
	becomes("\xf4\x90\x80\x80", 4, "\\xf4\\x90\\x80\\x80");
	becomes("\xc2\x85", 2, "\\xc2\\x85");          /* a control of the second block */
	becomes("\xe2\x80\xae", 3, "\\xe2\\x80\\xae"); /* writes from right to left */
}

/* Any two or three bytes: the result is printable, and reads back as
 * nothing else than they were. */
Test(printable, whatever_comes_in)
{
	for (unsigned a = 0; a < 256; a++) {
		for (unsigned b = 0; b < 256; b++) {
			char bytes[3] = {(char)a, (char)b, (char)(a ^ 0x80)};
			char *made = printable_new(bytes, 3);

			cr_assert(printable_is(made, strlen(made)));
			free(made);
		}
	}
}
