/* SPDX-License-Identifier: Apache-2.0 */
/* pystate.c: the module's state, members of its objects as attributes, the end of an object. */
#include "pyshm.h"

/* Public from 3.11 on; 3.10 has the same function under its private name. */
#if PY_VERSION_HEX < 0x030b0000
#define PyType_GetModuleByDef _PyType_GetModuleByDef
#endif

struct PyModuleDef pyshm_module = {
	PyModuleDef_HEAD_INIT,
	.m_name = "shmstore._shmstore",
	.m_size = sizeof(struct pyshm_state),
};

struct pyshm_state *pyshm_state_of(PyTypeObject *type)
{
	return PyModule_GetState(PyType_GetModuleByDef(type, &pyshm_module));
}

PyObject *pyshm_get_object(PyObject *op, void *closure)
{
	return Py_NewRef(*(PyObject **)(void *)((char *)op + (size_t)closure));
}

PyObject *pyshm_get_bool(PyObject *op, void *closure)
{
	return PyBool_FromLong(*((atomic_bool *)op + (size_t)closure));
}

PyObject *pyshm_get_u64(PyObject *op, void *closure)
{
	return PyLong_FromUnsignedLongLong(*(uint64_t *)(void *)((char *)op + (size_t)closure));
}

void pyarb_dealloc(PyObject *op)
{
	PyTypeObject *type = Py_TYPE(op);

	if (PyObject_CallFinalizerFromDealloc(op) < 0)
		return;
	Py_CLEAR(((struct pyarb_context *)op)->store);
	type->tp_free(op);
	Py_DECREF(type);
}
