/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyarbreservation.c: the type ArbReservation: bytes of a pool, released when it ends,
 * once. It may be released, or end, in any thread, after its task, and after its store:
 * then there is nothing left to release.
 */
#include "pyshm.h"

static PyObject *reservation_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct pyarb_reservation *self;
	struct pyshm_store *store;
	unsigned long long bytes = 0;
	unsigned pool = SHMSTORE_ARB_PARTITION;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|IK:ArbReservation",
					 PYSHM_KEYWORDS("store", "pool", "bytes"),
					 pyshm_state_of(type)->store_type, &store, &pool, &bytes))
		return NULL;
	self = (struct pyarb_reservation *)type->tp_alloc(type, 0);
	if (!self)
		return NULL;
	self->store = (struct pyshm_store *)Py_NewRef(store);
	self->r = (struct shmstore_arb_reservation){.bytes = bytes, .pool = pool};
	return (PyObject *)self;
}

void pyarb_fill_in(struct pyarb_reservation *into, struct shmstore_arb_reservation granted)
{
	PYSHM_LOCKED(into, into->r = granted; into->held = true);
}

/* Releases it if it is held and the store open. No exception is set, and one that is set stays. */
static void let_go(PyObject *op)
{
	struct pyarb_reservation *self = (struct pyarb_reservation *)op;
	struct shmstore_arb_reservation r = self->r;
	struct pyshm_exception saved;

	if (!self->held || self->spent_from)
		return;
	self->held = false;
	self->r.bytes = 0;
	saved = pyshm_exception_take();
	if (pyshm_store_enter(self->store)) {
		/* Nobody needs to hear of a failure: the task has ended, or the daemon. */
		PYSHM_STORE_CALL(self->store, shmstore_arb_release(self->store->s, &r));
	} else {
		PyErr_Clear();
	}
	pyshm_exception_put_back(saved);
}

PyDoc_STRVAR(
	release_doc,
	"release($self, /)\n--\n\nGives the bytes back. Idempotent; nothing to do after commit().");

/* The library writes to what is being spent. */
static bool check(const struct pyarb_reservation *self, bool to_be_held)
{
	if (to_be_held && !self->held)
		PyErr_SetString(PyExc_ValueError, "the reservation holds nothing any more");
	else if (self->spent_from)
		PyErr_SetString(PyExc_RuntimeError,
				"the reservation is being spent; leave its spending() first");
	else
		return true;
	return false;
}

static PyObject *reservation_release(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyarb_reservation *self = (struct pyarb_reservation *)op;

	if (!check(self, false))
		return NULL;
	let_go(op);
	Py_RETURN_NONE;
}

PyDoc_STRVAR(commit_doc, "commit($self, bytes=None, /)\n--\n\n"
			 "The reserved memory has been taken in the partition, bytes of it (None: "
			 "all): it is the kernel's to count from\n"
			 "here on, and this reservation holds nothing any more.");

static PyObject *reservation_commit(PyObject *op, PyObject *args)
{
	struct pyarb_reservation *self = (struct pyarb_reservation *)op;
	struct shmstore_arb_reservation r = self->r;
	uint64_t bytes = UINT64_MAX;
	int result;

	if (!PyArg_ParseTuple(args, "|O&:commit", pyshm_u64_or_none, &bytes) ||
	    !check(self, true) || !pyshm_store_enter(self->store))
		return NULL;
	self->held = false;
	self->r.bytes = 0;
	PYSHM_STORE_CALL(self->store,
			 result = shmstore_arb_commit(self->store->s, &r,
						      bytes == UINT64_MAX ? r.bytes : bytes));
	if (result)
		return pyarb_raise(self->store, result, "commit a reservation");
	Py_RETURN_NONE;
}

PyDoc_STRVAR(unpin_doc, "unpin($self, /)\n--\n\n"
			"What it stands for may be evicted when others need the room. False: not "
			"now, it stays pinned (it is leased, and\n"
			"cannot be told from the lease). context.pin() undoes it.");

static PyObject *reservation_unpin(PyObject *op, PyObject *Py_UNUSED(ignored))
{
	struct pyarb_reservation *self = (struct pyarb_reservation *)op;
	struct shmstore_arb_reservation r = self->r;
	int result;

	if (!check(self, true) || !pyshm_store_enter(self->store))
		return NULL;
	PYSHM_STORE_CALL(self->store, result = shmstore_arb_unpin(self->store->s, &r));
	if (result == SHMSTORE_ARB_AGAIN)
		Py_RETURN_FALSE;
	if (result)
		return pyarb_raise(self->store, result, "unpin a reservation");
	self->r = r;
	Py_RETURN_TRUE;
}

PyDoc_STRVAR(spilled_doc, "spilled($self, bytes, /)\n--\n\n"
			  "Bytes of it, unpinned, have left the pool; 0: they will not. Called by "
			  "an evict call-back.");

static PyObject *reservation_spilled(PyObject *op, PyObject *number)
{
	struct pyarb_reservation *self = (struct pyarb_reservation *)op;
	struct shmstore_arb_reservation r = self->r;
	uint64_t bytes;
	int result;

	if (!pyshm_u64(number, &bytes) || !pyshm_store_enter(self->store))
		return NULL;
	PYSHM_STORE_CALL(self->store, result = shmstore_arb_spilled(self->store->s, &r, bytes));
	if (result)
		return pyarb_raise(self->store, result, "say what was spilled of a reservation");
	Py_RETURN_NONE;
}

/* _spend(on): the calling thread's puts and creates spend this reservation; False: no longer. */
static PyObject *reservation_spend(PyObject *op, PyObject *args)
{
	struct pyarb_reservation *self = (struct pyarb_reservation *)op;
	int on, r;

	if (!PyArg_ParseTuple(args, "p:_spend", &on))
		return NULL;
	if (on && (!self->held || self->spent_from)) {
		PyErr_SetString(PyExc_ValueError,
				self->held ? "the reservation is being spent already"
					   : "the reservation holds nothing any more");
		return NULL;
	}
	if (!pyshm_store_enter(self->store))
		return NULL;
	self->spent_from = true;
	PYSHM_STORE_CALL(self->store, r = shmstore_arb_spend(self->store->s, on ? &self->r : NULL));
	self->spent_from = on ? r == 0 : r != 0;
	if (r)
		return pyarb_raise(self->store, r, "spend a reservation");
	Py_RETURN_NONE;
}

/* closure: which one. */
static PyObject *reservation_number(PyObject *op, void *closure)
{
	const struct pyarb_reservation *self = (struct pyarb_reservation *)op;
	const uint64_t numbers[] = {self->held ? self->r.bytes : 0, self->held ? self->r.leased : 0,
				    self->r.id, self->r.pool};

	return PyLong_FromUnsignedLongLong(numbers[(size_t)closure]);
}

PYSHM_LOCKED_METHOD(reservation_number, void *)
PYSHM_LOCKED_METHOD(reservation_release, PyObject *)
PYSHM_LOCKED_METHOD(reservation_commit, PyObject *)
PYSHM_LOCKED_METHOD(reservation_unpin, PyObject *)
PYSHM_LOCKED_METHOD(reservation_spilled, PyObject *)
PYSHM_LOCKED_METHOD(reservation_spend, PyObject *)

static PyMethodDef reservation_methods[] = {
	{"release", reservation_release_locked, METH_NOARGS, release_doc},
	{"commit", reservation_commit_locked, METH_VARARGS, commit_doc},
	{"unpin", reservation_unpin_locked, METH_NOARGS, unpin_doc},
	{"spilled", reservation_spilled_locked, METH_O, spilled_doc},
	{"_spend", reservation_spend_locked, METH_VARARGS, NULL},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef reservation_getset[] = {
	{"bytes", reservation_number_locked, NULL, "Reserved bytes; 0 once released or committed.",
	 (void *)0},
	{"leased", reservation_number_locked, NULL,
	 "Bytes of it that come from a lease: the daemon was not asked.", (void *)1},
	{"id", reservation_number_locked, NULL,
	 "Its number, as operators see it; 0: there is none.", (void *)2},
	{"pool", reservation_number_locked, NULL, "The pool's number; 1 is the partition.",
	 (void *)3},
	{"held", pyshm_get_bool, NULL, "Whether it was granted and neither released nor committed.",
	 PYSHM_MEMBER(pyarb_reservation, held)},
	{NULL, NULL, NULL, NULL, NULL},
};

static char reservation_doc[] =
	PyDoc_STR("ArbReservation(store, pool=1, bytes=0)\n--\n\n"
		  "Bytes of a pool. Holds nothing until a context reserves into it.");

static PyType_Slot reservation_slots[] = {
	{Py_tp_doc, reservation_doc},
	{Py_tp_new, reservation_new},
	{Py_tp_finalize, let_go},
	{Py_tp_dealloc, pyarb_dealloc},
	{Py_tp_methods, reservation_methods},
	{Py_tp_getset, reservation_getset},
	{0, NULL},
};

PYSHM_TYPE(reservation, struct pyarb_reservation, "shmstore._shmstore.ArbReservation", PYSHM_BASE);
