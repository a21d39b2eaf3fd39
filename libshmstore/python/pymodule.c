/* SPDX-License-Identifier: Apache-2.0 */
/* pymodule.c: the module shmstore._shmstore: its state, its types, its few functions. */
#include <limits.h>

#include "pyshm.h"

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **ret)
{
	PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);

	if (!type)
		return -1;
	*ret = (PyTypeObject *)type;
	return PyModule_AddType(module, *ret);
}

/* Called by a put that waits. Python handles signals in its main thread alone. */
static int run_signal_handlers(void)
{
	PyGILState_STATE gil;
	int r;

	if (!Py_IsInitialized())
		return 0;
	gil = PyGILState_Ensure();
	r = PyErr_CheckSignals();
	PyGILState_Release(gil);
	return r < 0;
}

static int module_exec(PyObject *module)
{
	struct pyshm_state *state = PyModule_GetState(module);
	PyObject *errors = PyImport_ImportModule("shmstore.errors");

#define FIND(name) state->name = errors ? PyObject_GetAttrString(errors, #name) : NULL;
	PYSHM_STATE_ERRORS(FIND)
	Py_XDECREF(errors);
	if (PyErr_Occurred())
		return -1;
#define ADD(name)                                                            \
	if (add_type(module, &pyshm_##name##_spec, &state->name##_type) < 0) \
		return -1;
	PYSHM_STATE_TYPES(ADD)
	shmstore_on_wait(run_signal_handlers);
	return 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
	struct pyshm_state *state = PyModule_GetState(module);

#define VISIT(name)      Py_VISIT(state->name);
#define VISIT_TYPE(name) Py_VISIT(state->name##_type);
	PYSHM_STATE_ERRORS(VISIT)
	PYSHM_STATE_TYPES(VISIT_TYPE)
	return 0;
}

static int module_clear(PyObject *module)
{
	struct pyshm_state *state = PyModule_GetState(module);

#define CLEAR(name)      Py_CLEAR(state->name);
#define CLEAR_TYPE(name) Py_CLEAR(state->name##_type);
	PYSHM_STATE_ERRORS(CLEAR)
	PYSHM_STATE_TYPES(CLEAR_TYPE)
	return 0;
}

static void module_free(void *module)
{
	module_clear(module);
}

static PyObject *default_path(PyObject *module, PyObject *Py_UNUSED(ignored))
{
	char path[SHMSTORE_TICKET_PATH];
	int r = shmstore_default_path(path, sizeof(path));

	if (r < 0)
		return pyshm_raise(PyModule_GetState(module), r, NULL,
				   "find the default partition");
	return PyUnicode_DecodeFSDefault(path);
}

static PyObject *library_strerror(PyObject *Py_UNUSED(module), PyObject *code)
{
	int overflow;
	long value = PyLong_AsLongAndOverflow(code, &overflow);

	if (value == -1 && PyErr_Occurred())
		return NULL;
	return pyshm_text(shmstore_strerror(
		overflow || value < -INT_MAX || value > INT_MAX ? INT_MAX : (int)value));
}

static PyObject *library_version(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
	return PyUnicode_FromString(shmstore_version());
}

PyDoc_STRVAR(default_path_doc, "default_path($module, /)\n--\n\n"
			       "The partition used where none is named: $SHMSTORE_PARTITION, else "
			       "the one chosen when the\n"
			       "library was built.");
PyDoc_STRVAR(strerror_doc,
	     "strerror($module, errno, /)\n--\n\nThe meaning of a code in this library.");
PyDoc_STRVAR(version_doc,
	     "version($module, /)\n--\n\nThe library's version, \"major.minor.patch\".");

static PyMethodDef module_methods[] = {
	{"default_path", default_path, METH_NOARGS, default_path_doc},
	{"strerror", library_strerror, METH_O, strerror_doc},
	{"version", library_version, METH_NOARGS, version_doc},
	{"_unlocked", pyshm_unlocked, METH_O, NULL},
	{"_born_end", pyshm_born_end, METH_VARARGS, NULL},
	{"ticket_format", pyshm_ticket_format, METH_VARARGS, NULL},
	{"ticket_parse", pyshm_ticket_parse, METH_O, NULL},
	{NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {
	{Py_mod_exec, module_exec},
#if PY_VERSION_HEX >= 0x030D0000
	{Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
	{0, NULL},
};

PyDoc_STRVAR(module_doc, "The library's calls as they are; see the package shmstore.");

PyMODINIT_FUNC PyInit__shmstore(void); /* -Wmissing-prototypes */

PyMODINIT_FUNC PyInit__shmstore(void)
{
	pyshm_module.m_doc = module_doc;
	pyshm_module.m_methods = module_methods;
	pyshm_module.m_slots = module_slots;
	pyshm_module.m_traverse = module_traverse;
	pyshm_module.m_clear = module_clear;
	pyshm_module.m_free = module_free;
	return PyModuleDef_Init(&pyshm_module);
}
