/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyactor.c: places, actors and calls, in the extension module; shmstore.actors puts classes around them.
 *
 * A place and a call are capsules that hold the store's object. Their last reference may go while another thread closes the store, which must be over before: then they
 * are only memory. No call here waits longer than it is told to, so that whoever waits in slices hears signals, and a close.
 */
#include "pyactor.h"

#include <shmstore/actor.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pyarb.h"

#define PLACE "shmstore.place"
#define CALL  "shmstore.call"

static void wait_closed(struct pyshm_store *self)
{
	if (self->pid != getpid())
		return;
	pthread_mutex_lock(&self->lock);
	while (!self->closed)
		pthread_cond_wait(&self->idle, &self->lock);
	pthread_mutex_unlock(&self->lock);
}

static void give_back(PyObject *capsule, const char *kind)
{
	struct pyshm_store *self = PyCapsule_GetContext(capsule);
	void *what = PyCapsule_GetPointer(capsule, kind);
	bool entered;

	Py_BEGIN_ALLOW_THREADS
	entered = pyshm_store_enter_quietly(self);
	if (!entered)
		wait_closed(self);
	if (strcmp(kind, PLACE) == 0)
		shmstore_place_close(what);
	else
		shmstore_actor_forget(what);
	if (entered)
		pyshm_store_leave(self);
	Py_END_ALLOW_THREADS
	Py_DECREF(self);
}

static void place_destroy(PyObject *capsule)
{
	give_back(capsule, PLACE);
}

static void call_destroy(PyObject *capsule)
{
	give_back(capsule, CALL);
}

static PyObject *wrap(struct pyshm_store *self, void *what, const char *kind)
{
	PyObject *capsule = PyCapsule_New(what, kind, NULL);

	if (!capsule || PyCapsule_SetContext(capsule, self) < 0) {
		Py_XDECREF(capsule);
		return NULL;
	}
	Py_INCREF(self);
	if (PyCapsule_SetDestructor(capsule, strcmp(kind, PLACE) == 0 ? place_destroy : call_destroy) < 0) {
		Py_DECREF(self);
		Py_DECREF(capsule);
		return NULL;
	}
	return capsule;
}

/* The place in a capsule of this store. Return: 1; 0 with an exception. */
static int take_place(PyObject *capsule, void *ret)
{
	struct shmstore_place **p = ret;

	*p = PyCapsule_GetPointer(capsule, PLACE);
	return *p != NULL;
}

static int take_call(PyObject *capsule, void *ret)
{
	struct shmstore_actor_call **c = ret;

	*c = PyCapsule_GetPointer(capsule, CALL);
	return *c != NULL;
}

PyObject *pyshm_store_place_open(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct shmstore_place *p = NULL;
	unsigned long long room = SHMSTORE_PLACE_ROOMY;
	PyObject *number, *capsule;
	const char *name;
	int r;

	if (!PyArg_ParseTuple(args, "sO:_place_open", &name, &number) ||
	    (number != Py_None && !pyarb_bytes(number, &room)) || !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_place_open(self->s, name, room, &p));
	if (r)
		return pyshm_store_raise(self, r, "open place", PyTuple_GET_ITEM(args, 0));
	capsule = wrap(self, p, PLACE);
	if (!capsule)
		shmstore_place_close(p);
	return capsule;
}

PyObject *pyshm_store_actor_begin(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct shmstore_actor_options o = SHMSTORE_ACTOR_OPTIONS_INIT;
	unsigned long long step_ms, suspend_ms;
	struct shmstore_place *p;
	const char *name;
	int r;

	if (!PyArg_ParseTuple(args, "O&szIIIO&O&Iz:_actor_begin", take_place, &p, &name, &o.parent, &o.level, &o.flags,
			      &o.at_once, pyarb_bytes, &step_ms, pyarb_bytes, &suspend_ms, &o.max_restarts,
			      &o.copies) ||
	    !pyshm_store_enter(self))
		return NULL;
	o.step_ms = step_ms;
	o.suspend_ms = suspend_ms;
	PYSHM_STORE_CALL(self, r = shmstore_actor_begin(p, name, &o));
	if (r)
		return pyshm_store_raise(self, r, "begin actor", PyTuple_GET_ITEM(args, 1));
	Py_RETURN_NONE;
}

PyObject *pyshm_store_actor_end(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct shmstore_place *p;
	const char *name;
	int r;

	if (!PyArg_ParseTuple(args, "O&s:_actor_end", take_place, &p, &name) || !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_actor_end(p, name));
	if (r)
		return pyshm_store_raise(self, r, "end actor", PyTuple_GET_ITEM(args, 1));
	Py_RETURN_NONE;
}

PyObject *pyshm_store_actor_next(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct shmstore_actor_order o;
	unsigned long long timeout_ms;
	struct shmstore_place *p;
	int r;

	if (!PyArg_ParseTuple(args, "O&O&:_actor_next", take_place, &p, pyarb_bytes, &timeout_ms) ||
	    !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_actor_next(p, timeout_ms, &o));
	if (r < 0)
		return pyshm_store_raise(self, r, "ask for orders", NULL);
	if (r == 0)
		Py_RETURN_NONE;
	return Py_BuildValue("IsKKKsy#", (unsigned)o.what, o.name, (unsigned long long)o.request,
			     (unsigned long long)o.step, (unsigned long long)o.version, o.key, (const char *)o.data,
			     (Py_ssize_t)o.data_size);
}

PyObject *pyshm_store_actor_fd(PyObject *op, PyObject *place)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct shmstore_place *p;
	int r;

	if (!take_place(place, &p) || !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_actor_fd(p));
	if (r < 0)
		return pyshm_store_raise(self, r, "find the descriptor of a place", NULL);
	return PyLong_FromLong(r);
}

PyObject *pyshm_store_actor_done(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	unsigned long long request, step, version;
	struct shmstore_actor_order o = {0};
	struct shmstore_place *p;
	const char *name, *data;
	unsigned what, how;
	Py_ssize_t n;
	int r;

	if (!PyArg_ParseTuple(args, "O&IsO&O&O&Iy#:_actor_done", take_place, &p, &what, &name, pyarb_bytes, &request,
			      pyarb_bytes, &step, pyarb_bytes, &version, &how, &data, &n) ||
	    !pyshm_store_enter(self))
		return NULL;
	o.what = what;
	o.request = request;
	o.step = step;
	o.version = version;
	snprintf(o.name, sizeof(o.name), "%s", name);
	snprintf(o.key, sizeof(o.key), "ckpt/%s/%llu", o.name, version);
	PYSHM_STORE_CALL(self, r = shmstore_actor_done(p, &o, (enum shmstore_actor_how)how, data, (size_t)n));
	if (r < 0)
		return pyshm_store_raise(self, r, "say how an order ended, of actor", PyTuple_GET_ITEM(args, 2));
	Py_RETURN_NONE;
}

static PyObject *wrap_call(struct pyshm_store *self, struct shmstore_actor_call *c)
{
	PyObject *capsule = wrap(self, c, CALL);

	if (!capsule)
		shmstore_actor_forget(c);
	return capsule;
}

PyObject *pyshm_store_actor_call(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct shmstore_actor_call *c = NULL;
	const char *name, *data;
	Py_ssize_t n;
	int r;

	if (!PyArg_ParseTuple(args, "sy#:_actor_call", &name, &data, &n) || !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_actor_call(self->s, name, data, (size_t)n, &c));
	if (r)
		return pyshm_store_raise(self, r, "call actor", PyTuple_GET_ITEM(args, 0));
	return wrap_call(self, c);
}

PyObject *pyshm_store_actor_move(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct shmstore_actor_call *c = NULL;
	const char *name, *place;
	int r;

	if (!PyArg_ParseTuple(args, "sz:_actor_move", &name, &place) || !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_actor_move(self->s, name, place, &c));
	if (r)
		return pyshm_store_raise(self, r, "move actor", PyTuple_GET_ITEM(args, 0));
	return wrap_call(self, c);
}

PyObject *pyshm_store_actor_answer(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct shmstore_actor_answer answer;
	struct shmstore_actor_call *c;
	unsigned long long timeout_ms;
	int r;

	if (!PyArg_ParseTuple(args, "O&O&:_actor_answer", take_call, &c, pyarb_bytes, &timeout_ms) ||
	    !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_actor_answer(c, timeout_ms, &answer));
	if (r < 0)
		return pyshm_store_raise(self, r, "have an actor's answer", NULL);
	if (r == 0)
		Py_RETURN_NONE;
	return Py_BuildValue("Iy#", (unsigned)answer.how, answer.data ? (const char *)answer.data : "",
			     (Py_ssize_t)answer.data_size);
}
