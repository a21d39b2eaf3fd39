/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pydaemon.c: a Store and the host daemon: how it is opened, what it is asked for, and what an event loop needs. shmstore_asked() makes
 * no system call and is called with the GIL; the others may, and give it up.
 */
#include <errno.h>

#include "pyshm.h"

#define YEAR (366.0 * 86400) /* seconds */

int pyshm_daemon_options(struct shmstore_options *io, const char *daemon, PyObject *wait, bool *ret_wait)
{
	static const char *const names[] = {[SHMSTORE_DAEMON_AUTO] = "auto",
					    [SHMSTORE_DAEMON_REQUIRED] = "required",
					    [SHMSTORE_DAEMON_OFF] = "off"};
	double seconds;
	unsigned mode = 0;

	while (mode < 3 && strcmp(daemon, names[mode]) != 0)
		mode++;
	if (mode == 3) {
		PyErr_Format(PyExc_ValueError, "daemon must be \"auto\", \"required\" or \"off\", not \"%s\"", daemon);
		return -1;
	}
	io->daemon = mode;
	*ret_wait = wait != Py_None;
	if (wait == Py_None)
		return 0;
	seconds = PyFloat_AsDouble(wait);
	if (seconds == -1 && PyErr_Occurred())
		return -1;
	/* A year is for ever; NaN is neither. */
	if (!(seconds > 0)) {
		PyErr_SetString(PyExc_ValueError, "wait must be more than 0 seconds, or None");
		return -1;
	}
	seconds = seconds < YEAR ? seconds : YEAR;
	io->wait_ms = (uint64_t)(seconds * 1000);
	io->wait_ms += (double)io->wait_ms < seconds * 1000; /* upwards: 0 would be the default */
	return 0;
}

PyObject *pyshm_store_asked(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	uint64_t bytes = 0;
	int r;

	if (!pyshm_store_enter(self))
		return NULL;
	r = shmstore_asked(self->s, &bytes);
	pyshm_store_leave(self);
	if (r < 0)
		return pyshm_store_raise(self, r, "see what is asked of", NULL);
	return PyLong_FromUnsignedLongLong(bytes);
}

PyObject *pyshm_store_daemon_fd(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	int r;

	if (!pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_daemon_fd(self->s));
	if (r == -ENOENT)
		Py_RETURN_NONE;
	if (r < 0)
		return pyshm_store_raise(self, r, "find the daemon for", NULL);
	return PyLong_FromLong(r);
}

PyObject *pyshm_store_daemon_dispatch(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	int r;

	if (!pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_daemon_dispatch(self->s));
	if (r < 0)
		return pyshm_store_raise(self, r, "hear the daemon for", NULL);
	return PyBool_FromLong(r);
}
