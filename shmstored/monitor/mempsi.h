/* SPDX-License-Identifier: Apache-2.0 */
/* mempsi.h: what is written to a memory.pressure file so that the kernel wakes us. Pure. */
#ifndef MEMPSI_H
#define MEMPSI_H

#include <stdint.h>

#include "ratio.h"

struct mempsi_trigger {
	const char *mode; /* "some" or "full" */
	int64_t stall_us, window_us;
};

/*
 * mode: "some" or "full"; stalled: the share of the window in which tasks wait for memory, in (0, 1]; window_s: 2, 4, 6, 8, or 10: who is not
 * privileged may have multiples of 2 s, and the kernel takes 10 s at most. -EINVAL: something else.
 */
int mempsi_trigger(const char *mode, struct ratio stalled, struct ratio window_s, struct mempsi_trigger *ret);
/* "some 150000 2000000", ended by a zero. Return: bytes written without it. */
int mempsi_write(const struct mempsi_trigger *t, char ret[static 64]);

#endif
