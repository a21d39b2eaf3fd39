/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyunlocked.c: another object's memory, shown as if it could be written. Pickle marks read-only
 * buffers in its output, which would make the pickle of a value depend on how it was mapped. pickle
 * gets this instead, never writes, and reads its shape only. Only shmstore.pickling uses it.
 */
#include "pyshm.h"

struct unlocked {
	PyObject ob_base;
	PyObject *object;
};

static PyObject *unlocked_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	PyObject *object;
	struct unlocked *self;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:_Unlocked", PYSHM_KEYWORDS("obj"), &object))
		return NULL;
	self = (struct unlocked *)type->tp_alloc(type, 0);
	if (self)
		self->object = Py_NewRef(object);
	return (PyObject *)self;
}

static int unlocked_getbuffer(PyObject *op, Py_buffer *ret, int flags)
{
	struct unlocked *self = (struct unlocked *)op;
	Py_buffer *inner = PyMem_Malloc(sizeof(*inner));

	if (!inner) {
		PyErr_NoMemory();
		ret->obj = NULL;
		return -1;
	}
	if (PyObject_GetBuffer(self->object, inner, PyBUF_ANY_CONTIGUOUS) < 0) {
		PyMem_Free(inner);
		ret->obj = NULL;
		return -1;
	}
	if (PyBuffer_FillInfo(ret, op, inner->buf, inner->len, 0, flags) < 0) {
		PyBuffer_Release(inner);
		PyMem_Free(inner);
		return -1;
	}
	ret->internal = inner;
	return 0;
}

static void unlocked_releasebuffer(PyObject *Py_UNUSED(op), Py_buffer *buffer)
{
	PyBuffer_Release(buffer->internal);
	PyMem_Free(buffer->internal);
}

static void unlocked_dealloc(PyObject *op)
{
	PyTypeObject *type = Py_TYPE(op);

	Py_CLEAR(((struct unlocked *)op)->object);
	type->tp_free(op);
	Py_DECREF(type);
}

static PyMemberDef unlocked_members[] = {
	{"obj", T_OBJECT_EX, offsetof(struct unlocked, object), READONLY, NULL},
	{NULL, 0, 0, 0, NULL},
};

static char unlocked_doc[] =
	PyDoc_STR("_Unlocked(obj)\n--\n\nobj's memory, shown as if it could be written, for the pickler only.");

static PyType_Slot unlocked_slots[] = {
	{Py_tp_doc, unlocked_doc},
	{Py_tp_new, unlocked_new},
	{Py_tp_members, unlocked_members},
	{Py_tp_dealloc, unlocked_dealloc},
	{Py_bf_getbuffer, unlocked_getbuffer},
	{Py_bf_releasebuffer, unlocked_releasebuffer},
	{0, NULL},
};

PyType_Spec pyshm_unlocked_spec = {
	.name = "shmstore._shmstore._Unlocked",
	.basicsize = sizeof(struct unlocked),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = unlocked_slots,
};
