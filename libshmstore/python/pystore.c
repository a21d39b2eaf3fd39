/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pystore.c: the type Store: opening, closing, and the count that keeps a close apart from calls in
 * other threads. Calls about objects are in pyobjects.c and pylist.c.
 *
 * shmstore_close() must be the last call on a store. So each call counts itself in and out (pyshm_store_enter, _leave), and
 * close() lets nobody in any more, waits until all are out - they are bounded: none waits for another store - and then
 * closes. The count has a lock of its own, which is never held while the GIL is waited for. No Python code runs between enter
 * and leave, so a thread cannot wait for itself.
 *
 * In a forked child the store is not ours: nothing here touches the lock, which some thread of the parent may have held.
 */
#include <errno.h>
#include <unistd.h>

#include "pyactor.h"
#include "pyarb.h"
#include "pyprofile.h"
#include "pystage.h"

/* In a forked child, with the GIL: a store that is only read is the child's as well. Threads that were in a call are not here. */
static bool goes_on(struct pyshm_store *self)
{
	if (!self->readonly || (self->closing && !self->closed))
		return false;
	pthread_mutex_init(&self->lock, NULL);
	pthread_cond_init(&self->idle, NULL);
	self->n_calls = 0;
	self->pid = getpid();
	return true;
}

bool pyshm_store_enter_quietly(struct pyshm_store *self)
{
	bool closing;

	if (self->pid != getpid() && !goes_on(self))
		return false;
	pthread_mutex_lock(&self->lock);
	closing = self->closing;
	if (!closing)
		self->n_calls++;
	pthread_mutex_unlock(&self->lock);
	return !closing;
}

bool pyshm_store_enter(struct pyshm_store *self)
{
	if (pyshm_store_enter_quietly(self))
		return true;
	if (self->pid != getpid())
		pyshm_store_raise(self, -EPERM, "use in a forked child", NULL);
	else
		pyshm_raise_closed(pyshm_state_of(Py_TYPE(self)), self->name);
	return false;
}

void pyshm_store_leave(struct pyshm_store *self)
{
	pthread_mutex_lock(&self->lock);
	if (--self->n_calls == 0 && self->closing)
		pthread_cond_broadcast(&self->idle);
	pthread_mutex_unlock(&self->lock);
}

static PyObject *where_text(struct pyshm_store *self)
{
	return PyUnicode_FromFormat("store %R of %U", self->name, ((struct pyshm_partition *)self->partition)->path);
}

void *pyshm_store_raise(struct pyshm_store *self, int error, const char *operation, PyObject *key)
{
	PyObject *where = where_text(self);

	if (where) {
		pyshm_raise(pyshm_state_of(Py_TYPE(self)), error, operation, key, where);
		Py_DECREF(where);
	}
	return NULL;
}

void *pyshm_store_raise_object(struct pyshm_store *self, int error, const char *operation, PyObject *key)
{
	PyObject *where;

	if (error > 0)
		return pyarb_raise(self, error, operation, key);
	where = where_text(self);
	if (where) {
		pyshm_raise(pyshm_state_of(Py_TYPE(self)), error, operation, key, where);
		Py_DECREF(where);
	}
	return NULL;
}

/* Is it the store of a reader that is not there, and not the key? The library's sentence says so then. */
static bool is_gone(struct pyshm_store *self)
{
	int pid, alive, r = 0;

	if (self->readonly && pyshm_store_enter_quietly(self)) {
		r = shmstore_owner(self->s, &pid, &alive);
		pyshm_store_leave(self);
	}
	return r == -ENOENT;
}

void *pyshm_store_raise_missing(struct pyshm_store *self, int error, const char *operation, PyObject *key)
{
	if (error != -ENOENT || is_gone(self))
		return pyshm_store_raise_object(self, error, operation, key);
	PyErr_SetObject(PyExc_KeyError, key);
	return NULL;
}

/* The arguments of an open, and the objects that keep their text alive. */
struct opening {
	const char *name;
	PyObject *directory; /* bytes, NULL = none */
	struct shmstore_options options;
	bool wait;
};

/* A number of bytes, which None leaves as it is. */
static int take_bytes(PyObject *number, uint64_t *io)
{
	PyObject *index = number == Py_None ? NULL : PyNumber_Index(number);

	if (index)
		*io = PyLong_AsUnsignedLongLong(index);
	Py_XDECREF(index);
	return PyErr_Occurred() ? -1 : 0;
}

static int opening_init(struct opening *o, PyObject *args, PyObject *kwargs, PyTypeObject *partition_type,
			struct pyshm_partition **ret_partition)
{
	PyObject *partition, *directory = Py_None, *recycle_max = Py_None, *wait = Py_None, *pack_max = Py_None;
	const char *daemon = "auto";
	int keep = 0, readonly = 0, adopt = 0, fresh = 0, arbitrate = 0, any_user = 0;

	*o = (struct opening){.options = SHMSTORE_OPTIONS_INIT};
	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!s|pzOOpppsOppOz:Store",
					 PYSHM_KEYWORDS("partition", "name", "keep", "label", "directory",
							"recycle_max", "readonly", "adopt", "fresh", "daemon", "wait",
							"arbitrate", "any_user", "pack_max", "leases_with"),
					 partition_type, &partition, &o->name, &keep, &o->options.label, &directory,
					 &recycle_max, &readonly, &adopt, &fresh, &daemon, &wait, &arbitrate, &any_user,
					 &pack_max, &o->options.leases_with) ||
	    pyshm_daemon_options(&o->options, daemon, wait, &o->wait) < 0)
		return -1;
	if (take_bytes(recycle_max, &o->options.recycle_max) < 0 || take_bytes(pack_max, &o->options.pack_max) < 0)
		return -1;
	if (directory != Py_None) {
		if (!PyUnicode_FSConverter(directory, &o->directory))
			return -1;
		o->options.directory = PyBytes_AS_STRING(o->directory);
	}
	o->options.keep = keep;
	o->options.flags |= readonly ? SHMSTORE_OPEN_READONLY : 0;
	o->options.flags |= adopt ? SHMSTORE_OPEN_ADOPT : 0;
	o->options.flags |= fresh ? SHMSTORE_OPEN_FRESH : 0;
	o->options.flags |= any_user ? SHMSTORE_OPEN_ANY_USER : 0;
	o->options.flags |= arbitrate ? SHMSTORE_OPEN_ARBITRATE : 0;
	*ret_partition = (struct pyshm_partition *)partition;
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

	if (opening_init(&opening, args, kwargs, state->partition_type, &partition) < 0)
		return NULL;
	self = (struct pyshm_store *)type->tp_alloc(type, 0);
	if (!self) {
		Py_XDECREF(opening.directory);
		return NULL;
	}
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
		pyshm_raise(state, r, "open store", self->name, partition->path);
		goto fail;
	}
	self->closing = self->closed = false;
	self->path = PyUnicode_DecodeFSDefault(shmstore_path(self->s));
	if (!self->path)
		goto fail;
	Py_XDECREF(opening.directory);
	return (PyObject *)self;
fail:
	Py_XDECREF(opening.directory);
	Py_DECREF(self);
	return NULL;
}

/* Closes the store if it is open. Return: 0, -errno. Call with the GIL; releases it. */
static int close_store(struct pyshm_store *self)
{
	int r = 0;

	if (self->pid != getpid()) {
		/* A call that some thread of the parent was in at the time of the fork will never come out: leave it then. */
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

PyDoc_STRVAR(close_doc, "close($self, /)\n--\n\n"
			"Closes the store: removes it and its objects unless it was opened with keep.\n\n"
			"Waits for calls in other threads. Views stay valid. Closing twice is fine.");

static PyObject *store_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	int r = close_store((struct pyshm_store *)op);

	if (r < 0)
		return pyshm_store_raise((struct pyshm_store *)op, r, "close", NULL);
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

PyDoc_STRVAR(set_address_doc,
	     "set_address($self, /, address)\n--\n\n"
	     "Makes the store known to peers (Partition.find_peer) by an address; None or \"\" withdraws it.");

static PyObject *store_set_address(PyObject *op, PyObject *args, PyObject *kwargs)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	const char *address;
	int r;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "z:set_address", PYSHM_KEYWORDS("address"), &address))
		return NULL;
	if (!pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_set_address(self->s, address ? address : ""));
	if (r < 0)
		return pyshm_store_raise(self, r, "set the address of", NULL);
	Py_RETURN_NONE;
}

static PyObject *store_usage(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct shmstore_store_usage u;
	int r;

	if (!pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_usage(self->s, &u));
	if (r < 0)
		return pyshm_store_raise(self, r, "measure the use of", NULL);
	return Py_BuildValue("KKKKKK", (unsigned long long)u.linked, (unsigned long long)u.pss,
			     (unsigned long long)u.uss, (unsigned long long)u.mapped, (unsigned long long)u.n_objects,
			     (unsigned long long)u.n_views);
}

PyDoc_STRVAR(
	put_buffers_doc,
	"put_buffers($self, /, key, header, buffers, replace=False, checksum=False, pin=False, evict=True)\n--\n\n"
	"Stores one object: all of it or nothing. Each buffer is any contiguous (C or F) memory and is copied once.\n\n"
	"pin: it is never moved to the disk tier. evict: where the partition is full, others are moved there first.\n"
	"Where header and buffers are those of a live, unwritten view of this store nothing is copied: a second link.\n"
	"Raises Error: EEXIST (without replace), ENOSPC (nothing is left behind), EINVAL and others.");
PyDoc_STRVAR(view_doc,
	     "view($self, /, key, cow=False, verify=False)\n--\n\n"
	     "Maps an object, whatever its size, without keeping a file descriptor. KeyError where there is none.\n\n"
	     "cow: the buffers are writable, private to this view. verify: check the buffers' checksum, if the object\n"
	     "has one (Error EBADMSG).");
PyDoc_STRVAR(create_doc, "create($self, /, key, header_size, buffer_sizes, replace=False, checksum=False, pin=False, "
			 "evict=True)\n--\n\n"
			 "Reserves an object and hands out writable memory for it: a Writer.\n\n"
			 "A full partition is Error ENOSPC now, never SIGBUS later. pin, evict: as put_buffers().");
PyDoc_STRVAR(contains_doc, "contains($self, key, /)\n--\n\nWhether the store holds the key.");
PyDoc_STRVAR(delete_doc,
	     "delete($self, key, /)\n--\n\n"
	     "Removes the key; KeyError where there is none. The memory goes with the last link and the last view.");

PyDoc_STRVAR(demote_doc, "demote($self, key, /)\n--\n\n"
			 "Moves the object to the disk tier, for every store that links it; the next get brings it "
			 "back. Its views stay\n"
			 "valid. KeyError where there is no such key; Error: ENOENT (no tier), ENOSPC (the disk), "
			 "EPERM (pinned; links in\n"
			 "stores of others, or a lease), EIO.");
PyDoc_STRVAR(
	promote_doc,
	"promote($self, /, key, evict=True)\n--\n\n"
	"Brings the object back to memory, once for all stores that link it. Error: ENOSPC, EDQUOT, EBADMSG (its tier\n"
	"file is missing or damaged: filename says which).");
PyDoc_STRVAR(pin_doc, "pin($self, key, /)\n--\n\nKeeps the object in memory, for all stores that link it.");
PyDoc_STRVAR(unpin_doc, "unpin($self, key, /)\n--\n\nUndoes pin().");
PyDoc_STRVAR(locate_doc,
	     "locate($self, key, /)\n--\n\nWhere the object is: \"memory\", \"tier\", or None: no such key.");

PyDoc_STRVAR(asked_doc,
	     "asked($self, /)\n--\n\n"
	     "Bytes that the host daemon asks this store to give back and that it has not given since; 0: none.");
PyDoc_STRVAR(daemon_fd_doc,
	     "daemon_fd($self, /)\n--\n\n"
	     "For event loops: readable when the daemon says something; daemon_dispatch() then. None: no daemon.");
PyDoc_STRVAR(daemon_dispatch_doc,
	     "daemon_dispatch($self, /)\n--\n\n"
	     "Hears the daemon, or looks for it (once a second at most). Whether the store is registered.");

static PyMethodDef store_methods[] = {
	{"put_buffers", PYSHM_METHOD(pyshm_store_put_buffers), METH_VARARGS | METH_KEYWORDS, put_buffers_doc},
	{"view", PYSHM_METHOD(pyshm_store_view), METH_VARARGS | METH_KEYWORDS, view_doc},
	{"create", PYSHM_METHOD(pyshm_store_create), METH_VARARGS | METH_KEYWORDS, create_doc},
	{"contains", pyshm_store_contains, METH_O, contains_doc},
	{"_wait", pyshm_store_wait, METH_VARARGS, NULL},
	{"_owner", pyshm_store_owner, METH_NOARGS, NULL},
	{"delete", pyshm_store_delete, METH_O, delete_doc},
	{"set_address", PYSHM_METHOD(store_set_address), METH_VARARGS | METH_KEYWORDS, set_address_doc},
	{"demote", pyshm_store_demote, METH_O, demote_doc},
	{"promote", PYSHM_METHOD(pyshm_store_promote), METH_VARARGS | METH_KEYWORDS, promote_doc},
	{"pin", pyshm_store_pin, METH_O, pin_doc},
	{"unpin", pyshm_store_unpin, METH_O, unpin_doc},
	{"locate", pyshm_store_locate, METH_O, locate_doc},
	{"asked", pyshm_store_asked, METH_NOARGS, asked_doc},
	{"daemon_fd", pyshm_store_daemon_fd, METH_NOARGS, daemon_fd_doc},
	{"daemon_dispatch", pyshm_store_daemon_dispatch, METH_NOARGS, daemon_dispatch_doc},
	{"close", store_close, METH_NOARGS, close_doc},
	{"_born_begin", pyshm_born_begin, METH_VARARGS, NULL},
	{"_prefetch", pyshm_store_prefetch, METH_VARARGS, NULL},
	{"_handoff", pyshm_store_handoff, METH_VARARGS, NULL},
	{"_adopt", pyshm_store_adopt, METH_VARARGS, NULL},
	{"_usage", store_usage, METH_NOARGS, NULL},
	{"_keys", pyshm_store_keys, METH_NOARGS, NULL},
	{"_objects", pyshm_store_objects, METH_NOARGS, NULL},
	{"_arb_available", pyshm_store_arb_available, METH_NOARGS, NULL},
	{"_arb_pool_create", pyshm_store_arb_pool_create, METH_VARARGS, NULL},
	{"_arb_pool_resize", pyshm_store_arb_pool_resize, METH_VARARGS, NULL},
	{"_arb_pool_remove", pyshm_store_arb_pool_remove, METH_VARARGS, NULL},
	{"_arb_pool_info", pyshm_store_arb_pool_info, METH_VARARGS, NULL},
	{"_arb_task_begin", pyshm_store_arb_task_begin, METH_VARARGS, NULL},
	{"_arb_task_end", pyshm_store_arb_task_end, METH_VARARGS, NULL},
	{"_arb_stats", pyshm_store_arb_stats, METH_VARARGS, NULL},
	{"_arb_fd", pyshm_store_arb_fd, METH_NOARGS, NULL},
	{"_arb_next", pyshm_store_arb_next, METH_VARARGS, NULL},
	{"_arb_listen", pyshm_store_arb_listen, METH_VARARGS, NULL},
	{"_arb_serve", pyshm_store_arb_serve, METH_VARARGS, NULL},
	{"_arb_serve_fd", pyshm_store_arb_serve_fd, METH_NOARGS, NULL},
	{"_profile_begin", pyshm_store_profile_begin, METH_VARARGS, NULL},
	{"_profile_sample", pyshm_store_profile_sample, METH_VARARGS, NULL},
	{"_profile_end", pyshm_store_profile_end, METH_VARARGS, NULL},
	{"_profile_estimate", pyshm_store_profile_estimate, METH_VARARGS, NULL},
	{"_stage_query", pyshm_store_stage_query, METH_VARARGS, NULL},
	{"_stage_begin", pyshm_store_stage_begin, METH_VARARGS, NULL},
	{"_stage_end", pyshm_store_stage_end, METH_NOARGS, NULL},
	{"_task_admit", pyshm_store_task_admit, METH_VARARGS, NULL},
	{"_task_done", pyshm_store_task_done, METH_O, NULL},
	{"_place_open", pyshm_store_place_open, METH_VARARGS, NULL},
	{"_actor_begin", pyshm_store_actor_begin, METH_VARARGS, NULL},
	{"_actor_end", pyshm_store_actor_end, METH_VARARGS, NULL},
	{"_actor_next", pyshm_store_actor_next, METH_VARARGS, NULL},
	{"_actor_fd", pyshm_store_actor_fd, METH_O, NULL},
	{"_actor_done", pyshm_store_actor_done, METH_VARARGS, NULL},
	{"_actor_call", pyshm_store_actor_call, METH_VARARGS, NULL},
	{"_actor_move", pyshm_store_actor_move, METH_VARARGS, NULL},
	{"_actor_answer", pyshm_store_actor_answer, METH_VARARGS, NULL},
	{"_preempt_fd", pyshm_store_preempt_fd, METH_NOARGS, NULL},
	{"_preempt_next", pyshm_store_preempt_next, METH_NOARGS, NULL},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef store_getset[] = {
	{"name", pyshm_get_object, NULL, "The store's name.", PYSHM_MEMBER(pyshm_store, name)},
	{"path", pyshm_get_object, NULL, "The store's absolute directory.", PYSHM_MEMBER(pyshm_store, path)},
	{"partition", pyshm_get_object, NULL, "The partition it was opened in.", PYSHM_MEMBER(pyshm_store, partition)},
	{"closed", pyshm_get_bool, NULL, "Whether close() was called.", PYSHM_MEMBER(pyshm_store, closing)},
	{"readonly", pyshm_get_bool, NULL, "Whether it was opened to be read.", PYSHM_MEMBER(pyshm_store, readonly)},
	{NULL, NULL, NULL, NULL, NULL},
};

static char store_doc[] =
	PyDoc_STR("Store(partition, name, keep=False, label=None, directory=None, recycle_max=None, "
		  "readonly=False, adopt=False,\n"
		  "      fresh=False, daemon=\"auto\", wait=None, arbitrate=False, any_user=False, pack_max=None,\n"
		  "      leases_with=None)\n--\n\n"
		  "One process's directory of objects.");

static PyType_Slot store_slots[] = {
	{Py_tp_doc, store_doc},
	{Py_tp_new, store_new},
	{Py_tp_finalize, store_finalize},
	{Py_tp_dealloc, store_dealloc},
	{Py_tp_methods, store_methods},
	{Py_tp_getset, store_getset},
	{0, NULL},
};

PyType_Spec pyshm_store_spec = {
	.name = "shmstore._shmstore.Store",
	.basicsize = sizeof(struct pyshm_store),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = store_slots,
};
