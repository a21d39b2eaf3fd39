/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pycalls.c: the methods that are calls of the library as they are, made of calls.def. Each parses
 * its arguments with the GIL, enters its store, partition or context, calls without the GIL,
 * leaves, and then makes the result or raises.
 *
 * calls.def is read once for each thing that an argument's word stands for: a member of the struct
 * a, a unit of the format, a name, a place to convert it to. So the four cannot come apart.
 */

#include "pyshm.h"

#define NO_USER UINT32_MAX

/* NOLINTBEGIN(bugprone-macro-parentheses): arguments are members, declarations and statements. */
/* ARG(member, unit of the format, name, what PyArg_Parse*() takes) */
#define BOOL(name)         ARG(int name, "p", #name, &a.name)
#define INT(name)          ARG(int name, "i", #name, &a.name)
#define U32(name)          ARG(unsigned name, "I", #name, &a.name)
#define U64(name)          ARG(uint64_t name, "O&", #name, pyshm_u64, &a.name)
#define U64_OR_NONE(name)  ARG(uint64_t name, "O&", #name, pyshm_u64_or_none, &a.name)
#define USER(name)         ARG(uid_t name, "O&", #name, pyshm_uid, &a.name)
#define NOT(name, member)  ARG(int member, "O&", #name, pyshm_not, &a.member)
#define TEXT(name)         ARG(const char *name, "s", #name, &a.name)
#define TEXT_OR_NONE(name) ARG(const char *name, "z", #name, &a.name)
#define PATH(name)         ARG(struct pyshm_path name, "O&", #name, pyshm_path, &a.name)
#define KEY(name)          ARG(struct pyshm_key name, "O&", #name, pyshm_key, &a.name)
#define I64(name)          ARG(long long name, "L", #name, &a.name)
#define PLACE(name)        ARG(struct shmstore_place *name, "O&", #name, pyshm_place, &a.name)
#define DATA(name) \
	ARG(const char *name; Py_ssize_t name##_size, "y#", #name, &a.name, &a.name##_size)
#define ACTOR_CALL(name) \
	ARG(struct shmstore_actor_call *name, "O&", #name, pyshm_actor_call, &a.name)
#define RESERVATION(name) \
	ARG(struct pyarb_reservation *name, "O!", #name, STATE->reservation_type, &a.name)
#define TICKET(name)                                                               \
	ARG(struct shmstore_ticket name, "O&", "path", pyshm_ticket_path, &a.name) \
	ARG(, "O&", "header_size", pyshm_u64, &a.name.header_size)                 \
	ARG(, "O&", "buffer_size", pyshm_u64, &a.name.buffer_size)

#define STATE pyshm_state_of(Py_TYPE(op))

/* Failures and results. */
#define RAISE(failed, ...) \
	if (failed)        \
		return pyshm_store_raise(self, r, __VA_ARGS__);
#define MISSING(failed, verb) \
	if (failed)           \
		return pyshm_store_raise_missing(self, r, verb, a.key.object);
#define ARB(failed, ...) \
	if (failed)      \
		return pyarb_raise(self, r, __VA_ARGS__);
#define WAITED(...) ARB(r != SHMSTORE_ARB_OK && r != SHMSTORE_ARB_PENDING, __VA_ARGS__)
#define NONE_IF(condition) \
	if (condition)     \
		Py_RETURN_NONE;
#define FREE_ROWS(failed) \
	if (failed)       \
		pyshm_rows_deinit(&a.rows);
#define FREE(failed, what) \
	if (failed)        \
		free(what);
#define FILL_IN(granted, into, with) \
	if (granted)                 \
		pyarb_fill_in(into, with);
#define NONE                Py_NewRef(Py_None)
#define PENDING             PyBool_FromLong(r == SHMSTORE_ARB_PENDING)
#define BYTES(n)            ((unsigned long long)(n))
/* Of DATA(name), numbers of that type: where they are, and how many. */
#define NUMBERS(name, type) (const void *)a.name, (size_t)a.name##_size / sizeof(type)

/* Structures that more than one call takes, or that are long. */
#define HOW  ((struct shmstore_arb_how){c, a.flags, a.ms})
#define KIND ((struct shmstore_profile_kind){a.lang, a.func, a.group})
#define TIER_CONFIG                                                                             \
	((struct shmstore_tier_config){sizeof(struct shmstore_tier_config), a.path.text, a.max, \
				       a.min_free, a.level, a.fsync, a.high, a.low})

static PyObject *key_of_row(const void *row)
{
	const struct shmstore_object_info *info = row;

	return pyshm_key_object(info->key, info->key_size);
}

/* ---- the arguments: a struct, a format and names for each call ---- */

#define KEYED(...)
#define STORE(name, doc, words, ...)     ARGUMENTS(store, name, words)
#define PARTITION(name, doc, words, ...) ARGUMENTS(partition, name, words)
#define CONTEXT(name, doc, words, ...)   ARGUMENTS(context, name, words)

#define ARG(member, ...) member;
#define OUT(member)      member;
#define OPTIONAL
#define ARGUMENTS(kind, name, ...)         \
	struct kind##_##name##_arguments { \
		__VA_ARGS__ char end;      \
	};
#include "calls.def"
#undef ARG
#undef OUT
#undef OPTIONAL
#undef ARGUMENTS

#define ARG(member, unit, ...) unit
#define OUT(member)
#define OPTIONAL "|"
#define ARGUMENTS(kind, name, ...) \
	static const char kind##_##name##_format[] = __VA_ARGS__ ":" #name;
#include "calls.def"
#undef ARG
#undef OPTIONAL
#undef ARGUMENTS

#define ARG(member, unit, name, ...) name,
#define OPTIONAL
#define ARGUMENTS(kind, name, ...) \
	static const char *const kind##_##name##_names[] = {__VA_ARGS__ NULL};
#include "calls.def"
#undef ARG
#undef KEYED
#undef STORE
#undef PARTITION
#undef CONTEXT

/* ---- the methods ---- */

/* locals: what the row names; made: the call and what follows; ...: where the arguments go to. */
#define METHOD(kind, name, locals, enter, made, ...)                                   \
	static PyObject *kind##_##name(PyObject *op, PyObject *args, PyObject *kwargs) \
	{                                                                              \
		char **names = pyshm_no_const(kind##_##name##_names);                  \
		struct kind##_##name##_arguments a = {0};                              \
		locals;                                                                \
		int r;                                                                 \
                                                                                       \
		if (!PyArg_ParseTupleAndKeywords(args, kwargs, kind##_##name##_format, \
						 names __VA_ARGS__) ||                 \
		    !(enter))                                                          \
			return NULL;                                                   \
		(void)a;                                                               \
		made                                                                   \
	}
#define ARG(member, unit, name, ...) , __VA_ARGS__
#define STORE(name, doc, words, call, failure, result)                           \
	METHOD(store, name, struct pyshm_store *self = (struct pyshm_store *)op, \
	       pyshm_store_enter(self), struct shmstore *const s = self->s;      \
	       (void)s; PYSHM_STORE_CALL(self, r = (call)); failure return result;, words)
#define KEYED(name, doc, call, failure, result)                          \
	static PyObject *store_##name(PyObject *op, PyObject *key)       \
	{                                                                \
		struct pyshm_store *self = (struct pyshm_store *)op;     \
		struct {                                                 \
			struct pyshm_key key;                            \
		} a;                                                     \
		struct shmstore *s;                                      \
		int r;                                                   \
                                                                         \
		if (!pyshm_key(key, &a.key) || !pyshm_store_enter(self)) \
			return NULL;                                     \
		s = self->s;                                             \
		PYSHM_STORE_CALL(self, r = (call));                      \
		failure return result;                                   \
	}
#define CONTEXT(name, doc, words, call, failure, result)                                  \
	METHOD(context, name, struct pyarb_context *context = (struct pyarb_context *)op; \
	       struct pyshm_store *self = context->store, pyarb_context_enter(context),   \
	       struct shmstore *const s = self->s;                                        \
	       struct shmstore_arb_context *const c = context->c;                         \
	       PYARB_CONTEXT_CALL(context, r = (call)); failure return result;, words)
#define PARTITION(...)
#include "calls.def"
#undef STORE
#undef KEYED
#undef CONTEXT
#undef PARTITION
#undef RAISE

#define STORE(...)
#define KEYED(...)
#define CONTEXT(...)
#define RAISE(failed, ...) \
	if (failed)        \
		return pyshm_raise(STATE, r, self->path, __VA_ARGS__);
#define PARTITION(name, doc, words, call, failure, result)                                   \
	METHOD(partition, name, struct pyshm_partition *self = (struct pyshm_partition *)op; \
	       struct shmstore_partition * p, p = pyshm_partition_enter(self),               \
	       PYSHM_PARTITION_CALL(p, r = (call));                                          \
	       failure return result;, words)
#include "calls.def"
#undef STORE
#undef CONTEXT
#undef PARTITION

/* NOLINTEND(bugprone-macro-parentheses) */

/* ---- the methods of each type; by hand those that hold Python's objects meanwhile, or call
 * twice */

#define LISTED(kind, name, doc) \
	{#name, PYSHM_METHOD(kind##_##name), METH_VARARGS | METH_KEYWORDS, doc},

#define PARTITION(name, doc, ...) LISTED(partition, name, doc)
#define STORE(...)
#define CONTEXT(...)
PyMethodDef pyshm_partition_methods[] = {
	{"close", pyshm_partition_close, METH_NOARGS,
	 "close($self, /)\n--\n\n"
	 "Gives its descriptors back now, not when it is collected. Stores that were opened with "
	 "it stay open. Idempotent;\n"
	 "every other call raises `ClosedError` from here on."},
	{"_evict", pyshm_partition_evict, METH_VARARGS, NULL},
#include "calls.def"
	{NULL, NULL, 0, NULL},
};
#undef PARTITION
#undef CONTEXT

#define PARTITION(...)
#define CONTEXT(name, doc, ...) LISTED(context, name, doc)
PyMethodDef pyarb_context_methods[] = {
	{"close", pyarb_context_close, METH_NOARGS,
	 "close($self, /)\n--\n\n"
	 "Unbinds the context and gives it up. Not while a call of it is in progress. Idempotent."},
	{"cancel", pyarb_context_cancel, METH_NOARGS,
	 "cancel($self, /)\n--\n\n"
	 "Ends what the context waits for, with Canceled there. By any thread; nothing happens "
	 "where it does not wait."},
	{"_reserve_many", pyarb_context_reserve_many, METH_VARARGS, NULL},
	{"_resize", pyarb_context_resize, METH_VARARGS, NULL},
	{"_state", pyarb_context_state, METH_NOARGS, NULL},
#include "calls.def"
	{NULL, NULL, 0, NULL},
};
#undef CONTEXT
#undef STORE
#undef KEYED

#define CONTEXT(...)
#define STORE(name, doc, ...) LISTED(store, name, doc)
#define KEYED(name, doc, ...) {#name, store_##name, METH_O, doc},
PyMethodDef pyshm_store_methods[] = {
	{"put_buffers", PYSHM_METHOD(pyshm_store_put_buffers), METH_VARARGS | METH_KEYWORDS,
	 "put_buffers($self, /, key, header, buffers, replace=False, checksum=False, pin=False, "
	 "evict=True)\n--\n\n"
	 "Stores one object: all of it or nothing. Each buffer is any contiguous (C or F) memory "
	 "and is copied once.\n\n"
	 "pin: it is never moved to the disk tier. evict: where the partition is full, others are "
	 "moved there first.\n"
	 "Where header and buffers are those of a live, unwritten view of this store, a file gets "
	 "a second link, and nothing is copied.\n"
	 "Raises Error: EEXIST (without replace), ENOSPC (nothing is left behind), EINVAL and "
	 "others."},
	{"close", pyshm_store_close, METH_NOARGS,
	 "close($self, /)\n--\n\n"
	 "Closes the store: removes it and its objects unless it was opened with keep.\n\n"
	 "Waits for calls in other threads. Views stay valid. Closing twice is fine."},
	{"_born_begin", pyshm_born_begin, METH_VARARGS, NULL},
	{"_task_admit", pyshm_store_task_admit, METH_VARARGS, NULL},
	{"_arb_next", pyshm_store_arb_next, METH_VARARGS, NULL},
	{"_arb_serve", pyshm_store_arb_serve, METH_VARARGS, NULL},
#include "calls.def"
	{NULL, NULL, 0, NULL},
};
