/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pytier.c: the disk tier: what a Partition and a Store do about it, one function per call of shmstore/tier.h. All that reads or writes the
 * disk runs without the GIL; an eviction's progress takes it for as long as the callback runs.
 */
#include <errno.h>

#include "pyshm.h"

/* ---- partition ---- */

PyObject *pyshm_partition_set_tier(PyObject *op, PyObject *args)
{
	struct pyshm_partition *self = (struct pyshm_partition *)op;
	struct shmstore_partition *p;
	struct shmstore_tier_config config = SHMSTORE_TIER_CONFIG_INIT;
	PyObject *path_arg, *path = NULL;
	unsigned long long max, min_free;
	int fsync, r;

	/* path None: no tier any more. */
	if (!PyArg_ParseTuple(args, "OKKipII:_set_tier", &path_arg, &max, &min_free, &config.level, &fsync,
			      &config.high, &config.low))
		return NULL;
	if (path_arg != Py_None && !PyUnicode_FSConverter(path_arg, &path))
		return NULL;
	config.path = path ? PyBytes_AS_STRING(path) : NULL;
	config.max = max;
	config.min_free = min_free;
	config.fsync = fsync;
	p = pyshm_partition_enter(self);
	if (!p) {
		Py_XDECREF(path);
		return NULL;
	}
	PYSHM_PARTITION_CALL(p, r = shmstore_tier_set(p, path ? &config : NULL));
	Py_XDECREF(path);
	if (r < 0)
		return pyshm_raise(pyshm_state_of(Py_TYPE(op)), r, "set the tier", path_arg, self->path);
	Py_RETURN_NONE;
}

PyObject *pyshm_partition_tier(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyshm_partition *self = (struct pyshm_partition *)op;
	struct shmstore_partition *p;
	struct shmstore_tier_info t;
	int r;

	p = pyshm_partition_enter(self);
	if (!p)
		return NULL;
	PYSHM_PARTITION_CALL(p, r = shmstore_tier_info(p, &t));
	if (r == -ENOENT && !*shmstore_error_path())
		Py_RETURN_NONE;
	if (r < 0)
		return pyshm_raise(pyshm_state_of(Py_TYPE(op)), r, "ask about the tier of", NULL, self->path);
	return Py_BuildValue(
		"NNKKiNIIKKKKKKKKKKKK", PyUnicode_DecodeFSDefault(t.config.path), PyUnicode_DecodeFSDefault(t.path),
		(unsigned long long)t.config.max, (unsigned long long)t.config.min_free, t.config.level,
		PyBool_FromLong(t.config.fsync), t.config.high, t.config.low, (unsigned long long)t.disk_size,
		(unsigned long long)t.disk_free, (unsigned long long)t.used, (unsigned long long)t.demoted,
		(unsigned long long)t.clean, (unsigned long long)t.orphans, (unsigned long long)t.n_demoted,
		(unsigned long long)t.n_clean, (unsigned long long)t.n_orphans, (unsigned long long)t.original,
		(unsigned long long)t.n_codec_raw, (unsigned long long)t.n_codec_zstd);
}

static PyObject *report_tuple(const struct shmstore_evict_report *e, bool done)
{
	return Py_BuildValue("NKKKKKKKNiK", PyBool_FromLong(done), (unsigned long long)e->n_objects,
			     (unsigned long long)e->freed, (unsigned long long)e->held, (unsigned long long)e->original,
			     (unsigned long long)e->written, (unsigned long long)e->n_clean,
			     (unsigned long long)e->n_skipped, PyBool_FromLong(e->disk_full),
			     e->error < 0 ? -e->error : e->error, (unsigned long long)e->duration_ns);
}

/* State of an eviction's callback; its exception is put aside until the call is back. */
struct progress {
	PyObject *callback;
	struct pyshm_exception raised;
	bool failed;
};

static int on_progress(const struct shmstore_evict_report *report, void *arg)
{
	PyGILState_STATE gil = PyGILState_Ensure();
	struct progress *progress = arg;
	PyObject *result = NULL, *tuple = report_tuple(report, false);
	int stop = -1;

	if (tuple)
		result = PyObject_CallOneArg(progress->callback, tuple);
	if (result)
		stop = PyObject_IsTrue(result);
	if (stop < 0) {
		progress->raised = pyshm_exception_take();
		progress->failed = true;
	}
	Py_XDECREF(result);
	Py_XDECREF(tuple);
	PyGILState_Release(gil);
	return stop;
}

/* Raises Error for a failed eviction, with the tuple of what it did all the same as its attribute report. */
static void *raise_evict(struct pyshm_partition *self, int error, const struct shmstore_evict_report *report)
{
	PyObject *tuple = report_tuple(report, false);
	struct pyshm_exception e;

	if (!tuple)
		return NULL;
	pyshm_raise(pyshm_state_of(Py_TYPE(self)), error, "evict from", NULL, self->path);
	e = pyshm_exception_take();
#if PY_VERSION_HEX < 0x030C0000
	PyErr_NormalizeException(&e.type, &e.value, &e.traceback);
#endif
	if (!e.value || PyObject_SetAttrString(e.value, "report", tuple) < 0)
		PyErr_Clear();
	pyshm_exception_put_back(e);
	Py_DECREF(tuple);
	return NULL;
}

PyObject *pyshm_partition_evict(PyObject *op, PyObject *args)
{
	struct pyshm_partition *self = (struct pyshm_partition *)op;
	struct shmstore_partition *p;
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	struct shmstore_evict_report report = {.size = sizeof(report)};
	struct progress progress = {0};
	unsigned long long bytes, to;
	int watermarks, background, wait, r;
	PyObject *user;

	if (!PyArg_ParseTuple(args, "KKpIppOO:_evict", &bytes, &to, &watermarks, &what.n_threads, &background, &wait,
			      &progress.callback, &user))
		return NULL;
	what.bytes = bytes;
	what.to = to;
	what.watermarks = watermarks;
	what.background = background;
	what.wait = wait;
	if (user != Py_None) {
		unsigned long uid = PyLong_AsUnsignedLong(user);

		if (PyErr_Occurred())
			return NULL;
		if (uid >= UINT32_MAX)
			return PyErr_Format(PyExc_OverflowError, "%lu is no user id", uid);
		what.uid = (uid_t)uid;
	}
	if (progress.callback != Py_None) {
		what.progress = on_progress;
		what.arg = &progress;
	}
	p = pyshm_partition_enter(self);
	if (!p)
		return NULL;
	PYSHM_PARTITION_CALL(p, r = shmstore_partition_evict(p, &what, &report));
	if (progress.failed) {
		pyshm_exception_put_back(progress.raised);
		return NULL;
	}
	/* The callback asked for this end. */
	if (r == -ECANCELED)
		return report_tuple(&report, false);
	return r < 0 ? raise_evict(self, r, &report) : report_tuple(&report, r == 1);
}

/* ---- store ---- */

PyObject *pyshm_store_demote(PyObject *op, PyObject *key)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	const void *key_data;
	size_t key_size;
	bool no_tier;
	int r;

	if (pyshm_key_bytes(key, &key_data, &key_size) < 0 || !pyshm_store_enter(self))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	r = shmstore_demote(self->s, key_data, key_size, 0);
	/* -ENOENT says both: no such key; no tier, and of what partition. */
	no_tier = r == -ENOENT && *shmstore_error_path();
	pyshm_store_leave(self);
	Py_END_ALLOW_THREADS
	if (no_tier)
		return pyshm_store_raise_object(self, r, "demote", key);
	if (r < 0)
		return pyshm_store_raise_missing(self, r, "demote", key);
	Py_RETURN_NONE;
}

PyObject *pyshm_store_promote(PyObject *op, PyObject *args, PyObject *kwargs)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	const void *key_data;
	size_t key_size;
	PyObject *key;
	int evict = 1, r;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|p:promote", PYSHM_KEYWORDS("key", "evict"), &key, &evict))
		return NULL;
	if (pyshm_key_bytes(key, &key_data, &key_size) < 0 || !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_promote(self->s, key_data, key_size, evict ? 0 : SHMSTORE_NO_EVICT));
	if (r)
		return pyshm_store_raise_missing(self, r, "promote", key);
	Py_RETURN_NONE;
}

/* A list of int as long as results: 0, errno, or an outcome of the arbiter, negated. */
static PyObject *results_list(const int *results, Py_ssize_t n)
{
	PyObject *list = PyList_New(n);

	for (Py_ssize_t i = 0; list && i < n; i++) {
		PyObject *item = PyLong_FromLong(-results[i]);

		if (item)
			PyList_SET_ITEM(list, i, item);
		else
			Py_CLEAR(list);
	}
	return list;
}

PyObject *pyshm_store_prefetch(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	PyObject *keys, *list = NULL;
	struct iovec *iov = NULL;
	int *results = NULL;
	unsigned n_threads;
	int evict, r;

	/* keys: a tuple of what pyshm_key_bytes() takes. It keeps their bytes while the GIL is released. */
	if (!PyArg_ParseTuple(args, "O!Ip:_prefetch", &PyTuple_Type, &keys, &n_threads, &evict))
		return NULL;
	iov = PyMem_Calloc((size_t)PyTuple_GET_SIZE(keys) + 1, sizeof(*iov));
	results = PyMem_Calloc((size_t)PyTuple_GET_SIZE(keys) + 1, sizeof(*results));
	if (!iov || !results) {
		PyErr_NoMemory();
		goto out;
	}
	for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++) {
		const void *data;

		if (pyshm_key_bytes(PyTuple_GET_ITEM(keys, i), &data, &iov[i].iov_len) < 0)
			goto out;
		iov[i].iov_base = pyshm_no_const(data);
	}
	if (!pyshm_store_enter(self))
		goto out;
	PYSHM_STORE_CALL(self, r = shmstore_prefetch(self->s, iov, (size_t)PyTuple_GET_SIZE(keys), n_threads,
						     evict ? 0 : SHMSTORE_NO_EVICT, results));
	if (r < 0) {
		pyshm_store_raise_object(self, r, "prefetch from", NULL);
		goto out;
	}
	list = results_list(results, PyTuple_GET_SIZE(keys));
out:
	PyMem_Free(results);
	PyMem_Free(iov);
	return list;
}

static PyObject *set_pin(PyObject *op, PyObject *key, bool pin)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	const void *key_data;
	size_t key_size;
	int r;

	if (pyshm_key_bytes(key, &key_data, &key_size) < 0 || !pyshm_store_enter(self))
		return NULL;
	PYSHM_STORE_CALL(self, r = shmstore_pin(self->s, key_data, key_size, pin));
	if (r < 0)
		return pyshm_store_raise_missing(self, r, pin ? "pin" : "unpin", key);
	Py_RETURN_NONE;
}

PyObject *pyshm_store_pin(PyObject *op, PyObject *key)
{
	return set_pin(op, key, true);
}

PyObject *pyshm_store_unpin(PyObject *op, PyObject *key)
{
	return set_pin(op, key, false);
}

PyObject *pyshm_store_locate(PyObject *op, PyObject *key)
{
	int r;

	if (!pyshm_store_call(op, key, shmstore_locate, &r))
		return NULL;
	if (r < 0)
		return pyshm_store_raise((struct pyshm_store *)op, r, "locate", key);
	if (r == 0)
		Py_RETURN_NONE;
	return PyUnicode_FromString(r == SHMSTORE_IN_TIER ? "tier" : "memory");
}
