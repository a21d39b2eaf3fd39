/* SPDX-License-Identifier: Apache-2.0 */
/*
 * procmem.h: the private memory of one process and of its descendants, read again and again:
 * RssAnon and VmSwap, which leave out what is mapped of a store. The files stay open between two
 * looks: a descriptor of procfs stays with its process, and never shows another one that has the
 * pid later.
 */
#ifndef PROCMEM_H
#define PROCMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "amount.h"

#define PROCMEM_CHILDREN_MAX 1024u /* with more than so many descendants the sum is unknown */

struct procmem;

/*
 * proc: where procfs is mounted; borrowed. NULL: out of memory. The memory of a process that is not
 * there is unknown.
 */
struct procmem *procmem_new(const char *proc, pid_t pid);
struct procmem *procmem_free(struct procmem *m);

/*
 * A new list of descendants: begin, then each of them in any order, then end. A descendant that is
 * known already costs nothing.
 */
void procmem_children_begin(struct procmem *m);
void procmem_child(struct procmem *m, pid_t pid);
void procmem_children_end(struct procmem *m);
size_t procmem_n_children(const struct procmem *m);

/*
 * swap: some of the host's is in use, so that a longer file is read now and then. A process that
 * has ended has no memory; that of one that cannot be read is unknown.
 */
struct amount procmem_read(struct procmem *m, bool swap);

#endif
