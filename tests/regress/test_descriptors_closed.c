/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program closed all descriptors above 2, as daemons do, while a store was open, and opened files
 * of its own, which got the numbers. The store's close then closed these, and gave memory back of
 * whichever file had the number of a segment.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "api.h"

#define N    40u
#define SIZE 300000u

static struct shmstore *reader_of(const char *name)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s;

	o.flags = SHMSTORE_OPEN_READONLY;
	ENSURE(shmstore_open(scratch_partition(), name, &o, &s) == 0);
	return s;
}

static int own_files(void *arg)
{
	static char text[SIZE];
	char name[] = "/tmp/shmstore-own-XXXXXX";
	struct shmstore *s = packing_store("s", UINT64_C(1) << 20, false), *reader;
	struct stat st;
	int fds[N];

	(void)arg;
	ENSURE(put_pattern(s, "large", 4u << 20, 1, 0) == 0 &&
	       put_pattern(s, "small", 1000, 2, 0) == 0);
	ENSURE(put_pattern(s, "middle", SIZE, 3, 0) == 0 && shmstore_delete(s, KEY("middle")) == 0);
	reader = reader_of("s");
	ENSURE(get_pattern(reader, "small", 1000, 2) == 0);
	ENSURE(syscall(SYS_close_range, 3, ~0u, 0) == 0 || errno == ENOSYS);
	memset(text, 'x', sizeof(text));
	for (unsigned i = 0; i < N; i++) {
		strcpy(name + strlen(name) - 6, "XXXXXX");
		fds[i] = mkstemp(name);
		ENSURE(fds[i] >= 3 && write(fds[i], text, sizeof(text)) == (ssize_t)sizeof(text) &&
		       unlink(name) == 0);
	}
	ENSURE(shmstore_close(reader) == -EPERM);
	ENSURE(shmstore_close(s) == -EPERM &&
	       strstr(shmstore_error_detail(), "closed the descriptors"));
	for (unsigned i = 0; i < N; i++) {
		ENSURE(fstat(fds[i], &st) == 0 && st.st_size == (off_t)sizeof(text));
		ENSURE((uint64_t)st.st_blocks * 512 >= sizeof(text));
	}
	return 0;
}

Test(descriptors_closed, a_programs_own_files_are_not_closed)
{
	struct shmstore_gc_report report;

	shmstore_partition_unref(scratch_partition());
	cr_assert_eq(in_child(own_files, NULL), 0);
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, &report), 0);
	cr_assert_eq(report.n_stores, 1);
	ensure_nothing_left();
}
