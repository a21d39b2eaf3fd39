/* SPDX-License-Identifier: Apache-2.0 */
/* onwait.c: see onwait.h. */
#include "onwait.h"

#include <shmstore/shmstore.h>
#include <stdatomic.h>

static int (*_Atomic ask)(void);

void shmstore_on_wait(int (*fn)(void))
{
	/* release: who calls it sees what it needs. */
	atomic_store_explicit(&ask, fn, memory_order_release);
}

bool shms_interrupted(void)
{
	int (*fn)(void) = atomic_load_explicit(&ask, memory_order_acquire);

	return fn && fn();
}
