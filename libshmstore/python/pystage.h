/* SPDX-License-Identifier: Apache-2.0 */
/* pystage.h: the stages of a store, in the extension module. shmstore.staging puts classes around it. */
#ifndef PYSTAGE_H
#define PYSTAGE_H

#include "pyshm.h"

/* What each of the first three returns: (profile, rules, clamped, degraded, slots, private, shared, expires_ms). */

/* (name, native, convert, other, nonshare_ppm, root, fallback, bytes_in, slots, ((m, n), ...)) */
PyObject *pyshm_store_stage_query(PyObject *op, PyObject *args);
/* (name, profile, other, wait_ms) */
PyObject *pyshm_store_stage_begin(PyObject *op, PyObject *args);
/* (failed, private): private a number or None */
PyObject *pyshm_store_stage_end(PyObject *op, PyObject *args);
/* (to_private, to_shared, other_leaves, added, plain, threshold) -> (demote, net) */
PyObject *pyshm_store_stage_demote(PyObject *op, PyObject *args);

#endif
