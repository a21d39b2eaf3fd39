/* SPDX-License-Identifier: Apache-2.0 */
/* macros.h: the structure around a member; a parameter that a function has for its type only; a
 * function that is kept out of others. */
#ifndef MACROS_H
#define MACROS_H

#include <stddef.h>
#include <stdint.h>

#define CONTAINER_OF(pointer, type, member) \
	((struct type *)((uintptr_t)(pointer)-offsetof(struct type, member)))
#define UNUSED     __attribute__((unused))
/*
 * Of a function that most calls do not need, in the one that calls it. Inlined, its locals would be
 * part of that one's frame: an array of a page puts what is used around it on other pages, and is
 * touched by the check of the stack's end. A hand-over between two processes runs in cold caches,
 * where each page and line counts.
 */
#define SHMS_ASIDE __attribute__((noinline))

#endif
