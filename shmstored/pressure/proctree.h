/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proctree.h: finds descendants of processes, by a pass over procfs that takes a few processes at a
 * time, so that no call takes long on any host. Not all kernels have /proc/PID/task/TID/children.
 */
#ifndef PROCTREE_H
#define PROCTREE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct proctree;

struct proctree *proctree_new(const char *proc); /* NULL: no memory */
struct proctree *proctree_free(struct proctree *t);

/*
 * Reads n more processes. True: the pass is complete, and the tree is of it; the next call begins
 * another.
 */
bool proctree_step(struct proctree *t, size_t n);
/*
 * The nearest of pid's ancestors to which is_wanted() says yes; 0: there is none. proctree_n() and
 * proctree_at() list the processes of the last complete pass.
 */
pid_t proctree_ancestor(const struct proctree *t, pid_t pid, bool (*is_wanted)(pid_t pid, void *arg), void *arg);
size_t proctree_n(const struct proctree *t);
pid_t proctree_at(const struct proctree *t, size_t i);

#endif
