/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyarbloop.c: the arbiter for event loops (what completed), and its up-calls (make
 * room; the pressure has changed).
 *
 * Up-calls come only in the thread that serves them, while it does. So who is to be called is an
 * argument of that call, found by the thread: the store keeps no reference to Python code.
 */
#include "pyshm.h"

/* Fills in the grant: one reservation, or several, whose ids follow the first's. */
static void fill(PyObject *awaited, struct shmstore_arb_reservation granted, PyTypeObject *type)
{
	if (PyObject_TypeCheck(awaited, type)) {
		pyarb_fill_in((struct pyarb_reservation *)awaited, granted);
		return;
	}
	for (Py_ssize_t i = 0; PyTuple_Check(awaited) && i < PyTuple_GET_SIZE(awaited); i++) {
		struct pyarb_reservation *into =
			(struct pyarb_reservation *)PyTuple_GET_ITEM(awaited, i);

		if (PyObject_TypeCheck(into, type)) {
			granted.pool = into->r.pool;
			granted.bytes = into->r.bytes;
			pyarb_fill_in(into, granted);
		}
		granted.id++;
	}
}

/*
 * _arb_next(pending): what has completed: (address of its context, None or the exception); None:
 * nothing. pending: from addresses to the reservation, or the tuple of them, that is waited for:
 * what was granted is filled in there.
 */
PyObject *pyshm_store_arb_next(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	PyObject *pending, *address, *exception, *awaited;
	struct shmstore_arb_done done;
	int r;

	if (!PyArg_ParseTuple(args, "O!:_arb_next", &PyDict_Type, &pending) ||
	    !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_arb_next(self->s, &done));
	if (r < 0)
		return pyarb_raise(self, r, "hear the arbiter");
	if (r == 0)
		Py_RETURN_NONE;
	address = PyLong_FromVoidPtr(done.context);
	if (!address)
		return NULL;
	/* ints do not fail to be compared */
	awaited = Py_XNewRef(PyDict_GetItemWithError(pending, address));
	if (awaited && done.outcome == SHMSTORE_ARB_OK)
		fill(awaited, done.reservation, pyshm_state_of(Py_TYPE(op))->reservation_type);
	Py_XDECREF(awaited);
	exception = done.outcome ? pyarb_exception(self, done.outcome,
						   PyUnicode_FromString("wait for memory"))
				 : Py_NewRef(Py_None);
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
	result = PyObject_CallFunction(s->evict, "IKI", pool, (unsigned long long)bytes,
				       reservation);
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

const struct shmstore_arb_upcalls pyarb_upcalls = {.evict = on_evict, .pressure = on_pressure};

/* _arb_serve(ms, evict, pressure) -> number of up-calls. ms -1: until _arb_listen(False). */
PyObject *pyshm_store_arb_serve(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct serving s = {0}, *outer = serving;
	int ms, r;

	if (!PyArg_ParseTuple(args, "iOO:_arb_serve", &ms, &s.evict, &s.pressure) ||
	    !pyshm_store_enter(self))
		return NULL;
	serving = &s;
	PYSHM_STORE_CALL(self, r = shmstore_arb_serve(self->s, ms));
	serving = outer;
	if (s.failed) {
		pyshm_exception_put_back(s.raised);
		return NULL;
	}
	if (r < 0)
		return pyarb_raise(self, r, "serve the arbiter");
	return PyLong_FromLong(r);
}
