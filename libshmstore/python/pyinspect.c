/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyinspect.c: Partition's calls over shmstore/inspect.h: the stores, the holders of deleted memory, the plan of a clean-up,
 * verification. Each walk fills rows without the GIL, which then become tuples in the order of shmstore.records' fields.
 */
#include <errno.h>

#include "pyrows.h"
#include "pyshm.h"

#define N_COUNTERS 30
static_assert(sizeof(struct shmstore_counters) == N_COUNTERS * sizeof(uint64_t),
	      "records.Counters has a field for each");

/* Makes a list of all rows; frees them. */
static PyObject *rows_list(struct pyshm_rows *rows, PyObject *(*object)(const void *row))
{
	PyObject *list = PyList_New((Py_ssize_t)rows->n);

	for (size_t i = 0; list && i < rows->n; i++) {
		PyObject *item = object(pyshm_rows_row(rows, i));

		if (item)
			PyList_SET_ITEM(list, (Py_ssize_t)i, item);
		else
			Py_CLEAR(list);
	}
	pyshm_rows_deinit(rows);
	return list;
}

static PyObject *fail(PyObject *op, struct pyshm_rows *rows, int error, const char *operation)
{
	if (rows)
		pyshm_rows_deinit(rows);
	return pyshm_raise(pyshm_state_of(Py_TYPE(op)), error, operation, NULL, ((struct pyshm_partition *)op)->path);
}

/* ---- stores ---- */

static int store_row(const struct shmstore_store_info *info, void *arg)
{
	struct pyshm_rows *rows = arg;
	struct shmstore_store_info *row = pyshm_rows_add(rows);
	int r;

	if (!row)
		return -ENOMEM;
	*row = *info;
	r = pyshm_rows_text(rows, info->name, &row->name);
	if (r == 0)
		r = pyshm_rows_text(rows, info->path, &row->path);
	if (r == 0)
		r = pyshm_rows_text(rows, info->label, &row->label);
	if (r == 0)
		r = pyshm_rows_text(rows, info->address, &row->address);
	return r;
}

static PyObject *counters_tuple(const struct shmstore_counters *counters)
{
	uint64_t values[N_COUNTERS];
	PyObject *tuple = PyTuple_New(N_COUNTERS);

	memcpy(values, counters, sizeof(values));
	for (Py_ssize_t i = 0; tuple && i < N_COUNTERS; i++) {
		PyObject *value = PyLong_FromUnsignedLongLong(values[i]);

		if (value)
			PyTuple_SET_ITEM(tuple, i, value);
		else
			Py_CLEAR(tuple);
	}
	return tuple;
}

static PyObject *store_tuple(const void *arg)
{
	const struct shmstore_store_info *row = arg;
	PyObject *alive = row->alive == SHMSTORE_ALIVE ? Py_True : row->alive == SHMSTORE_DEAD ? Py_False : Py_None;

	return Py_BuildValue("NNNNlkONNLN", pyshm_text(row->name), PyUnicode_DecodeFSDefault(row->path),
			     pyshm_text(row->label), pyshm_text(row->address), (long)row->pid, (unsigned long)row->uid,
			     alive, PyBool_FromLong(row->keep), PyBool_FromLong(row->readable),
			     (long long)row->created_ns, counters_tuple(&row->counters));
}

PyObject *pyshm_partition_stores(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyshm_partition *self = (struct pyshm_partition *)op;
	struct shmstore_partition *p;
	struct pyshm_rows rows = {.row_size = sizeof(struct shmstore_store_info)};
	int r;

	p = pyshm_partition_enter(self);
	if (!p)
		return NULL;
	PYSHM_PARTITION_CALL(p, r = shmstore_partition_stores(p, store_row, &rows));
	if (r < 0)
		return fail(op, &rows, r, "list the stores of");
	return rows_list(&rows, store_tuple);
}

/* ---- gc ---- */

static int action_row(const struct shmstore_gc_action *action, void *arg)
{
	struct pyshm_rows *rows = arg;
	struct shmstore_gc_action *row = pyshm_rows_add(rows);
	int r;

	if (!row)
		return -ENOMEM;
	*row = *action;
	r = pyshm_rows_text(rows, action->path, &row->path);
	if (r == 0)
		r = pyshm_rows_text(rows, action->evidence, &row->evidence);
	return r;
}

static PyObject *action_tuple(const void *arg)
{
	const struct shmstore_gc_action *row = arg;

	return Py_BuildValue("sNKKNi", shmstore_gc_what_name(row->what), PyUnicode_DecodeFSDefault(row->path),
			     (unsigned long long)row->bytes, (unsigned long long)row->n_objects,
			     pyshm_text(row->evidence), row->error < 0 ? -row->error : row->error);
}

PyObject *pyshm_partition_gc(PyObject *op, PyObject *args)
{
	struct pyshm_partition *self = (struct pyshm_partition *)op;
	struct shmstore_partition *p;
	struct pyshm_rows rows = {.row_size = sizeof(struct shmstore_gc_action)};
	struct shmstore_gc_report report;
	int dry_run, r;

	if (!PyArg_ParseTuple(args, "p:_gc", &dry_run))
		return NULL;
	p = pyshm_partition_enter(self);
	if (!p)
		return NULL;
	PYSHM_PARTITION_CALL(
		p, r = shmstore_partition_gc_plan(p, dry_run ? SHMSTORE_GC_DRY_RUN : 0, action_row, &rows, &report));
	if (r < 0)
		return fail(op, &rows, r, "collect the garbage of");
	return Py_BuildValue("KKKKN", (unsigned long long)report.n_stores, (unsigned long long)report.n_leases,
			     (unsigned long long)report.n_objects, (unsigned long long)report.freed,
			     rows_list(&rows, action_tuple));
}

/* ---- reconcile ---- */

static int holder_row(const struct shmstore_holder *holder, void *arg)
{
	struct pyshm_rows *rows = arg;
	struct shmstore_holder *row = pyshm_rows_add(rows);
	const char *key = NULL;
	int r;

	if (!row)
		return -ENOMEM;
	*row = *holder;
	row->key = NULL;
	r = pyshm_rows_text(rows, holder->command, &row->command);
	if (r == 0)
		r = pyshm_rows_text(rows, holder->path, &row->path);
	if (r == 0 && holder->key)
		r = pyshm_rows_copy(rows, holder->key, holder->key_size, &key);
	row->key = key;
	return r;
}

static PyObject *holder_tuple(const void *arg)
{
	const struct shmstore_holder *row = arg;
	PyObject *key = row->key ? pyshm_key_object(row->key, row->key_size) : Py_NewRef(Py_None);

	return Py_BuildValue("slkNKKKKNNN", row->kind == SHMSTORE_HOLD_GHOST ? "ghost" : "inflight", (long)row->pid,
			     (unsigned long)row->uid, pyshm_text(row->command), (unsigned long long)row->inode,
			     (unsigned long long)row->bytes, (unsigned long long)row->mapped,
			     (unsigned long long)row->n_fds, PyUnicode_DecodeFSDefault(row->path), key,
			     PyBool_FromLong(row->first));
}

PyObject *pyshm_partition_reconcile(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyshm_partition *self = (struct pyshm_partition *)op;
	struct shmstore_partition *p;
	struct pyshm_rows rows = {.row_size = sizeof(struct shmstore_holder)};
	struct shmstore_usage usage;
	int r;

	p = pyshm_partition_enter(self);
	if (!p)
		return NULL;
	PYSHM_PARTITION_CALL(p, r = shmstore_partition_reconcile(p, holder_row, &rows, &usage));
	if (r < 0)
		return fail(op, &rows, r, "reconcile the books of");
	return Py_BuildValue("NN", pyshm_usage_tuple(&usage), rows_list(&rows, holder_tuple));
}

/* ---- verify ---- */

static int finding_row(const struct shmstore_verify_finding *finding, void *arg)
{
	struct pyshm_rows *rows = arg;
	struct shmstore_verify_finding *row = pyshm_rows_add(rows);
	int r;

	if (!row)
		return -ENOMEM;
	*row = *finding;
	r = pyshm_rows_text(rows, finding->path, &row->path);
	if (r == 0)
		r = pyshm_rows_text(rows, finding->reason, &row->reason);
	return r;
}

static PyObject *finding_tuple(const void *arg)
{
	const struct shmstore_verify_finding *row = arg;

	return Py_BuildValue("NiNK", PyUnicode_DecodeFSDefault(row->path), row->error < 0 ? -row->error : row->error,
			     pyshm_text(row->reason), (unsigned long long)row->bytes);
}

PyObject *pyshm_partition_verify(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyshm_partition *self = (struct pyshm_partition *)op;
	struct shmstore_partition *p;
	struct pyshm_rows rows = {.row_size = sizeof(struct shmstore_verify_finding)};
	int r;

	p = pyshm_partition_enter(self);
	if (!p)
		return NULL;
	PYSHM_PARTITION_CALL(p, r = shmstore_partition_verify(p, finding_row, &rows));
	if (r < 0)
		return fail(op, &rows, r, "verify");
	return rows_list(&rows, finding_tuple);
}

/* ---- info ---- */

PyObject *pyshm_partition_info(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyshm_partition *self = (struct pyshm_partition *)op;
	struct shmstore_partition *p;
	struct shmstore_partition_info info;
	int r;

	p = pyshm_partition_enter(self);
	if (!p)
		return NULL;
	PYSHM_PARTITION_CALL(p, r = shmstore_partition_info(p, &info));
	if (r < 0)
		return fail(op, NULL, r, "ask about");
	return Py_BuildValue("ONssINNKKKKKKKkk", self->path, PyUnicode_DecodeFSDefault(info.mount), info.uuid,
			     info.huge, (unsigned)info.version, PyBool_FromLong(info.tmpfs),
			     PyBool_FromLong(info.same_boot), (unsigned long long)info.bytes_size,
			     (unsigned long long)info.bytes_used, (unsigned long long)info.bytes_available,
			     (unsigned long long)info.inodes_size, (unsigned long long)info.inodes_used,
			     (unsigned long long)info.inodes_free, (unsigned long long)info.device,
			     (unsigned long)info.uid, (unsigned long)info.mode);
}
