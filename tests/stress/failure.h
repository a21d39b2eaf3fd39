/* SPDX-License-Identifier: Apache-2.0 */
/* failure.h: what went wrong first in any process of a stress test. In
 * memory that all of them share. */
#ifndef FAILURE_H
#define FAILURE_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

struct failure {
	_Atomic bool is; /* the processes end then */
	char message[512];
};

__attribute__((format(printf, 2, 3))) static inline void failure_say(struct failure *f,
								     const char *format, ...)
{
	va_list args;

	if (atomic_exchange(&f->is, true))
		return;
	va_start(args, format);
	vsnprintf(f->message, sizeof(f->message), format, args);
	va_end(args);
}

#endif
