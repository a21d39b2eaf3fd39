/* SPDX-License-Identifier: Apache-2.0 */
/* Killed between the two steps of setting an address, a symlink of a temporary name stayed in
 * peers/ for a minute of gc. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <unistd.h>

#include "api.h"
#include "interpose.h"

int renameat(int olddir, const char *old, int newdir, const char *new)
{
	typedef int fn(int, const char *, int, const char *);

	if (interpose_now())
		_exit(7);
	return NEXT(fn *, "renameat")(olddir, old, newdir, new);
}

static int die_in_set_address(void *arg)
{
	struct shmstore *s = scratch_store("s");

	(void)arg;
	interpose_countdown = 1;
	shmstore_set_address(s, "tcp://127.0.0.1:1");
	return 0;
}

Test(address_killed, gc_leaves_nothing)
{
	char peers[SCRATCH_PATH + 16];
	struct shmstore_partition *p = scratch_partition();

	cr_assert_eq(in_child(die_in_set_address, NULL), 7);
	cr_assert_eq(shmstore_partition_gc(p, 0, NULL), 0);
	snprintf(peers, sizeof(peers), "%s/peers", scratch_partition_path());
	cr_assert_eq(count_dir(peers), 0);
	ensure_nothing_left();
	shmstore_partition_unref(p);
}
