/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pullargs.h: how much of a store the arguments of running tasks may pin. An object that several tasks pin counts once. A task whose
 * arguments alone are more than the limit is let through, since no waiting would ever help it. Pure.
 */
#ifndef PULLARGS_H
#define PULLARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pull.h"

struct pullargs;

/* NULL: no memory. */
struct pullargs *pullargs_new(uint64_t limit);
/* Returns NULL. */
struct pullargs *pullargs_free(struct pullargs *a);
void pullargs_set_limit(struct pullargs *a, uint64_t limit);

/*
 * All of a task's arguments or none. ret_over: it was let through above the limit, which deserves a warning; may be NULL.
 * Return: 1: pinned (or it was before); 0: not now; -EOVERFLOW: beyond PULL_MOST, or a size is PULL_UNKNOWN; -ENOMEM.
 */
int pullargs_pin(struct pullargs *a, uint64_t task, const struct pull_object *objects, size_t n, bool *ret_over);
/* Return: 0; -ENOENT. */
int pullargs_unpin(struct pullargs *a, uint64_t task);
uint64_t pullargs_bytes(const struct pullargs *a);

#endif
