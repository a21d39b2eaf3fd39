/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spillfile.h: several objects in one file: where each lies, and when the file may go. A file lives until its last object is freed,
 * so its size bounds what a single object can keep on disk. Pure.
 */
#ifndef SPILLFILE_H
#define SPILLFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPILLFILE_HEADER 24 /* bytes before each object: three lengths */

struct spillfile_object {
	int64_t size, offset; /* offset: of its header */
	bool freed;
};

struct spillfile {
	struct spillfile_object *objects; /* borrowed */
	size_t n, n_live;
	int64_t size;
};

/* Lays n objects, whose sizes are set, one after the other. -EFBIG: the file would be larger than 64 bits can say; -EINVAL: a size is negative. */
int spillfile_init(struct spillfile *f, struct spillfile_object *objects, size_t n);
/* True if the file may go now: this was its last object. False also where it was freed before. */
bool spillfile_free(struct spillfile *f, size_t i);

#endif
