/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pykey.c: keys and other text between Python and the library. A key is bytes to the library. A str stands for its UTF-8, so
 * that C programs, the command line and Python mean the same object by the same word; bytes stand for themselves. Rejected:
 * marking the type in the stored key, which would hide Python's keys from everybody else.
 */
#include <string.h>

#include "pyshm.h"

int pyshm_key_bytes(PyObject *key, const void **ret_data, size_t *ret_size)
{
	if (PyUnicode_Check(key)) {
		Py_ssize_t size;
		const char *data = PyUnicode_AsUTF8AndSize(key, &size);

		if (!data)
			return -1;
		*ret_data = data;
		*ret_size = (size_t)size;
		return 0;
	}
	if (PyBytes_Check(key)) {
		*ret_data = PyBytes_AS_STRING(key);
		*ret_size = (size_t)PyBytes_GET_SIZE(key);
		return 0;
	}
	PyErr_Format(PyExc_TypeError, "a key must be str or bytes, not %.100s", Py_TYPE(key)->tp_name);
	return -1;
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
