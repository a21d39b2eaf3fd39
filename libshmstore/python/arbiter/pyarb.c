/* SPDX-License-Identifier: Apache-2.0 */
/* pyarb.c: the arbiter's converters, and its objects as far as they are alike. */
#include "pyarb.h"

int pyarb_priority(PyObject *number, void *ret)
{
	int64_t *priority = ret;

	*priority = number == Py_None ? SHMSTORE_ARB_ARRIVAL : PyLong_AsLongLong(number);
	return !PyErr_Occurred();
}

int pyarb_tasks(PyObject *tuple, void *ret)
{
	struct pyarb_tasks *tasks = ret;

	if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) > PYARB_TASKS_MAX) {
		PyErr_Format(PyExc_ValueError,
			     "a context serves a tuple of at most %d tasks, not %.200R",
			     PYARB_TASKS_MAX, tuple);
		return 0;
	}
	tasks->n = (size_t)PyTuple_GET_SIZE(tuple);
	for (size_t i = 0; i < tasks->n; i++) {
		uint64_t task = 0;

		if (pyshm_u64(PyTuple_GET_ITEM(tuple, (Py_ssize_t)i), &task) && task > UINT32_MAX)
			PyErr_Format(PyExc_OverflowError, "%llu is no task",
				     (unsigned long long)task);
		if (PyErr_Occurred())
			return 0;
		tasks->ids[i] = (uint32_t)task;
	}
	return 1;
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
