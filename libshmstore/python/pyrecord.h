/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyrecord.h: the library's records as tuples, for records.def: pyshm_Usage() makes the one of a
 * struct shmstore_usage. Of a LISTED one, pyshm_Finding_row() copies each that a walk tells into a
 * struct pyshm_rows, without the GIL, and pyshm_Finding_list() makes the list of them afterwards.
 */
#ifndef PYRECORD_H
#define PYRECORD_H

#include "pyshm.h"

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
