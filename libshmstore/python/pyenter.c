/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyenter.c: how calls go into a store or a partition and come out, and raise what failed there. A
 * store has a count that keeps its close apart from calls in other threads.
 *
 * shmstore_close() must be the last call on a store. So each call counts itself in and out
 * (pyshm_store_enter, _leave), and close() lets nobody in any more, waits until all are out - they
 * are bounded: none waits for another store - and then closes. The count has a lock of its own,
 * which is never held while the GIL is waited for. No Python code runs between enter and leave, so
 * a thread cannot wait for itself.
 *
 * In a forked child the store is not ours: nothing here touches the lock, which some thread
 * of the parent may have held.
 */
#include <errno.h>
#include <sched.h>
#include <unistd.h>

#include "pyshm.h"

struct shmstore_partition *pyshm_partition_enter(struct pyshm_partition *self)
{
	struct shmstore_partition *p;

	PYSHM_LOCKED(self, p = self->p ? shmstore_partition_ref(self->p) : NULL);
	if (p)
		return p;
	return pyshm_raise_closed(pyshm_state_of(Py_TYPE(self)), "partition", self->path,
				  "Partition()");
}

/*
 * In a forked child: a store that is only read is the child's as well. Threads that were in a call
 * are not here. The first thread that comes makes lock and idle anew; pid is -getpid() meanwhile.
 */
__attribute__((cold)) static bool goes_on(struct pyshm_store *self)
{
	pid_t me = getpid(), before = self->pid;

	if (!self->readonly || (self->closing && !self->closed))
		return false;
	while (before != me) {
		if (before == -me)
			sched_yield();
		else if (atomic_compare_exchange_strong(&self->pid, &before, -me)) {
			pthread_mutex_init(&self->lock, NULL);
			pthread_cond_init(&self->idle, NULL);
			self->n_calls = 0;
			self->pid = me;
		}
		before = self->pid;
	}
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
		pyshm_store_raise(self, -EPERM, "use in a forked child");
	else
		pyshm_raise_closed(pyshm_state_of(Py_TYPE(self)), "store", self->name,
				   "Partition.open()");
	return false;
}

void pyshm_store_leave(struct pyshm_store *self)
{
	pthread_mutex_lock(&self->lock);
	if (--self->n_calls == 0 && self->closing)
		pthread_cond_broadcast(&self->idle);
	pthread_mutex_unlock(&self->lock);
}

PyObject *pyshm_store_where(struct pyshm_store *self)
{
	return PyUnicode_FromFormat("store %R of %U", self->name,
				    ((struct pyshm_partition *)self->partition)->path);
}

void *pyshm_store_raise(struct pyshm_store *self, int error, const char *format, ...)
{
	PyObject *where = pyshm_store_where(self);
	va_list ap;

	va_start(ap, format);
	if (where && error > 0)
		pyarb_raise_va(self, error, format, ap);
	else if (where)
		pyshm_raise_va(pyshm_state_of(Py_TYPE(self)), error, where, format, ap);
	va_end(ap);
	Py_XDECREF(where);
	return NULL;
}

/* Is it the store of a reader that is not there, and not the key? The
 * library's sentence says so then. */
static bool is_gone(struct pyshm_store *self)
{
	int pid, alive, r = 0;

	if (self->readonly && pyshm_store_enter_quietly(self)) {
		r = shmstore_owner(self->s, &pid, &alive);
		pyshm_store_leave(self);
	}
	return r == -ENOENT;
}

void *pyshm_store_raise_missing(struct pyshm_store *self, int error, const char *operation,
				PyObject *key)
{
	char format[32];

	if (error != -ENOENT || is_gone(self)) {
		snprintf(format, sizeof(format), "%s %%.200R", operation);
		return pyshm_store_raise(self, error, format, key);
	}
	PyErr_SetObject(PyExc_KeyError, key);
	return NULL;
}

/* ---- the library's errors as exceptions ------------------------------------------------------ */

/*
 * The library's error codes, and the arbiter's outcomes, as exceptions. shmstore.errors has their
 * classes, and makes each of what is known here: the code, what was tried, the library's
 * sentence about it (shmstore_error_detail()).
 */

/* Raises an exception, which it consumes. made: NULL where one is set already. Returns NULL. */
static void *raise_made(PyObject *made)
{
	if (made)
		PyErr_SetObject((PyObject *)Py_TYPE(made), made);
	Py_XDECREF(made);
	return NULL;
}

void *pyshm_raise(struct pyshm_state *state, int error, PyObject *where, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	pyshm_raise_va(state, error, where, format, ap);
	va_end(ap);
	return NULL;
}

void *pyshm_raise_va(struct pyshm_state *state, int error, PyObject *where, const char *format,
		     va_list ap)
{
	/* This thread's, and copied before anything below could call the library. Nothing is there
	 * where the error is the binding's own. */
	const char *said = shmstore_error_detail();
	PyObject *detail = pyshm_text(*said ? said : shmstore_strerror(error));
	PyObject *path = detail ? PyUnicode_DecodeFSDefault(shmstore_error_path()) : NULL;
	PyObject *what = NULL, *made = NULL;
	int code = error < 0 ? -error : error;

	/* An exception of a signal's handler goes before the end of the call that waited. */
	if (path && !(code == ECANCELED && PyErr_Occurred()))
		what = PyUnicode_FromFormatV(format, ap);
	if (what)
		made = PyObject_CallFunction(state->failed, "isOOOO", code, format, what,
					     where ? where : Py_None, detail, path);
	Py_XDECREF(what);
	Py_XDECREF(path);
	Py_XDECREF(detail);
	return raise_made(made);
}

void *pyshm_raise_closed(struct pyshm_state *state, const char *kind, PyObject *name,
			 const char *how)
{
	return raise_made(PyObject_CallFunction(state->closed, "sOs", kind, name, how));
}

PyObject *pyarb_exception(struct pyshm_store *store, int r, PyObject *what)
{
	/* This thread's, and copied before anything below could call the library. */
	PyObject *why = pyshm_text(r > 0 ? shmstore_arb_why() : "");
	PyObject *said = pyshm_text(r < 0 ? shmstore_strerror(r) : shmstore_arb_outcome_name(r));
	PyObject *where = why && said && what ? pyshm_store_where(store) : NULL;
	PyObject *made = NULL;

	if (where)
		made = PyObject_CallFunction(pyshm_state_of(Py_TYPE(store))->refused, "iOOOO", r,
					     what, where, why, said);
	Py_XDECREF(where);
	Py_XDECREF(said);
	Py_XDECREF(why);
	Py_XDECREF(what);
	return made;
}

void *pyarb_raise(struct pyshm_store *store, int r, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	pyarb_raise_va(store, r, format, ap);
	va_end(ap);
	return NULL;
}

void *pyarb_raise_va(struct pyshm_store *store, int r, const char *format, va_list ap)
{
	return raise_made(pyarb_exception(store, r, PyUnicode_FromFormatV(format, ap)));
}
