/* SPDX-License-Identifier: Apache-2.0 */
/* sysroot.h: reads /proc, /sys and /etc below a root that tests may choose. */
#ifndef SYSROOT_H
#define SYSROOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "admin.h"
#include "memsource.h"
#include "mountline.h"

/* root + path on the heap. */
char *sysroot_path(const struct admin *a, const char *path);
/* The content of a small file of text, its last newline cut off, on the heap; NULL where it cannot
 * be read. */
char *sysroot_read(const struct admin *a, const char *path);
/* The decimal number that a file holds. */
bool sysroot_number(const struct admin *a, const char *path, uint64_t *ret);
/* As memsource_read(). */
int sysroot_memory(const struct admin *a, bool count_swap, struct memsource_reading *ret);

/* /proc/self/mountinfo: the mounts. */
struct mountinfo_table {
	size_t n_mounts;
	/* in the order in which they were made: the last one of a point is the visible one */
	struct shms_mountline *mounts;
	char *text; /* that they point into */
};

/* n_mounts is 0 where the file cannot be read. Lines that make no sense are left out. */
void mountinfo_read(const struct admin *a, struct mountinfo_table *ret);
void mountinfo_deinit(struct mountinfo_table *t);
/* A local that is freed. */
#define _mounts_ __attribute__((cleanup(mountinfo_deinit)))
/* The visible mount that holds the canonical path; NULL: unknown. Owned by t. */
const struct shms_mountline *mountinfo_find(const struct mountinfo_table *t, const char *path);
/* Whether path lies below dir, not at it. */
bool mountinfo_below(const char *path, const char *dir);
/* The value of an option in "a,b=c": writes at most size bytes to ret_value ("" where it
 * has none). False: not there. */
bool mountinfo_option(const char *options, const char *name, char *ret_value, size_t size);
/* Inodes that a partition of so many bytes gets: one per page, as tmpfs counts every link as one,
 * and never under a million. */
uint64_t mountinfo_inodes(uint64_t size);

#endif
