/* SPDX-License-Identifier: Apache-2.0 */
/* memproc.c: processes by their own memory. */
#include "memproc.h"

#include "memtext.h"

struct amount memproc_private(const char *text, size_t size)
{
	struct amount anon = memtext_field(text, size, "RssAnon"), swap = memtext_field(text, size, "VmSwap");

	/* A kernel without swap says nothing of it. */
	return swap.known ? amount_add(anon, swap) : anon;
}
