/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyconvert.c: arguments and text between Python and the library: the converters that the words of
 * pycalls.c name. A converter returns 1, or 0 with an exception, and holds no reference.
 *
 * A key is bytes to the library. A str stands for its UTF-8, so that C programs, the command line
 * and Python mean the same object by the same word; bytes stand for themselves. Rejected: marking
 * the type in the stored key, which would hide Python's keys from everybody else.
 */
#include <errno.h>
#include <string.h>

#include "pyshm.h"

int pyshm_key(PyObject *object, void *ret)
{
	struct pyshm_key *key = ret;
	Py_ssize_t size;

	if (PyUnicode_Check(object)) {
		key->data = PyUnicode_AsUTF8AndSize(object, &size);
		if (!key->data)
			return 0;
	} else if (PyBytes_Check(object)) {
		key->data = PyBytes_AS_STRING(object);
		size = PyBytes_GET_SIZE(object);
	} else {
		PyErr_Format(PyExc_TypeError, "a key must be str or bytes, not %.100s",
			     Py_TYPE(object)->tp_name);
		return 0;
	}
	key->object = object;
	key->size = (size_t)size;
	return 1;
}

PyObject *pyshm_key_object(const void *data, size_t size)
{
	PyObject *text = PyUnicode_DecodeUTF8(data, (Py_ssize_t)size, "strict");

	if (text || !PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
		return text;
	PyErr_Clear();
	return PyBytes_FromStringAndSize(data, (Py_ssize_t)size);
}

PyObject *pyshm_text(const char *text)
{
	return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "surrogateescape");
}

int pyshm_u64(PyObject *number, void *ret)
{
	PyObject *index = PyNumber_Index(number);
	uint64_t value = index ? PyLong_AsUnsignedLongLong(index) : 0;

	Py_XDECREF(index);
	if (PyErr_Occurred())
		return 0;
	*(uint64_t *)ret = value;
	return 1;
}

int pyshm_u64_or_none(PyObject *number, void *ret)
{
	*(uint64_t *)ret = UINT64_MAX;
	return number == Py_None || pyshm_u64(number, ret);
}

int pyshm_uid(PyObject *number, void *ret)
{
	uint64_t uid = UINT32_MAX;

	if (number != Py_None && pyshm_u64(number, &uid) && uid >= UINT32_MAX)
		PyErr_Format(PyExc_OverflowError, "%R is no user id", number);
	*(uid_t *)ret = (uid_t)uid;
	return !PyErr_Occurred();
}

int pyshm_not(PyObject *object, void *ret)
{
	int truth = PyObject_IsTrue(object);

	*(int *)ret = truth == 0;
	return truth >= 0;
}

/* The bytes of a path, cut to so many with the NUL. Return: 1; 0 with an exception. */
static int path_bytes(PyObject *object, char *ret, size_t size)
{
	PyObject *bytes;

	if (!PyUnicode_FSConverter(object, &bytes))
		return 0;
	strncpy(ret, PyBytes_AS_STRING(bytes), size);
	Py_DECREF(bytes);
	return 1;
}

int pyshm_path(PyObject *object, void *ret)
{
	struct pyshm_path *path = ret;

	path->text = object == Py_None ? NULL : path->bytes;
	path->bytes[sizeof(path->bytes) - 1] = '\0';
	return object == Py_None || path_bytes(object, path->bytes, sizeof(path->bytes) - 1);
}

/* ---- tickets: shmstore.Ticket's triplet, the library's struct, and its line of text ---- */

int pyshm_ticket_path(PyObject *object, void *ret)
{
	struct shmstore_ticket *ticket = ret;

	/* The library refuses one that fills the array, and has no NUL. */
	return path_bytes(object, ticket->path, sizeof(ticket->path));
}

PyObject *pyshm_ticket_tuple(const struct shmstore_ticket *t)
{
	return Py_BuildValue("NKK", PyUnicode_DecodeFSDefault(t->path),
			     (unsigned long long)t->header_size,
			     (unsigned long long)t->buffer_size);
}

PyObject *pyshm_ticket_format(PyObject *module, PyObject *args)
{
	struct shmstore_ticket ticket = {0};
	char text[SHMSTORE_TICKET_TEXT];
	int r;

	if (!PyArg_ParseTuple(args, "O&O&O&:ticket_format", pyshm_ticket_path, &ticket, pyshm_u64,
			      &ticket.header_size, pyshm_u64, &ticket.buffer_size))
		return NULL;
	r = shmstore_ticket_format(&ticket, text, sizeof(text));
	if (r < 0)
		return pyshm_raise(PyModule_GetState(module), r, NULL,
				   "format the ticket of '%.200s'", ticket.path);
	return PyUnicode_FromString(text);
}

PyObject *pyshm_ticket_parse(PyObject *module, PyObject *text)
{
	struct shmstore_ticket ticket;
	Py_ssize_t size;
	const char *data;
	int r;

	if (!PyUnicode_Check(text))
		return PyErr_Format(PyExc_TypeError, "a ticket's text must be str, not %.100s",
				    Py_TYPE(text)->tp_name);
	data = PyUnicode_AsUTF8AndSize(text, &size);
	if (!data)
		return NULL;
	r = strlen(data) == (size_t)size ? shmstore_ticket_parse(data, &ticket) : -EBADMSG;
	if (r < 0)
		return pyshm_raise(PyModule_GetState(module), r, NULL, "parse the ticket %.200R",
				   text);
	return pyshm_ticket_tuple(&ticket);
}
