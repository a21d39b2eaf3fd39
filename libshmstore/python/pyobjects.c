/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyobjects.c: what a Store does with objects, one function per call of the library. Each parses with the GIL, enters the
 * store, calls without the GIL, leaves, and then makes the result or raises.
 */
#include <errno.h>

#include "pyshm.h"

/* How an object is to be put, as the keywords say. */
struct put_options {
	int replace, checksum, pin, evict;
};
#define PUT_OPTIONS_DEFAULT \
	{                   \
		0, 0, 0, 1  \
	}

static unsigned put_flags(const struct pyshm_store *s, const struct put_options *o)
{
	return (s->wait ? SHMSTORE_WAIT : 0) | (o->replace ? SHMSTORE_REPLACE : 0) |
	       (o->checksum ? SHMSTORE_CHECKSUM : 0) | (o->pin ? SHMSTORE_PIN : 0) | (o->evict ? 0 : SHMSTORE_NO_EVICT);
}

PyObject *pyshm_store_put_buffers(PyObject *op, PyObject *args, PyObject *kwargs)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	PyObject *key, *objects;
	struct pyshm_buffers buffers;
	struct put_options o = PUT_OPTIONS_DEFAULT;
	const void *key_data;
	Py_buffer header;
	size_t key_size;
	int r;

	if (!PyArg_ParseTupleAndKeywords(
		    args, kwargs, "Oy*O|pppp:put_buffers",
		    PYSHM_KEYWORDS("key", "header", "buffers", "replace", "checksum", "pin", "evict"), &key, &header,
		    &objects, &o.replace, &o.checksum, &o.pin, &o.evict))
		return NULL;
	if (pyshm_key_bytes(key, &key_data, &key_size) < 0 || pyshm_buffers_init(&buffers, objects) < 0) {
		PyBuffer_Release(&header);
		return NULL;
	}
	if (!pyshm_store_enter(self)) {
		pyshm_buffers_deinit(&buffers);
		PyBuffer_Release(&header);
		return NULL;
	}
	PYSHM_STORE_CALL(self, r = shmstore_put(self->s, key_data, key_size, header.buf, (size_t)header.len,
						buffers.iov, buffers.n, put_flags(self, &o)));
	pyshm_buffers_deinit(&buffers);
	PyBuffer_Release(&header);
	if (r)
		return pyshm_store_raise_object(self, r, "put", key);
	Py_RETURN_NONE;
}

PyObject *pyshm_store_view(PyObject *op, PyObject *args, PyObject *kwargs)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct shmstore_view *v = NULL;
	int cow = 0, verify = 0, r;
	const void *key_data;
	size_t key_size;
	PyObject *key;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|pp:view", PYSHM_KEYWORDS("key", "cow", "verify"), &key, &cow,
					 &verify))
		return NULL;
	if (pyshm_key_bytes(key, &key_data, &key_size) < 0 || !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_get(self->s, key_data, key_size,
						(cow ? SHMSTORE_COW : 0) | (verify ? SHMSTORE_VERIFY : 0), &v));
	if (r)
		return pyshm_store_raise_missing(self, r, "get", key);
	return pyshm_view_new(pyshm_state_of(Py_TYPE(op)), v, cow);
}

/* The sizes of a sequence of int. Return: an array to be freed with PyMem_Free(), NULL with an exception. */
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
		Py_ssize_t size = PyNumber_AsSsize_t(PyTuple_GET_ITEM(tuple, i), PyExc_OverflowError);

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
	struct shmstore_writer *w = NULL;
	PyObject *key, *sequence;
	struct put_options o = PUT_OPTIONS_DEFAULT;
	const void *key_data;
	size_t key_size, n_buffers;
	Py_ssize_t header_size;
	uint64_t *sizes;
	int r;

	if (!PyArg_ParseTupleAndKeywords(
		    args, kwargs, "OnO|pppp:create",
		    PYSHM_KEYWORDS("key", "header_size", "buffer_sizes", "replace", "checksum", "pin", "evict"), &key,
		    &header_size, &sequence, &o.replace, &o.checksum, &o.pin, &o.evict))
		return NULL;
	if (header_size < 0) {
		PyErr_SetString(PyExc_ValueError, "header_size is negative");
		return NULL;
	}
	if (pyshm_key_bytes(key, &key_data, &key_size) < 0)
		return NULL;
	sizes = sizes_new(sequence, &n_buffers);
	if (!sizes)
		return NULL;
	if (!pyshm_store_enter(self)) {
		PyMem_Free(sizes);
		return NULL;
	}
	PYSHM_STORE_CALL(self, r = shmstore_create(self->s, key_data, key_size, (size_t)header_size, sizes, n_buffers,
						   put_flags(self, &o), &w));
	PyMem_Free(sizes);
	if (r)
		return pyshm_store_raise_object(self, r, "create", key);
	return pyshm_writer_new(self, w, key, n_buffers);
}

bool pyshm_store_call(PyObject *op, PyObject *key, pyshm_key_call *call, int *ret_r)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	const void *key_data;
	size_t key_size;

	if (pyshm_key_bytes(key, &key_data, &key_size) < 0 || !pyshm_store_enter(self))
		return false;
	PYSHM_STORE_CALL(self, *ret_r = call(self->s, key_data, key_size));
	return true;
}

PyObject *pyshm_store_contains(PyObject *op, PyObject *key)
{
	int r;

	if (!pyshm_store_call(op, key, shmstore_contains, &r))
		return NULL;
	if (r < 0)
		return pyshm_store_raise((struct pyshm_store *)op, r, "look for", key);
	return PyBool_FromLong(r);
}

#define SLICE_MS 100u /* so long a signal waits for its handler at most */

/* _wait(key, generation, ms): whether the key, or another value of it, came. Handlers of signals run meanwhile. */
PyObject *pyshm_store_wait(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	unsigned long long generation, ms, slice;
	const void *key_data;
	PyObject *key;
	size_t key_size;
	int r = -ETIMEDOUT;

	if (!PyArg_ParseTuple(args, "OKK:_wait", &key, &generation, &ms) ||
	    pyshm_key_bytes(key, &key_data, &key_size) < 0)
		return NULL;
	do {
		slice = ms < SLICE_MS ? ms : SLICE_MS;
		if (!pyshm_store_enter(self))
			return NULL;
		PYSHM_STORE_CALL(self, r = shmstore_wait(self->s, key_data, key_size, generation, slice));
		if (PyErr_CheckSignals() < 0)
			return NULL;
		ms -= slice;
	} while (r == -ETIMEDOUT && ms);
	if (r < 0 && r != -ETIMEDOUT)
		return pyshm_store_raise(self, r, "wait for", key);
	return PyBool_FromLong(r == 0);
}

PyObject *pyshm_store_owner(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	int pid = 0, alive = 0, r;

	if (!pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_owner(self->s, &pid, &alive));
	if (r < 0)
		return pyshm_store_raise(self, r, "ask for the owner of", NULL);
	return Py_BuildValue("iO", pid,
			     alive == SHMSTORE_ALIVE  ? Py_True
			     : alive == SHMSTORE_DEAD ? Py_False
						      : Py_None);
}

PyObject *pyshm_store_delete(PyObject *op, PyObject *key)
{
	int r;

	if (!pyshm_store_call(op, key, shmstore_delete, &r))
		return NULL;
	if (r < 0)
		return pyshm_store_raise_missing((struct pyshm_store *)op, r, "delete", key);
	Py_RETURN_NONE;
}

PyObject *pyshm_store_handoff(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct shmstore_ticket ticket;
	unsigned long long lease_ms;
	const void *key_data;
	PyObject *key, *lease, *user;
	unsigned long uid = 0;
	size_t key_size;
	int as_is, r;

	/* user: an id, or None for a process of our own. */
	if (!PyArg_ParseTuple(args, "OO!Op:_handoff", &key, &PyLong_Type, &lease, &user, &as_is))
		return NULL;
	lease_ms = PyLong_AsUnsignedLongLong(lease);
	if (PyErr_Occurred())
		return NULL;
	if (user != Py_None) {
		uid = PyLong_AsUnsignedLong(user);
		if (PyErr_Occurred())
			return NULL;
		if (uid >= UINT32_MAX)
			return PyErr_Format(PyExc_OverflowError, "%lu is no user id", uid);
	}
	if (pyshm_key_bytes(key, &key_data, &key_size) < 0 || !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = user == Py_None ? shmstore_handoff_flags(self->s, key_data, key_size, lease_ms,
									    as_is ? SHMSTORE_AS_IS : 0, &ticket)
						   : shmstore_handoff_to(self->s, key_data, key_size, (uid_t)uid,
									 lease_ms, &ticket));
	if (r < 0)
		return pyshm_store_raise_missing(self, r, "hand off", key);
	return pyshm_ticket_tuple(&ticket);
}

PyObject *pyshm_store_adopt(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	unsigned long long header_size, buffer_size;
	struct shmstore_ticket ticket;
	PyObject *key, *path;
	const void *key_data;
	int replace, verify, r;
	size_t key_size;

	if (!PyArg_ParseTuple(args, "OOKKpp:_adopt", &key, &path, &header_size, &buffer_size, &replace, &verify))
		return NULL;
	if (pyshm_key_bytes(key, &key_data, &key_size) < 0 ||
	    pyshm_ticket_init(&ticket, path, header_size, buffer_size, pyshm_state_of(Py_TYPE(op))) < 0 ||
	    !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_adopt(self->s, key_data, key_size, &ticket,
						  (replace ? SHMSTORE_REPLACE : 0) | (verify ? SHMSTORE_VERIFY : 0)));
	if (r)
		return pyshm_store_raise_object(self, r, "adopt", key);
	Py_RETURN_NONE;
}
