/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyobjects.c: what a Store does with Python's buffers or sequences beside it, or while it looks
 * at Python. Each parses with the GIL, enters the store, calls without the GIL, leaves, and then
 * makes the result or raises. Calls that need no more than that are in calls.def.
 */
#include <errno.h>
#include <stdlib.h>

#include "pyshm.h"

/*
 * ---- Python objects as the ranges of memory that shmstore_put() takes. Each is held through the
 * buffer protocol until the put is over, so that its memory stays where it is while the GIL is
 * released. C- and Fortran-ordered memory is taken as it lies.
 */

struct buffers {
	Py_buffer *views;
	struct iovec *iov;
	size_t n;
};
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

static void buffers_deinit(struct buffers *b)
{
	for (size_t i = 0; i < b->n; i++)
		PyBuffer_Release(&b->views[i]);
	PyMem_Free(b->views);
	PyMem_Free(b->iov);
	*b = (struct buffers){0};
}

/* Takes hold of every object of an iterable. Return: 0, -1 with an exception and nothing held. */
static int buffers_init(struct buffers *b, PyObject *objects)
{
	/* ours: what taking a buffer runs cannot change it */
	PyObject *tuple = PySequence_Tuple(objects);
	size_t n;

	*b = (struct buffers){0};
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
	buffers_deinit(b);
	return -1;
}

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
	struct buffers buffers;
	PyObject *object, *objects;
	struct pyshm_key key;
	Py_buffer header;
	int replace = 0, checksum = 0, pin = 0, evict = 1, r = 0;
	bool entered;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Oy*O|pppp:put_buffers", names, &object,
					 &header, &objects, &replace, &checksum, &pin, &evict))
		return NULL;
	if (!pyshm_key(object, &key) || buffers_init(&buffers, objects) < 0) {
		PyBuffer_Release(&header);
		return NULL;
	}
	entered = pyshm_store_enter(self);
	if (entered)
		PYSHM_STORE_CALL(self, r = shmstore_put(self->s, key.data, key.size, header.buf,
							(size_t)header.len, buffers.iov, buffers.n,
							pyshm_put_flags(self, replace, checksum,
									pin, evict)));
	buffers_deinit(&buffers);
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

/*
 * ---- tasks that ask the gate; shmstore.profiling puts a context manager around it.
 *
 * The wait may be long. Now and then it looks whether the store is being closed, or Ctrl-C was
 * pressed: then it ends. No handler of a signal runs within the library's call (pyenter.c): the
 * interrupt is put back, and taken after it.
 */

struct waiting {
	struct pyshm_store *store;
	PyThreadState *thread; /* as PyEval_SaveThread() */
	bool interrupted;
};

static int look(void *arg)
{
	struct waiting *w = arg;
	bool closing;

	pthread_mutex_lock(&w->store->lock);
	closing = w->store->closing;
	pthread_mutex_unlock(&w->store->lock);
	if (closing) /* whoever closes it may have the GIL */
		return 1;
	PyEval_RestoreThread(w->thread);
	w->interrupted = PyOS_InterruptOccurred() != 0;
	w->thread = PyEval_SaveThread();
	return w->interrupted;
}

/* How the call went, in *ret_r. False with an exception, of a signal's handler. */
static bool admit(struct pyshm_store *self, struct shmstore_task_ask *ask,
		  struct shmstore_task_grant *ret, int *ret_r)
{
	struct waiting w = {.store = self};

	ask->idle = look;
	ask->idle_arg = &w;
	w.thread = PyEval_SaveThread();
	*ret_r = shmstore_task_admit(self->s, ask, ret);
	pyshm_store_leave(self);
	PyEval_RestoreThread(w.thread);
	if (!w.interrupted)
		return true;
	PyErr_SetInterrupt();
	return PyErr_CheckSignals() == 0;
}

PyObject *pyshm_store_task_admit(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct shmstore_task_ask ask = SHMSTORE_TASK_ASK_INIT;
	struct shmstore_profile_kind kind;
	struct shmstore_task_grant grant;
	int r, retriable, worker;

	if (!PyArg_ParseTuple(args, "sssO&O&IpO&p:_task_admit", &kind.lang, &kind.func, &kind.group,
			      pyshm_u64, &ask.declared, pyshm_u64_or_none, &ask.wait_ms, &ask.level,
			      &retriable, pyshm_u64, &ask.parent, &worker) ||
	    !pyshm_store_enter(self))
		return NULL;
	ask.kind = *kind.func ? &kind : NULL;
	ask.flags = (retriable ? SHMSTORE_TASK_RETRIABLE : 0) | (worker ? SHMSTORE_TASK_WORKER : 0);
	if (!admit(self, &ask, &grant, &r))
		return NULL;
	if (r == -ECANCELED && self->closing)
		return pyshm_raise_closed(pyshm_state_of(Py_TYPE(self)), "store", self->name,
					  "Partition.open()");
	if (r < 0)
		return pyshm_store_raise(self, r, "begin task '%s'", kind.func);
	return Py_BuildValue("iKKKI", r, (unsigned long long)grant.task,
			     (unsigned long long)grant.reserve, (unsigned long long)grant.waited_ms,
			     (unsigned)grant.reason);
}
