/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pymemory.c: what the memoryviews of a View and a Writer look at: a range of its memory, and a
 * reference to it. A View's ranges are exported freely; a Writer counts the exports, because its
 * memory must not be written once it is sealed.
 *
 * _unlocked() shows another object's memory as if it could be written. Pickle marks read-only
 * buffers in its output, which would make the pickle of a value depend on how it was mapped: it
 * gets this instead, never writes, and reads its shape only.
 */
#include "pyshm.h"

struct memory {
	PyObject ob_base;
	PyObject *owner;
	const struct pyshm_memory_owner *calls;
	void *data;
	Py_ssize_t size;
	bool readonly;
	Py_buffer held;     /* _unlocked(): the owner's */
	PyObject *unlocked; /* the owner then */
};

static int memory_getbuffer(PyObject *op, Py_buffer *ret, int flags)
{
	struct memory *self = (struct memory *)op;

	if (self->calls && self->calls->acquire(self->owner) < 0) {
		ret->obj = NULL;
		return -1;
	}
	if (PyBuffer_FillInfo(ret, op, self->data, self->size, self->readonly, flags) < 0) {
		if (self->calls)
			self->calls->release(self->owner);
		return -1;
	}
	return 0;
}

static void memory_releasebuffer(PyObject *op, Py_buffer *Py_UNUSED(buffer))
{
	struct memory *self = (struct memory *)op;

	if (self->calls)
		self->calls->release(self->owner);
}

static void memory_dealloc(PyObject *op)
{
	struct memory *self = (struct memory *)op;
	PyTypeObject *type = Py_TYPE(op);

	PyBuffer_Release(&self->held);
	Py_CLEAR(self->owner);
	type->tp_free(op);
	Py_DECREF(type);
}

static char memory_doc[] =
	PyDoc_STR("A range of a view's or a writer's memory, with the buffer protocol.");

static PyMemberDef memory_members[] = {
	{"unlocked", T_OBJECT, offsetof(struct memory, unlocked), READONLY, NULL},
	{NULL, 0, 0, 0, NULL},
};

static PyType_Slot memory_slots[] = {
	{Py_tp_doc, memory_doc},
	{Py_tp_members, memory_members},
	{Py_tp_dealloc, memory_dealloc},
	{Py_bf_getbuffer, memory_getbuffer},
	{Py_bf_releasebuffer, memory_releasebuffer},
	{0, NULL},
};

PYSHM_TYPE(memory, struct memory, "shmstore._shmstore._Memory", PYSHM_MADE);

static struct memory *memory_new(struct pyshm_state *state, PyObject *owner,
				 const struct pyshm_memory_owner *calls, void *data, uint64_t size,
				 bool readonly)
{
	static char nothing; /* an empty range still has an address */
	struct memory *memory;

	if (size > (uint64_t)PY_SSIZE_T_MAX)
		return (struct memory *)PyErr_NoMemory();
	memory = PyObject_New(struct memory, state->memory_type);
	if (!memory)
		return NULL;
	memory->owner = Py_NewRef(owner);
	memory->calls = calls;
	memory->data = data ? data : &nothing;
	memory->size = (Py_ssize_t)size;
	memory->readonly = readonly;
	memory->held = (Py_buffer){0};
	memory->unlocked = NULL;
	return memory;
}

PyObject *pyshm_memory_view(struct pyshm_state *state, PyObject *owner,
			    const struct pyshm_memory_owner *calls, void *data, uint64_t size,
			    bool readonly)
{
	struct memory *memory = memory_new(state, owner, calls, data, size, readonly);
	PyObject *view = memory ? PyMemoryView_FromObject((PyObject *)memory) : NULL;

	Py_XDECREF(memory);
	return view;
}

PyObject *pyshm_unlocked(PyObject *module, PyObject *object)
{
	struct memory *memory;
	Py_buffer held;

	if (PyObject_GetBuffer(object, &held, PyBUF_ANY_CONTIGUOUS) < 0)
		return NULL;
	memory = memory_new(PyModule_GetState(module), object, NULL, held.buf, (uint64_t)held.len,
			    false);
	if (memory) {
		memory->held = held;
		memory->unlocked = object;
	} else {
		PyBuffer_Release(&held);
	}
	return (PyObject *)memory;
}
