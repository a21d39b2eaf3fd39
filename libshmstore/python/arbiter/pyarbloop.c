/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyarbloop.c: the arbiter for event loops (what completed), and its up-calls (make room; the pressure has changed).
 *
 * Up-calls come only in the thread that serves them, while it does. So who is to be called is an argument of that call, found by the
 * thread: the store keeps no reference to Python code.
 */
#include "pyarb.h"

PyObject *pyshm_store_arb_fd(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	int r;

	if (!pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_arb_fd(self->s));
	if (r < 0)
		return pyarb_raise(self, r, "find the arbiter's descriptor", NULL);
	return PyLong_FromLong(r);
}

/* Fills in the grant: one reservation, or several, whose ids follow the first's. */
static void fill(PyObject *awaited, const struct shmstore_arb_reservation *granted, PyTypeObject *type)
{
	if (PyObject_TypeCheck(awaited, type)) {
		((struct pyarb_reservation *)awaited)->r = *granted;
		((struct pyarb_reservation *)awaited)->held = true;
		return;
	}
	for (Py_ssize_t i = 0; PyTuple_Check(awaited) && i < PyTuple_GET_SIZE(awaited); i++) {
		struct pyarb_reservation *into = (struct pyarb_reservation *)PyTuple_GET_ITEM(awaited, i);
		struct shmstore_arb_reservation r = *granted;

		if (!PyObject_TypeCheck(into, type))
			continue;
		r.pool = into->r.pool;
		r.bytes = into->r.bytes;
		r.id += (uint32_t)i;
		into->r = r;
		into->held = true;
	}
}

/*
 * _arb_next(pending): what has completed: (address of its context, None or the exception); None: nothing. pending: from addresses to the
 * reservation, or the tuple of them, that is waited for: what was granted is filled in there.
 */
PyObject *pyshm_store_arb_next(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	PyObject *pending, *address, *exception, *awaited;
	struct shmstore_arb_done done;
	int r;

	if (!PyArg_ParseTuple(args, "O!:_arb_next", &PyDict_Type, &pending) || !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_arb_next(self->s, &done));
	if (r < 0)
		return pyarb_raise(self, r, "hear the arbiter", NULL);
	if (r == 0)
		Py_RETURN_NONE;
	address = PyLong_FromVoidPtr(done.context);
	if (!address)
		return NULL;
	awaited = PyDict_GetItemWithError(pending, address); /* borrowed; ints do not fail to be compared */
	if (awaited && done.outcome == SHMSTORE_ARB_OK)
		fill(awaited, &done.reservation, pyshm_state_of(Py_TYPE(op))->reservation_type);
	exception = done.outcome ? pyarb_exception(self, done.outcome, "wait for memory", NULL) : Py_NewRef(Py_None);
	if (!exception) {
		Py_DECREF(address);
		return NULL;
	}
	return Py_BuildValue("NN", address, exception);
}

/* ---- up-calls ---- */

struct serving {
	PyObject *evict, *pressure; /* None: not wanted */
	struct pyshm_exception raised;
	bool failed;
};
static _Thread_local struct serving *serving;

static void keep_exception(struct serving *s)
{
	struct pyshm_exception e = pyshm_exception_take();

	if (s->failed) { /* the first one counts */
		pyshm_exception_put_back(e);
		PyErr_Clear();
		return;
	}
	s->raised = e;
	s->failed = true;
}

static uint64_t on_evict(void *ctx, uint32_t pool, uint64_t bytes, uint32_t reservation)
{
	struct serving *s = serving;
	PyGILState_STATE gil;
	unsigned long long made = 0;
	PyObject *result;

	(void)ctx;
	if (!s || s->evict == Py_None)
		return 0;
	gil = PyGILState_Ensure();
	result = PyObject_CallFunction(s->evict, "IKI", pool, (unsigned long long)bytes, reservation);
	if (result && result != Py_None)
		made = PyLong_AsUnsignedLongLong(result);
	if (PyErr_Occurred()) {
		keep_exception(s);
		made = 0;
	}
	Py_XDECREF(result);
	PyGILState_Release(gil);
	return made;
}

static void on_pressure(void *ctx, uint32_t pool, uint32_t level)
{
	struct serving *s = serving;
	PyGILState_STATE gil;
	PyObject *result;

	(void)ctx;
	if (!s || s->pressure == Py_None)
		return;
	gil = PyGILState_Ensure();
	result = PyObject_CallFunction(s->pressure, "II", pool, level);
	if (!result)
		keep_exception(s);
	Py_XDECREF(result);
	PyGILState_Release(gil);
}

static const struct shmstore_arb_upcalls upcalls = {.evict = on_evict, .pressure = on_pressure};

/* _arb_listen(on): opens the channel for up-calls, or closes it, which ends every _arb_serve(). */
PyObject *pyshm_store_arb_listen(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	int on, r;

	if (!PyArg_ParseTuple(args, "p:_arb_listen", &on) || !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_arb_set_upcalls(self->s, on ? &upcalls : NULL));
	if (r)
		return pyarb_raise(self, r, "open the channel for up-calls", NULL);
	Py_RETURN_NONE;
}

/* _arb_serve(ms, evict, pressure) -> number of up-calls. ms -1: until _arb_listen(False). */
PyObject *pyshm_store_arb_serve(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct serving s = {0}, *outer = serving;
	int ms, r;

	if (!PyArg_ParseTuple(args, "iOO:_arb_serve", &ms, &s.evict, &s.pressure) || !pyshm_store_enter(self))
		return NULL;
	serving = &s;
	PYSHM_STORE_CALL(self, r = shmstore_arb_serve(self->s, ms));
	serving = outer;
	if (s.failed) {
		pyshm_exception_put_back(s.raised);
		return NULL;
	}
	if (r < 0)
		return pyarb_raise(self, r, "serve the arbiter", NULL);
	return PyLong_FromLong(r);
}

PyObject *pyshm_store_arb_serve_fd(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	int r;

	if (!pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_arb_serve_fd(self->s));
	if (r < 0)
		return pyarb_raise(self, r, "find the descriptor of up-calls", NULL);
	return PyLong_FromLong(r);
}
