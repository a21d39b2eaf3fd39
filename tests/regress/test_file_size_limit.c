/* SPDX-License-Identifier: Apache-2.0 */
/* A put beyond the process's limit of file sizes (ulimit -f) said that the partition was full. */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>

#include "api.h"

static int over_the_limit(void *arg)
{
	const struct rlimit limit = {1 << 20, 1 << 20};
	const uint64_t sizes[] = {4u << 20};
	struct shmstore_writer *w;
	struct shmstore *s = scratch_store("s");

	(void)arg;
	signal(SIGXFSZ, SIG_IGN);
	ENSURE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	ENSURE(put_pattern(s, "large", 4u << 20, 1, 0) == -EFBIG);
	ENSURE(strstr(shmstore_strerror(-EFBIG), "ulimit -f"));
	ENSURE(shmstore_create(s, KEY("made"), 100, sizes, 1, 0, &w) == -EFBIG);
	ENSURE(count_objects(s) == 0);
	ENSURE(put_pattern(s, "small", 4096, 1, 0) == 0);
	ENSURE(shmstore_close(s) == 0);
	return 0;
}

Test(file_size_limit, is_no_full_partition)
{
	shmstore_partition_unref(scratch_partition());
	cr_assert_eq(in_child(over_the_limit, NULL), 0);
	ensure_nothing_left();
}
