/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a store was asked for memory stood in its page by CLOCK_MONOTONIC, which is another one in a
 * time namespace: a store that had just been asked there was taken outside for one that had not
 * answered for a day, and nobody waited for it.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "packgive.h"
#include "page.h"
#include "partition.h"
#include "sys.h"

#define SIZE 1000000u

/* Its process ends before the answer could come. */
static int ask(void *arg)
{
	struct shms_packask k;

	(void)arg;
	shms_packask_begin(scratch_partition(), SHMSTORE_EVICT_ALL, 0, SIZE, &k);
	return k.n == 1 ? 0 : 1;
}

/* By the owner's page. */
static uint64_t asked_at(void)
{
	int fd = shms_page_open(scratch_partition()->fd, SHMS_DIR_STORES "/owner/" SHMS_PAGE_FILE);
	uint64_t ns = 0;

	cr_assert_eq(shms_pread_all(fd, &ns, sizeof(ns),
				    WIRE_PACKED_OFF + offsetof(struct wire_packed, asked_ns)),
		     sizeof(ns));
	close(fd);
	return ns;
}

/* A live store with packed objects, whose process makes no calls. */
static void own(void)
{
	ENSURE(put_pattern(packing_store("owner", 1u << 20, false), "x", SIZE, 1, 0) == 0);
}

Test(asked_in_a_time_namespace, is_as_long_ago_everywhere)
{
	struct day_ahead there = {.fn = ask};
	uint64_t before = shms_now_boot_ns(), asked = before;
	pid_t owner;
	int r;

	shmstore_partition_unref(scratch_partition());
	owner = child_that_stays(own);
	r = in_child(day_ahead, &there);
	if (r == 0)
		asked = asked_at();
	kill(owner, SIGKILL);
	waitpid(owner, NULL, 0);
	if (r == 77)
		cr_skip_test("needs root and time namespaces");
	cr_assert_eq(r, 0);
	cr_assert(asked > before && asked < shms_now_boot_ns());
}
