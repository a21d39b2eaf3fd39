/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyshm.h: the extension module shmstore._shmstore, for its own files.
 *
 * Model: each type wraps one handle of the public C API; nothing is cached beside it. All state is in the objects and in the
 * module's state (types and exceptions), none is global. Every call into the library that may copy, wait or touch the file
 * system runs without the GIL; no Python code runs while such a call is in progress on the same thread.
 *
 * References: memoryview -> Memory -> View or Writer; Writer -> Store -> Partition.
 */
#ifndef PYSHM_H
#define PYSHM_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <shmstore/inspect.h>
#include <shmstore/shmstore.h>
#include <stdbool.h>
#include <stdint.h>
#include <structmember.h>
#include <sys/types.h>
#include <sys/uio.h>

struct pyshm_state {
	PyObject *error;        /* shmstore.Error */
	PyObject *closed_error; /* shmstore.ClosedError */
	PyTypeObject *partition_type;
	PyTypeObject *store_type;
	PyTypeObject *view_type;
	PyTypeObject *writer_type;
	PyTypeObject *memory_type;
	PyTypeObject *unlocked_type;
	PyTypeObject *context_type;     /* the arbiter's */
	PyTypeObject *reservation_type; /* the same */
	PyObject *outcome_error;        /* shmstore.arbiter.Outcome */
	PyObject *outcomes[16];         /* by enum shmstore_arb_outcome; NULL: none */
	void **numpy;                   /* pyborn.c; NULL: not asked for so far */
};

/* The state of the module that type, or a base of it, comes from. Never NULL for this module's types. */
struct pyshm_state *pyshm_state_of(PyTypeObject *type);

/* For calls that take a pointer to what they do not write and do not say so. */
static inline void *pyshm_no_const(const void *p)
{
	union {
		const void *in;
		void *out;
	} u = {.in = p};

	return u.out;
}

/* Casts, as PyArg_ParseTupleAndKeywords() and PyMethodDef lack const and fitting types. */
#define PYSHM_KEYWORDS(...) ((char **)pyshm_no_const((const char *const[]){__VA_ARGS__, NULL}))
#define PYSHM_METHOD(fn)    ((PyCFunction)(void (*)(void))(fn))

/* ---- pyerror.c ---- */

/*
 * Raises shmstore.Error: "<operation> <key> in <where>: <why>; <what to do>".
 *   error   -errno of the library.
 *   key     NULL = none.
 *   where   NULL = nowhere.
 * Returns NULL.
 */
void *pyshm_raise(struct pyshm_state *state, int error, const char *operation, PyObject *key, PyObject *where);
/* Raises ClosedError for the store of that name. Returns NULL. */
void *pyshm_raise_closed(struct pyshm_state *state, PyObject *name);
/* Adds Error and ClosedError to the module. Return: 0, -1. */
int pyshm_error_exec(PyObject *module, struct pyshm_state *state);

/* The exception that is set, put aside while something else may raise. */
struct pyshm_exception {
	PyObject *type, *value, *traceback;
};

static inline struct pyshm_exception pyshm_exception_take(void)
{
	struct pyshm_exception e = {NULL, NULL, NULL};
#if PY_VERSION_HEX >= 0x030C0000
	e.value = PyErr_GetRaisedException();
#else
	PyErr_Fetch(&e.type, &e.value, &e.traceback);
#endif
	return e;
}

static inline void pyshm_exception_put_back(struct pyshm_exception e)
{
#if PY_VERSION_HEX >= 0x030C0000
	PyErr_SetRaisedException(e.value);
#else
	PyErr_Restore(e.type, e.value, e.traceback);
#endif
}

/* ---- pykey.c ---- */

/* The bytes of a str or bytes object; they live as long as it does. Return: 0, -1 with an exception. */
int pyshm_key_bytes(PyObject *key, const void **ret_data, size_t *ret_size);
/* str where the bytes are UTF-8, else bytes. */
PyObject *pyshm_key_object(const void *data, size_t size);
/* Text of the library's that nobody promises to be UTF-8. */
PyObject *pyshm_text(const char *text);

/* ---- pyborn.c ---- */

/* (handler before, ours), or None where somebody's own handler is in force, which stays. */
PyObject *pyshm_born_begin(PyObject *op, PyObject *args);
PyObject *pyshm_born_end(PyObject *module, PyObject *args);

/* ---- pybuffers.c ---- */

struct pyshm_buffers {
	Py_buffer *views;
	struct iovec *iov;
	size_t n;
};
/* Takes hold of every object of an iterable. Return: 0, -1 with an exception and nothing held. */
int pyshm_buffers_init(struct pyshm_buffers *b, PyObject *objects);
void pyshm_buffers_deinit(struct pyshm_buffers *b);

/* ---- pypartition.c, pyinspect.c ---- */

/* Of a PyGetSetDef whose closure is that member's place in its object. */
#define PYSHM_MEMBER(type, member) ((void *)offsetof(struct type, member))
PyObject *pyshm_get_object(PyObject *op, void *closure);
PyObject *pyshm_get_bool(PyObject *op, void *closure);
PyObject *pyshm_get_u64(PyObject *op, void *closure);

struct pyshm_partition {
	PyObject ob_base;
	struct shmstore_partition *p;
	PyObject *path;
};
extern PyType_Spec pyshm_partition_spec;

/* The partition with a reference for the caller, who gives it back; NULL with ClosedError raised where close() was called. */
struct shmstore_partition *pyshm_partition_enter(struct pyshm_partition *self);
/* Makes the call without the GIL, and gives the partition back. */
#define PYSHM_PARTITION_CALL(p, ...) \
	Py_BEGIN_ALLOW_THREADS       \
	__VA_ARGS__;                 \
	shmstore_partition_unref(p); \
	Py_END_ALLOW_THREADS
PyObject *pyshm_usage_tuple(const struct shmstore_usage *u);
PyObject *pyshm_partition_gc(PyObject *op, PyObject *args);
PyObject *pyshm_partition_stores(PyObject *op, PyObject *ignored);
PyObject *pyshm_partition_reconcile(PyObject *op, PyObject *ignored);
PyObject *pyshm_partition_verify(PyObject *op, PyObject *ignored);
PyObject *pyshm_partition_info(PyObject *op, PyObject *ignored);

/* ---- pystore.c, pylist.c ---- */

struct pyshm_store {
	PyObject ob_base;
	struct shmstore *s; /* NULL once closed */
	PyObject *partition;
	PyObject *name;
	PyObject *path;
	pid_t pid;            /* who opened it: lock and idle are used by this process only */
	pthread_mutex_t lock; /* guards what follows; never held while the GIL is waited for */
	pthread_cond_t idle;  /* n_calls fell to 0 while closing, or closed became true */
	size_t n_calls;       /* threads inside the library with s */
	bool closing;         /* no new calls */
	bool closed;
	bool wait; /* puts wait for room; set when it is opened */
	bool readonly;
};
extern PyType_Spec pyshm_store_spec;
/*
 * Around every use of self->s: close() waits for pyshm_store_leave(), which needs no GIL.
 * Return: true; false with ClosedError, or Error (EPERM) in a forked child, unless the store was opened to be read.
 */
bool pyshm_store_enter(struct pyshm_store *self);
/* The same, and raises nothing. */
bool pyshm_store_enter_quietly(struct pyshm_store *self);
void pyshm_store_leave(struct pyshm_store *self);
/* Makes the call, of a store that was entered, without the GIL, and leaves the store. */
#define PYSHM_STORE_CALL(self, ...) \
	Py_BEGIN_ALLOW_THREADS      \
	__VA_ARGS__;                \
	pyshm_store_leave(self);    \
	Py_END_ALLOW_THREADS
/* Raises Error for a failed call on the store, of which the library keeps no detail. Returns NULL. */
void *pyshm_store_raise(struct pyshm_store *self, int error, const char *operation, PyObject *key);
/* The same for a call on an object, of which it may. error > 0: an outcome of the arbiter. */
void *pyshm_store_raise_object(struct pyshm_store *self, int error, const char *operation, PyObject *key);
/* The same, but KeyError where -ENOENT means that there is no such key. */
void *pyshm_store_raise_missing(struct pyshm_store *self, int error, const char *operation, PyObject *key);
/*
 * A call of the library that takes a store and a key, without the GIL. op: the store; *ret_r: what the call returned, for the above.
 * Return: true; false with the exception of pyshm_key_bytes() or pyshm_store_enter().
 */
typedef int pyshm_key_call(struct shmstore *s, const void *key, size_t key_size);
bool pyshm_store_call(PyObject *op, PyObject *key, pyshm_key_call *call, int *ret_r);

/* ---- pytier.c ---- */

PyObject *pyshm_partition_set_tier(PyObject *op, PyObject *args);
PyObject *pyshm_partition_tier(PyObject *op, PyObject *ignored);
PyObject *pyshm_partition_evict(PyObject *op, PyObject *args);
PyObject *pyshm_store_demote(PyObject *op, PyObject *key);
PyObject *pyshm_store_promote(PyObject *op, PyObject *args, PyObject *kwargs);
PyObject *pyshm_store_prefetch(PyObject *op, PyObject *args);
PyObject *pyshm_store_pin(PyObject *op, PyObject *key);
PyObject *pyshm_store_unpin(PyObject *op, PyObject *key);
PyObject *pyshm_store_locate(PyObject *op, PyObject *key);

/* ---- pyobjects.c ---- */

PyObject *pyshm_store_put_buffers(PyObject *op, PyObject *args, PyObject *kwargs);
PyObject *pyshm_store_view(PyObject *op, PyObject *args, PyObject *kwargs);
PyObject *pyshm_store_create(PyObject *op, PyObject *args, PyObject *kwargs);
PyObject *pyshm_store_contains(PyObject *op, PyObject *key);
PyObject *pyshm_store_wait(PyObject *op, PyObject *args);
PyObject *pyshm_store_owner(PyObject *op, PyObject *ignored);
PyObject *pyshm_store_delete(PyObject *op, PyObject *key);
PyObject *pyshm_store_handoff(PyObject *op, PyObject *args);
PyObject *pyshm_store_adopt(PyObject *op, PyObject *args);
/* ---- pylist.c ---- */

PyObject *pyshm_store_keys(PyObject *op, PyObject *ignored);
PyObject *pyshm_store_objects(PyObject *op, PyObject *ignored);

/* ---- pydaemon.c ---- */

/* The keywords daemon and wait of Store(). Return: 0, -1 with an exception. */
int pyshm_daemon_options(struct shmstore_options *io, const char *daemon, PyObject *wait, bool *ret_wait);
PyObject *pyshm_store_asked(PyObject *op, PyObject *ignored);
PyObject *pyshm_store_daemon_fd(PyObject *op, PyObject *ignored);
PyObject *pyshm_store_daemon_dispatch(PyObject *op, PyObject *ignored);

/* ---- pymemory.c: a range of memory that belongs to a View or a Writer, with the buffer protocol ---- */

struct pyshm_memory_owner {
	int (*acquire)(PyObject *owner); /* before each export; -1 with an exception refuses it */
	void (*release)(PyObject *owner);
};
extern PyType_Spec pyshm_memory_spec;
/* A memoryview over data, which lives as long as owner. calls may be NULL; it is static. */
PyObject *pyshm_memory_view(struct pyshm_state *state, PyObject *owner, const struct pyshm_memory_owner *calls,
			    void *data, uint64_t size, bool readonly);

/* ---- pyview.c ---- */

extern PyType_Spec pyshm_view_spec;
/* Consumes v, also on failure. */
PyObject *pyshm_view_new(struct pyshm_state *state, struct shmstore_view *v, bool cow);

/* ---- pywriter.c ---- */

extern PyType_Spec pyshm_writer_spec;
/* Consumes w, also on failure. */
PyObject *pyshm_writer_new(struct pyshm_store *store, struct shmstore_writer *w, PyObject *key, size_t n_buffers);

/* ---- pyunlocked.c ---- */

extern PyType_Spec pyshm_unlocked_spec;

/* ---- pyticket.c ---- */

/* Return: 0, -1 with an exception. path: str. */
int pyshm_ticket_init(struct shmstore_ticket *t, PyObject *path, unsigned long long header_size,
		      unsigned long long buffer_size, struct pyshm_state *state);
PyObject *pyshm_ticket_tuple(const struct shmstore_ticket *t);
PyObject *pyshm_ticket_format(PyObject *module, PyObject *args);
PyObject *pyshm_ticket_parse(PyObject *module, PyObject *text);

#endif
