/* SPDX-License-Identifier: Apache-2.0 */
/* pyprofile.h: tasks, what they used, and whether they may begin, in the extension module. shmstore.profiling puts context managers around it. */
#ifndef PYPROFILE_H
#define PYPROFILE_H

#include <shmstore/profile.h>

#include "pyshm.h"

/* (lang, func, group) -> task */
PyObject *pyshm_store_profile_begin(PyObject *op, PyObject *args);
/* (task, private) */
PyObject *pyshm_store_profile_sample(PyObject *op, PyObject *args);
/* (task, how, private, shared, cpu_ms): each of the last three a number or None */
PyObject *pyshm_store_profile_end(PyObject *op, PyObject *args);
/* (lang, func, group, private, shared, cpu_ms) -> (private, shared, cpu_ms, n) */
PyObject *pyshm_store_profile_estimate(PyObject *op, PyObject *args);

/* ---- pytask.c ---- */

/* (lang, func, group, declared, seconds or None, level, retriable, parent, worker) -> (outcome, task, reserve, waited_ms, reason). func "": of no kind */
PyObject *pyshm_store_task_admit(PyObject *op, PyObject *args);
PyObject *pyshm_store_task_done(PyObject *op, PyObject *number);
PyObject *pyshm_store_preempt_fd(PyObject *op, PyObject *ignored);
/* () -> (what, task, parent, bytes, grace_ms, delay_ms, flags), or None */
PyObject *pyshm_store_preempt_next(PyObject *op, PyObject *ignored);

#endif
