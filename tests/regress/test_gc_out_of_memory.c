/* SPDX-License-Identifier: Apache-2.0 */
/* gc sorted a list with a NULL in it where an allocation had failed, and crashed. */
#include <criterion/criterion.h>

#include "api.h"
#include "interpose.h"

char *strdup(const char *text)
{
	typedef char *fn(const char *);

	if (interpose_now()) {
		errno = ENOMEM;
		return NULL;
	}
	return NEXT(fn *, "strdup")(text);
}

Test(gc_out_of_memory, says_so)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *a = scratch_store("a"), *b = scratch_store("b");
	int n_failed = 0;

	for (int n = 1; n <= 6; n++) {
		interpose_countdown = n;
		int r = shmstore_partition_gc(p, 0, NULL);
		interpose_countdown = 0;
		cr_assert(r == 0 || r == -ENOMEM);
		n_failed += r < 0;
	}
	cr_assert_gt(n_failed, 1);
	cr_assert_eq(shmstore_close(a), 0);
	cr_assert_eq(shmstore_close(b), 0);
	shmstore_partition_unref(p);
}
