/* SPDX-License-Identifier: Apache-2.0 */
/* memproc.h: what one process would give back. Pure. */
#ifndef MEMPROC_H
#define MEMPROC_H

#include <stddef.h>

#include "amount.h"

/* RssAnon and VmSwap of a status file: the private memory, without what is mapped of a store. A kernel thread has neither: unknown. */
struct amount memproc_private(const char *text, size_t size);

#endif
