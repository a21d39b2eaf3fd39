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

/* A tuple of pairs. false: an exception is set. */
static bool take_upstream(PyObject *list, struct shmstore_stage_shuffle ret[SHMSTORE_STAGE_UPSTREAM], size_t *ret_n)
{
	Py_ssize_t n = PyTuple_GET_SIZE(list);

	if (n > (Py_ssize_t)SHMSTORE_STAGE_UPSTREAM) {
		PyErr_Format(PyExc_ValueError, "a stage reads at most %u shuffles, not %zd", SHMSTORE_STAGE_UPSTREAM,
			     n);
		return false;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		unsigned long long m, reducers;
		PyObject *pair = PyTuple_GET_ITEM(list, i);

		if (!PyTuple_Check(pair)) {
			PyErr_SetString(PyExc_TypeError, "a shuffle is a pair: mappers, reducers");
			return false;
		}
		if (!PyArg_ParseTuple(pair, "O&O&", pyarb_bytes, &m, pyarb_bytes, &reducers))
			return false;
		ret[i] = (struct shmstore_stage_shuffle){m, reducers};
	}
	*ret_n = (size_t)n;
	return true;
}

PyObject *pyshm_store_stage_query(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct shmstore_stage_shuffle upstream[SHMSTORE_STAGE_UPSTREAM];
	struct shmstore_stage_ask ask = SHMSTORE_STAGE_ASK_INIT;
	unsigned long long native, convert, other, bytes_in;
	struct shmstore_stage_profile p;
	PyObject *list;
	int r;

	if (!PyArg_ParseTuple(args, "sO&O&O&IIIO&IO!:_stage_query", &ask.name, pyarb_bytes, &native, pyarb_bytes,
			      &convert, pyarb_bytes, &other, &ask.nonshare_ppm, &ask.root, &ask.fallback, pyarb_bytes,
			      &bytes_in, &ask.want_slots, &PyTuple_Type, &list) ||
	    !take_upstream(list, upstream, &ask.n_upstream) || !pyshm_store_enter(self))
		return NULL;
	ask.n_native = native;
	ask.n_convert = convert;
	ask.n_other = other;
	ask.bytes_in = bytes_in;
	ask.upstream = upstream;
	Py_BEGIN_ALLOW_THREADS
	r = shmstore_stage_query(self->s, &ask, &p);
	pyshm_store_leave(self);
	Py_END_ALLOW_THREADS
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
	Py_BEGIN_ALLOW_THREADS
	r = shmstore_stage_begin(self->s, name, profile, other, wait_ms, &p);
	pyshm_store_leave(self);
	Py_END_ALLOW_THREADS
	if (r)
		return pyshm_store_raise(self, r, "stage", PyTuple_GET_ITEM(args, 0));
	return profile_of(&p);
}

PyObject *pyshm_store_stage_end(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	struct shmstore_stage_end end = SHMSTORE_STAGE_END_INIT;
	unsigned long long private_bytes;
	struct shmstore_stage_profile p;
	PyObject *number;
	int failed, r;

	if (!PyArg_ParseTuple(args, "pO:_stage_end", &failed, &number))
		return NULL;
	if (number != Py_None) {
		if (!pyarb_bytes(number, &private_bytes))
			return NULL;
		end.private_bytes = private_bytes;
	}
	if (!pyshm_store_enter(self))
		return NULL;
	end.failed = failed != 0;
	Py_BEGIN_ALLOW_THREADS
	r = shmstore_stage_end(self->s, &end, &p);
	pyshm_store_leave(self);
	Py_END_ALLOW_THREADS
	if (r)
		return pyshm_store_raise(self, r, "stage", NULL);
	return profile_of(&p);
}

PyObject *pyshm_store_stage_demote(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	long long to_private, to_shared, other_leaves, added, plain, threshold;
	struct shmstore_stage_costs costs;
	int64_t net = 0;
	int r;

	if (!PyArg_ParseTuple(args, "LLLLLL:_stage_demote", &to_private, &to_shared, &other_leaves, &added, &plain,
			      &threshold) ||
	    !pyshm_store_enter(self))
		return NULL;
	costs = (struct shmstore_stage_costs){to_private, to_shared, other_leaves, added, plain, threshold};
	Py_BEGIN_ALLOW_THREADS
	r = shmstore_stage_demote(self->s, &costs, &net);
	pyshm_store_leave(self);
	Py_END_ALLOW_THREADS
	if (r < 0)
		return pyshm_store_raise(self, r, "stage", NULL);
	return Py_BuildValue("OL", r ? Py_True : Py_False, (long long)net);
}
