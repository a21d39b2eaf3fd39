/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyarb.h: the memory arbiter in the extension module, for the files pyarb*.c. shmstore.arbiter
 * puts tasks, contexts as context managers, retries and event loops on top.
 *
 * References: ArbContext -> Store, ArbReservation -> Store. A context that waits in a call is busy:
 * the library allows one call of a context at a time, so a second one raises.
 */
#ifndef PYARB_H
#define PYARB_H

#include "pyshm.h"

/* ---- pyerror.c ---- */

/*
 * The exception of an outcome (> 0) or of a -errno, not raised: "<operation> in store …: <why>".
 *   what   the operation, which it consumes; NULL: an exception is set
 * NULL with another exception set, where there is no memory for it.
 */
PyObject *pyarb_exception(struct pyshm_store *store, int r, PyObject *what);
/* Raises it, the operation being a format for PyUnicode_FromFormat(). Returns NULL. */
void *pyarb_raise(struct pyshm_store *store, int r, const char *format, ...);
void *pyarb_raise_va(struct pyshm_store *store, int r, const char *format, va_list ap);

/* ---- pyarbreservation.c ---- */

struct pyarb_reservation {
	PyObject ob_base;
	struct pyshm_store *store;
	struct shmstore_arb_reservation r;
	atomic_bool held; /* r is to be released */
	bool spent_from;  /* the library writes to r */
};
/* It holds that from now on. */
void pyarb_fill_in(struct pyarb_reservation *into, struct shmstore_arb_reservation granted);

/* ---- pystate.c ---- */

/* Of an object whose first member is its store, and whose finalizer gives back the rest. */
void pyarb_dealloc(PyObject *op);

/* ---- pyarbcontext.c ---- */

struct pyarb_context {
	PyObject ob_base;
	struct pyshm_store *store;
	struct shmstore_arb_context *c; /* NULL: the calling thread's, or closed */
	bool own;                       /* one of its own, not the calling thread's */
	atomic_bool busy;               /* own: a call is in the library */
	atomic_uint n_looks;            /* calls of cancel() and state() that use c */
};
/*
 * Around each call of a context. Return: true; false with an exception: the store is closed or
 * another process's, the context is closed, or another thread is in a call of it.
 */
bool pyarb_context_enter(struct pyarb_context *self);
/* Makes the call, of a context that was entered, without the GIL, and leaves the context. */
#define PYARB_CONTEXT_CALL(self, ...)                \
	PYSHM_STORE_CALL((self)->store, __VA_ARGS__) \
	(self)->busy = false
PyObject *pyarb_context_close(PyObject *op, PyObject *ignored);
PyObject *pyarb_context_cancel(PyObject *op, PyObject *ignored);
PyObject *pyarb_context_reserve_many(PyObject *op, PyObject *args);
PyObject *pyarb_context_resize(PyObject *op, PyObject *args);
PyObject *pyarb_context_state(PyObject *op, PyObject *ignored);
extern PyMethodDef pyarb_context_methods[]; /* pycalls.c */

/* ---- pyarbloop.c ---- */

extern const struct shmstore_arb_upcalls pyarb_upcalls;
PyObject *pyshm_store_arb_next(PyObject *op, PyObject *args);
PyObject *pyshm_store_arb_serve(PyObject *op, PyObject *args);

#endif
