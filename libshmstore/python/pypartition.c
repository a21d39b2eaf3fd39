/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pypartition.c: the type Partition: a reference to an open partition until
 * it is closed or the object goes. Each call holds one of its own meanwhile, so does each store:
 * close() waits for nobody and takes nothing from them. Its other calls are in calls.def.
 */
#include <errno.h>

#include "pyshm.h"

static PyObject *partition_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	char **names = PYSHM_KEYWORDS("path", "create", "allow_disk", "shared");
	struct pyshm_path path = {.text = NULL};
	int create = 0, allow_disk = 0, shared = 0, r;
	struct pyshm_partition *self = NULL;
	struct shmstore_partition *p = NULL;
	unsigned flags;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O&ppp:Partition", names, pyshm_path, &path,
					 &create, &allow_disk, &shared))
		return NULL;
	flags = (create ? SHMSTORE_CREATE : 0) | (allow_disk ? SHMSTORE_ALLOW_DISK : 0) |
		(shared ? SHMSTORE_SHARED : 0);
	Py_BEGIN_ALLOW_THREADS
	r = shmstore_partition_open(path.text, flags, &p);
	Py_END_ALLOW_THREADS
	if (r < 0)
		return path.text ? pyshm_raise(pyshm_state_of(type), r, NULL, "open partition '%s'",
					       path.text)
				 : pyshm_raise(pyshm_state_of(type), r, NULL, "open partition");
	self = (struct pyshm_partition *)type->tp_alloc(type, 0);
	if (self) {
		self->p = p;
		self->path = PyUnicode_DecodeFSDefault(shmstore_partition_path(p));
		if (!self->path)
			Py_CLEAR(self);
	} else {
		shmstore_partition_unref(p);
	}
	return (PyObject *)self;
}

static void partition_dealloc(PyObject *op)
{
	struct pyshm_partition *self = (struct pyshm_partition *)op;
	PyTypeObject *type = Py_TYPE(op);

	self->p = shmstore_partition_unref(self->p);
	Py_CLEAR(self->path);
	type->tp_free(op);
	Py_DECREF(type);
}

PyObject *pyshm_partition_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyshm_partition *self = (struct pyshm_partition *)op;
	struct shmstore_partition *p;

	PYSHM_LOCKED(self, p = self->p; self->p = NULL);
	Py_BEGIN_ALLOW_THREADS
	shmstore_partition_unref(p);
	Py_END_ALLOW_THREADS
	Py_RETURN_NONE;
}

static PyObject *partition_closed(PyObject *op, void *Py_UNUSED(closure))
{
	return PyBool_FromLong(!((struct pyshm_partition *)op)->p);
}

static PyObject *report_tuple(const struct shmstore_evict_report *report, bool done)
{
	return pyshm_EvictReport(&(struct pyshm_evicted){done, *report});
}

/* State of an eviction's callback; its exception is put aside until the call is back. */
struct progress {
	PyObject *callback;
	struct pyshm_exception raised;
	bool failed;
};

static int on_progress(const struct shmstore_evict_report *report, void *arg)
{
	PyGILState_STATE gil = PyGILState_Ensure();
	struct progress *progress = arg;
	PyObject *result = NULL, *tuple = report_tuple(report, false);
	int stop = -1;

	if (tuple)
		result = PyObject_CallOneArg(progress->callback, tuple);
	if (result)
		stop = PyObject_IsTrue(result);
	if (stop < 0) {
		progress->raised = pyshm_exception_take();
		progress->failed = true;
	}
	Py_XDECREF(result);
	Py_XDECREF(tuple);
	PyGILState_Release(gil);
	return stop;
}

PyObject *pyshm_partition_evict(PyObject *op, PyObject *args)
{
	struct pyshm_partition *self = (struct pyshm_partition *)op;
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	struct shmstore_evict_report report = {.size = sizeof(report)};
	struct progress progress = {0};
	int watermarks, background, wait, told, r;
	struct shmstore_partition *p;
	PyObject *done, *tuple;
	uid_t uid;

	/* done: a list, which gets the report also where this raises */
	if (!PyArg_ParseTuple(args, "O&O&pIppOO&O!:_evict", pyshm_u64, &what.bytes, pyshm_u64,
			      &what.to, &watermarks, &what.n_threads, &background, &wait,
			      &progress.callback, pyshm_uid, &uid, &PyList_Type, &done))
		return NULL;
	what.watermarks = watermarks;
	what.background = background;
	what.wait = wait;
	if (uid != UINT32_MAX)
		what.uid = uid;
	if (progress.callback != Py_None) {
		what.progress = on_progress;
		what.arg = &progress;
	}
	p = pyshm_partition_enter(self);
	if (!p)
		return NULL;
	PYSHM_PARTITION_CALL(p, r = shmstore_partition_evict(p, &what, &report));
	if (progress.failed) {
		pyshm_exception_put_back(progress.raised);
		return NULL;
	}
	tuple = report_tuple(&report, r == 1);
	told = tuple ? PyList_Append(done, tuple) : -1;
	Py_XDECREF(tuple);
	if (told < 0)
		return NULL;
	/* -ECANCELED: the callback asked for this end. */
	if (r < 0 && r != -ECANCELED)
		return pyshm_raise(pyshm_state_of(Py_TYPE(self)), r, self->path, "evict from");
	Py_RETURN_NONE;
}

PYSHM_LOCKED_METHOD(partition_closed, void *)

static PyGetSetDef partition_getset[] = {
	{"path", pyshm_get_object, NULL, "The partition's canonical absolute path.",
	 PYSHM_MEMBER(pyshm_partition, path)},
	{"closed", partition_closed_locked, NULL, "Whether close() was called.", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static char partition_doc[] = PyDoc_STR("Partition(path=None, create=False, allow_disk=False, "
					"shared=False)\n--\n\nAn open partition.");

static PyType_Slot partition_slots[] = {
	{Py_tp_doc, partition_doc},         {Py_tp_new, partition_new},
	{Py_tp_dealloc, partition_dealloc}, {Py_tp_methods, pyshm_partition_methods},
	{Py_tp_getset, partition_getset},   {0, NULL},
};

PYSHM_TYPE(partition, struct pyshm_partition, "shmstore._shmstore.Partition", PYSHM_BASE);
