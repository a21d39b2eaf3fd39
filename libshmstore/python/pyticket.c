/* SPDX-License-Identifier: Apache-2.0 */
/* pyticket.c: shmstore.Ticket's triplet as the library's struct and its line of text. Pure. */
#include <errno.h>
#include <string.h>

#include "pyshm.h"

int pyshm_ticket_init(struct shmstore_ticket *t, PyObject *path, unsigned long long header_size,
		      unsigned long long buffer_size, struct pyshm_state *state)
{
	PyObject *bytes;
	size_t size;

	if (!PyUnicode_FSConverter(path, &bytes))
		return -1;
	size = (size_t)PyBytes_GET_SIZE(bytes);
	if (size >= sizeof(t->path)) {
		Py_DECREF(bytes);
		pyshm_raise(state, -EINVAL, "a ticket with a path over 4095 bytes", NULL, NULL);
		return -1;
	}
	memset(t, 0, sizeof(*t));
	memcpy(t->path, PyBytes_AS_STRING(bytes), size);
	t->header_size = header_size;
	t->buffer_size = buffer_size;
	Py_DECREF(bytes);
	return 0;
}

PyObject *pyshm_ticket_tuple(const struct shmstore_ticket *t)
{
	return Py_BuildValue("NKK", PyUnicode_DecodeFSDefault(t->path), (unsigned long long)t->header_size,
			     (unsigned long long)t->buffer_size);
}

PyObject *pyshm_ticket_format(PyObject *module, PyObject *args)
{
	struct pyshm_state *state = PyModule_GetState(module);
	unsigned long long header_size, buffer_size;
	struct shmstore_ticket ticket;
	PyObject *path, *result;
	char *text;
	int r;

	if (!PyArg_ParseTuple(args, "OKK:ticket_format", &path, &header_size, &buffer_size))
		return NULL;
	if (pyshm_ticket_init(&ticket, path, header_size, buffer_size, state) < 0)
		return NULL;
	text = PyMem_Malloc(SHMSTORE_TICKET_TEXT);
	if (!text)
		return PyErr_NoMemory();
	r = shmstore_ticket_format(&ticket, text, SHMSTORE_TICKET_TEXT);
	result = r < 0 ? pyshm_raise(state, r, "format the ticket of", path, NULL) : PyUnicode_FromString(text);
	PyMem_Free(text);
	return result;
}

PyObject *pyshm_ticket_parse(PyObject *module, PyObject *text)
{
	struct shmstore_ticket ticket;
	Py_ssize_t size;
	const char *data;
	int r;

	if (!PyUnicode_Check(text)) {
		PyErr_Format(PyExc_TypeError, "a ticket's text must be str, not %.100s", Py_TYPE(text)->tp_name);
		return NULL;
	}
	data = PyUnicode_AsUTF8AndSize(text, &size);
	if (!data)
		return NULL;
	r = strlen(data) == (size_t)size ? shmstore_ticket_parse(data, &ticket) : -EBADMSG;
	if (r < 0)
		return pyshm_raise(PyModule_GetState(module), r, "parse the ticket", text, NULL);
	return pyshm_ticket_tuple(&ticket);
}
