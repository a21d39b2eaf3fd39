/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A put that found no room named the first three of the other users' stores and partitions, and no
 * size: neither the largest, nor any of the user's own.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "page.h"

#define MIB (UINT64_C(1) << 20)

static struct shmstore *store_of(struct shmstore_partition *p, const char *name, uint64_t bytes)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s;

	o.recycle_max = 0;
	ENSURE(shmstore_open(p, name, &o, &s) == 0);
	ENSURE(put_pattern(s, "k", bytes, 1, 0) == 0);
	return s;
}

static const char *refusal(struct shmstore *s)
{
	cr_assert_eq(put_pattern(s, "large", 50 * MIB, 1, 0), -ENOSPC);
	return shmstore_error_detail();
}

/* Says that a store has so much, as only its owner should. */
static void lie(const char *store, uint64_t bytes)
{
	int fd = open(scratch_store_path(store, SHMS_PAGE_FILE), O_WRONLY | O_CLOEXEC);

	cr_assert_eq(
		pwrite(fd, &bytes, sizeof(bytes), offsetof(struct shms_page, ledger.linked_bytes)),
		sizeof(bytes));
	close(fd);
}

Test(refused_names_others, largest_first_with_sizes)
{
	static const uint64_t sizes[] = {100000, 9 * MIB, 200000, 12 * MIB, 300000, 10 * MIB};
	struct shmstore *s[6], *other, *mine;
	struct shmstore_partition *beside;
	char name[16], path[SCRATCH_PATH + 32];
	const char *text, *first, *second, *third;

	scratch_dir("size=64m");
	if (!scratch_is_mount())
		cr_skip_test("no tmpfs of our own");
	mine = store_of(scratch_partition(), "mine", 100);
	for (int i = 0; i < 6; i++) {
		snprintf(name, sizeof(name), "s%d", i);
		s[i] = store_of(scratch_partition(), name, sizes[i]);
	}
	lie("s0", UINT64_MAX / 2);
	snprintf(path, sizeof(path), "%s/shmstore-other", scratch_dir(NULL));
	cr_assert_eq(shmstore_partition_open(path, SHMSTORE_CREATE, &beside), 0);
	other = store_of(beside, "o", 2 * MIB);
	text = refusal(mine);
	snprintf(name, sizeof(name), "user %u's s3 (", geteuid());
	first = strstr(text, name);
	second = strstr(text, "s5 (10");
	third = strstr(text, "s1 (9");
	cr_assert(first && second && third, "%s", text);
	cr_assert(first < second && second < third, "%s", text);
	cr_assert_null(strstr(text, "mine"), "%s", text);
	cr_assert_null(strstr(text, "s0"), "%s", text);
	cr_assert(strstr(text, "its mount also holds") && strstr(text, "shmstore-other (2"), "%s",
		  text);
	cr_assert_null(strstr(text, "as root"), "%s", text);
	for (int i = 0; i < 6; i++)
		cr_assert_eq(shmstore_close(s[i]), 0);
	cr_assert_eq(shmstore_close(other), 0);
	shmstore_partition_unref(beside);
	cr_assert_eq(shmstore_close(mine), 0);
}

Test(refused_names_others, closed_directories_stand_last)
{
	struct shmstore *mine, *large;
	const char *text, *open_one, *closed;

	scratch_dir("size=64m");
	if (geteuid() != 0 || !scratch_is_mount())
		cr_skip_test("not root, or no tmpfs of our own");
	mine = store_of(scratch_partition(), "mine", 100);
	large = store_of(scratch_partition(), "large", 20 * MIB);
	cr_assert_eq(mkdir(scratch_store_path("another", ""), 0700), 0);
	cr_assert_eq(chown(scratch_store_path("another", ""), 12345, (gid_t)-1), 0);
	text = refusal(mine);
	open_one = strstr(text, "large (20");
	closed = strstr(text, "user 12345's another:");
	cr_assert(open_one && closed && open_one < closed, "%s", text);
	cr_assert(strstr(text, "as root, shmstore-admin gc --all"), "%s", text);
	cr_assert_eq(shmstore_close(large), 0);
	cr_assert_eq(shmstore_close(mine), 0);
}
