/* SPDX-License-Identifier: Apache-2.0 */
/* packgive.h: memory of the store's segments for others, who asked for it by a word of the store's page (struct wire_packed). */
#ifndef SHMS_PACKGIVE_H
#define SHMS_PACKGIVE_H

#include <stdatomic.h>

#include "handle.h"

void shms_packgive_asked(struct shmstore *s);

/* For the owner's handle, at the begin of calls, with no lock held: gives what it is asked for, a bounded part of it at a time. */
static inline void shms_packgive(struct shmstore *s)
{
	/* Relaxed: who takes it does so by an exchange. */
	if (atomic_load_explicit(&s->page->packed.wanted, memory_order_relaxed))
		shms_packgive_asked(s);
}
/* Until nothing is wanted, or so much time has passed. */
void shms_packgive_for(struct shmstore *s, uint64_t ns);

#endif
