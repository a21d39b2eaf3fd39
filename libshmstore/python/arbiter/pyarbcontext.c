/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyarbcontext.c: the type ArbContext, which waits: a context of its own, or the calling thread's,
 * so that each thread that uses it means itself. Calls that may take long are in pyarbwait.c.
 *
 * The library frees contexts with their store. So one is freed here only while the store is open; after that, or in a forked child, the
 * pointer is forgotten. A call counts itself into the store (pyshm_store_enter), which therefore does not close under it.
 */
#include "pyarb.h"

bool pyarb_context_enter(struct pyarb_context *self)
{
	if (self->own && self->busy) {
		PyErr_SetString(PyExc_RuntimeError,
				"the context is in a call of another thread; give each thread or coroutine its own");
		return false;
	}
	if (!pyshm_store_enter(self->store))
		return false;
	if (self->own && !self->c) {
		pyshm_store_leave(self->store);
		PyErr_SetString(PyExc_ValueError, "the context is closed; make another one with arbiter.context()");
		return false;
	}
	self->busy = self->own;
	return true;
}

void pyarb_context_leave(struct pyarb_context *self)
{
	pyshm_store_leave(self->store);
}

static PyObject *context_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct pyshm_state *state = pyshm_state_of(type);
	struct pyarb_context *self;
	struct pyshm_store *store;
	int own = 1, r;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|p:ArbContext", PYSHM_KEYWORDS("store", "own"),
					 state->store_type, &store, &own))
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
	pyarb_raise(store, r, "make a context", NULL);
	Py_DECREF(self);
	return NULL;
}

/* Frees the library's context, if it is there and the store is open. No exception is set, and one that is set stays. */
static void free_context(struct pyarb_context *self)
{
	struct shmstore_arb_context *c = self->c;
	struct pyshm_exception saved;

	if (!c)
		return;
	self->c = NULL;
	saved = pyshm_exception_take();
	if (pyshm_store_enter(self->store)) {
		PYSHM_STORE_CALL(self->store, shmstore_arb_context_free(c));
	} else {
		PyErr_Clear();
	}
	pyshm_exception_put_back(saved);
}

static void context_finalize(PyObject *op)
{
	free_context((struct pyarb_context *)op);
}

PyDoc_STRVAR(close_doc, "close($self, /)\n--\n\n"
			"Unbinds the context and gives it up. Not while a call of it is in progress. Idempotent.");

static PyObject *context_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyarb_context *self = (struct pyarb_context *)op;

	if (self->busy) {
		PyErr_SetString(PyExc_RuntimeError, "the context is in a call of another thread; cancel() ends it");
		return NULL;
	}
	free_context(self);
	Py_RETURN_NONE;
}

PyDoc_STRVAR(cancel_doc,
	     "cancel($self, /)\n--\n\n"
	     "Ends what the context waits for, with Canceled there. By any thread; nothing happens where it "
	     "does not wait.");

static PyObject *context_cancel(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyarb_context *self = (struct pyarb_context *)op;
	struct shmstore_arb_context *c = self->c;
	int r;

	if (!self->own) {
		PyErr_SetString(PyExc_ValueError, "the calling thread does not wait while it calls this; "
						  "wait with a context of its own to be cancelled");
		return NULL;
	}
	if (!c)
		Py_RETURN_NONE;
	if (!pyshm_store_enter(self->store))
		return NULL;
	PYSHM_STORE_CALL(self->store, r = shmstore_arb_cancel(self->store->s, c));
	if (r)
		return pyarb_raise(self->store, r, "cancel", NULL);
	Py_RETURN_NONE;
}

/* ---- short calls: one message, answered at once ---- */

static PyObject *finish(struct pyarb_context *self, int r, const char *operation, PyObject *what)
{
	pyarb_context_done(self);
	if (r)
		return pyarb_raise(self->store, r, operation, what);
	Py_RETURN_NONE;
}

static PyObject *context_bind(PyObject *op, PyObject *args)
{
	struct pyarb_context *self = (struct pyarb_context *)op;
	unsigned task;
	int r;

	if (!PyArg_ParseTuple(args, "I:_bind", &task) || !pyarb_context_enter(self))
		return NULL;
	PYARB_CONTEXT_CALL(self, r = shmstore_arb_bind(self->store->s, self->c, task));
	return finish(self, r, "bind a context to task", PyTuple_GET_ITEM(args, 0));
}

#define TASKS_MAX 64

/* The tasks of a tuple of int. Return: their number, -1 with an exception. */
static Py_ssize_t tasks_of(PyObject *tuple, uint32_t tasks[TASKS_MAX])
{
	Py_ssize_t n = PyTuple_GET_SIZE(tuple);

	if (n > TASKS_MAX) {
		PyErr_Format(PyExc_ValueError, "a context serves at most %d tasks, not %zd", TASKS_MAX, n);
		return -1;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		unsigned long task = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(tuple, i));

		if (!PyErr_Occurred() && task > UINT32_MAX)
			PyErr_Format(PyExc_OverflowError, "%lu is no task", task);
		if (PyErr_Occurred())
			return -1;
		tasks[i] = (uint32_t)task;
	}
	return n;
}

static PyObject *context_bind_helper(PyObject *op, PyObject *args)
{
	struct pyarb_context *self = (struct pyarb_context *)op;
	uint32_t tasks[TASKS_MAX];
	PyObject *tuple;
	Py_ssize_t n;
	int service, r;

	if (!PyArg_ParseTuple(args, "O!p:_bind_helper", &PyTuple_Type, &tuple, &service))
		return NULL;
	n = tasks_of(tuple, tasks);
	if (n < 0 || !pyarb_context_enter(self))
		return NULL;
	PYARB_CONTEXT_CALL(self, r = shmstore_arb_bind_helper(self->store->s, self->c, tasks, (size_t)n, service));
	return finish(self, r, "bind a helper to tasks", tuple);
}

static PyObject *context_unbind(PyObject *op, PyObject *args)
{
	struct pyarb_context *self = (struct pyarb_context *)op;
	uint32_t tasks[TASKS_MAX];
	PyObject *tuple;
	Py_ssize_t n;
	int r;

	if (!PyArg_ParseTuple(args, "O!:_unbind", &PyTuple_Type, &tuple))
		return NULL;
	n = tasks_of(tuple, tasks);
	if (n < 0 || !pyarb_context_enter(self))
		return NULL;
	PYARB_CONTEXT_CALL(self, r = shmstore_arb_unbind(self->store->s, self->c, tasks, (size_t)n));
	return finish(self, r, "unbind a context from tasks", tuple);
}

static PyObject *context_retry_begin(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyarb_context *self = (struct pyarb_context *)op;
	int r;

	if (!pyarb_context_enter(self))
		return NULL;
	PYARB_CONTEXT_CALL(self, r = shmstore_arb_retry_begin(self->store->s, self->c));
	return finish(self, r, "begin an attempt", NULL);
}

static PyObject *context_retry_end(PyObject *op, PyObject *args)
{
	struct pyarb_context *self = (struct pyarb_context *)op;
	int ok, r;

	if (!PyArg_ParseTuple(args, "p:_retry_end", &ok) || !pyarb_context_enter(self))
		return NULL;
	PYARB_CONTEXT_CALL(self, r = shmstore_arb_retry_end(self->store->s, self->c, ok));
	return finish(self, r, "end an attempt", NULL);
}

static PyObject *context_wait_begin(PyObject *op, PyObject *args)
{
	struct pyarb_context *self = (struct pyarb_context *)op;
	unsigned target;
	int kind, r;

	/* kind: enum shmstore_arb_wait */
	if (!PyArg_ParseTuple(args, "iI:_wait_begin", &kind, &target) || !pyarb_context_enter(self))
		return NULL;
	PYARB_CONTEXT_CALL(self,
			   r = shmstore_arb_wait_begin(self->store->s, self->c, (enum shmstore_arb_wait)kind, target));
	return finish(self, r, "mark a wait", NULL);
}

static PyObject *context_wait_end(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyarb_context *self = (struct pyarb_context *)op;
	int r;

	if (!pyarb_context_enter(self))
		return NULL;
	PYARB_CONTEXT_CALL(self, r = shmstore_arb_wait_end(self->store->s, self->c));
	return finish(self, r, "end a wait", NULL);
}

static PyObject *context_spill(PyObject *op, PyObject *args)
{
	struct pyarb_context *self = (struct pyarb_context *)op;
	int on, r;

	if (!PyArg_ParseTuple(args, "p:_spill", &on) || !pyarb_context_enter(self))
		return NULL;
	PYARB_CONTEXT_CALL(self, r = on ? shmstore_arb_spill_begin(self->store->s, self->c)
					: shmstore_arb_spill_end(self->store->s, self->c));
	return finish(self, r, "mark a spill", NULL);
}

/* _use(): from here on the calling thread's puts and creates are of this context; of the thread's own one: its own again. */
static PyObject *context_use(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyarb_context *self = (struct pyarb_context *)op;
	int r;

	if (!pyarb_context_enter(self))
		return NULL;
	PYARB_CONTEXT_CALL(self, r = shmstore_arb_use(self->store->s, self->c));
	return finish(self, r, "use a context", NULL);
}

static PyObject *context_inject(PyObject *op, PyObject *args)
{
	struct pyarb_context *self = (struct pyarb_context *)op;
	unsigned count, skip, pool;
	int kind, r;

	/* kind: enum shmstore_arb_injection. pool 0: any */
	if (!PyArg_ParseTuple(args, "iIII:_inject", &kind, &count, &skip, &pool) || !pyarb_context_enter(self))
		return NULL;
	PYARB_CONTEXT_CALL(self, r = shmstore_arb_inject(self->store->s, self->c, (enum shmstore_arb_injection)kind,
							 count, skip, pool));
	return finish(self, r, "inject", NULL);
}

/* Of a context that another thread may wait in: not counted as its call. */
static PyObject *context_state(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyarb_context *self = (struct pyarb_context *)op;
	struct shmstore_arb_context *c = self->c;
	struct shmstore_arb_info i;
	int r;

	if (self->own && !c)
		return Py_BuildValue("sdKK", "UNKNOWN", 0.0, 0ULL, 0ULL);
	if (!pyshm_store_enter(self->store))
		return NULL;
	PYSHM_STORE_CALL(self->store, r = shmstore_arb_state(self->store->s, c, &i));
	if (r)
		return pyarb_raise(self->store, r, "look at a context", NULL);
	return Py_BuildValue("sdKK", i.state, (double)i.since_ms / 1e3, (unsigned long long)i.held,
			     (unsigned long long)i.need);
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

static PyMethodDef context_methods[] = {
	{"close", context_close, METH_NOARGS, close_doc},
	{"cancel", context_cancel, METH_NOARGS, cancel_doc},
	{"_bind", context_bind, METH_VARARGS, NULL},
	{"_bind_helper", context_bind_helper, METH_VARARGS, NULL},
	{"_unbind", context_unbind, METH_VARARGS, NULL},
	{"_reserve", pyarb_context_reserve, METH_VARARGS, NULL},
	{"_reserve_many", pyarb_context_reserve_many, METH_VARARGS, NULL},
	{"_resize", pyarb_context_resize, METH_VARARGS, NULL},
	{"_pin", pyarb_context_pin, METH_VARARGS, NULL},
	{"_ready", pyarb_context_ready, METH_VARARGS, NULL},
	{"_retry_begin", context_retry_begin, METH_NOARGS, NULL},
	{"_retry_end", context_retry_end, METH_VARARGS, NULL},
	{"_wait_begin", context_wait_begin, METH_VARARGS, NULL},
	{"_wait_end", context_wait_end, METH_NOARGS, NULL},
	{"_spill", context_spill, METH_VARARGS, NULL},
	{"_use", context_use, METH_NOARGS, NULL},
	{"_inject", context_inject, METH_VARARGS, NULL},
	{"_state", context_state, METH_NOARGS, NULL},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef context_getset[] = {
	{"id", context_id, NULL, "Its number, as operators see it; 0 where it is the calling thread's, or closed.",
	 NULL},
	{"_address", context_address, NULL, NULL, NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static char context_doc[] = PyDoc_STR("ArbContext(store, own=True)\n--\n\n"
				      "What waits for memory: a context of its own, or the calling thread's.");

static PyType_Slot context_slots[] = {
	{Py_tp_doc, context_doc},
	{Py_tp_new, context_new},
	{Py_tp_finalize, context_finalize},
	{Py_tp_dealloc, pyarb_dealloc},
	{Py_tp_methods, context_methods},
	{Py_tp_getset, context_getset},
	{0, NULL},
};

PyType_Spec pyarb_context_spec = {
	.name = "shmstore._shmstore.ArbContext",
	.basicsize = sizeof(struct pyarb_context),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = context_slots,
};
