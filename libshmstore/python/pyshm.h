/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyshm.h: the extension module shmstore._shmstore, for its own files.
 *
 * Model: each type wraps one handle of the public C API; nothing is cached beside it. All state is
 * in the objects and in the module's state (types and exceptions), none is global. Every call into
 * the library that may copy, wait or touch the file system runs without the GIL; no Python code
 * runs while such a call is in progress on the same thread.
 *
 * References: memoryview -> Memory -> View or Writer; Writer -> Store -> Partition.
 */
#ifndef PYSHM_H
#define PYSHM_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <shmstore/actor.h>
#include <shmstore/arbiter.h>
#include <shmstore/inspect.h>
#include <shmstore/profile.h>
#include <shmstore/shmstore.h>
#include <shmstore/stage.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <structmember.h>
#include <sys/types.h>

/* Its objects: the functions of shmstore.errors that make exceptions; types. */
#define PYSHM_STATE_ERRORS(EACH) EACH(failed) EACH(closed) EACH(refused)
#define PYSHM_STATE_TYPES(EACH) \
	EACH(partition)         \
	EACH(store) EACH(view) EACH(writer) EACH(memory) EACH(context) EACH(reservation)
struct pyshm_state {
#define ERROR(name) PyObject *name;
#define TYPE(name)  PyTypeObject *name##_type;
	PYSHM_STATE_ERRORS(ERROR)
	PYSHM_STATE_TYPES(TYPE)
#undef ERROR
#undef TYPE
	void **_Atomic numpy; /* pyborn.c; NULL: not asked for so far */
};
#define SPEC(name) extern PyType_Spec pyshm_##name##_spec;
PYSHM_STATE_TYPES(SPEC)
#undef SPEC
/* How Python makes a type of the slots type_slots. more: flags that are not every type's */
#define PYSHM_TYPE(type, object, public_name, more)   \
	PyType_Spec pyshm_##type##_spec = {           \
		.name = (public_name),                \
		.basicsize = sizeof(object),          \
		.flags = Py_TPFLAGS_DEFAULT | (more), \
		.slots = type##_slots,                \
	}
#define PYSHM_BASE (Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE)
#define PYSHM_MADE (Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION)

/* ---- pystate.c ---- */

/* Its name and the size of its state; pymodule.c adds what it does. */
extern struct PyModuleDef pyshm_module;
/* The state of the module that type, or a base of it, comes from. Never NULL for this module's
 * types. */
struct pyshm_state *pyshm_state_of(PyTypeObject *type);
/* Of a PyGetSetDef whose closure is that member's place in its object. */
#define PYSHM_MEMBER(type, member) ((void *)offsetof(struct type, member))
PyObject *pyshm_get_object(PyObject *op, void *closure);
PyObject *pyshm_get_bool(PyObject *op, void *closure);
PyObject *pyshm_get_u64(PyObject *op, void *closure);

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

/*
 * State of an object that more than one thread may change is used within its critical section: with
 * the GIL that is nothing, without it a lock, which like the GIL is not held while the thread waits
 * without one. Python's own objects need none.
 */
#if PY_VERSION_HEX < 0x030D0000
#define Py_BEGIN_CRITICAL_SECTION(op) {
#define Py_END_CRITICAL_SECTION()     }
#endif
#define PYSHM_LOCKED(op, ...)          \
	Py_BEGIN_CRITICAL_SECTION(op); \
	__VA_ARGS__;                   \
	Py_END_CRITICAL_SECTION()
/* function##_locked: the method or getter within it. type: PyObject *, or void * of a closure. */
#define PYSHM_LOCKED_METHOD(function, type)                             \
	static PyObject *function##_locked(PyObject *op, type argument) \
	{                                                               \
		PyObject *result;                                       \
                                                                        \
		PYSHM_LOCKED(op, result = function(op, argument));      \
		return result;                                          \
	}

/* ---- pyenter.c ---- */

/*
 * Raises shmstore.Error: "<operation> in <where>: <why>; <what to do>". Returns NULL.
 *   error     -errno of the library
 *   where     NULL = nowhere
 *   format    the operation, for PyUnicode_FromFormat(). It ends with a preposition, and where
 *             follows, unless it names its object by a %
 */
void *pyshm_raise(struct pyshm_state *state, int error, PyObject *where, const char *format, ...);
void *pyshm_raise_va(struct pyshm_state *state, int error, PyObject *where, const char *format,
		     va_list ap);
/* Raises ClosedError: "<kind> <name> is closed; open it again with <how>". Returns NULL. */
void *pyshm_raise_closed(struct pyshm_state *state, const char *kind, PyObject *name,
			 const char *how);

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

/* ---- pyconvert.c: converters for PyArg_Parse*(), which return 1, or 0 with an exception ---- */

struct pyshm_key {
	PyObject *object; /* borrowed */
	const void *data; /* lives as long as object */
	size_t size;
};
int pyshm_key(PyObject *object, void *ret);
struct pyshm_path {
	const char *text; /* bytes, or NULL: None */
	char bytes[4104]; /* of a longer path the begin, which is too long for the kernel as well */
};
int pyshm_path(PyObject *object, void *ret);
/* An int of 64 bits, OverflowError where it is none: a uint64_t. None: UINT64_MAX. */
int pyshm_u64(PyObject *number, void *ret);
int pyshm_u64_or_none(PyObject *number, void *ret);
/* A uid_t; None: UINT32_MAX. */
int pyshm_uid(PyObject *number, void *ret);
/* An int: whether the object is false. */
int pyshm_not(PyObject *object, void *ret);
/* The path of a struct shmstore_ticket, whose other members stay. */
int pyshm_ticket_path(PyObject *object, void *ret);

/* str where the bytes are UTF-8, else bytes. */
PyObject *pyshm_key_object(const void *data, size_t size);
/* Text of the library's that nobody promises to be UTF-8. */
PyObject *pyshm_text(const char *text);
PyObject *pyshm_ticket_tuple(const struct shmstore_ticket *t);
PyObject *pyshm_ticket_format(PyObject *module, PyObject *args);
PyObject *pyshm_ticket_parse(PyObject *module, PyObject *text);

/* ---- pyborn.c ---- */

/* (handler before, ours), or None where somebody's own handler is in force, which stays. */
PyObject *pyshm_born_begin(PyObject *op, PyObject *args);
PyObject *pyshm_born_end(PyObject *module, PyObject *args);

/* ---- pypartition.c, pyenter.c ---- */

struct pyshm_partition {
	PyObject ob_base;
	struct shmstore_partition *p;
	PyObject *path;
};

/* The partition with a reference for the caller, who gives it back; NULL with ClosedError raised
 * where close() was called. */
struct shmstore_partition *pyshm_partition_enter(struct pyshm_partition *self);
/* Makes the call without the GIL, and gives the partition back. */
#define PYSHM_PARTITION_CALL(p, ...) \
	Py_BEGIN_ALLOW_THREADS       \
	__VA_ARGS__;                 \
	shmstore_partition_unref(p); \
	Py_END_ALLOW_THREADS
PyObject *pyshm_partition_close(PyObject *op, PyObject *ignored);
PyObject *pyshm_partition_evict(PyObject *op, PyObject *args);

/* ---- pycalls.c ---- */

extern PyMethodDef pyshm_partition_methods[], pyshm_store_methods[];

/* ---- pystore.c, pyenter.c ---- */

struct pyshm_store {
	PyObject ob_base;
	struct shmstore *s; /* NULL once closed */
	PyObject *partition;
	PyObject *name;
	PyObject *path;
	_Atomic pid_t pid;    /* who opened it: lock and idle are used by this process only */
	pthread_mutex_t lock; /* guards what follows; never held while the GIL is waited for */
	pthread_cond_t idle;  /* n_calls fell to 0 while closing, or closed became true */
	size_t n_calls;       /* threads inside the library with s */
	atomic_bool closing;  /* no new calls */
	bool closed;
	bool wait; /* puts wait for room; set when it is opened */
	atomic_bool readonly;
};
/*
 * Around every use of self->s: close() waits for pyshm_store_leave(), which needs no GIL.
 * Return: true; false with ClosedError, or Error (EPERM) in a forked child, unless the
 * store was opened to be read.
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
/* "store 'name' of path"; NULL with an exception. */
PyObject *pyshm_store_where(struct pyshm_store *self);
/* Raises Error for a failed call, as pyshm_raise(); error > 0: an outcome of
 * the arbiter. Returns NULL. */
void *pyshm_store_raise(struct pyshm_store *self, int error, const char *format, ...);
/* The same, but KeyError where -ENOENT means that there is no such key. */
void *pyshm_store_raise_missing(struct pyshm_store *self, int error, const char *operation,
				PyObject *key);
PyObject *pyshm_store_close(PyObject *op, PyObject *ignored);

/* ---- pyobjects.c: calls of a Store that are no rows of calls.def ---- */

PyObject *pyshm_store_put_buffers(PyObject *op, PyObject *args, PyObject *kwargs);
unsigned pyshm_put_flags(const struct pyshm_store *s, int replace, int checksum, int pin,
			 int evict);
/*
 * Without the GIL: shmstore_prefetch() of n keys, which lie one after the other. *ret: the results,
 * which pyshm_numbers() makes the bytes of, and frees.
 */
int pyshm_prefetch(struct shmstore *s, const char *keys, const uint64_t *sizes, size_t n,
		   unsigned n_threads, unsigned flags, int **ret);
PyObject *pyshm_numbers(int *numbers, size_t n);
/*
 * (lang, func, group, declared, wait_ms or None, level, retriable, parent, worker) ->
 * (outcome, task, reserve, waited_ms, reason). func "": of no kind
 */
PyObject *pyshm_store_task_admit(PyObject *op, PyObject *args);

/* ---- pyactor.c: places and calls of actors as capsules ---- */

/* Converters: the struct shmstore_place *, struct shmstore_actor_call * in a capsule. */
int pyshm_place(PyObject *capsule, void *ret);
int pyshm_actor_call(PyObject *capsule, void *ret);
/* A capsule, which gives it back at its end; so does this on failure. */
PyObject *pyshm_place_object(struct pyshm_store *self, struct shmstore_place *p);
PyObject *pyshm_actor_call_object(struct pyshm_store *self, struct shmstore_actor_call *c);

/* ---- pymemory.c: a range of memory that belongs to a View or a Writer, with the buffer
 * protocol */

struct pyshm_memory_owner {
	int (*acquire)(PyObject *owner); /* before each export; -1 with an exception refuses it */
	void (*release)(PyObject *owner);
};
/* A memoryview over data, which lives as long as owner. calls may be NULL; it is static. */
PyObject *pyshm_memory_view(struct pyshm_state *state, PyObject *owner,
			    const struct pyshm_memory_owner *calls, void *data, uint64_t size,
			    bool readonly);

PyObject *pyshm_unlocked(PyObject *module, PyObject *object);

/* ---- pyview.c ---- */

/* Consumes v, also on failure. */
PyObject *pyshm_view_new(struct pyshm_state *state, struct shmstore_view *v, bool cow);

/* ---- pywriter.c ---- */

/* Consumes w, also on failure. */
PyObject *pyshm_writer_new(struct pyshm_store *store, struct shmstore_writer *w, PyObject *key,
			   size_t n_buffers);

/*
 * ---- the memory arbiter. shmstore.arbiter puts tasks, contexts as context managers, retries and
 * event loops on top.
 *
 * References: ArbContext -> Store, ArbReservation -> Store. A context that waits in a call is busy:
 * the library allows one call of a context at a time, so a second one raises.
 */

/* ---- pyenter.c ---- */

/*
 * The exception of an outcome (> 0) or of a -errno, not raised: "<operation> in store …: <why>".
 *   what   the operation, which it consumes; NULL: an exception is set
 * NULL with another exception set, where there is no memory for it.
 */
PyObject *pyarb_exception(struct pyshm_store *store, int r, PyObject *what);
/* Raises it, the operation being a format for PyUnicode_FromFormat(). Returns NULL. */
void *pyarb_raise(struct pyshm_store *store, int r, const char *format, ...);
void *pyarb_raise_va(struct pyshm_store *store, int r, const char *format, va_list ap);

/* ---- pyarbreservation.c ---- */

struct pyarb_reservation {
	PyObject ob_base;
	struct pyshm_store *store;
	struct shmstore_arb_reservation r;
	atomic_bool held; /* r is to be released */
	bool spent_from;  /* the library writes to r */
};
/* It holds that from now on. */
void pyarb_fill_in(struct pyarb_reservation *into, struct shmstore_arb_reservation granted);

/* ---- pystate.c ---- */

/* Of an object whose first member is its store, and whose finalizer gives back the rest. */
void pyarb_dealloc(PyObject *op);

/* ---- pyarbcontext.c ---- */

struct pyarb_context {
	PyObject ob_base;
	struct pyshm_store *store;
	struct shmstore_arb_context *c; /* NULL: the calling thread's, or closed */
	bool own;                       /* one of its own, not the calling thread's */
	atomic_bool busy;               /* own: a call is in the library */
	atomic_uint n_looks;            /* calls of cancel() and state() that use c */
};
/*
 * Around each call of a context. Return: true; false with an exception: the store is closed or
 * another process's, the context is closed, or another thread is in a call of it.
 */
bool pyarb_context_enter(struct pyarb_context *self);
/* Makes the call, of a context that was entered, without the GIL, and leaves the context. */
#define PYARB_CONTEXT_CALL(self, ...)                \
	PYSHM_STORE_CALL((self)->store, __VA_ARGS__) \
	(self)->busy = false
PyObject *pyarb_context_close(PyObject *op, PyObject *ignored);
PyObject *pyarb_context_cancel(PyObject *op, PyObject *ignored);
PyObject *pyarb_context_reserve_many(PyObject *op, PyObject *args);
PyObject *pyarb_context_resize(PyObject *op, PyObject *args);
PyObject *pyarb_context_state(PyObject *op, PyObject *ignored);
extern PyMethodDef pyarb_context_methods[]; /* pycalls.c */

/* ---- pyarbloop.c ---- */

extern const struct shmstore_arb_upcalls pyarb_upcalls;
PyObject *pyshm_store_arb_next(PyObject *op, PyObject *args);
PyObject *pyshm_store_arb_serve(PyObject *op, PyObject *args);

/* ---- pyrecord.c ----
 *
 * The library's records as tuples, for records.def: pyshm_Usage() makes the one of a struct
 * shmstore_usage. Of a LISTED one, pyshm_Finding_row() copies each that a walk tells into a struct
 * pyshm_rows, without the GIL, and pyshm_Finding_list() makes the list of them afterwards.
 */

/* A vector of rows of one size, and the copies of what their pointers mean. {0}: none. */
struct pyshm_rows {
	char *rows;
	size_t n, room;
	char **copies; /* freed together */
	size_t n_copies, copies_room;
};

void pyshm_rows_deinit(struct pyshm_rows *r);
/* Makes a list of all rows, and frees them. NULL with an exception. */
PyObject *pyshm_rows_list(struct pyshm_rows *r, size_t row_size,
			  PyObject *(*make)(const void *row));

struct pyshm_evicted {
	bool done;
	struct shmstore_evict_report report;
};

#define RECORD(name, type, ...) PyObject *pyshm_##name(const struct type *v);
#define LISTED(name, type, ...)                                  \
	RECORD(name, type, )                                     \
	int pyshm_##name##_row(const struct type *v, void *arg); \
	PyObject *pyshm_##name##_list(struct pyshm_rows *rows);
#include "records.def"

/* True, False, or None where it is not known: an enum shmstore_alive. */
PyObject *pyshm_alive(int alive);

#endif
