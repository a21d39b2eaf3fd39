/* SPDX-License-Identifier: Apache-2.0 */
/* pystage.h: the stages of a store, in the extension module. shmstore.staging puts classes around it. */
#ifndef PYSTAGE_H
#define PYSTAGE_H

#include "pyshm.h"

/* Each returns (profile, rules, clamped, degraded, slots, private, shared, expires_ms). */

/* (name, native, convert, other, nonshare_ppm, root, fallback, slots) */
PyObject *pyshm_store_stage_query(PyObject *op, PyObject *args);
/* (name, profile, other, wait_ms) */
PyObject *pyshm_store_stage_begin(PyObject *op, PyObject *args);
PyObject *pyshm_store_stage_end(PyObject *op, PyObject *unused);

#endif
