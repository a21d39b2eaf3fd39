/* SPDX-License-Identifier: Apache-2.0 */
/* memgroup.h: in which memory cgroup a process is, by its /proc/PID/cgroup. Pure. */
#ifndef SHMS_MEMGROUP_H
#define SHMS_MEMGROUP_H

#include <stdbool.h>
#include <stddef.h>

/*
 * version 1: the line that names the controller "memory"; 2: the line "0::". Writes its path, which
 * begins with '/', ended by a zero. A path with "..", as a process sees that is outside of its own
 * cgroup namespace, is "/": nothing may lead out of the tree.
 * False: there is no such line, or it does not fit.
 */
bool shms_memgroup_path(const char *text, size_t size, int version, char *ret, size_t room);
/* Cuts the last part off: "/a/b" becomes "/a", "/a" becomes "/". False: it was "/". */
bool shms_memgroup_parent(char *path);

#endif
