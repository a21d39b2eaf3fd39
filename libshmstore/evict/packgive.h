/* SPDX-License-Identifier: Apache-2.0 */
/* packgive.h: memory of the store's segments for others, who asked for it by a word of the store's
 * page (struct wire_packed). */
#ifndef SHMS_PACKGIVE_H
#define SHMS_PACKGIVE_H

#include <stdatomic.h>

#include "handle.h"

void shms_packgive_asked(struct shmstore *s);

/* For the owner's handle, at the begin of calls, with no lock held: gives what it is asked for, a
 * bounded part of it at a time. */
static inline void shms_packgive(struct shmstore *s)
{
	/* Relaxed: who takes it does so by an exchange. */
	if (atomic_load_explicit(&s->page->packed.wanted, memory_order_relaxed))
		shms_packgive_asked(s);
}
/* From the end of the store's open until the begin of its close any thread of
 * the process may give for it. */
void shms_packgive_begin(struct shmstore *s);
void shms_packgive_end(struct shmstore *s);
/*
 * The owner's handle in this process of the store whose page this is, to give what is asked
 * of it here and now: shms_packgive_done() is owed. NULL: another process has it, or
 * another thread gives for it.
 */
struct shmstore *shms_packgive_ours(int page_fd);
/* Gives until nothing is wanted: what there was is given, or there is no more. */
void shms_packgive_done(struct shmstore *s);
/* Until nothing is wanted, or so much time has passed. */
void shms_packgive_for(struct shmstore *s, uint64_t ns);

#endif
