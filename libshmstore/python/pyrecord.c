/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyrecord.c: see pyshm.h. records.def is read twice: for the tuples, for the copies of rows.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pyshm.h"

/* ---- rows ---- */

/* The items, moved where there was no room for one more. NULL: no memory, and they are as
 * before. */
static void *grow(void *items, size_t n, size_t *io_room, size_t item_size)
{
	size_t room = *io_room ? *io_room * 2 : 64;

	if (n < *io_room)
		return items;
	items = reallocarray(items, room, item_size);
	*io_room = items ? room : *io_room;
	return items;
}

/* A copy of that row, without what its pointers mean; NULL: no memory. */
static void *add_row(struct pyshm_rows *r, const void *row, size_t size)
{
	char *rows = grow(r->rows, r->n, &r->room, size);

	if (!rows)
		return NULL;
	r->rows = rows;
	return memcpy(rows + r->n++ * size, row, size);
}

/* *io becomes a copy of what it points to, with a NUL behind it. Return: false: no memory. */
static bool copy_bytes(struct pyshm_rows *r, const void **io, size_t size)
{
	char **copies, *copy;

	if (!*io)
		return true;
	copies = grow(r->copies, r->n_copies, &r->copies_room, sizeof(*copies));
	if (copies)
		r->copies = copies;
	copy = copies ? malloc(size + 1) : NULL;
	if (!copy)
		return false;
	memcpy(copy, *io, size);
	copy[size] = '\0';
	*io = r->copies[r->n_copies++] = copy;
	return true;
}

static bool copy_text(struct pyshm_rows *r, const char **io)
{
	const void *text = *io ? *io : "";

	if (!copy_bytes(r, &text, strlen(text)))
		return false;
	*io = text;
	return true;
}

void pyshm_rows_deinit(struct pyshm_rows *r)
{
	for (size_t i = 0; i < r->n_copies; i++)
		free(r->copies[i]);
	free(r->copies);
	free(r->rows);
	*r = (struct pyshm_rows){0};
}

PyObject *pyshm_rows_list(struct pyshm_rows *r, size_t row_size, PyObject *(*make)(const void *row))
{
	PyObject *list = PyList_New((Py_ssize_t)r->n);

	for (size_t i = 0; list && i < r->n; i++) {
		PyObject *item = make(r->rows + i * row_size);

		if (item)
			PyList_SET_ITEM(list, (Py_ssize_t)i, item);
		else
			Py_CLEAR(list);
	}
	pyshm_rows_deinit(r);
	return list;
}

/* ---- values ---- */

PyObject *pyshm_alive(int alive)
{
	return Py_NewRef(alive == SHMSTORE_ALIVE  ? Py_True
			 : alive == SHMSTORE_DEAD ? Py_False
						  : Py_None);
}

static PyObject *errno_of(int error)
{
	return PyLong_FromLong(error < 0 ? -error : error);
}

/* The tuple of n references, which it consumes. NULL where one of them is NULL: with an
 * exception. */
static PyObject *tuple_of(PyObject *const *values, size_t n)
{
	PyObject *tuple = PyTuple_New((Py_ssize_t)n);

	for (size_t i = 0; i < n; i++) {
		if (!values[i])
			Py_CLEAR(tuple);
		if (tuple)
			PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, values[i]);
		else
			Py_XDECREF(values[i]);
	}
	return tuple;
}

#define U64_AT(name, place)   VALUE(name, PyLong_FromUnsignedLongLong(v->place))
#define I64_AT(name, place)   VALUE(name, PyLong_FromLongLong(v->place))
#define BOOL_AT(name, place)  VALUE(name, PyBool_FromLong(v->place))
#define U64(name)             U64_AT(name, name)
#define I64(name)             I64_AT(name, name)
#define BOOL(name)            BOOL_AT(name, name)
#define STRING(name)          VALUE(name, pyshm_text(v->name))
#define ERROR_AT(name, place) VALUE(name, errno_of(v->place))
#define ERROR(name)           ERROR_AT(name, name)
#define SECONDS(name)         VALUE(name, PyFloat_FromDouble((double)v->name##_ns / 1e9))

/* The tuples. */
#define VALUE(name, object) object,
#define TEXT(name)          pyshm_text(v->name),
#define PATH(name)          PyUnicode_DecodeFSDefault(v->name),
#define KEY(name, size)     pyshm_key_object(v->name, v->size),
#define KEY_OR_NONE(n, s)   v->n ? pyshm_key_object(v->n, v->s) : Py_NewRef(Py_None),
#define RECORD(name, type, ...)                                              \
	PyObject *pyshm_##name(const struct type *v)                         \
	{                                                                    \
		PyObject *const values[] = {__VA_ARGS__};                    \
                                                                             \
		return tuple_of(values, sizeof(values) / sizeof(values[0])); \
	}
#define LISTED(name, type, ...)                                                   \
	RECORD(name, type, __VA_ARGS__)                                           \
	static PyObject *name##_of_row(const void *row)                           \
	{                                                                         \
		return pyshm_##name(row);                                         \
	}                                                                         \
	PyObject *pyshm_##name##_list(struct pyshm_rows *rows)                    \
	{                                                                         \
		return pyshm_rows_list(rows, sizeof(struct type), name##_of_row); \
	}
#include "records.def"

/* The copies of rows. */
#define VALUE(name, object)
#define TEXT(name)      &&copy_text(rows, &row->name)
#define PATH(name)      TEXT(name)
#define KEY(name, size) &&copy_bytes(rows, &row->name, row->size)
#define KEY_OR_NONE     KEY
#define RECORD(...)
#define LISTED(name, type, ...)                                    \
	int pyshm_##name##_row(const struct type *v, void *arg)    \
	{                                                          \
		struct pyshm_rows *rows = arg;                     \
		struct type *row = add_row(rows, v, sizeof(*row)); \
                                                                   \
		return row __VA_ARGS__ ? 0 : -ENOMEM;              \
	}
#include "records.def"
