/* SPDX-License-Identifier: Apache-2.0 */
/* macros.h: the structure around a member; a parameter that a function has for its type only. */
#ifndef MACROS_H
#define MACROS_H

#include <stddef.h>
#include <stdint.h>

#define CONTAINER_OF(pointer, type, member) \
	((struct type *)((uintptr_t)(pointer)-offsetof(struct type, member)))
#define UNUSED __attribute__((unused))

#endif
