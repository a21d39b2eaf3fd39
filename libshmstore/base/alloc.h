/* SPDX-License-Identifier: Apache-2.0 */
/* alloc.h: memory for arrays that grow, and for text by a format. */
#ifndef SHMS_ALLOC_H
#define SHMS_ALLOC_H

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* See SHMS_GROW(). io_array: where the pointer to the array is. */
static inline int shms_grow(void *io_array, size_t *io_size, size_t used, size_t n, size_t element)
{
	size_t size = *io_size ? *io_size : 64;
	void *array;

	if (used + n <= *io_size)
		return 0;
	while (size < used + n)
		size *= 2;
	memcpy(&array, io_array, sizeof(array));
	array = size <= UINT32_MAX ? reallocarray(array, size, element) : NULL;
	if (!array)
		return -ENOMEM;
	memcpy(io_array, &array, sizeof(array));
	*io_size = size;
	return 0;
}

/*
 * Makes room for n more elements than the used ones in an array that has room for size; it grows by
 * doubling, to 2^32 - 1 elements at most. 0; -ENOMEM: array and size are as they were.
 */
#define SHMS_GROW(array, size, used, n) shms_grow(&(array), &(size), (used), (n), sizeof(*(array)))

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
