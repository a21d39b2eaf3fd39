/* SPDX-License-Identifier: Apache-2.0 */
/* alloc.h: memory for arrays that grow, and for text by a format. */
#ifndef SHMS_ALLOC_H
#define SHMS_ALLOC_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * Makes room for n more elements than the used ones in an array that has room for *io_size; it
 * grows by doubling, to 2^32 - 1 elements at most. Returns the array; NULL: out of memory, and it
 * is as it was.
 */
static inline void *shms_grow(void *array, size_t *io_size, size_t used, size_t n, size_t element)
{
	size_t size = *io_size ? *io_size : 64;

	if (used + n <= *io_size)
		return array;
	while (size < used + n)
		size *= 2;
	array = size <= UINT32_MAX ? reallocarray(array, size, element) : NULL;
	if (array)
		*io_size = size;
	return array;
}

/* As asprintf(), but it returns the text; NULL: out of memory. */
static inline __attribute__((format(printf, 1, 2))) char *shms_printed(const char *format, ...)
{
	va_list args;
	char *text;
	int n;

	va_start(args, format);
	n = vasprintf(&text, format, args);
	va_end(args);
	return n < 0 ? NULL : text;
}

#endif
