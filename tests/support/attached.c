/* SPDX-License-Identifier: Apache-2.0 */
/* attached.h's stores. */
#include "attached.h"

#include <criterion/criterion.h>

#include "api.h"

struct shmstore *attach_open_as(unsigned daemon, int *ret)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s = NULL;

	o.daemon = daemon;
	*ret = shmstore_open(p, "a", &o, &s);
	shmstore_partition_unref(p);
	return s;
}

struct fake *attach_start(bool lock, fake_handler *handler, void *arg)
{
	struct shmstore_partition *p = scratch_partition();
	struct fake *f = fake_start(p, lock, handler, arg);

	shmstore_partition_unref(p);
	return f;
}

bool attach_dispatched(void *arg)
{
	return shmstore_daemon_dispatch(arg) == 1;
}

bool attach_registered(struct shmstore *s)
{
	uint64_t bytes;

	return shmstore_asked(s, &bytes) == 1;
}

bool attach_becomes_registered(struct shmstore *s)
{
	return wait_until(attach_dispatched, s, 10000) && attach_registered(s);
}

void attach_ensure_works(struct shmstore *s)
{
	cr_assert_eq(put_pattern(s, "works", SIZE, 1, 0), 0);
	cr_assert_eq(get_pattern(s, "works", SIZE, 1), 0);
	cr_assert_eq(shmstore_delete(s, KEY("works")), 0);
}
