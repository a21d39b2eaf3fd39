/* SPDX-License-Identifier: Apache-2.0 */
/* pystage.c: see pystage.h. Each call asks the daemon, without the GIL. */
#include "pystage.h"

#include <shmstore/stage.h>

#include "pyarb.h"

static PyObject *profile_of(const struct shmstore_stage_profile *p)
{
	return Py_BuildValue("IIOOIKKK", p->profile, p->rules, p->clamped ? Py_True : Py_False,
			     p->degraded ? Py_True : Py_False, p->slots, (unsigned long long)p->private_bytes,
			     (unsigned long long)p->shared_bytes, (unsigned long long)p->expires_ms);
}

PyObject *pyshm_store_stage_query(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct shmstore_stage_ask ask = SHMSTORE_STAGE_ASK_INIT;
	unsigned long long native, convert, other;
	struct shmstore_stage_profile p;
	int r;

	if (!PyArg_ParseTuple(args, "sO&O&O&IIII:_stage_query", &ask.name, pyarb_bytes, &native, pyarb_bytes, &convert,
			      pyarb_bytes, &other, &ask.nonshare_ppm, &ask.root, &ask.fallback, &ask.want_slots) ||
	    !pyshm_store_enter(self))
		return NULL;
	ask.n_native = native;
	ask.n_convert = convert;
	ask.n_other = other;
	PYSHM_STORE_CALL(self, r = shmstore_stage_query(self->s, &ask, &p));
	if (r)
		return pyshm_store_raise(self, r, "stage", PyTuple_GET_ITEM(args, 0));
	return profile_of(&p);
}

PyObject *pyshm_store_stage_begin(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct shmstore_stage_profile p;
	unsigned long long wait_ms;
	unsigned profile, other;
	const char *name;
	int r;

	if (!PyArg_ParseTuple(args, "sIIO&:_stage_begin", &name, &profile, &other, pyarb_bytes, &wait_ms) ||
	    !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_stage_begin(self->s, name, profile, other, wait_ms, &p));
	if (r)
		return pyshm_store_raise(self, r, "stage", PyTuple_GET_ITEM(args, 0));
	return profile_of(&p);
}

PyObject *pyshm_store_stage_end(PyObject *op, PyObject *unused)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct shmstore_stage_profile p;
	int r;

	(void)unused;
	if (!pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_stage_end(self->s, &p));
	if (r)
		return pyshm_store_raise(self, r, "stage", NULL);
	return profile_of(&p);
}
