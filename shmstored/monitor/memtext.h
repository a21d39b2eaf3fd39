/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memtext.h: numbers out of the kernel's text files, from buffers of any content: not ended by a zero,
 * cut anywhere, of any length. A value that is missing, no number, or too large is unknown. Pure.
 */
#ifndef MEMTEXT_H
#define MEMTEXT_H

#include <stddef.h>

#include "amount.h"

/* Of lines like "MemTotal:   16 kB" or "inactive_file 123": the first whose name is this one. kB are multiplied out. */
struct amount memtext_field(const char *text, size_t size, const char *name);
/* A file that is one number and a line's end. "max" is unknown, as no limit is. */
struct amount memtext_number(const char *text, size_t size);

#endif
