/* SPDX-License-Identifier: Apache-2.0 */
/* pyactor.h: places, actors and calls of a store, in the extension module. shmstore.actors puts classes around them. */
#ifndef PYACTOR_H
#define PYACTOR_H

#include "pyshm.h"

/* (name, room): room None: as the partition has. -> a place, which is closed with its last reference */
PyObject *pyshm_store_place_open(PyObject *op, PyObject *args);
/* (place, name, parent, level, flags, at_once, step_ms, suspend_ms) */
PyObject *pyshm_store_actor_begin(PyObject *op, PyObject *args);
/* (place, name) */
PyObject *pyshm_store_actor_end(PyObject *op, PyObject *args);
/* (place, timeout_ms) -> None, or (what, name, request, step, version, key, data) */
PyObject *pyshm_store_actor_next(PyObject *op, PyObject *args);
/* place */
PyObject *pyshm_store_actor_fd(PyObject *op, PyObject *place);
/* (place, what, name, request, step, version, how, data) */
PyObject *pyshm_store_actor_done(PyObject *op, PyObject *args);
/* (name, data), (name, place) -> a call */
PyObject *pyshm_store_actor_call(PyObject *op, PyObject *args);
PyObject *pyshm_store_actor_move(PyObject *op, PyObject *args);
/* (call, timeout_ms) -> None, or (how, data) */
PyObject *pyshm_store_actor_answer(PyObject *op, PyObject *args);

#endif
