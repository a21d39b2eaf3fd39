/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyarb.c: the arbiter as far as it concerns a whole store: is there one, pools, tasks, statistics. Each call sends a message and
 * waits for the daemon's answer, which comes at once; it runs without the GIL all the same.
 */
#include "pyarb.h"

#define YEAR (366.0 * 86400) /* seconds */

int pyarb_bytes(PyObject *number, void *ret)
{
	unsigned long long bytes = PyLong_AsUnsignedLongLong(number);

	if (PyErr_Occurred())
		return 0;
	*(unsigned long long *)ret = bytes;
	return 1;
}

int pyarb_timeout(PyObject *seconds, uint64_t *ret_ms)
{
	double s;

	*ret_ms = 0;
	if (seconds == Py_None)
		return 0;
	s = PyFloat_AsDouble(seconds);
	if (s == -1 && PyErr_Occurred())
		return -1;
	/* A year is for ever; NaN is neither. */
	if (!(s > 0)) {
		PyErr_SetString(PyExc_ValueError, "timeout must be more than 0 seconds, or None");
		return -1;
	}
	s = s < YEAR ? s : YEAR;
	*ret_ms = (uint64_t)(s * 1000);
	*ret_ms += (double)*ret_ms < s * 1000; /* upwards: 0 would be the default */
	return 0;
}

void pyarb_dealloc(PyObject *op)
{
	PyTypeObject *type = Py_TYPE(op);

	if (PyObject_CallFinalizerFromDealloc(op) < 0)
		return;
	Py_CLEAR(((struct pyarb_context *)op)->store);
	type->tp_free(op);
	Py_DECREF(type);
}

PyObject *pyshm_store_arb_available(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	int r;

	if (!pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_arb_available(self->s));
	return PyBool_FromLong(r == 0);
}

/* ---- pools ---- */

PyObject *pyshm_store_arb_pool_create(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	unsigned long long capacity, spill_reserve;
	const char *name;
	uint32_t pool;
	int r;

	if (!PyArg_ParseTuple(args, "sO&O&:_arb_pool_create", &name, pyarb_bytes, &capacity, pyarb_bytes,
			      &spill_reserve) ||
	    !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_arb_pool_create(self->s, name, capacity, spill_reserve, &pool));
	if (r)
		return pyarb_raise(self, r, "make a pool", PyTuple_GET_ITEM(args, 0));
	return PyLong_FromUnsignedLong(pool);
}

PyObject *pyshm_store_arb_pool_resize(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	unsigned long long capacity;
	unsigned pool;
	int r;

	if (!PyArg_ParseTuple(args, "IO&:_arb_pool_resize", &pool, pyarb_bytes, &capacity) || !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_arb_pool_resize(self->s, pool, capacity));
	if (r)
		return pyarb_raise(self, r, "resize pool", PyTuple_GET_ITEM(args, 0));
	Py_RETURN_NONE;
}

PyObject *pyshm_store_arb_pool_remove(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	unsigned pool;
	int r;

	if (!PyArg_ParseTuple(args, "I:_arb_pool_remove", &pool) || !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_arb_pool_remove(self->s, pool));
	if (r)
		return pyarb_raise(self, r, "remove pool", PyTuple_GET_ITEM(args, 0));
	Py_RETURN_NONE;
}

PyObject *pyshm_store_arb_pool_info(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct shmstore_arb_pool_info i;
	unsigned pool;
	int r;

	if (!PyArg_ParseTuple(args, "I:_arb_pool_info", &pool) || !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_arb_pool_info(self->s, pool, &i));
	if (r)
		return pyarb_raise(self, r, "look at pool", PyTuple_GET_ITEM(args, 0));
	return Py_BuildValue("KKKKKII", (unsigned long long)i.capacity, (unsigned long long)i.used,
			     (unsigned long long)i.reclaimable, (unsigned long long)i.spilled,
			     (unsigned long long)i.max_used, i.n_waiting, i.level);
}

/* ---- tasks ---- */

PyObject *pyshm_store_arb_task_begin(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct shmstore_arb_task_options o = SHMSTORE_ARB_TASK_OPTIONS_INIT;
	PyObject *priority;
	uint32_t task;
	int r;

	/* priority None: by arrival. inherit 0: from none. */
	if (!PyArg_ParseTuple(args, "OzI:_arb_task_begin", &priority, &o.label, &o.inherit))
		return NULL;
	if (priority != Py_None) {
		o.priority = PyLong_AsLongLong(priority);
		if (PyErr_Occurred())
			return NULL;
	}
	if (!pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_arb_task_begin(self->s, &o, &task));
	if (r)
		return pyarb_raise(self, r, "begin a task", NULL);
	return PyLong_FromUnsignedLong(task);
}

PyObject *pyshm_store_arb_task_end(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	unsigned task;
	int r;

	if (!PyArg_ParseTuple(args, "I:_arb_task_end", &task) || !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_arb_task_end(self->s, task));
	if (r)
		return pyarb_raise(self, r, "end task", PyTuple_GET_ITEM(args, 0));
	Py_RETURN_NONE;
}

PyObject *pyshm_store_arb_stats(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct shmstore_arb_stats s;
	unsigned task, pool;
	int reset, r;

	if (!PyArg_ParseTuple(args, "IIp:_arb_stats", &task, &pool, &reset) || !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_arb_stats(self->s, task, pool, reset, &s));
	if (r)
		return pyarb_raise(self, r, "read the statistics of task", PyTuple_GET_ITEM(args, 0));
	return Py_BuildValue("KKKdddKKKK", (unsigned long long)s.n_retries, (unsigned long long)s.n_splits,
			     (unsigned long long)s.n_grants, (double)s.blocked_ns / 1e9, (double)s.lost_ns / 1e9,
			     (double)s.blocked_or_lost_ns / 1e9, (unsigned long long)s.current,
			     (unsigned long long)s.max, (unsigned long long)s.footprint, (unsigned long long)s.need);
}
