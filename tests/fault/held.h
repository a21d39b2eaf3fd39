/* SPDX-License-Identifier: Apache-2.0 */
/* held.h: what a process holds, so that two looks tell what a call left: descriptors, mappings of
 * files on a mount, blocks of the heap. */
#ifndef HELD_H
#define HELD_H

#include <stdbool.h>

#define HELD_FDS 512

struct held {
	bool fd[HELD_FDS];
	unsigned n_maps;
	long n_blocks;
};

void held_look(const char *mount, struct held *ret);
/* NULL where the process holds what it held before, else what it does not: static. */
const char *held_differs(const char *mount, const struct held *before);

#endif
