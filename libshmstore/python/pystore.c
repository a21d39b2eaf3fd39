/* SPDX-License-Identifier: Apache-2.0 */
/* pystore.c: the type Store: opening and closing (pyenter.c). Its calls are in calls.def and
 * pyobjects.c. */
#include <unistd.h>

#include "pyarb.h"

/* The arguments of an open. */
struct opening {
	PyObject *partition;
	const char *name;
	struct pyshm_path directory;
	struct shmstore_options options;
	bool wait;
};

/* The keyword daemon of Store(). Return: 0, -1 with an exception. */
static int daemon_mode(const char *daemon, struct shmstore_options *io)
{
	static const char *const names[] = {[SHMSTORE_DAEMON_AUTO] = "auto",
					    [SHMSTORE_DAEMON_REQUIRED] = "required",
					    [SHMSTORE_DAEMON_OFF] = "off"};
	unsigned mode = 0;

	while (mode < 3 && strcmp(daemon, names[mode]) != 0)
		mode++;
	io->daemon = mode;
	if (mode < 3)
		return 0;
	PyErr_Format(PyExc_ValueError,
		     "daemon must be \"auto\", \"required\" or \"off\", not \"%s\"", daemon);
	return -1;
}

static int opening_init(struct opening *o, PyObject *args, PyObject *kwargs,
			PyTypeObject *partition_type)
{
	PyObject *wait = Py_None;
	uint64_t recycle_max = UINT64_MAX, pack_max = UINT64_MAX;
	const char *daemon = "auto";
	int keep = 0, readonly = 0, adopt = 0, fresh = 0, arbitrate = 0, any_user = 0;
	char **names = PYSHM_KEYWORDS("partition", "name", "keep", "label", "directory",
				      "recycle_max", "readonly", "adopt", "fresh", "daemon", "wait",
				      "arbitrate", "any_user", "pack_max", "leases_with");

	*o = (struct opening){.options = SHMSTORE_OPTIONS_INIT};
	if (!PyArg_ParseTupleAndKeywords(
		    args, kwargs, "O!s|pzO&O&pppsOppO&z:Store", names, partition_type,
		    &o->partition, &o->name, &keep, &o->options.label, pyshm_path, &o->directory,
		    pyshm_u64_or_none, &recycle_max, &readonly, &adopt, &fresh, &daemon, &wait,
		    &arbitrate, &any_user, pyshm_u64_or_none, &pack_max, &o->options.leases_with) ||
	    !pyshm_ms(wait, "wait", &o->options.wait_ms) || daemon_mode(daemon, &o->options) < 0)
		return -1;
	if (recycle_max != UINT64_MAX)
		o->options.recycle_max = recycle_max;
	if (pack_max != UINT64_MAX)
		o->options.pack_max = pack_max;
	o->wait = wait != Py_None;
	o->options.directory = o->directory.text;
	o->options.keep = keep;
	o->options.flags |= (readonly ? SHMSTORE_OPEN_READONLY : 0) |
			    (adopt ? SHMSTORE_OPEN_ADOPT : 0) | (fresh ? SHMSTORE_OPEN_FRESH : 0) |
			    (any_user ? SHMSTORE_OPEN_ANY_USER : 0) |
			    (arbitrate ? SHMSTORE_OPEN_ARBITRATE : 0);
	return 0;
}

static PyObject *store_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct pyshm_state *state = pyshm_state_of(type);
	struct pyshm_partition *partition;
	struct shmstore_partition *p;
	struct pyshm_store *self;
	struct opening opening;
	int r;

	if (opening_init(&opening, args, kwargs, state->partition_type) < 0)
		return NULL;
	partition = (struct pyshm_partition *)opening.partition;
	self = (struct pyshm_store *)type->tp_alloc(type, 0);
	if (!self)
		return NULL;
	pthread_mutex_init(&self->lock, NULL);
	pthread_cond_init(&self->idle, NULL);
	self->pid = getpid();
	self->closing = self->closed = true; /* until it is open */
	self->wait = opening.wait;
	self->readonly = (opening.options.flags & SHMSTORE_OPEN_READONLY) != 0;
	self->partition = Py_NewRef(partition);
	self->name = pyshm_text(opening.name);
	if (!self->name)
		goto fail;
	p = pyshm_partition_enter(partition);
	if (!p)
		goto fail;
	PYSHM_PARTITION_CALL(p, r = shmstore_open(p, opening.name, &opening.options, &self->s));
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
	PyDoc_STR("Store(partition, name, keep=False, label=None, directory=None, "
		  "recycle_max=None, readonly=False, adopt=False,\n"
		  "      fresh=False, daemon=\"auto\", wait=None, arbitrate=False, any_user=False, "
		  "pack_max=None,\n"
		  "      leases_with=None)\n--\n\n"
		  "One process's directory of objects.");

static PyType_Slot store_slots[] = {
	{Py_tp_doc, store_doc},
	{Py_tp_new, store_new},
	{Py_tp_finalize, store_finalize},
	{Py_tp_dealloc, store_dealloc},
	{Py_tp_methods, pyshm_store_methods},
	{Py_tp_getset, store_getset},
	{0, NULL},
};

PYSHM_TYPE(store, struct pyshm_store, "shmstore._shmstore.Store", BASETYPE);
