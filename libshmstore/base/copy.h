/* SPDX-License-Identifier: Apache-2.0 */
/* copy.h: copies of an object's buffers into memory that is there already. */
#ifndef SHMS_COPY_H
#define SHMS_COPY_H

#include <stddef.h>

/* memcpy(3), which a large copy to an address that is a multiple of 64 is faster than. */
void shms_copy(void *to, const void *from, size_t size);

#endif
