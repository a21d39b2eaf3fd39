/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyview.c: the type View: one reference to the library's view. It goes - unmapping the object -
 * with the last of the View, its memoryviews and whatever holds those. It refers to no other Python
 * object, so nothing of the store is kept by it, and to no file descriptor. Its methods, which need
 * other libraries, are in Python: arrow.py.
 */
#include "pyshm.h"

struct view {
	PyObject ob_base;
	struct shmstore_view *v;
	PyObject *_Atomic header; /* bytes, made when first asked for */
	PyObject *weakrefs;
	uint64_t nbytes;
	atomic_bool cow;
};

PyObject *pyshm_view_new(struct pyshm_state *state, struct shmstore_view *v, bool cow)
{
	struct view *self = PyObject_New(struct view, state->view_type);

	if (!self) {
		shmstore_view_unref(v);
		return NULL;
	}
	self->v = v;
	self->header = NULL;
	self->weakrefs = NULL;
	self->cow = cow;
	self->nbytes = 0;
	for (size_t i = 0; i < shmstore_view_n_buffers(v); i++) {
		uint64_t size = 0;

		shmstore_view_buffer(v, i, &size);
		self->nbytes += size;
	}
	return (PyObject *)self;
}

static void view_dealloc(PyObject *op)
{
	struct view *self = (struct view *)op;
	PyTypeObject *type = Py_TYPE(op);

	if (self->weakrefs)
		PyObject_ClearWeakRefs(op);
	Py_XDECREF(self->header);
	Py_BEGIN_ALLOW_THREADS /* unmapping much memory takes its time */
	self->v = shmstore_view_unref(self->v);
	Py_END_ALLOW_THREADS
	type->tp_free(op);
	Py_DECREF(type);
}

static struct pyshm_state *state_of(PyObject *op)
{
	return pyshm_state_of(Py_TYPE(op));
}

static PyObject *view_key(PyObject *op, void *Py_UNUSED(closure))
{
	size_t size;
	const void *key = shmstore_view_key(((struct view *)op)->v, &size);

	return pyshm_key_object(key, size);
}

static PyObject *view_header(PyObject *op, void *Py_UNUSED(closure))
{
	struct view *self = (struct view *)op;

	if (!self->header) {
		size_t size;
		const void *header = shmstore_view_header(self->v, &size);
		PyObject *bytes = PyBytes_FromStringAndSize(header, (Py_ssize_t)size), *none = NULL;

		if (!bytes)
			return NULL;
		if (!atomic_compare_exchange_strong(&self->header, &none, bytes))
			Py_DECREF(bytes); /* another thread was faster */
	}
	return Py_NewRef(self->header);
}

static PyObject *view_header_view(PyObject *op, void *Py_UNUSED(closure))
{
	size_t size;
	const void *header = shmstore_view_header(((struct view *)op)->v, &size);

	return pyshm_memory_view(state_of(op), op, NULL, pyshm_no_const(header), size, true);
}

static PyObject *view_buffers(PyObject *op, void *Py_UNUSED(closure))
{
	struct view *self = (struct view *)op;
	size_t n = shmstore_view_n_buffers(self->v);
	PyObject *tuple = PyTuple_New((Py_ssize_t)n);

	for (size_t i = 0; tuple && i < n; i++) {
		uint64_t size = 0;
		void *data = shmstore_view_buffer(self->v, i, &size);
		PyObject *view = pyshm_memory_view(state_of(op), op, NULL, data, size, !self->cow);

		if (view)
			PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, view);
		else
			Py_CLEAR(tuple);
	}
	return tuple;
}

static PyObject *view_generation(PyObject *op, void *Py_UNUSED(closure))
{
	return PyLong_FromUnsignedLongLong(shmstore_view_generation(((struct view *)op)->v));
}

static PyObject *view_uid(PyObject *op, void *Py_UNUSED(closure))
{
	return PyLong_FromUnsignedLong(shmstore_view_uid(((struct view *)op)->v));
}

static PyObject *view_repr(PyObject *op)
{
	struct view *self = (struct view *)op;
	PyObject *key = view_key(op, NULL), *text;

	if (!key)
		return NULL;
	text = PyUnicode_FromFormat("<shmstore.View of %.200R, %zu buffers, %llu bytes%s>", key,
				    shmstore_view_n_buffers(self->v),
				    (unsigned long long)self->nbytes, self->cow ? ", cow" : "");
	Py_DECREF(key);
	return text;
}

static int view_getbuffer(PyObject *op, Py_buffer *ret, int flags)
{
	static char nothing;
	struct view *self = (struct view *)op;
	size_t n = shmstore_view_n_buffers(self->v);
	void *data = NULL;
	uint64_t size = 0;

	if (n > 1) {
		PyErr_Format(PyExc_BufferError,
			     "the view has %zu buffers; take one from its .buffers", n);
		ret->obj = NULL;
		return -1;
	}
	if (n == 1)
		data = shmstore_view_buffer(self->v, 0, &size);
	return PyBuffer_FillInfo(ret, op, data ? data : &nothing, (Py_ssize_t)size, !self->cow,
				 flags);
}

static PyGetSetDef view_getset[] = {
	{"key", view_key, NULL,
	 "The key under which the object was put: str where it is UTF-8, else bytes.", NULL},
	{"header", view_header, NULL, "The header, copied into bytes.", NULL},
	{"header_view", view_header_view, NULL,
	 "The header in the mapped memory: a read-only memoryview.", NULL},
	{"buffers", view_buffers, NULL,
	 "The buffers in the mapped memory: a tuple of memoryviews, writable only with cow. Made "
	 "anew at each access.",
	 NULL},
	{"nbytes", pyshm_get_u64, NULL, "The sum of the buffers' sizes.",
	 PYSHM_MEMBER(view, nbytes)},
	{"cow", pyshm_get_bool, NULL, "Whether the buffers are writable, private to this view.",
	 PYSHM_MEMBER(view, cow)},
	{"generation", view_generation, NULL,
	 "A number that other values do not have but by chance.", NULL},
	{"uid", view_uid, NULL,
	 "The user id of whoever put the object: one's own, but for what another user handed over, "
	 "and in stores opened with any_user.",
	 NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef view_members[] = {
	{"__weaklistoffset__", T_PYSSIZET, offsetof(struct view, weakrefs), READONLY, NULL},
	{NULL, 0, 0, 0, NULL},
};

static char view_doc[] = PyDoc_STR("A mapped object. It, its memoryviews and all that is made over "
				   "them keep the memory, whatever becomes of the key\n"
				   "and the store.\n\n"
				   "memoryview(view) is its buffer where it has exactly one (an "
				   "empty one where it has none), else BufferError. It is\n"
				   "alive, for weak references too, as long as any of its "
				   "memoryviews, hence any array over it, is.");

static PyType_Slot view_slots[] = {
	{Py_tp_doc, view_doc},
	{Py_tp_dealloc, view_dealloc},
	{Py_tp_repr, view_repr},
	{Py_tp_getset, view_getset},
	{Py_tp_members, view_members},
	{Py_bf_getbuffer, view_getbuffer},
	{0, NULL},
};

/* Not immutable: arrow.py gives it its methods. */
PYSHM_TYPE(view, struct view, "shmstore.View", Py_TPFLAGS_DISALLOW_INSTANTIATION);
