/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyarb.h: the memory arbiter in the extension module, for the files pyarb*.c. shmstore.arbiter puts tasks, contexts as context
 * managers, retries and event loops on top.
 *
 * References: ArbContext -> Store, ArbReservation -> Store. A context that waits in a call is busy:
 * the library allows one call of a context at a time, so a second one raises.
 */
#ifndef PYARB_H
#define PYARB_H

#include <shmstore/arbiter.h>

#include "pyshm.h"

#define PYARB_OUTCOMES (SHMSTORE_ARB_ERROR + 1)

/* ---- pyarberror.c ---- */

/* Adds the outcomes' exceptions to the module. Return: 0, -1. */
int pyarb_error_exec(PyObject *module, struct pyshm_state *state);
/*
 * The exception of an outcome (> 0) or of a -errno, not raised: "<operation> in store …: <why>".
 *   what   NULL = nothing; else it is named after the operation
 * NULL with another exception set, where there is no memory for it.
 */
PyObject *pyarb_exception(struct pyshm_store *store, int r, const char *operation, PyObject *what);
/* Raises it. Returns NULL. */
void *pyarb_raise(struct pyshm_store *store, int r, const char *operation, PyObject *what);

/* ---- pyarb.c: calls about the whole store ---- */

/* Converter for PyArg_Parse*(): a size, OverflowError where it is none of 64 bits. ret: unsigned long long. */
int pyarb_bytes(PyObject *number, void *ret);
/* Seconds, or None, as the ms of a shmstore_arb_how: 0 = the daemon's longest. Return: 0, -1 with an exception. */
int pyarb_timeout(PyObject *seconds, uint64_t *ret_ms);

/* Of an object whose first member is its store, and whose finalizer gives back the rest. */
void pyarb_dealloc(PyObject *op);
PyObject *pyshm_store_arb_available(PyObject *op, PyObject *ignored);
PyObject *pyshm_store_arb_pool_create(PyObject *op, PyObject *args);
PyObject *pyshm_store_arb_pool_resize(PyObject *op, PyObject *args);
PyObject *pyshm_store_arb_pool_remove(PyObject *op, PyObject *args);
PyObject *pyshm_store_arb_pool_info(PyObject *op, PyObject *args);
PyObject *pyshm_store_arb_task_begin(PyObject *op, PyObject *args);
PyObject *pyshm_store_arb_task_end(PyObject *op, PyObject *args);
PyObject *pyshm_store_arb_stats(PyObject *op, PyObject *args);

/* ---- pyarbreservation.c ---- */

struct pyarb_reservation {
	PyObject ob_base;
	struct pyshm_store *store;
	struct shmstore_arb_reservation r;
	bool held;       /* r is to be released */
	bool spent_from; /* the library writes to r */
};
extern PyType_Spec pyarb_reservation_spec;

/* ---- pyarbcontext.c, pyarbwait.c ---- */

struct pyarb_context {
	PyObject ob_base;
	struct pyshm_store *store;
	struct shmstore_arb_context *c; /* NULL: the calling thread's, or closed */
	bool own;                       /* one of its own, not the calling thread's */
	bool busy;                      /* own: a call is in the library */
};
extern PyType_Spec pyarb_context_spec;
/*
 * Around each call of a context. Return: true; false with an exception: the store is closed or another process's, the context is
 * closed, or another thread is in a call of it.
 */
bool pyarb_context_enter(struct pyarb_context *self);
/* Without the GIL; then, with it, pyarb_context_free(). */
void pyarb_context_leave(struct pyarb_context *self);
/* Makes the call, of a context that was entered, without the GIL, and leaves the context. */
#define PYARB_CONTEXT_CALL(self, ...) \
	Py_BEGIN_ALLOW_THREADS        \
	__VA_ARGS__;                  \
	pyarb_context_leave(self);    \
	Py_END_ALLOW_THREADS
static inline void pyarb_context_done(struct pyarb_context *self)
{
	self->busy = false;
}

PyObject *pyarb_context_reserve(PyObject *op, PyObject *args);
PyObject *pyarb_context_reserve_many(PyObject *op, PyObject *args);
PyObject *pyarb_context_resize(PyObject *op, PyObject *args);
PyObject *pyarb_context_pin(PyObject *op, PyObject *args);
PyObject *pyarb_context_ready(PyObject *op, PyObject *args);

/* ---- pyarbloop.c ---- */

PyObject *pyshm_store_arb_fd(PyObject *op, PyObject *ignored);
PyObject *pyshm_store_arb_next(PyObject *op, PyObject *args);
PyObject *pyshm_store_arb_listen(PyObject *op, PyObject *args);
PyObject *pyshm_store_arb_serve(PyObject *op, PyObject *args);
PyObject *pyshm_store_arb_serve_fd(PyObject *op, PyObject *ignored);

#endif
