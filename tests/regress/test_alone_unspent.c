/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores that are without a daemon were refused for what others had been granted ahead and did not
 * use: with eight stores and 64 MiB ahead for each, a limit of 400 MiB refused the first put after
 * the daemon was killed, while the kernel counted a quarter of that.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <sys/statvfs.h>

#include "api.h"
#include "fakedaemon.h"
#include "handle.h"

#define AHEAD (64ull << 20)
#define SIZE  1000000u

static uint64_t used(void)
{
	struct statvfs fs;

	cr_assert_eq(statvfs(scratch_partition_path(), &fs), 0);
	return (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize;
}

/* A store as a daemon that was killed left it, with so much unspent. */
static struct shmstore *left(const char *name, const char *label, uint64_t unspent)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s;
	struct wire_credit *c;

	fake_nowhere();
	o.label = label;
	cr_assert_eq(shmstore_open(p, name, &o, &s), 0);
	shmstore_partition_unref(p);
	c = &s->page->credit;
	atomic_store(&c->credit, AHEAD);
	atomic_store(&c->granted, atomic_load(&c->charged) + unspent);
	atomic_store(&c->epoch, 1);
	return s;
}

static uint64_t unspent(struct shmstore *s)
{
	return atomic_load(&s->page->credit.granted) - atomic_load(&s->page->credit.charged);
}

/* Puts n objects, or ends with the refusal. */
static int put_many(struct shmstore *s, unsigned n)
{
	char key[16];
	int r = 0;

	for (unsigned i = 0; i < n && r == 0; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		r = put_pattern(s, key, SIZE, i, 0);
	}
	return r;
}

Test(alone_unspent, refuses_nobody_under_a_partitions_limit)
{
	struct shmstore *a, *b;
	uint64_t hard;

	shmstore_partition_unref(scratch_partition());
	if (!scratch_is_mount())
		cr_skip_test("no file system of its own");
	a = left("a", NULL, AHEAD);
	b = left("b", NULL, 0);
	hard = used() + AHEAD + SIZE / 2;
	atomic_store(&a->page->credit.partition_hard, hard);
	atomic_store(&b->page->credit.partition_hard, hard);
	cr_assert_eq(put_many(b, 40), 0);
	cr_assert_lt(unspent(a), AHEAD);
	cr_assert_eq(put_many(a, 15), 0, "and back");
	cr_assert_leq(used() + unspent(a) + unspent(b), hard);
	cr_assert_eq(put_pattern(b, "large", AHEAD / 2, 1, 0), -ENOSPC, "the limit itself holds");
	cr_assert_leq(used() + unspent(a) + unspent(b), hard);
	cr_assert_eq(shmstore_close(a), 0);
	cr_assert_eq(shmstore_close(b), 0);
}

Test(alone_unspent, of_another_label_is_left)
{
	struct shmstore *a = left("a", "x", AHEAD), *b = left("b", "y", AHEAD),
			*c = left("c", "x", 0);
	struct shmstore *all[] = {a, b, c};

	for (size_t i = 0; i < 3; i++) {
		atomic_store(&all[i]->page->credit.label_hard, AHEAD + SIZE / 2);
		atomic_store(&all[i]->page->credit.flags, WIRE_CREDIT_LAST);
	}
	cr_assert_eq(put_many(c, 10), 0);
	cr_assert_lt(unspent(a), AHEAD);
	cr_assert_eq(unspent(b), AHEAD);
	cr_assert_eq(put_pattern(c, "large", AHEAD, 1, 0), -EDQUOT);
	for (size_t i = 0; i < 3; i++)
		cr_assert_eq(shmstore_close(all[i]), 0);
}
