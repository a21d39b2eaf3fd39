/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyactor.c: places and calls of actors as capsules, which hold the store's object. Their last
 * reference may go while another thread closes the store, which must be over before: then they are
 * only memory. The calls are in calls.def; none waits longer than it is told to, so that callers
 * who wait in slices hear signals, and a close.
 */
#include <string.h>
#include <unistd.h>

#include "pyshm.h"

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

static void give_back(void *what, const char *kind)
{
	if (strcmp(kind, PLACE) == 0)
		shmstore_place_close(what);
	else
		shmstore_actor_forget(what);
}

static void destroy(PyObject *capsule)
{
	struct pyshm_store *self = PyCapsule_GetContext(capsule);
	const char *kind = PyCapsule_GetName(capsule);
	void *what = PyCapsule_GetPointer(capsule, kind);
	bool entered;

	Py_BEGIN_ALLOW_THREADS
	entered = pyshm_store_enter_quietly(self);
	if (!entered)
		wait_closed(self);
	give_back(what, kind);
	if (entered)
		pyshm_store_leave(self);
	Py_END_ALLOW_THREADS
	Py_DECREF(self);
}

/* On failure it is given back. */
static PyObject *wrap(struct pyshm_store *self, void *what, const char *kind)
{
	PyObject *capsule = PyCapsule_New(what, kind, NULL);

	if (!capsule || PyCapsule_SetContext(capsule, self) < 0 ||
	    PyCapsule_SetDestructor(capsule, destroy) < 0) {
		Py_XDECREF(capsule);
		give_back(what, kind);
		return NULL;
	}
	Py_INCREF(self);
	return capsule;
}

int pyshm_place(PyObject *capsule, void *ret)
{
	struct shmstore_place **p = ret;

	*p = PyCapsule_GetPointer(capsule, PLACE);
	return *p != NULL;
}

int pyshm_actor_call(PyObject *capsule, void *ret)
{
	struct shmstore_actor_call **c = ret;

	*c = PyCapsule_GetPointer(capsule, CALL);
	return *c != NULL;
}

PyObject *pyshm_place_object(struct pyshm_store *self, struct shmstore_place *p)
{
	return wrap(self, p, PLACE);
}

PyObject *pyshm_actor_call_object(struct pyshm_store *self, struct shmstore_actor_call *c)
{
	return wrap(self, c, CALL);
}
