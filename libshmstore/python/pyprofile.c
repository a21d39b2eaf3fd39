/* SPDX-License-Identifier: Apache-2.0 */
/* pyprofile.c: see pyprofile.h. Each call asks the daemon, without the GIL. */
#include "pyprofile.h"

#include "pyarb.h"

PyObject *pyshm_store_profile_begin(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct shmstore_profile_kind kind;
	uint32_t task;
	int r;

	if (!PyArg_ParseTuple(args, "sss:_profile_begin", &kind.lang, &kind.func, &kind.group) ||
	    !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_profile_begin(self->s, &kind, &task));
	if (r)
		return pyshm_store_raise(self, r, "profile", PyTuple_GET_ITEM(args, 1));
	return PyLong_FromUnsignedLong(task);
}

PyObject *pyshm_store_profile_sample(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	unsigned long long bytes;
	unsigned task;
	int r;

	if (!PyArg_ParseTuple(args, "IO&:_profile_sample", &task, pyarb_bytes, &bytes) || !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_profile_sample(self->s, task, bytes));
	if (r)
		return pyshm_store_raise(self, r, "profile task", PyTuple_GET_ITEM(args, 0));
	Py_RETURN_NONE;
}

/* A number, or None for what is not known. */
static int amount(PyObject *number, void *ret)
{
	unsigned long long value = SHMSTORE_PROFILE_UNKNOWN;

	if (number != Py_None && !pyarb_bytes(number, &value))
		return 0;
	*(uint64_t *)ret = value;
	return 1;
}

PyObject *pyshm_store_profile_end(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct shmstore_profile_end end = SHMSTORE_PROFILE_END_INIT;
	unsigned task;
	int r;

	if (!PyArg_ParseTuple(args, "IIO&O&O&:_profile_end", &task, &end.how, amount, &end.private_bytes, amount,
			      &end.shared_bytes, amount, &end.cpu_ms) ||
	    !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_profile_end(self->s, task, &end));
	if (r)
		return pyshm_store_raise(self, r, "profile task", PyTuple_GET_ITEM(args, 0));
	Py_RETURN_NONE;
}

PyObject *pyshm_store_profile_estimate(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	unsigned long long private_bytes, shared_bytes, cpu_ms;
	struct shmstore_profile_use declared, use;
	struct shmstore_profile_kind kind;
	int r;

	if (!PyArg_ParseTuple(args, "sssO&O&O&:_profile_estimate", &kind.lang, &kind.func, &kind.group, pyarb_bytes,
			      &private_bytes, pyarb_bytes, &shared_bytes, pyarb_bytes, &cpu_ms) ||
	    !pyshm_store_enter(self))
		return NULL;
	declared = (struct shmstore_profile_use){private_bytes, shared_bytes, cpu_ms, 0};
	PYSHM_STORE_CALL(self, r = shmstore_profile_estimate(self->s, &kind, &declared, &use));
	if (r)
		return pyshm_store_raise(self, r, "estimate", PyTuple_GET_ITEM(args, 1));
	return Py_BuildValue("KKKK", (unsigned long long)use.private_bytes, (unsigned long long)use.shared_bytes,
			     (unsigned long long)use.cpu_ms, (unsigned long long)use.n);
}
