/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pytask.c: tasks that ask the gate; shmstore.profiling puts a context manager around it.
 *
 * The wait may be long. Now and then it looks whether the store is being closed, or Ctrl-C was
 * pressed: then it ends. No handler of a signal runs within the library's call (pyenter.c): the
 * interrupt is put back, and taken after it.
 */
#include <errno.h>

#include "pyshm.h"

struct waiting {
	struct pyshm_store *store;
	PyThreadState *thread; /* as PyEval_SaveThread() */
	bool interrupted;
};

static int look(void *arg)
{
	struct waiting *w = arg;
	bool closing;

	pthread_mutex_lock(&w->store->lock);
	closing = w->store->closing;
	pthread_mutex_unlock(&w->store->lock);
	if (closing) /* whoever closes it may have the GIL */
		return 1;
	PyEval_RestoreThread(w->thread);
	w->interrupted = PyOS_InterruptOccurred() != 0;
	w->thread = PyEval_SaveThread();
	return w->interrupted;
}

/* How the call went, in *ret_r. False with an exception, of a signal's handler. */
static bool admit(struct pyshm_store *self, struct shmstore_task_ask *ask,
		  struct shmstore_task_grant *ret, int *ret_r)
{
	struct waiting w = {.store = self};

	ask->idle = look;
	ask->idle_arg = &w;
	w.thread = PyEval_SaveThread();
	*ret_r = shmstore_task_admit(self->s, ask, ret);
	pyshm_store_leave(self);
	PyEval_RestoreThread(w.thread);
	if (!w.interrupted)
		return true;
	PyErr_SetInterrupt();
	return PyErr_CheckSignals() == 0;
}

PyObject *pyshm_store_task_admit(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct shmstore_task_ask ask = SHMSTORE_TASK_ASK_INIT;
	struct shmstore_profile_kind kind;
	struct shmstore_task_grant grant;
	int r, retriable, worker;

	if (!PyArg_ParseTuple(args, "sssO&O&IpO&p:_task_admit", &kind.lang, &kind.func, &kind.group,
			      pyshm_u64, &ask.declared, pyshm_u64_or_none, &ask.wait_ms, &ask.level,
			      &retriable, pyshm_u64, &ask.parent, &worker) ||
	    !pyshm_store_enter(self))
		return NULL;
	ask.kind = *kind.func ? &kind : NULL;
	ask.flags = (retriable ? SHMSTORE_TASK_RETRIABLE : 0) | (worker ? SHMSTORE_TASK_WORKER : 0);
	if (!admit(self, &ask, &grant, &r))
		return NULL;
	if (r == -ECANCELED && self->closing)
		return pyshm_raise_closed(pyshm_state_of(Py_TYPE(self)), "store", self->name,
					  "Partition.open()");
	if (r < 0)
		return pyshm_store_raise(self, r, "begin task '%s'", kind.func);
	return Py_BuildValue("iKKKI", r, (unsigned long long)grant.task,
			     (unsigned long long)grant.reserve, (unsigned long long)grant.waited_ms,
			     (unsigned)grant.reason);
}
