/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyobjects.c: what a Store does with objects and Python's buffers or sequences beside it.
 * Each parses with the GIL, enters the store, calls without the GIL, leaves, and then makes the
 * result or raises. Calls that need no more than that are in calls.def.
 */
#include <errno.h>
#include <stdlib.h>

#include "pyshm.h"

unsigned pyshm_put_flags(const struct pyshm_store *s, int replace, int checksum, int pin, int evict)
{
	return (s->wait ? SHMSTORE_WAIT : 0) | (replace ? SHMSTORE_REPLACE : 0) |
	       (checksum ? SHMSTORE_CHECKSUM : 0) | (pin ? SHMSTORE_PIN : 0) |
	       (evict ? 0 : SHMSTORE_NO_EVICT);
}

PyObject *pyshm_store_put_buffers(PyObject *op, PyObject *args, PyObject *kwargs)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	char **names =
		PYSHM_KEYWORDS("key", "header", "buffers", "replace", "checksum", "pin", "evict");
	struct pyshm_buffers buffers;
	PyObject *object, *objects;
	struct pyshm_key key;
	Py_buffer header;
	int replace = 0, checksum = 0, pin = 0, evict = 1, r = 0;
	bool entered;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Oy*O|pppp:put_buffers", names, &object,
					 &header, &objects, &replace, &checksum, &pin, &evict))
		return NULL;
	if (!pyshm_key(object, &key) || pyshm_buffers_init(&buffers, objects) < 0) {
		PyBuffer_Release(&header);
		return NULL;
	}
	entered = pyshm_store_enter(self);
	if (entered)
		PYSHM_STORE_CALL(self, r = shmstore_put(self->s, key.data, key.size, header.buf,
							(size_t)header.len, buffers.iov, buffers.n,
							pyshm_put_flags(self, replace, checksum,
									pin, evict)));
	pyshm_buffers_deinit(&buffers);
	PyBuffer_Release(&header);
	if (!entered)
		return NULL;
	if (r)
		return pyshm_store_raise(self, r, "put %.200R", key.object);
	Py_RETURN_NONE;
}

int pyshm_prefetch(struct shmstore *s, const char *keys, const uint64_t *sizes, size_t n,
		   unsigned n_threads, unsigned flags, int **ret)
{
	struct iovec *iov = calloc(n + 1, sizeof(*iov));
	int r = -ENOMEM;

	*ret = calloc(n + 1, sizeof(**ret));
	for (size_t i = 0; iov && i < n; i++) {
		iov[i] = (struct iovec){pyshm_no_const(keys), sizes[i]};
		keys += sizes[i];
	}
	if (iov && *ret)
		r = shmstore_prefetch(s, iov, n, n_threads, flags, *ret);
	free(iov);
	return r;
}

PyObject *pyshm_numbers(int *numbers, size_t n)
{
	PyObject *bytes =
		PyBytes_FromStringAndSize((void *)numbers, (Py_ssize_t)(n * sizeof(*numbers)));

	free(numbers);
	return bytes;
}
