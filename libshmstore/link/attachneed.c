/* SPDX-License-Identifier: Apache-2.0 */
/* attachneed.c: calls that can do nothing without a daemon: they wait for one that is slow, and say why there is none. */
#include <errno.h>
#include <poll.h>

#include "attachcore.h"
#include "detail.h"
#include "sys.h"

bool shms_attach_registered(struct shms_attach *a)
{
	return atomic_load_explicit(&a->generation, memory_order_relaxed) || shms_attach_again(a);
}

bool shms_attach_needed(struct shms_attach *a)
{
	uint64_t until = shms_now_mono_ns() + SHMS_REQUIRED_NS;
	bool registered = shms_attach_registered(a);

	if (registered)
		return true;
	pthread_mutex_lock(&a->lock);
	while (a->state == SHMS_ATTACH_GREETING && !a->needed && shms_now_mono_ns() < until)
		shms_attach_wait(a, POLLIN, until);
	a->needed = a->state == SHMS_ATTACH_GREETING;
	registered = a->state == SHMS_ATTACH_REGISTERED;
	pthread_mutex_unlock(&a->lock);
	return registered;
}

int shms_attach_absent(struct shms_attach *a, const char *then)
{
	bool hangs;

	pthread_mutex_lock(&a->lock);
	hangs = a->state != SHMS_ATTACH_ALONE && a->silent;
	pthread_mutex_unlock(&a->lock);
	return shms_detail(-ENOTSUP, NULL, "%s: %s; %s", a->place.store,
			   hangs ? "shmstored does not answer: it is stopped, or the host is too busy"
				 : "no shmstored serves the store, or it ended meanwhile",
			   then);
}
