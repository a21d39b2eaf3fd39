/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyerror.c: the library's error codes as exceptions. An Error is an OSError with the code as its
 * errno and a message made of four parts: what was tried, on which key and store or path, why it
 * failed (the library's sentence: shmstore_error_detail()), what to do about it. The sentence is
 * the attribute detail too, and the file that it is about is the filename.
 */
#include <errno.h>
#include <string.h>

#include "pyshm.h"

/*
 * The remedy in Python's words, by the most frequent cause of the code in a call about partitions,
 * stores and objects. NULL where it depends on the cause: the library's sentence has it then, and
 * the daemon's for actors, tasks and stages. on_disk: the error is about a file of the disk tier.
 */
static const char *hint(int error, const char *operation, bool on_disk)
{
	static const char *const others[] = {"actor", "place", "order", "stage", "task", "profile"};

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (strstr(operation, others[i]))
			return NULL;
	switch (error) {
	case EEXIST:
		return strstr(operation, "partition")
			       ? "a new partition needs an empty or a missing directory"
			       : "replace=True takes an object's place";
	case EBUSY:
		return strstr(operation, "open store")
			       ? "choose another name, or wait until its owner closes it or ends"
			       : NULL;
	case ENOSPC:
		return on_disk ? "free room on that disk, raise the tier's limits with "
				 "Partition.set_tier(), or delete objects"
			       : "delete objects, call Partition.gc(), or enlarge the tmpfs";
	case EDQUOT:
		return "delete objects, or ask the operator to raise the quota (shmstore-admin "
		       "quota)";
	case ETIMEDOUT:
		return "delete objects, wait longer, or see whether shmstored runs (shmstore-admin "
		       "status)";
	case EBADMSG:
		return on_disk ? "Partition.verify() and shmstore-admin verify --tier check the "
				 "rest"
			       : "put it again, or ask the donor again; Partition.verify() checks "
				 "every object";
	case ESTALE:
		return "ask the donor for a new ticket";
	case EXDEV:
		return "let both processes see the partition through one and the same mount";
	case EMFILE:
		return "raise ulimit -n";
	case ENOMEM:
		return "drop views, or raise vm.max_map_count";
	default:
		return NULL;
	}
}

/* "<operation> in <where>": see pyshm_raise(). */
static PyObject *operation_text(PyObject *where, const char *format, va_list ap)
{
	PyObject *text, *what = PyUnicode_FromFormatV(format, ap);

	if (!what || !where)
		return what;
	text = PyUnicode_FromFormat(strchr(format, '%') ? "%U in %U" : "%U %U", what, where);
	Py_DECREF(what);
	return text;
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
	PyObject *what = NULL, *message = NULL, *exception = NULL;
	int code = error < 0 ? -error : error;
	const char *todo;

	/* An exception of a signal's handler goes before the end of the call that waited. */
	if (!path || (code == ECANCELED && PyErr_Occurred()))
		goto out;
	/* A sentence with a semicolon says itself what to do. */
	todo = PyUnicode_FindChar(detail, ';', 0, PyUnicode_GET_LENGTH(detail), 1) >= 0
		       ? NULL
		       : hint(code, format, PyUnicode_GET_LENGTH(path) > 0);
	what = operation_text(where, format, ap);
	message = what ? PyUnicode_FromFormat("%U: %U%s%s", what, detail, todo ? "; " : "",
					      todo ? todo : "")
		       : NULL;
	if (!message)
		goto out;
	if (PyUnicode_GET_LENGTH(path))
		exception = PyObject_CallFunction(state->error, "iOO", code, message, path);
	else
		exception = PyObject_CallFunction(state->error, "iO", code, message);
	if (exception && PyObject_SetAttrString(exception, "detail", detail) == 0)
		PyErr_SetObject(state->error, exception);
out:
	Py_XDECREF(exception);
	Py_XDECREF(message);
	Py_XDECREF(what);
	Py_XDECREF(path);
	Py_XDECREF(detail);
	return NULL;
}

void *pyshm_raise_closed(struct pyshm_state *state, const char *kind, PyObject *name,
			 const char *how)
{
	PyObject *message =
		PyUnicode_FromFormat("%s %R is closed; open it again with %s", kind, name, how);
	PyObject *exception =
		message ? PyObject_CallFunction(state->closed_error, "iN", EBADF, message) : NULL;

	if (exception) {
		PyErr_SetObject(state->closed_error, exception);
		Py_DECREF(exception);
	}
	return NULL;
}

PyDoc_STRVAR(error_doc, "A call into the library failed.\n\n"
			"errno is one of the codes that shmstore.h lists; the message says what "
			"was tried, on what, why it failed and\n"
			"what to do. detail is the library's sentence about it, and filename the "
			"file that it is about, a damaged tier file\n"
			"say.");
PyDoc_STRVAR(closed_error_doc, "The store was closed. errno is EBADF.");

int pyshm_error_exec(PyObject *module, struct pyshm_state *state)
{
	PyObject *bases, *defaults = Py_BuildValue("{ss}", "detail", "");

	if (!defaults)
		return -1;
	state->error =
		PyErr_NewExceptionWithDoc("shmstore.Error", error_doc, PyExc_OSError, defaults);
	Py_DECREF(defaults);
	if (!state->error || PyModule_AddObjectRef(module, "Error", state->error) < 0)
		return -1;
	bases = PyTuple_Pack(2, state->error, PyExc_ValueError);
	if (!bases)
		return -1;
	state->closed_error =
		PyErr_NewExceptionWithDoc("shmstore.ClosedError", closed_error_doc, bases, NULL);
	Py_DECREF(bases);
	if (!state->closed_error ||
	    PyModule_AddObjectRef(module, "ClosedError", state->closed_error) < 0)
		return -1;
	return 0;
}
