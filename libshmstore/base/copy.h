/* SPDX-License-Identifier: Apache-2.0 */
/* copy.h: copies of an object's buffers into memory that is there already. */
#ifndef SHMS_COPY_H
#define SHMS_COPY_H

#include <stddef.h>

/* memcpy(3); a large copy to an address that is a multiple of 64 goes the fastest way that this
 * processor has. Any number of threads. */
void shms_copy(void *to, const void *from, size_t size);

#endif
