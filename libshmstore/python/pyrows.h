/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyrows.h: what a walk of the library tells, copied while the GIL is released and made into Python objects afterwards. A
 * vector of rows of one size, each row with its strings in it as pointers from pyshm_rows_copy(). Needs no GIL.
 */
#ifndef PYROWS_H
#define PYROWS_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct pyshm_rows {
	char *rows;
	size_t row_size, n, room;
	char **strings; /* all that was copied: freed together */
	size_t n_strings, strings_room;
};

/* A new zeroed row, NULL = out of memory. */
static inline void *pyshm_rows_add(struct pyshm_rows *r)
{
	if (r->n == r->room) {
		size_t room = r->room ? r->room * 2 : 64;
		char *rows = reallocarray(r->rows, room, r->row_size);

		if (!rows)
			return NULL;
		r->rows = rows;
		r->room = room;
	}
	return memset(r->rows + r->n++ * r->row_size, 0, r->row_size);
}

static inline const void *pyshm_rows_row(const struct pyshm_rows *r, size_t i)
{
	return r->rows + i * r->row_size;
}

/* Return: 0, -ENOMEM. */
static inline int pyshm_rows_copy(struct pyshm_rows *r, const void *data, size_t size, const char **ret)
{
	char *copy;

	if (r->n_strings == r->strings_room) {
		size_t room = r->strings_room ? r->strings_room * 2 : 64;
		char **strings = reallocarray(r->strings, room, sizeof(*strings));

		if (!strings)
			return -ENOMEM;
		r->strings = strings;
		r->strings_room = room;
	}
	copy = malloc(size + 1);
	if (!copy)
		return -ENOMEM;
	if (size)
		memcpy(copy, data, size);
	copy[size] = '\0';
	r->strings[r->n_strings++] = copy;
	*ret = copy;
	return 0;
}

static inline int pyshm_rows_text(struct pyshm_rows *r, const char *text, const char **ret)
{
	return pyshm_rows_copy(r, text ? text : "", text ? strlen(text) : 0, ret);
}

static inline void pyshm_rows_deinit(struct pyshm_rows *r)
{
	for (size_t i = 0; i < r->n_strings; i++)
		free(r->strings[i]);
	free(r->strings);
	free(r->rows);
	*r = (struct pyshm_rows){.row_size = r->row_size};
}

#endif
