/* SPDX-License-Identifier: Apache-2.0 */
/* plausible.h: what the kernel may answer to each system call, and what the library
 * may answer to its caller. */
#ifndef PLAUSIBLE_H
#define PLAUSIBLE_H

#include <stdbool.h>
#include <stddef.h>

#include "tracer.h"

#define PLAUSIBLE_ERRORS 8

struct plausible {
	enum tracer_mode mode;
	int errors[PLAUSIBLE_ERRORS]; /* until a 0 */
};

/* The i-th way, from 0, in which this call may fail; NULL after the last. */
const struct plausible *plausible_failure(const struct tracer_call *call, size_t i);
/* A return of the library's: not negative, or of the closed list. */
bool plausible_return(int rc);

#endif
