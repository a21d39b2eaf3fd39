/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyarbwait.c: the calls of a context that may wait, minutes perhaps: without the GIL. With SHMSTORE_ARB_ASYNC they return True instead of
 * waiting, and _arb_next() of the store gives their outcome. A reservation is an object before it is asked for, and filled in: what was granted is
 * never without an owner, whatever exception comes.
 */
#include "pyarb.h"

static PyObject *finish(struct pyarb_context *self, int r, const char *operation)
{
	pyarb_context_done(self);
	if (r != SHMSTORE_ARB_OK && r != SHMSTORE_ARB_PENDING)
		return pyarb_raise(self->store, r, operation, NULL);
	return PyBool_FromLong(r == SHMSTORE_ARB_PENDING);
}

static PyObject *finish_sized(struct pyarb_context *self, int r, const char *verb, unsigned long long bytes)
{
	char operation[80];

	snprintf(operation, sizeof(operation), "%s %llu bytes", verb, bytes);
	return finish(self, r, operation);
}

PyObject *pyarb_context_reserve(PyObject *op, PyObject *args)
{
	struct pyarb_context *self = (struct pyarb_context *)op;
	struct shmstore_arb_how how = {.context = self->c};
	struct shmstore_arb_reservation got;
	struct pyarb_reservation *into;
	unsigned long long bytes;
	PyObject *seconds;
	unsigned pool;
	int r;

	if (!PyArg_ParseTuple(args, "O!IO&IO:_reserve", pyshm_state_of(Py_TYPE(op))->reservation_type, &into, &pool,
			      pyarb_bytes, &bytes, &how.flags, &seconds) ||
	    pyarb_timeout(seconds, &how.timeout_ms) < 0 || !pyarb_context_enter(self))
		return NULL;
	PYARB_CONTEXT_CALL(self, r = shmstore_arb_reserve(self->store->s, pool, bytes, &how, &got));
	if (r == SHMSTORE_ARB_OK) {
		into->r = got;
		into->held = true;
	}
	return finish_sized(self, r, "reserve", bytes);
}

#define MANY_MAX 16

PyObject *pyarb_context_reserve_many(PyObject *op, PyObject *args)
{
	struct pyarb_context *self = (struct pyarb_context *)op;
	PyTypeObject *type = pyshm_state_of(Py_TYPE(op))->reservation_type;
	struct shmstore_arb_reservation r[MANY_MAX] = {{0}};
	struct shmstore_arb_how how = {.context = self->c};
	PyObject *into, *seconds;
	Py_ssize_t n;
	int result;

	/* into: a tuple of reservations that hold nothing yet and say pool and bytes. */
	if (!PyArg_ParseTuple(args, "O!IO:_reserve_many", &PyTuple_Type, &into, &how.flags, &seconds) ||
	    pyarb_timeout(seconds, &how.timeout_ms) < 0)
		return NULL;
	n = PyTuple_GET_SIZE(into);
	if (n < 1 || n > MANY_MAX)
		return PyErr_Format(PyExc_ValueError, "reserve in 1 to %d pools at once, not %zd", MANY_MAX, n);
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *item = PyTuple_GET_ITEM(into, i);

		if (!PyObject_TypeCheck(item, type))
			return PyErr_Format(PyExc_TypeError, "%.200R is no reservation", item);
		r[i] = ((struct pyarb_reservation *)item)->r;
	}
	if (!pyarb_context_enter(self))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	result = shmstore_arb_reserve_many(self->store->s, r, (size_t)n, &how);
	pyarb_context_leave(self);
	Py_END_ALLOW_THREADS
	for (Py_ssize_t i = 0; result == SHMSTORE_ARB_OK && i < n; i++) {
		struct pyarb_reservation *item = (struct pyarb_reservation *)PyTuple_GET_ITEM(into, i);

		item->r = r[i];
		item->held = true;
	}
	return finish(self, result, "reserve in several pools");
}

PyObject *pyarb_context_resize(PyObject *op, PyObject *args)
{
	struct pyarb_context *self = (struct pyarb_context *)op;
	struct shmstore_arb_how how = {.context = self->c};
	struct shmstore_arb_reservation changed;
	struct pyarb_reservation *of;
	unsigned long long bytes;
	PyObject *seconds;
	int r;

	if (!PyArg_ParseTuple(args, "O!O&IO:_resize", pyshm_state_of(Py_TYPE(op))->reservation_type, &of, pyarb_bytes,
			      &bytes, &how.flags, &seconds) ||
	    pyarb_timeout(seconds, &how.timeout_ms) < 0)
		return NULL;
	if (!of->held) {
		PyErr_SetString(PyExc_ValueError, "the reservation holds nothing any more; reserve anew");
		return NULL;
	}
	if (!pyarb_context_enter(self))
		return NULL;
	changed = of->r;
	PYARB_CONTEXT_CALL(self, r = shmstore_arb_resize(self->store->s, &changed, bytes, &how));
	if (r == SHMSTORE_ARB_OK)
		of->r = changed;
	return finish_sized(self, r, "resize a reservation to", bytes);
}

PyObject *pyarb_context_pin(PyObject *op, PyObject *args)
{
	struct pyarb_context *self = (struct pyarb_context *)op;
	struct shmstore_arb_how how = {.context = self->c};
	struct pyarb_reservation *of;
	PyObject *seconds;
	int r;

	if (!PyArg_ParseTuple(args, "O!IO:_pin", pyshm_state_of(Py_TYPE(op))->reservation_type, &of, &how.flags,
			      &seconds) ||
	    pyarb_timeout(seconds, &how.timeout_ms) < 0 || !pyarb_context_enter(self))
		return NULL;
	PYARB_CONTEXT_CALL(self, r = shmstore_arb_pin(self->store->s, &of->r, &how));
	return finish(self, r, "pin a reservation");
}

PyObject *pyarb_context_ready(PyObject *op, PyObject *args)
{
	struct pyarb_context *self = (struct pyarb_context *)op;
	struct shmstore_arb_how how = {.context = self->c};
	PyObject *seconds;
	int r;

	if (!PyArg_ParseTuple(args, "IO:_ready", &how.flags, &seconds) || pyarb_timeout(seconds, &how.timeout_ms) < 0 ||
	    !pyarb_context_enter(self))
		return NULL;
	PYARB_CONTEXT_CALL(self, r = shmstore_arb_ready(self->store->s, &how));
	return finish(self, r, "wait until the attempt may begin again");
}
