/* SPDX-License-Identifier: Apache-2.0 */
/* sysroot.h: reads /proc, /sys and /etc below a root that tests may choose. */
#ifndef SYSROOT_H
#define SYSROOT_H

#include <stdbool.h>
#include <stdint.h>

#include "admin.h"
#include "memsource.h"

/* root + path on the heap. */
char *sysroot_path(const struct admin *a, const char *path);
/* The content of a small file of text, its last newline cut off, on the heap; NULL where it cannot
 * be read. */
char *sysroot_read(const struct admin *a, const char *path);
/* The decimal number that a file holds. */
bool sysroot_number(const struct admin *a, const char *path, uint64_t *ret);
bool sysroot_exists(const struct admin *a, const char *path);
/* As memsource_read(). */
int sysroot_memory(const struct admin *a, bool count_swap, struct memsource_reading *ret);

#endif
