/* SPDX-License-Identifier: Apache-2.0 */
/*
 * there.h: a live store whose files somebody removed: systemd's RemoveIPC at a logout, a
 * sweeper of old files, rm -r. Its handle would put into files that nobody finds, and another
 * process may own the name meanwhile.
 */
#ifndef SHMS_THERE_H
#define SHMS_THERE_H

#include "handle.h"

#define SHMS_THERE_LOOK_MS 20u

int shms_there_look(struct shmstore *s);
/* At calls that put, after shms_tier_notice(). 0; -ENOENT: its page, a directory or a segment of it
 * was removed, and nothing is put any more. */
static inline int shms_there(struct shmstore *s)
{
	uint64_t now_ms = atomic_load_explicit(&s->called_ms, memory_order_relaxed);

	if (now_ms - atomic_load_explicit(&s->there_ms, memory_order_relaxed) < SHMS_THERE_LOOK_MS)
		return 0;
	return shms_there_look(s);
}
/*
 * Has the handle its descriptors still? A program may have closed all that it does not know, and
 * opened files that have their numbers now: those must not be closed, nor written to.
 */
bool shms_there_are_descriptors(const struct shmstore *s);
/* For who closes the store: may it take apart what has its name? */
bool shms_there_is_page(const struct shmstore *s);

#endif
