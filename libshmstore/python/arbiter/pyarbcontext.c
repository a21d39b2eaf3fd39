/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyarbcontext.c: the type ArbContext, which waits: a context of its own, or the calling thread's,
 * so that each thread that uses it means itself. Its other calls are in calls.def.
 *
 * The library frees contexts with their store. So one is freed here only while the store is open;
 * after that, or in a forked child, the pointer is forgotten. A call counts itself into the store
 * (pyshm_store_enter), which therefore does not close under it.
 */
#include <sched.h>

#include "pyshm.h"

static bool enter(struct pyarb_context *self)
{
	if (self->own && self->busy) {
		PyErr_SetString(PyExc_RuntimeError, "the context is in a call of another thread; "
						    "give each thread or coroutine its own");
		return false;
	}
	if (!pyshm_store_enter(self->store))
		return false;
	if (self->own && !self->c) {
		pyshm_store_leave(self->store);
		PyErr_SetString(PyExc_ValueError,
				"the context is closed; make another one with arbiter.context()");
		return false;
	}
	self->busy = self->own;
	return true;
}

bool pyarb_context_enter(struct pyarb_context *self)
{
	bool entered;

	PYSHM_LOCKED(self, entered = enter(self));
	return entered;
}

static PyObject *context_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct pyshm_state *state = pyshm_state_of(type);
	struct pyarb_context *self;
	struct pyshm_store *store;
	int own = 1, r;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|p:ArbContext",
					 PYSHM_KEYWORDS("store", "own"), state->store_type, &store,
					 &own))
		return NULL;
	self = (struct pyarb_context *)type->tp_alloc(type, 0);
	if (!self)
		return NULL;
	self->store = (struct pyshm_store *)Py_NewRef(store);
	self->own = own;
	if (!own)
		return (PyObject *)self;
	if (!pyshm_store_enter(store)) {
		Py_DECREF(self);
		return NULL;
	}
	PYSHM_STORE_CALL(store, r = shmstore_arb_context_new(store->s, &self->c));
	if (r == 0)
		return (PyObject *)self;
	pyarb_raise(store, r, "make a context");
	Py_DECREF(self);
	return NULL;
}

/*
 * Frees the library's context, if it is there and the store is open. No exception is
 * set, and one that is set stays.
 * Return: false where a call of it is in progress.
 */
static bool give_up(struct pyarb_context *self)
{
	struct shmstore_arb_context *c = NULL;
	struct pyshm_exception saved;
	bool busy;

	PYSHM_LOCKED(
		self, busy = self->busy; if (!busy) {
			c = self->c;
			self->c = NULL;
		});
	if (!c)
		return !busy;
	Py_BEGIN_ALLOW_THREADS
	while (self->n_looks) /* for no longer than the daemon answers */
		sched_yield();
	Py_END_ALLOW_THREADS
	saved = pyshm_exception_take();
	if (pyshm_store_enter(self->store)) {
		PYSHM_STORE_CALL(self->store, shmstore_arb_context_free(c));
	} else {
		PyErr_Clear();
	}
	pyshm_exception_put_back(saved);
	return true;
}

/* Begins a call that another thread's may go beside; n_looks-- ends it.
 * NULL: the thread's, or closed. */
static struct shmstore_arb_context *look(struct pyarb_context *self)
{
	struct shmstore_arb_context *c;

	PYSHM_LOCKED(self, c = self->c; self->n_looks++);
	return c;
}

static void context_finalize(PyObject *op)
{
	give_up((struct pyarb_context *)op);
}

PyObject *pyarb_context_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	if (give_up((struct pyarb_context *)op))
		Py_RETURN_NONE;
	PyErr_SetString(PyExc_RuntimeError,
			"the context is in a call of another thread; cancel() ends it");
	return NULL;
}

PyObject *pyarb_context_cancel(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyarb_context *self = (struct pyarb_context *)op;
	struct shmstore_arb_context *c;
	bool entered;
	int r = 0;

	if (!self->own) {
		PyErr_SetString(PyExc_ValueError,
				"the calling thread does not wait while it calls this; wait with a "
				"context of its own to be cancelled");
		return NULL;
	}
	c = look(self);
	entered = c && pyshm_store_enter(self->store);
	if (entered)
		PYSHM_STORE_CALL(self->store, r = shmstore_arb_cancel(self->store->s, c));
	self->n_looks--;
	if (c && !entered)
		return NULL;
	if (r)
		return pyarb_raise(self->store, r, "cancel");
	Py_RETURN_NONE;
}

#define MANY_MAX 16

static PyObject *finish(struct pyarb_context *self, int r, const char *format,
			unsigned long long bytes)
{
	if (r != SHMSTORE_ARB_OK && r != SHMSTORE_ARB_PENDING)
		return pyarb_raise(self->store, r, format, bytes);
	return PyBool_FromLong(r == SHMSTORE_ARB_PENDING);
}

PyObject *pyarb_context_reserve_many(PyObject *op, PyObject *args)
{
	struct pyarb_context *self = (struct pyarb_context *)op;
	PyTypeObject *type = pyshm_state_of(Py_TYPE(op))->reservation_type;
	struct shmstore_arb_reservation r[MANY_MAX] = {{0}};
	struct shmstore_arb_how how = {0};
	PyObject *into;
	Py_ssize_t n;
	int result;

	/* into: a tuple of reservations that hold nothing yet and say pool and bytes. */
	if (!PyArg_ParseTuple(args, "O!IO&:_reserve_many", &PyTuple_Type, &into, &how.flags,
			      pyshm_u64, &how.timeout_ms))
		return NULL;
	n = PyTuple_GET_SIZE(into);
	if (n < 1 || n > MANY_MAX)
		return PyErr_Format(PyExc_ValueError, "reserve in 1 to %d pools at once, not %zd",
				    MANY_MAX, n);
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *item = PyTuple_GET_ITEM(into, i);

		if (!PyObject_TypeCheck(item, type))
			return PyErr_Format(PyExc_TypeError, "%.200R is no reservation", item);
		PYSHM_LOCKED(item, r[i] = ((struct pyarb_reservation *)item)->r);
	}
	if (!pyarb_context_enter(self))
		return NULL;
	how.context = self->c;
	PYARB_CONTEXT_CALL(self,
			   result = shmstore_arb_reserve_many(self->store->s, r, (size_t)n, &how));
	for (Py_ssize_t i = 0; result == SHMSTORE_ARB_OK && i < n; i++)
		pyarb_fill_in((struct pyarb_reservation *)PyTuple_GET_ITEM(into, i), r[i]);
	return finish(self, result, "reserve in several pools", 0);
}

PyObject *pyarb_context_resize(PyObject *op, PyObject *args)
{
	struct pyarb_context *self = (struct pyarb_context *)op;
	struct shmstore_arb_how how = {0};
	struct shmstore_arb_reservation changed;
	struct pyarb_reservation *of;
	uint64_t bytes;
	int r;

	if (!PyArg_ParseTuple(args, "O!O&IO&:_resize",
			      pyshm_state_of(Py_TYPE(op))->reservation_type, &of, pyshm_u64, &bytes,
			      &how.flags, pyshm_u64, &how.timeout_ms))
		return NULL;
	if (!of->held) {
		PyErr_SetString(PyExc_ValueError,
				"the reservation holds nothing any more; reserve anew");
		return NULL;
	}
	if (!pyarb_context_enter(self))
		return NULL;
	how.context = self->c;
	PYSHM_LOCKED(of, changed = of->r);
	PYARB_CONTEXT_CALL(self, r = shmstore_arb_resize(self->store->s, &changed, bytes, &how));
	if (r == SHMSTORE_ARB_OK)
		PYSHM_LOCKED(of, of->r = changed);
	return finish(self, r, "resize a reservation to %llu bytes", (unsigned long long)bytes);
}

/* Of a context that another thread may wait in: not counted as its call. */
PyObject *pyarb_context_state(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyarb_context *self = (struct pyarb_context *)op;
	struct shmstore_arb_info info = {.state = "UNKNOWN"};
	struct shmstore_arb_context *c = look(self);
	bool known = c || !self->own, entered = known && pyshm_store_enter(self->store);
	int r = 0;

	if (entered)
		PYSHM_STORE_CALL(self->store, r = shmstore_arb_state(self->store->s, c, &info));
	self->n_looks--;
	if (known && !entered)
		return NULL;
	if (r)
		return pyarb_raise(self->store, r, "look at a context");
	return pyshm_ContextState(&info);
}

static PyObject *context_id(PyObject *op, void *Py_UNUSED(closure))
{
	struct pyarb_context *self = (struct pyarb_context *)op;
	uint32_t id = 0;

	/* Only memory is read; 0 where it is the calling thread's, or gone. */
	if (self->c && pyshm_store_enter(self->store)) {
		id = shmstore_arb_context_id(self->c);
		pyshm_store_leave(self->store);
	}
	PyErr_Clear();
	return PyLong_FromUnsignedLong(id);
}

static PyObject *context_address(PyObject *op, void *Py_UNUSED(closure))
{
	return PyLong_FromVoidPtr(((struct pyarb_context *)op)->c);
}

PYSHM_LOCKED_METHOD(context_id, void *)

static PyGetSetDef context_getset[] = {
	{"id", context_id_locked, NULL,
	 "Its number, as operators see it; 0 where it is the calling thread's, or closed.", NULL},
	{"_address", context_address, NULL, NULL, NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static char context_doc[] =
	PyDoc_STR("ArbContext(store, own=True)\n--\n\n"
		  "A waiter for memory: a context of its own, or the calling thread's.");

static PyType_Slot context_slots[] = {
	{Py_tp_doc, context_doc},
	{Py_tp_new, context_new},
	{Py_tp_finalize, context_finalize},
	{Py_tp_dealloc, pyarb_dealloc},
	{Py_tp_methods, pyarb_context_methods},
	{Py_tp_getset, context_getset},
	{0, NULL},
};

PYSHM_TYPE(context, struct pyarb_context, "shmstore._shmstore.ArbContext", PYSHM_BASE);
