/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyarberror.c: the outcomes of the arbiter as exceptions. Each is an Error, hence an OSError; its
 * errno is what a program that knows nothing of the arbiter makes most sense of: one that is told
 * RETRY found the store full. why is the daemon's sentence: who held what.
 */
#include <errno.h>

#include "pyarb.h"

struct outcome {
	const char *name; /* of the exception, in shmstore.arbiter */
	const char *doc;
	const char *text; /* where the daemon said nothing */
	int error;
};

static const struct outcome outcomes[PYARB_OUTCOMES] = {
	[SHMSTORE_ARB_RETRY] = {"Retry",
				"Give back what this attempt reserved, call ready(), begin again. "
				"with_retry() does it.",
				"give back what this attempt took and begin again", ENOSPC},
	[SHMSTORE_ARB_SPLIT] = {"Split",
				"The same, with less work at a time: it does not fit beside what "
				"others hold for good.",
				"the work does not fit, less of it at a time may", ENOSPC},
	[SHMSTORE_ARB_NOMEM] = {"NoMemory",
				"It cannot be had; why says who held what. A MemoryError, too.",
				"the memory cannot be had", ENOMEM},
	[SHMSTORE_ARB_TOOBIG] =
		{"TooBig", "More than the pool's capacity: it can never be had, whoever waits.",
		 "it is more than the pool has in all", ENOSPC},
	[SHMSTORE_ARB_AGAIN] = {"Again", "It does not fit now, and the call was not to wait.",
				"it does not fit now, and was not to wait", ENOSPC},
	[SHMSTORE_ARB_TIMEDOUT] = {"TimedOut",
				   "The timeout, or the longest wait that the daemon allows, has "
				   "passed. A TimeoutError, too.",
				   "it did not fit within the time allowed", ETIMEDOUT},
	[SHMSTORE_ARB_CANCELED] = {"Canceled",
				   "Somebody ended the wait: cancel(), or the operator.",
				   "the wait was canceled", ECANCELED},
	[SHMSTORE_ARB_REMOVED] = {"Removed",
				  "The context was unbound, or its task ended, while it waited.",
				  "the task has ended meanwhile", ECANCELED},
	[SHMSTORE_ARB_DOWN] = {"Down",
			       "The daemon went away, or shuts down. Nothing is reserved any more.",
			       "the daemon went away", ECANCELED},
	[SHMSTORE_ARB_ERROR] = {"Injected", "A test's own: inject(\"error\").",
				"a test wanted it to fail", EIO},
};

static const struct outcome *outcome_of(int r)
{
	return r > 0 && r < PYARB_OUTCOMES && outcomes[r].name ? &outcomes[r] : NULL;
}

/* A -errno. Without an arbiter the library's words for the code would lead astray. */
static const char *errno_text(int r)
{
	if (r == -ENOTSUP)
		return "no arbiter is behind this store; let shmstored run with its arbiter "
		       "enabled (shmstore-admin arb pools)";
	if (r == -EINVAL)
		return "the task, pool or reservation is not known any more, or the context is "
		       "bound in another way or waits already";
	return shmstore_strerror(r);
}

PyObject *pyarb_exception(struct pyshm_store *store, int r, PyObject *what)
{
	struct pyshm_state *state = pyshm_state_of(Py_TYPE(store));
	const struct outcome *o = outcome_of(r);
	/* This thread's, and copied before anything below could call the library. */
	PyObject *why = pyshm_text(r > 0 ? shmstore_arb_why() : "");
	PyObject *said = NULL, *message = NULL, *exception = NULL;

	if (!why || !what)
		goto out;
	if (PyUnicode_GetLength(why))
		said = Py_NewRef(why);
	else
		said = pyshm_text(o       ? o->text
				  : r < 0 ? errno_text(r)
					  : shmstore_arb_outcome_name(r));
	if (said)
		message = PyUnicode_FromFormat("%U in store %R of %U: %U", what, store->name,
					       ((struct pyshm_partition *)store->partition)->path,
					       said);
	if (message)
		exception = PyObject_CallFunction(o ? state->outcomes[r] : state->error, "iO",
						  o       ? o->error
						  : r < 0 ? -r
							  : EIO,
						  message);
	if (exception && o && PyObject_SetAttrString(exception, "why", why) < 0)
		Py_CLEAR(exception);
out:
	Py_XDECREF(message);
	Py_XDECREF(said);
	Py_XDECREF(what);
	Py_XDECREF(why);
	return exception;
}

void *pyarb_raise(struct pyshm_store *store, int r, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	pyarb_raise_va(store, r, format, ap);
	va_end(ap);
	return NULL;
}

void *pyarb_raise_va(struct pyshm_store *store, int r, const char *format, va_list ap)
{
	PyObject *exception = pyarb_exception(store, r, PyUnicode_FromFormatV(format, ap));

	if (exception) {
		PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
		Py_DECREF(exception);
	}
	return NULL;
}

/* Those that are something of Python's as well. */
static PyObject *second_base(int outcome)
{
	if (outcome == SHMSTORE_ARB_NOMEM)
		return PyExc_MemoryError;
	return outcome == SHMSTORE_ARB_TIMEDOUT ? PyExc_TimeoutError : NULL;
}

static PyObject *outcome_type(struct pyshm_state *state, int outcome)
{
	PyObject *second = second_base(outcome), *type = NULL;
	PyObject *bases = second ? PyTuple_Pack(2, state->outcome_error, second)
				 : PyTuple_Pack(1, state->outcome_error);
	PyObject *dict = Py_BuildValue("{si}", "outcome", outcome);
	char name[64];

	snprintf(name, sizeof(name), "shmstore.arbiter.%s", outcomes[outcome].name);
	if (bases && dict)
		type = PyErr_NewExceptionWithDoc(name, outcomes[outcome].doc, bases, dict);
	Py_XDECREF(bases);
	Py_XDECREF(dict);
	return type;
}

PyDoc_STRVAR(outcome_doc, "The arbiter's answer instead of memory.\n\n"
			  "outcome is the number that arbiter.h gives it, why the daemon's "
			  "sentence, \"\" where it had none.");

int pyarb_error_exec(PyObject *module, struct pyshm_state *state)
{
	PyObject *defaults = Py_BuildValue("{sssi}", "why", "", "outcome", 0);

	if (!defaults)
		return -1;
	state->outcome_error = PyErr_NewExceptionWithDoc("shmstore.arbiter.Outcome", outcome_doc,
							 state->error, defaults);
	Py_DECREF(defaults);
	if (!state->outcome_error ||
	    PyModule_AddObjectRef(module, "Outcome", state->outcome_error) < 0)
		return -1;
	for (int i = 0; i < PYARB_OUTCOMES; i++) {
		if (!outcomes[i].name)
			continue;
		state->outcomes[i] = outcome_type(state, i);
		if (!state->outcomes[i] ||
		    PyModule_AddObjectRef(module, outcomes[i].name, state->outcomes[i]) < 0)
			return -1;
	}
	return 0;
}
