/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pypartition.c: the type Partition: a reference to an open partition until it is closed or the object goes. Each call holds one of its
 * own meanwhile, so does each store: close() waits for nobody and takes nothing from them. Its calls for operators are in pyinspect.c, those about the disk tier in pytier.c.
 */
#include <errno.h>

#include "pyshm.h"

static PyObject *partition_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	PyObject *path_arg = Py_None, *path = NULL;
	int create = 0, allow_disk = 0, shared = 0, r;
	struct pyshm_partition *self = NULL;
	struct shmstore_partition *p = NULL;
	unsigned flags = 0;
	const char *text;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|Oppp:Partition",
					 PYSHM_KEYWORDS("path", "create", "allow_disk", "shared"), &path_arg, &create,
					 &allow_disk, &shared))
		return NULL;
	if (path_arg != Py_None && !PyUnicode_FSConverter(path_arg, &path))
		return NULL;
	flags |= create ? SHMSTORE_CREATE : 0;
	flags |= allow_disk ? SHMSTORE_ALLOW_DISK : 0;
	flags |= shared ? SHMSTORE_SHARED : 0;
	text = path ? PyBytes_AS_STRING(path) : NULL;
	Py_BEGIN_ALLOW_THREADS
	r = shmstore_partition_open(text, flags, &p);
	Py_END_ALLOW_THREADS
	Py_XDECREF(path);
	if (r < 0)
		return pyshm_raise(pyshm_state_of(type), r, "open partition", path_arg == Py_None ? NULL : path_arg,
				   NULL);
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

struct shmstore_partition *pyshm_partition_enter(struct pyshm_partition *self)
{
	PyObject *message, *exception;
	struct pyshm_state *state;

	if (self->p)
		return shmstore_partition_ref(self->p);
	state = pyshm_state_of(Py_TYPE(self));
	message = PyUnicode_FromFormat("partition %R is closed; open it again with Partition()", self->path);
	exception = message ? PyObject_CallFunction(state->closed_error, "iN", EBADF, message) : NULL;
	if (exception) {
		PyErr_SetObject(state->closed_error, exception);
		Py_DECREF(exception);
	}
	return NULL;
}

PyDoc_STRVAR(close_doc, "close($self, /)\n--\n\n"
			"Gives its descriptors back now, not when it is collected. Stores that were opened with it "
			"stay open. Idempotent;\n"
			"every other call raises `ClosedError` from here on.");

static PyObject *partition_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyshm_partition *self = (struct pyshm_partition *)op;
	struct shmstore_partition *p = self->p;

	self->p = NULL;
	Py_BEGIN_ALLOW_THREADS
	shmstore_partition_unref(p);
	Py_END_ALLOW_THREADS
	Py_RETURN_NONE;
}

static PyObject *partition_closed(PyObject *op, void *Py_UNUSED(closure))
{
	return PyBool_FromLong(!((struct pyshm_partition *)op)->p);
}

PyDoc_STRVAR(find_peer_doc,
	     "find_peer($self, /, address)\n--\n\nThe name of the live store known by that address, or None.");

static PyObject *partition_find_peer(PyObject *op, PyObject *args, PyObject *kwargs)
{
	struct pyshm_partition *self = (struct pyshm_partition *)op;
	struct shmstore_partition *p;
	char name[SHMSTORE_NAME_MAX + 1];
	const char *address;
	int r;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s:find_peer", PYSHM_KEYWORDS("address"), &address))
		return NULL;
	p = pyshm_partition_enter(self);
	if (!p)
		return NULL;
	PYSHM_PARTITION_CALL(p, r = shmstore_peer_find(p, address, name, sizeof(name)));
	if (r == -ENOENT)
		Py_RETURN_NONE;
	if (r < 0)
		return pyshm_raise(pyshm_state_of(Py_TYPE(op)), r, "look for a peer", NULL, self->path);
	return pyshm_text(name);
}

PyObject *pyshm_usage_tuple(const struct shmstore_usage *u)
{
	return Py_BuildValue(
		"KKKKKKKLKKKKKKKKKKK", (unsigned long long)u->size, (unsigned long long)u->used,
		(unsigned long long)u->linked, (unsigned long long)u->ghosts, (unsigned long long)u->pool,
		(unsigned long long)u->inflight, (unsigned long long)u->foreign, (long long)u->residual,
		(unsigned long long)u->n_stores, (unsigned long long)u->n_objects, (unsigned long long)u->n_leases,
		(unsigned long long)u->metadata, (unsigned long long)u->n_unreadable, (unsigned long long)u->tier,
		(unsigned long long)u->tier_demoted, (unsigned long long)u->tier_clean,
		(unsigned long long)u->tier_orphans, (unsigned long long)u->n_demoted, (unsigned long long)u->stranded);
}

static PyObject *partition_usage(PyObject *op, PyObject *args)
{
	struct pyshm_partition *self = (struct pyshm_partition *)op;
	struct shmstore_partition *p;
	struct shmstore_usage usage;
	int full, r;

	if (!PyArg_ParseTuple(args, "p:_usage", &full))
		return NULL;
	p = pyshm_partition_enter(self);
	if (!p)
		return NULL;
	PYSHM_PARTITION_CALL(p, r = shmstore_partition_usage(p, full ? SHMSTORE_USAGE_FULL : 0, &usage));
	if (r < 0)
		return pyshm_raise(pyshm_state_of(Py_TYPE(op)), r, "measure the use of", NULL, self->path);
	return pyshm_usage_tuple(&usage);
}

static PyMethodDef partition_methods[] = {
	{"close", partition_close, METH_NOARGS, close_doc},
	{"find_peer", PYSHM_METHOD(partition_find_peer), METH_VARARGS | METH_KEYWORDS, find_peer_doc},
	{"_usage", partition_usage, METH_VARARGS, NULL},
	{"_gc", pyshm_partition_gc, METH_VARARGS, NULL},
	{"_stores", pyshm_partition_stores, METH_NOARGS, NULL},
	{"_reconcile", pyshm_partition_reconcile, METH_NOARGS, NULL},
	{"_verify", pyshm_partition_verify, METH_NOARGS, NULL},
	{"_info", pyshm_partition_info, METH_NOARGS, NULL},
	{"_set_tier", pyshm_partition_set_tier, METH_VARARGS, NULL},
	{"_tier", pyshm_partition_tier, METH_NOARGS, NULL},
	{"_evict", pyshm_partition_evict, METH_VARARGS, NULL},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef partition_getset[] = {
	{"path", pyshm_get_object, NULL, "The partition's canonical absolute path.",
	 PYSHM_MEMBER(pyshm_partition, path)},
	{"closed", partition_closed, NULL, "Whether close() was called.", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static char partition_doc[] =
	PyDoc_STR("Partition(path=None, create=False, allow_disk=False, shared=False)\n--\n\nAn open partition.");

static PyType_Slot partition_slots[] = {
	{Py_tp_doc, partition_doc},         {Py_tp_new, partition_new},       {Py_tp_dealloc, partition_dealloc},
	{Py_tp_methods, partition_methods}, {Py_tp_getset, partition_getset}, {0, NULL},
};

PyType_Spec pyshm_partition_spec = {
	.name = "shmstore._shmstore.Partition",
	.basicsize = sizeof(struct pyshm_partition),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = partition_slots,
};
