/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyerror.c: the library's error codes, and the arbiter's outcomes, as exceptions. shmstore.errors
 * has their classes, and makes each of what is known here: the code, what was tried, the library's
 * sentence about it (shmstore_error_detail()).
 */
#include <errno.h>

#include "pyshm.h"

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
