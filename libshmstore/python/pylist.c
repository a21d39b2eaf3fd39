/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pylist.c: the objects of a Store as lists: their keys, or all that is known of each. The walk copies without the GIL, so a
 * list is a snapshot and may be gone through while objects come and go.
 */
#include <errno.h>

#include "pyrows.h"
#include "pyshm.h"

static int object_row(const struct shmstore_object_info *info, void *arg)
{
	struct pyshm_rows *rows = arg;
	struct shmstore_object_info *row = pyshm_rows_add(rows);
	const char *key = NULL;
	int r;

	if (!row)
		return -ENOMEM;
	*row = *info;
	r = pyshm_rows_copy(rows, info->key, info->key_size, &key);
	row->key = key;
	if (r == 0)
		r = pyshm_rows_text(rows, info->name, &row->name);
	return r;
}

static PyObject *object_tuple(const struct shmstore_object_info *row)
{
	return Py_BuildValue("NNKKKKKKKLNiNNNN", pyshm_key_object(row->key, row->key_size), pyshm_text(row->name),
			     (unsigned long long)row->header_size, (unsigned long long)row->buffer_size,
			     (unsigned long long)row->blocks, (unsigned long long)row->inode,
			     (unsigned long long)row->links, (unsigned long long)row->n_buffers,
			     (unsigned long long)row->generation, (long long)row->mtime_ns,
			     PyBool_FromLong(row->checksum), row->error < 0 ? -row->error : row->error,
			     PyBytes_FromStringAndSize(row->key, (Py_ssize_t)row->key_size),
			     PyBool_FromLong(row->demoted), PyBool_FromLong(row->pinned), PyBool_FromLong(row->packed));
}

static PyObject *list_objects(PyObject *op, bool keys_only)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct pyshm_rows rows = {.row_size = sizeof(struct shmstore_object_info)};
	PyObject *list;
	int r;

	if (!pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_foreach(self->s, object_row, &rows));
	if (r < 0) {
		pyshm_rows_deinit(&rows);
		return pyshm_store_raise(self, r, "list the objects of", NULL);
	}
	list = PyList_New((Py_ssize_t)rows.n);
	for (size_t i = 0; list && i < rows.n; i++) {
		const struct shmstore_object_info *row = pyshm_rows_row(&rows, i);
		PyObject *item = keys_only ? pyshm_key_object(row->key, row->key_size) : object_tuple(row);

		if (item)
			PyList_SET_ITEM(list, (Py_ssize_t)i, item);
		else
			Py_CLEAR(list);
	}
	pyshm_rows_deinit(&rows);
	return list;
}

PyObject *pyshm_store_keys(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	return list_objects(op, true);
}

PyObject *pyshm_store_objects(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	return list_objects(op, false);
}
