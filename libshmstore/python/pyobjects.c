/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyobjects.c: what a Store does with objects and Python's buffers, sequences or signals beside it.
 * Each parses with the GIL, enters the store, calls without the GIL, leaves, and then makes the
 * result or raises. Calls that need no more than that are in calls.def.
 */
#include <errno.h>

#include "pyshm.h"

/* How an object is to be put, as the keywords say. */
struct put_options {
	int replace, checksum, pin, no_evict;
};
#define PUT_OPTIONS(o) &(o).replace, &(o).checksum, &(o).pin, pyshm_not, &(o).no_evict

static unsigned put_flags(const struct pyshm_store *s, const struct put_options *o)
{
	return (s->wait ? SHMSTORE_WAIT : 0) | (o->replace ? SHMSTORE_REPLACE : 0) |
	       (o->checksum ? SHMSTORE_CHECKSUM : 0) | (o->pin ? SHMSTORE_PIN : 0) |
	       (o->no_evict ? SHMSTORE_NO_EVICT : 0);
}

PyObject *pyshm_store_put_buffers(PyObject *op, PyObject *args, PyObject *kwargs)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	char **names =
		PYSHM_KEYWORDS("key", "header", "buffers", "replace", "checksum", "pin", "evict");
	struct pyshm_buffers buffers;
	struct put_options o = {0};
	PyObject *object, *objects;
	struct pyshm_key key;
	Py_buffer header;
	bool entered;
	int r = 0;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Oy*O|pppO&:put_buffers", names, &object,
					 &header, &objects, PUT_OPTIONS(o)))
		return NULL;
	if (!pyshm_key(object, &key) || pyshm_buffers_init(&buffers, objects) < 0) {
		PyBuffer_Release(&header);
		return NULL;
	}
	entered = pyshm_store_enter(self);
	if (entered)
		PYSHM_STORE_CALL(self, r = shmstore_put(self->s, key.data, key.size, header.buf,
							(size_t)header.len, buffers.iov, buffers.n,
							put_flags(self, &o)));
	pyshm_buffers_deinit(&buffers);
	PyBuffer_Release(&header);
	if (!entered)
		return NULL;
	if (r)
		return pyshm_store_raise(self, r, "put %.200R", key.object);
	Py_RETURN_NONE;
}

/* The sizes of a sequence of int. Return: an array to be freed with
 * PyMem_Free(), NULL with an exception. */
static uint64_t *sizes_new(PyObject *sequence, size_t *ret_n)
{
	PyObject *tuple = PySequence_Tuple(sequence);
	uint64_t *sizes;
	Py_ssize_t n;

	if (!tuple)
		return NULL;
	n = PyTuple_GET_SIZE(tuple);
	sizes = PyMem_Calloc(n ? (size_t)n : 1, sizeof(*sizes));
	if (!sizes)
		PyErr_NoMemory();
	for (Py_ssize_t i = 0; sizes && i < n; i++) {
		Py_ssize_t size =
			PyNumber_AsSsize_t(PyTuple_GET_ITEM(tuple, i), PyExc_OverflowError);

		if (size < 0 && !PyErr_Occurred())
			PyErr_Format(PyExc_ValueError, "the size of buffer %zd is negative", i);
		if (PyErr_Occurred()) {
			PyMem_Free(sizes);
			sizes = NULL;
			break;
		}
		sizes[i] = (uint64_t)size;
	}
	Py_DECREF(tuple);
	*ret_n = (size_t)n;
	return sizes;
}

PyObject *pyshm_store_create(PyObject *op, PyObject *args, PyObject *kwargs)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	char **names = PYSHM_KEYWORDS("key", "header_size", "buffer_sizes", "replace", "checksum",
				      "pin", "evict");
	struct shmstore_writer *w = NULL;
	struct put_options o = {0};
	struct pyshm_key key;
	Py_ssize_t header_size;
	PyObject *sequence;
	uint64_t *sizes;
	size_t n_buffers;
	bool entered;
	int r = 0;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&nO|pppO&:create", names, pyshm_key, &key,
					 &header_size, &sequence, PUT_OPTIONS(o)))
		return NULL;
	if (header_size < 0) {
		PyErr_SetString(PyExc_ValueError, "header_size is negative");
		return NULL;
	}
	sizes = sizes_new(sequence, &n_buffers);
	entered = sizes && pyshm_store_enter(self);
	if (entered)
		PYSHM_STORE_CALL(self, r = shmstore_create(self->s, key.data, key.size,
							   (size_t)header_size, sizes, n_buffers,
							   put_flags(self, &o), &w));
	PyMem_Free(sizes);
	if (!entered)
		return NULL;
	if (r)
		return pyshm_store_raise(self, r, "create %.200R", key.object);
	return pyshm_writer_new(self, w, key.object, n_buffers);
}

#define SLICE_MS 100u /* so long a signal waits for its handler at most */

/* _wait(key, generation, ms): whether the key, or another value of it, came. Handlers
 * of signals run meanwhile. */
PyObject *pyshm_store_wait(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	uint64_t generation, ms, slice;
	struct pyshm_key key;
	int r = -ETIMEDOUT;

	if (!PyArg_ParseTuple(args, "O&O&O&:_wait", pyshm_key, &key, pyshm_u64, &generation,
			      pyshm_u64, &ms))
		return NULL;
	do {
		slice = ms < SLICE_MS ? ms : SLICE_MS;
		if (!pyshm_store_enter(self))
			return NULL;
		PYSHM_STORE_CALL(self,
				 r = shmstore_wait(self->s, key.data, key.size, generation, slice));
		if (PyErr_CheckSignals() < 0)
			return NULL;
		ms -= slice;
	} while (r == -ETIMEDOUT && ms);
	if (r < 0 && r != -ETIMEDOUT)
		return pyshm_store_raise(self, r, "wait for %.200R", key.object);
	return PyBool_FromLong(r == 0);
}

/* A list of int as long as results: 0, errno, or an outcome of the arbiter, negated. */
static PyObject *results_list(const int *results, Py_ssize_t n)
{
	PyObject *list = PyList_New(n);

	for (Py_ssize_t i = 0; list && i < n; i++) {
		PyObject *item = PyLong_FromLong(-results[i]);

		if (item)
			PyList_SET_ITEM(list, i, item);
		else
			Py_CLEAR(list);
	}
	return list;
}

PyObject *pyshm_store_prefetch(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	PyObject *keys, *list = NULL;
	struct iovec *iov = NULL;
	int *results = NULL;
	unsigned n_threads;
	int evict, r;

	/* keys: a tuple of what pyshm_key() takes. It keeps their bytes
	 * while the GIL is released. */
	if (!PyArg_ParseTuple(args, "O!Ip:_prefetch", &PyTuple_Type, &keys, &n_threads, &evict))
		return NULL;
	iov = PyMem_Calloc((size_t)PyTuple_GET_SIZE(keys) + 1, sizeof(*iov));
	results = PyMem_Calloc((size_t)PyTuple_GET_SIZE(keys) + 1, sizeof(*results));
	if (!iov || !results) {
		PyErr_NoMemory();
		goto out;
	}
	for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++) {
		struct pyshm_key key;

		if (!pyshm_key(PyTuple_GET_ITEM(keys, i), &key))
			goto out;
		iov[i] = (struct iovec){pyshm_no_const(key.data), key.size};
	}
	if (!pyshm_store_enter(self))
		goto out;
	PYSHM_STORE_CALL(self,
			 r = shmstore_prefetch(self->s, iov, (size_t)PyTuple_GET_SIZE(keys),
					       n_threads, evict ? 0 : SHMSTORE_NO_EVICT, results));
	if (r < 0) {
		pyshm_store_raise(self, r, "prefetch from");
		goto out;
	}
	list = results_list(results, PyTuple_GET_SIZE(keys));
out:
	PyMem_Free(results);
	PyMem_Free(iov);
	return list;
}
