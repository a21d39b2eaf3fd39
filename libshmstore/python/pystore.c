/* SPDX-License-Identifier: Apache-2.0 */
/* pystore.c: the type Store: opening and closing (pyenter.c). Its calls are in calls.def and
 * pyobjects.c. */
#include <unistd.h>

#include "pyshm.h"

static PyObject *store_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	/* As the library has them: Partition.open() says what they mean. */
	char **names =
		PYSHM_KEYWORDS("partition", "name", "flags", "daemon", "keep", "label", "directory",
			       "recycle_max", "pack_max", "wait_ms", "leases_with");
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	struct pyshm_state *state = pyshm_state_of(type);
	struct pyshm_partition *partition;
	struct shmstore_partition *p;
	struct pyshm_path directory;
	struct pyshm_store *self;
	const char *name;
	int keep, r;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!sIIpzO&O&O&O&z:Store", names,
					 state->partition_type, &partition, &name, &options.flags,
					 &options.daemon, &keep, &options.label, pyshm_path,
					 &directory, pyshm_u64_or_none, &options.recycle_max,
					 pyshm_u64_or_none, &options.pack_max, pyshm_u64,
					 &options.wait_ms, &options.leases_with))
		return NULL;
	options.keep = keep;
	options.directory = directory.text;
	self = (struct pyshm_store *)type->tp_alloc(type, 0);
	if (!self)
		return NULL;
	pthread_mutex_init(&self->lock, NULL);
	pthread_cond_init(&self->idle, NULL);
	self->pid = getpid();
	self->closing = self->closed = true; /* until it is open */
	self->wait = options.wait_ms != 0;
	self->readonly = (options.flags & SHMSTORE_OPEN_READONLY) != 0;
	self->partition = Py_NewRef(partition);
	self->name = pyshm_text(name);
	if (!self->name)
		goto fail;
	p = pyshm_partition_enter(partition);
	if (!p)
		goto fail;
	PYSHM_PARTITION_CALL(p, r = shmstore_open(p, name, &options, &self->s));
	if (r < 0) {
		pyshm_raise(state, r, partition->path, "open store %R", self->name);
		goto fail;
	}
	self->closing = self->closed = false;
	self->path = PyUnicode_DecodeFSDefault(shmstore_path(self->s));
	if (!self->path)
		goto fail;
	return (PyObject *)self;
fail:
	Py_DECREF(self);
	return NULL;
}

/* Closes the store if it is open. Return: 0, -errno. Call with the GIL; releases it. */
static int close_store(struct pyshm_store *self)
{
	int r = 0;

	if (self->pid != getpid()) {
		/* A call that some thread of the parent was in at the time of the fork will
		 * never come out: leave it then. */
		if (self->s && self->n_calls == 0)
			shmstore_close(self->s);
		self->s = NULL;
		self->closing = self->closed = true;
		return 0;
	}
	Py_BEGIN_ALLOW_THREADS
	pthread_mutex_lock(&self->lock);
	if (self->closing) {
		while (!self->closed)
			pthread_cond_wait(&self->idle, &self->lock);
	} else {
		self->closing = true;
		while (self->n_calls)
			pthread_cond_wait(&self->idle, &self->lock);
		pthread_mutex_unlock(&self->lock);
		r = shmstore_close(self->s);
		pthread_mutex_lock(&self->lock);
		self->s = NULL;
		self->closed = true;
		pthread_cond_broadcast(&self->idle);
	}
	pthread_mutex_unlock(&self->lock);
	Py_END_ALLOW_THREADS
	return r;
}

PyObject *pyshm_store_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	int r = close_store((struct pyshm_store *)op);

	if (r < 0)
		return pyshm_store_raise((struct pyshm_store *)op, r, "close");
	Py_RETURN_NONE;
}

static void store_finalize(PyObject *op)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct pyshm_exception saved;

	if (self->closing || !self->s)
		return;
	saved = pyshm_exception_take();
	if (self->pid == getpid() && !self->readonly &&
	    PyErr_ResourceWarning(op, 1, "store %R was not closed", self->name) < 0)
		PyErr_WriteUnraisable(op);
	close_store(self);
	pyshm_exception_put_back(saved);
}

static void store_dealloc(PyObject *op)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	PyTypeObject *type = Py_TYPE(op);

	if (PyObject_CallFinalizerFromDealloc(op) < 0)
		return;
	if (self->pid == getpid()) {
		pthread_cond_destroy(&self->idle);
		pthread_mutex_destroy(&self->lock);
	}
	Py_CLEAR(self->path);
	Py_CLEAR(self->name);
	Py_CLEAR(self->partition);
	type->tp_free(op);
	Py_DECREF(type);
}

static PyGetSetDef store_getset[] = {
	{"name", pyshm_get_object, NULL, "The store's name.", PYSHM_MEMBER(pyshm_store, name)},
	{"path", pyshm_get_object, NULL, "The store's absolute directory.",
	 PYSHM_MEMBER(pyshm_store, path)},
	{"partition", pyshm_get_object, NULL, "The partition it was opened in.",
	 PYSHM_MEMBER(pyshm_store, partition)},
	{"closed", pyshm_get_bool, NULL, "Whether close() was called.",
	 PYSHM_MEMBER(pyshm_store, closing)},
	{"readonly", pyshm_get_bool, NULL, "Whether it was opened to be read.",
	 PYSHM_MEMBER(pyshm_store, readonly)},
	{NULL, NULL, NULL, NULL, NULL},
};

static char store_doc[] =
	PyDoc_STR("Store(partition, name, flags, daemon, keep, label, directory, recycle_max, "
		  "pack_max, wait_ms, leases_with)\n--\n\nOne process's directory of objects.");

static PyType_Slot store_slots[] = {
	{Py_tp_doc, store_doc},
	{Py_tp_new, store_new},
	{Py_tp_finalize, store_finalize},
	{Py_tp_dealloc, store_dealloc},
	{Py_tp_methods, pyshm_store_methods},
	{Py_tp_getset, store_getset},
	{0, NULL},
};

PYSHM_TYPE(store, struct pyshm_store, "shmstore._shmstore.Store", PYSHM_BASE);
