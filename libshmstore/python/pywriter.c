/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pywriter.c: the type Writer: an object being written in place. It counts the memoryviews over
 * its memory. None may be left when it is sealed: who held one could go on writing into a
 * published object, or into memory that is no longer mapped. An abort with memoryviews left drops
 * the object when the last of them goes.
 */
#include <errno.h>
#include <unistd.h>

#include "pyshm.h"

enum writer_state {
	WRITER_OPEN,
	WRITER_SEALED,
	WRITER_ABORTED,
};

struct writer {
	PyObject ob_base;
	struct shmstore_writer *w; /* NULL once the library consumed it */
	struct pyshm_store *store;
	PyObject *key;
	size_t n_buffers;
	size_t n_exports;
	uint64_t nbytes;
	pid_t pid;
	enum writer_state state;
};

PyObject *pyshm_writer_new(struct pyshm_store *store, struct shmstore_writer *w, PyObject *key,
			   size_t n_buffers)
{
	struct writer *self =
		PyObject_New(struct writer, pyshm_state_of(Py_TYPE(store))->writer_type);

	if (!self) {
		shmstore_abort(w);
		return NULL;
	}
	self->w = w;
	self->store = (struct pyshm_store *)Py_NewRef(store);
	self->key = Py_NewRef(key);
	self->n_buffers = n_buffers;
	self->n_exports = 0;
	self->nbytes = 0;
	self->pid = getpid();
	self->state = WRITER_OPEN;
	for (size_t i = 0; i < n_buffers; i++) {
		uint64_t size = 0;

		shmstore_writer_buffer(w, i, &size);
		self->nbytes += size;
	}
	return (PyObject *)self;
}

/* Gives the memory back if nobody looks at it any more. */
static void drop(struct writer *self)
{
	struct shmstore_writer *w = self->w;

	if (!w || self->n_exports)
		return;
	self->w = NULL;
	Py_BEGIN_ALLOW_THREADS
	shmstore_abort(w);
	Py_END_ALLOW_THREADS
}

static void writer_dealloc(PyObject *op)
{
	struct writer *self = (struct writer *)op;
	PyTypeObject *type = Py_TYPE(op);

	drop(self);
	Py_CLEAR(self->key);
	Py_CLEAR(self->store);
	type->tp_free(op);
	Py_DECREF(type);
}

/* Whether the memory may be handed out; raises else. */
static bool check_open(struct writer *self)
{
	if (self->pid != getpid()) {
		pyshm_store_raise(self->store, -EPERM, "use in a forked child a writer of");
		return false;
	}
	if (self->state == WRITER_OPEN)
		return true;
	PyErr_Format(PyExc_ValueError, "the writer of %.200R was %s", self->key,
		     self->state == WRITER_SEALED ? "sealed" : "aborted");
	return false;
}

static int writer_acquire(PyObject *owner)
{
	struct writer *self = (struct writer *)owner;
	bool open;

	PYSHM_LOCKED(owner, open = check_open(self); self->n_exports += open);
	return open ? 0 : -1;
}

static void writer_release(PyObject *owner)
{
	struct writer *self = (struct writer *)owner;

	PYSHM_LOCKED(owner, self->n_exports--; if (self->state != WRITER_OPEN) drop(self));
}

static const struct pyshm_memory_owner writer_memory = {.acquire = writer_acquire,
							.release = writer_release};

static PyObject *writer_header(PyObject *op, void *Py_UNUSED(closure))
{
	struct writer *self = (struct writer *)op;
	size_t size = 0;
	void *data;

	if (!check_open(self))
		return NULL;
	data = shmstore_writer_header(self->w, &size);
	return pyshm_memory_view(pyshm_state_of(Py_TYPE(op)), op, &writer_memory, data, size,
				 false);
}

static PyObject *writer_buffers(PyObject *op, void *Py_UNUSED(closure))
{
	struct writer *self = (struct writer *)op;
	PyObject *tuple;

	/* Making Python objects may collect garbage, which may run anything, a seal of this writer
	 * too: count as one who looks. */
	if (writer_acquire(op) < 0)
		return NULL;
	tuple = PyTuple_New((Py_ssize_t)self->n_buffers);
	for (size_t i = 0; tuple && i < self->n_buffers; i++) {
		uint64_t size = 0;
		void *data = shmstore_writer_buffer(self->w, i, &size);
		PyObject *view = pyshm_memory_view(pyshm_state_of(Py_TYPE(op)), op, &writer_memory,
						   data, size, false);

		if (view)
			PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, view);
		else
			Py_CLEAR(tuple);
	}
	writer_release(op);
	return tuple;
}

PyDoc_STRVAR(seal_doc, "seal($self, /)\n--\n\n"
		       "Publishes the object. BufferError while a memoryview of the writer, or an "
		       "array over one, is alive: the\n"
		       "writer stays open. Error (EEXIST and others): the object is dropped.");

static PyObject *writer_seal(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct writer *self = (struct writer *)op;
	struct shmstore_writer *w = self->w;
	int r;

	if (!check_open(self))
		return NULL;
	if (self->n_exports) {
		PyErr_Format(PyExc_BufferError,
			     "cannot seal %.200R: %zu memoryviews of the writer are in use; "
			     "release them (del arrays over them) first",
			     self->key, self->n_exports);
		return NULL;
	}
	if (!pyshm_store_enter(self->store))
		return NULL;
	self->state = WRITER_SEALED;
	self->w = NULL;
	PYSHM_STORE_CALL(self->store, r = shmstore_seal(w));
	if (r < 0) {
		self->state = WRITER_ABORTED;
		return pyshm_store_raise(self->store, r, "seal %.200R", self->key);
	}
	Py_RETURN_NONE;
}

PyDoc_STRVAR(abort_doc, "abort($self, /)\n--\n\n"
			"Drops the object; memoryviews that are left keep its memory. Does nothing "
			"after seal or abort.");

static PyObject *writer_abort(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct writer *self = (struct writer *)op;

	if (self->state == WRITER_OPEN) {
		self->state = WRITER_ABORTED;
		drop(self);
	}
	Py_RETURN_NONE;
}

static PyObject *writer_enter(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	return Py_NewRef(op);
}

static PyObject *writer_exit(PyObject *op, PyObject *args)
{
	PyObject *type = Py_None, *value = Py_None, *traceback = Py_None;

	if (!PyArg_UnpackTuple(args, "__exit__", 0, 3, &type, &value, &traceback))
		return NULL;
	if (type != Py_None)
		return writer_abort(op, NULL);
	if (((struct writer *)op)->state == WRITER_OPEN)
		return writer_seal(op, NULL);
	Py_RETURN_NONE;
}

static PyObject *writer_closed(PyObject *op, void *Py_UNUSED(closure))
{
	return PyBool_FromLong(((struct writer *)op)->state != WRITER_OPEN);
}

static PyObject *writer_repr(PyObject *op)
{
	static const char *const names[] = {
		[WRITER_OPEN] = "open", [WRITER_SEALED] = "sealed", [WRITER_ABORTED] = "aborted"};
	struct writer *self = (struct writer *)op;

	return PyUnicode_FromFormat("<shmstore.Writer of %.200R, %zu buffers, %llu bytes, %s>",
				    self->key, self->n_buffers, (unsigned long long)self->nbytes,
				    names[self->state]);
}

PYSHM_LOCKED_METHOD(writer_seal, PyObject *)
PYSHM_LOCKED_METHOD(writer_abort, PyObject *)
PYSHM_LOCKED_METHOD(writer_exit, PyObject *)
PYSHM_LOCKED_METHOD(writer_header, void *)
PYSHM_LOCKED_METHOD(writer_buffers, void *)
PYSHM_LOCKED_METHOD(writer_closed, void *)

static PyMethodDef writer_methods[] = {
	{"seal", writer_seal_locked, METH_NOARGS, seal_doc},
	{"abort", writer_abort_locked, METH_NOARGS, abort_doc},
	{"__enter__", writer_enter, METH_NOARGS, NULL},
	{"__exit__", writer_exit_locked, METH_VARARGS, NULL},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef writer_getset[] = {
	{"key", pyshm_get_object, NULL, "The key under which it will be published.",
	 PYSHM_MEMBER(writer, key)},
	{"header", writer_header_locked, NULL,
	 "Memory for the header: a writable memoryview, made anew at each access.", NULL},
	{"buffers", writer_buffers_locked, NULL,
	 "Memory for the buffers: a tuple of writable memoryviews, made anew at each access.",
	 NULL},
	{"nbytes", pyshm_get_u64, NULL, "The sum of the buffers' sizes.",
	 PYSHM_MEMBER(writer, nbytes)},
	{"closed", writer_closed_locked, NULL, "Whether it was sealed or aborted.", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static char writer_doc[] =
	PyDoc_STR("An object being written in place. A context manager: seals where its block ends "
		  "well, aborts where it raises.\n\n"
		  "Its memory reads as zero at first and is not inherited by a forked child.");

static PyType_Slot writer_slots[] = {
	{Py_tp_doc, writer_doc},         {Py_tp_dealloc, writer_dealloc}, {Py_tp_repr, writer_repr},
	{Py_tp_methods, writer_methods}, {Py_tp_getset, writer_getset},   {0, NULL},
};

PYSHM_TYPE(writer, struct writer, "shmstore.Writer", PYSHM_MADE);
