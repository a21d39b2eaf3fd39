/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pybuffers.c: Python objects as the ranges of memory that shmstore_put() takes. Each is held
 * through the buffer protocol until the put is over, so that its memory stays where it is while the
 * GIL is released. C- and Fortran-ordered memory is taken as it lies.
 */
#include "pyshm.h"

static int take(PyObject *object, size_t i, Py_buffer *ret)
{
	/* No PyBUF_FORMAT: NumPy cannot spell the format of dates and
	 * others, and nobody here asks. */
	if (PyObject_GetBuffer(object, ret, PyBUF_ANY_CONTIGUOUS) == 0)
		return 0;
	if (PyErr_ExceptionMatches(PyExc_ValueError) || PyErr_ExceptionMatches(PyExc_BufferError)) {
		PyErr_Clear();
		PyErr_Format(PyExc_BufferError,
			     "buffer %zu (%.100s) is not contiguous memory; make it so, e.g. with "
			     "numpy.ascontiguousarray()",
			     i, Py_TYPE(object)->tp_name);
	} else if (PyErr_ExceptionMatches(PyExc_TypeError)) {
		PyErr_Clear();
		PyErr_Format(PyExc_TypeError,
			     "buffer %zu must be a bytes-like object, not %.100s; buffers is a "
			     "sequence of them",
			     i, Py_TYPE(object)->tp_name);
	}
	return -1;
}

int pyshm_buffers_init(struct pyshm_buffers *b, PyObject *objects)
{
	/* ours: what taking a buffer runs cannot change it */
	PyObject *tuple = PySequence_Tuple(objects);
	size_t n;

	*b = (struct pyshm_buffers){0};
	if (!tuple)
		return -1;
	n = (size_t)PyTuple_GET_SIZE(tuple);
	b->views = PyMem_Calloc(n ? n : 1, sizeof(*b->views));
	b->iov = PyMem_Calloc(n ? n : 1, sizeof(*b->iov));
	if (!b->views || !b->iov) {
		PyErr_NoMemory();
		goto out;
	}
	for (; b->n < n; b->n++) {
		Py_buffer *view = &b->views[b->n];

		if (take(PyTuple_GET_ITEM(tuple, (Py_ssize_t)b->n), b->n, view) < 0)
			goto out;
		b->iov[b->n] = (struct iovec){.iov_base = view->buf, .iov_len = (size_t)view->len};
	}
	Py_DECREF(tuple);
	return 0;
out:
	Py_DECREF(tuple);
	pyshm_buffers_deinit(b);
	return -1;
}

void pyshm_buffers_deinit(struct pyshm_buffers *b)
{
	for (size_t i = 0; i < b->n; i++)
		PyBuffer_Release(&b->views[i]);
	PyMem_Free(b->views);
	PyMem_Free(b->iov);
	*b = (struct pyshm_buffers){0};
}
