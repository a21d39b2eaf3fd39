/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyborn.c: memory of NumPy's arrays in the partition (NEP 49): while it is in force, large arrays
 * are made in shmstore_alloc()'s memory.
 *
 * NumPy asks a handler, a capsule, that a variable of the context names; each array keeps the one
 * it was made by, and frees by it. So the handler lives as long as its arrays; the store it has
 * only while it is in force. All that is not ours to do, or cannot be done, NumPy's own handler
 * does: arrays that are small, or begin as zeros (NumPy's are none until they are written to), a
 * store that is closed, a partition that is short of room.
 *
 * NumPy's functions are taken out of its table by number, which it keeps for good, and not by
 * its headers: so that one build serves 1.22 and 2, and needs none. It calls a handler with the
 * GIL, but may call it without: then nothing of Python's is touched. The GIL is given up only
 * while a new file is made, for an array that nobody knows yet; never to free, nor to move an
 * array that others may look at.
 */
#include <string.h>

#include "pyshm.h"

/* numpy/ndarraytypes.h: PyDataMemAllocator, PyDataMem_Handler; version 1. */
struct numpy_allocator {
	void *ctx;
	void *(*malloc)(void *ctx, size_t size);
	void *(*calloc)(void *ctx, size_t n, size_t size);
	void *(*realloc)(void *ctx, void *p, size_t size);
	void (*free)(void *ctx, void *p, size_t size);
};

struct numpy_handler {
	char name[127];
	uint8_t version;
	struct numpy_allocator allocator;
};
_Static_assert(offsetof(struct numpy_handler, allocator) == 128, "as NumPy has it");

#define NUMPY_VERSION         211 /* unsigned PyArray_GetNDArrayCFeatureVersion(void) */
#define NUMPY_VERSION_HANDLER 0xf /* 1.22 */
/* PyObject *PyDataMem_SetHandler(PyObject *): the one before, a reference */
#define NUMPY_SET_HANDLER     304
#define NUMPY_GET_HANDLER     305 /* PyObject *PyDataMem_GetHandler(void): a reference */
#define NUMPY_DEFAULT_HANDLER 306 /* PyObject *PyDataMem_DefaultHandler */

static const char CAPSULE[] = "mem_handler"; /* NumPy's name for them */

struct born {
	struct numpy_handler handler; /* first: it is what NumPy gets */
	struct pyshm_store *store;    /* NULL: not in force */
	pthread_mutex_t lock;         /* guards store; taken with the GIL, and for no call */
	size_t at_least;
	struct numpy_allocator stock;
	PyObject *stock_capsule;
};

/* ---- what NumPy calls ------------------------------------------------------------------------ */

/* Memory of the store; NULL: there is none. locked: the GIL is not given up. */
static void *alloc_shared(struct born *b, size_t size, bool locked)
{
	struct pyshm_store *store;
	void *p = NULL;

	pthread_mutex_lock(&b->lock);
	store = (struct pyshm_store *)Py_XNewRef(b->store);
	pthread_mutex_unlock(&b->lock);
	if (!store || !pyshm_store_enter_quietly(store)) {
		Py_XDECREF(store);
		return NULL;
	}
	if (shmstore_alloc(store->s, size, SHMSTORE_ALLOC_KEPT, &p) < 0) {
		PyThreadState *thread = locked ? NULL : PyEval_SaveThread();

		if (shmstore_alloc(store->s, size, 0, &p) < 0)
			p = NULL;
		if (thread)
			PyEval_RestoreThread(thread);
	}
	pyshm_store_leave(store);
	Py_DECREF(store);
	return p;
}

static void *born_malloc(void *ctx, size_t size)
{
	struct born *b = ctx;
	void *p = size >= b->at_least && PyGILState_Check() ? alloc_shared(b, size, false) : NULL;

	return p ? p : b->stock.malloc(b->stock.ctx, size);
}

static void *born_calloc(void *ctx, size_t n, size_t size)
{
	struct born *b = ctx;

	return b->stock.calloc(b->stock.ctx, n, size);
}

static void born_free(void *ctx, void *p, size_t size)
{
	struct born *b = ctx;

	if (!shmstore_free(p))
		b->stock.free(b->stock.ctx, p, size);
}

static void *born_realloc(void *ctx, void *p, size_t size)
{
	struct born *b = ctx;
	uint64_t old = shmstore_alloc_size(p);
	void *moved = NULL;

	if (!old)
		return b->stock.realloc(b->stock.ctx, p, size);
	if (size >= b->at_least && PyGILState_Check())
		moved = alloc_shared(b, size, true);
	if (!moved)
		moved = b->stock.malloc(b->stock.ctx, size);
	if (!moved)
		return NULL;
	memcpy(moved, p, size < old ? size : (size_t)old);
	shmstore_free(p);
	return moved;
}

/* ---- in force, and out of it ----------------------------------------------------------------- */

static void born_destroy(PyObject *capsule)
{
	struct born *b = PyCapsule_GetPointer(capsule, CAPSULE);

	Py_XDECREF((PyObject *)b->store);
	Py_DECREF(b->stock_capsule);
	PyMem_Free(b);
}

/* NumPy's table; NULL with an exception. It stays as long as the process does:
 * NumPy cannot be loaded twice. */
static void **numpy_table(struct pyshm_state *state)
{
	static const char *const modules[] = {"numpy._core._multiarray_umath",
					      "numpy.core._multiarray_umath"};
	PyObject *table = NULL;
	void **at;

	if (state->numpy)
		return state->numpy;
	for (size_t i = 0; !table && i < 2; i++) {
		PyObject *module;

		PyErr_Clear();
		module = PyImport_ImportModule(modules[i]);
		table = module ? PyObject_GetAttrString(module, "_ARRAY_API") : NULL;
		Py_XDECREF(module);
	}
	if (!table)
		return NULL;
	at = PyCapsule_GetPointer(table, NULL);
	Py_DECREF(table); /* the module keeps it */
	if (at && ((unsigned (*)(void))at[NUMPY_VERSION])() < NUMPY_VERSION_HANDLER) {
		PyErr_SetString(PyExc_RuntimeError,
				"NumPy is too old: arrays have memory handlers from 1.22 on");
		return NULL;
	}
	state->numpy = at;
	return at;
}

static PyObject *set_handler(void **table, PyObject *handler)
{
	return ((PyObject * (*)(PyObject *)) table[NUMPY_SET_HANDLER])(handler);
}

static PyObject *new_handler(struct pyshm_store *store, size_t at_least, PyObject *stock)
{
	struct numpy_handler *of_numpy = PyCapsule_GetPointer(stock, CAPSULE);
	PyObject *capsule;
	struct born *b;

	if (!of_numpy)
		return NULL;
	b = PyMem_Calloc(1, sizeof(*b));
	if (!b)
		return PyErr_NoMemory();
	strcpy(b->handler.name, "shmstore");
	b->handler.version = 1;
	b->handler.allocator = (struct numpy_allocator){.ctx = b,
							.malloc = born_malloc,
							.calloc = born_calloc,
							.realloc = born_realloc,
							.free = born_free};
	pthread_mutex_init(&b->lock, NULL);
	b->at_least = at_least;
	b->stock = of_numpy->allocator;
	b->stock_capsule = Py_NewRef(stock);
	capsule = PyCapsule_New(b, CAPSULE, born_destroy);
	if (!capsule) {
		Py_DECREF(stock);
		PyMem_Free(b);
		return NULL;
	}
	b->store = (struct pyshm_store *)Py_NewRef(store);
	return capsule;
}

/* Is that handler one of ours? */
static bool ours(PyObject *handler)
{
	struct numpy_handler *h = PyCapsule_GetPointer(handler, CAPSULE);

	if (!h)
		PyErr_Clear();
	return h && h->allocator.free == born_free;
}

PyObject *pyshm_born_begin(PyObject *op, PyObject *args)
{
	struct pyshm_store *self = (struct pyshm_store *)op;
	PyObject *stock, *now, *capsule, *before;
	Py_ssize_t at_least;
	void **table;
	bool plain;

	if (!PyArg_ParseTuple(args, "n:_born_begin", &at_least))
		return NULL;
	if (at_least < 1) {
		PyErr_SetString(PyExc_ValueError, "at_least must be 1 or more bytes");
		return NULL;
	}
	table = numpy_table(pyshm_state_of(Py_TYPE(self)));
	if (!table)
		return NULL;
	if (!pyshm_store_enter(self))
		return NULL;
	pyshm_store_leave(self);
	stock = *(PyObject **)table[NUMPY_DEFAULT_HANDLER];
	now = ((PyObject * (*)(void)) table[NUMPY_GET_HANDLER])();
	if (!now)
		return NULL;
	plain = now == stock || ours(now);
	Py_DECREF(now);
	if (!plain)
		Py_RETURN_NONE;
	capsule = new_handler(self, (size_t)at_least, stock);
	if (!capsule)
		return NULL;
	before = set_handler(table, capsule);
	if (!before) {
		Py_DECREF(capsule);
		return NULL;
	}
	return Py_BuildValue("NN", before, capsule);
}

PyObject *pyshm_born_end(PyObject *module, PyObject *args)
{
	PyObject *before, *capsule, *replaced, *store;
	struct born *b;
	void **table;

	if (!PyArg_ParseTuple(args, "OO:_born_end", &before, &capsule))
		return NULL;
	if (!ours(capsule)) {
		PyErr_SetString(PyExc_TypeError, "_born_end takes what _born_begin gave");
		return NULL;
	}
	b = PyCapsule_GetPointer(capsule, CAPSULE);
	table = numpy_table(PyModule_GetState(module));
	replaced = table ? set_handler(table, before) : NULL;
	/* A context that was copied meanwhile may still name it. */
	pthread_mutex_lock(&b->lock);
	store = (PyObject *)b->store;
	b->store = NULL;
	pthread_mutex_unlock(&b->lock);
	Py_XDECREF(store);
	if (!replaced)
		return NULL;
	Py_DECREF(replaced);
	Py_RETURN_NONE;
}
