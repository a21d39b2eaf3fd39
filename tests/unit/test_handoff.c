/* SPDX-License-Identifier: Apache-2.0 */
/* handoff and adopt between stores of one process and of several. */
#include <criterion/criterion.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "sys.h"

Test(handoff, adopted_object_is_the_same_file_and_the_lease_is_gone)
{
	struct shmstore *a = scratch_store("a"), *b = scratch_store("b");
	struct shmstore_ticket t;
	struct stat st;

	for (uint64_t size = 0; size < 5 << 20; size = size * 7 + 1) {
		cr_assert_eq(put_pattern(a, "k", size, size, 0), 0);
		cr_assert_eq(shmstore_handoff(a, KEY("k"), 60000, &t), 0);
		cr_assert_eq(stat(t.path, &st), 0);
		cr_assert_eq((uint64_t)st.st_size, t.header_size + t.buffer_size,
			     "the triplet tells the file");
		cr_assert_eq(count_in_store("a", "handoff"), 1);
		cr_assert_eq(shmstore_adopt(b, KEY("k"), &t, SHMSTORE_VERIFY), 0);
		cr_assert_eq(inode_of("a", "k"), inode_of("b", "k"));
		cr_assert_eq(links_of("a", "k"), 2);
		cr_assert_eq(count_in_store("a", "handoff"), 0);
		cr_assert_eq(get_pattern(b, "k", size, size), 0);
		cr_assert_eq(shmstore_delete(a, KEY("k")), 0);
		cr_assert_eq(get_pattern(b, "k", size, size), 0);
		cr_assert_eq(shmstore_delete(b, KEY("k")), 0);
	}
	cr_assert_eq(shmstore_close(a), 0);
	cr_assert_eq(shmstore_close(b), 0);
	ensure_nothing_left();
}

Test(handoff, arguments_are_checked)
{
	struct shmstore *a = scratch_store("a");
	struct shmstore_ticket t;

	cr_assert_eq(put_pattern(a, "k", 100, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(a, KEY("none"), 1000, &t), -ENOENT);
	cr_assert_eq(shmstore_handoff(a, KEY("k"), 0, &t), -EINVAL);
	cr_assert_eq(shmstore_handoff(a, KEY("k"), SHMSTORE_LEASE_MAX + 1, &t), -EINVAL);
	cr_assert_eq(shmstore_handoff(a, KEY("k"), UINT64_MAX, &t), -EINVAL);
	cr_assert_eq(shmstore_handoff(a, KEY("k"), 1000, NULL), -EINVAL);
	cr_assert_eq(shmstore_handoff(NULL, KEY("k"), 1000, &t), -EINVAL);
	cr_assert_eq(shmstore_handoff(a, NULL, 1, 1000, &t), -EINVAL);
	cr_assert_eq(count_in_store("a", "handoff"), 0);
	cr_assert_eq(shmstore_handoff(a, KEY("k"), SHMSTORE_LEASE_MAX, &t), 0);
	cr_assert_eq(shmstore_adopt(NULL, KEY("k"), &t, 0), -EINVAL);
	cr_assert_eq(shmstore_adopt(a, KEY("k"), NULL, 0), -EINVAL);
	cr_assert_eq(shmstore_adopt(a, KEY("k"), &t, SHMSTORE_COW), -EINVAL);
	cr_assert_eq(shmstore_adopt(a, NULL, 5, &t, 0), -EINVAL);
	cr_assert_eq(count_in_store("a", "handoff"), 1);
	cr_assert_eq(shmstore_adopt(a, KEY("k"), &t, 0), 0);
	cr_assert_eq(shmstore_close(a), 0);
	ensure_nothing_left();
}

Test(handoff, ticket_is_good_for_one_adoption)
{
	struct shmstore *a = scratch_store("a"), *b = scratch_store("b"), *c = scratch_store("c");
	struct shmstore_ticket t, u;

	cr_assert_eq(put_pattern(a, "k", 100000, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(a, KEY("k"), 60000, &t), 0);
	cr_assert_eq(shmstore_handoff(a, KEY("k"), 60000, &u), 0);
	cr_assert_str_neq(t.path, u.path);
	cr_assert_eq(shmstore_adopt(b, KEY("k"), &t, 0), 0);
	cr_assert_eq(shmstore_adopt(c, KEY("k"), &t, 0), -ESTALE);
	cr_assert_eq(shmstore_contains(c, KEY("k")), 0);
	cr_assert_eq(shmstore_adopt(c, KEY("k"), &u, 0), 0);
	cr_assert_eq(links_of("a", "k"), 3);
	cr_assert_eq(shmstore_close(a), 0);
	cr_assert_eq(get_pattern(b, "k", 100000, 1), 0);
	cr_assert_eq(get_pattern(c, "k", 100000, 1), 0);
	cr_assert_eq(shmstore_close(b), 0);
	cr_assert_eq(shmstore_close(c), 0);
	ensure_nothing_left();
}

struct expiry {
	struct shmstore *s;
	struct shmstore_ticket t;
	uint64_t until;
};

static bool passed(void *arg)
{
	return shms_now_boot_ms() > ((struct expiry *)arg)->until;
}

Test(handoff, expired_lease_is_estale_and_gc_ends_it)
{
	struct expiry e = {.s = scratch_store("b")};
	struct shmstore *a = scratch_store("a");
	struct shmstore_gc_report report;

	cr_assert_eq(put_pattern(a, "k", 1 << 20, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(a, KEY("k"), 20, &e.t), 0);
	e.until = shms_now_boot_ms() + 21;
	cr_assert_eq(shmstore_delete(a, KEY("k")), 0);
	cr_assert(wait_until(passed, &e, 5000));
	cr_assert_eq(shmstore_adopt(e.s, KEY("k"), &e.t, 0), -ESTALE);
	cr_assert_eq(shmstore_contains(e.s, KEY("k")), 0);
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), SHMSTORE_GC_DRY_RUN, &report), 0);
	cr_assert_eq(report.n_leases, 1);
	cr_assert_eq(count_in_store("a", "handoff"), 1, "a dry run deletes nothing");
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, &report), 0);
	cr_assert_eq(report.n_leases, 1);
	cr_assert_eq(count_in_store("a", "handoff"), 0);
	cr_assert_eq(shmstore_adopt(e.s, KEY("k"), &e.t, 0), -ESTALE);
	cr_assert_eq(shmstore_close(a), 0);
	cr_assert_eq(shmstore_close(e.s), 0);
	ensure_nothing_left();
}

Test(handoff, unexpired_lease_is_left_by_gc)
{
	struct shmstore *a = scratch_store("a"), *b = scratch_store("b");
	struct shmstore_ticket t;

	cr_assert_eq(put_pattern(a, "k", 1 << 20, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(a, KEY("k"), 3600000, &t), 0);
	cr_assert_eq(shmstore_delete(a, KEY("k")), 0);
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, NULL), 0);
	cr_assert_eq(ensure_books_close().n_leases, 1);
	cr_assert_eq(shmstore_adopt(b, KEY("k"), &t, 0), 0);
	cr_assert_eq(get_pattern(b, "k", 1 << 20, 1), 0);
	cr_assert_eq(shmstore_close(a), 0);
	cr_assert_eq(shmstore_close(b), 0);
	ensure_nothing_left();
}

Test(handoff, donor_may_delete_close_or_replace_first)
{
	struct shmstore *b = scratch_store("b");
	struct shmstore_ticket t;

	for (int how = 0; how < 3; how++) {
		struct shmstore *a = scratch_store("a");

		cr_assert_eq(put_pattern(a, "k", 300000, 1, 0), 0);
		cr_assert_eq(shmstore_handoff(a, KEY("k"), 60000, &t), 0);
		if (how == 0) {
			cr_assert_eq(shmstore_delete(a, KEY("k")), 0);
			/* and puts others, which must not get these pages */
			for (uint64_t i = 0; i < 5; i++)
				cr_assert_eq(put_pattern(a, "k", 300000, 10 + i, SHMSTORE_REPLACE),
					     0);
		} else if (how == 1) {
			cr_assert_eq(put_pattern(a, "k", 300000, 9, SHMSTORE_REPLACE), 0);
			cr_assert_eq(put_pattern(a, "k", 300000, 8, SHMSTORE_REPLACE), 0);
		}
		if (how != 1)
			cr_assert_eq(shmstore_close(a), 0);
		cr_assert_eq(shmstore_adopt(b, KEY("k"), &t, 0), 0, "%d", how);
		cr_assert_eq(get_pattern(b, "k", 300000, 1), 0);
		cr_assert_eq(shmstore_delete(b, KEY("k")), 0);
		if (how == 1)
			cr_assert_eq(shmstore_close(a), 0);
	}
	cr_assert_eq(shmstore_close(b), 0);
	ensure_nothing_left();
}

Test(handoff, killed_donors_lease_is_still_good)
{
	struct shmstore *b = scratch_store("b"), *c;
	struct other o = other_start("a");
	struct shmstore_ticket t, u;

	cr_assert_eq(other_put(&o, "k", 300000, 1), 0);
	cr_assert_eq(other_handoff(&o, "k", 3600000, &t), 0);
	cr_assert_eq(other_handoff(&o, "k", 3600000, &u), 0);
	other_kill(&o);
	c = scratch_store("c"); /* sweeps */
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, NULL), 0);
	cr_assert_eq(count_in_store("a", "objects"), 0, "its objects are gone, its leases not");
	cr_assert_eq(shmstore_adopt(b, KEY("k"), &t, 0), 0);
	cr_assert_eq(get_pattern(b, "k", 300000, 1), 0);
	cr_assert_eq(shmstore_adopt(c, KEY("k"), &u, 0), 0);
	cr_assert_eq(shmstore_close(b), 0);
	cr_assert_eq(get_pattern(c, "k", 300000, 1), 0);
	cr_assert_eq(shmstore_close(c), 0);
	ensure_nothing_left();
}

Test(handoff, reopened_donors_name_keeps_old_leases_good)
{
	struct shmstore *b = scratch_store("b"), *a;
	struct other o = other_start("a");
	struct shmstore_ticket t;

	cr_assert_eq(other_put(&o, "k", 300000, 1), 0);
	cr_assert_eq(other_handoff(&o, "k", 3600000, &t), 0);
	other_kill(&o);
	a = scratch_store("a");
	cr_assert_eq(put_pattern(a, "k", 300000, 2, 0), 0);
	cr_assert_eq(shmstore_adopt(b, KEY("k"), &t, 0), 0);
	cr_assert_eq(get_pattern(b, "k", 300000, 1), 0);
	cr_assert_eq(get_pattern(a, "k", 300000, 2), 0);
	cr_assert_eq(shmstore_close(a), 0);
	cr_assert_eq(shmstore_close(b), 0);
	ensure_nothing_left();
}

Test(handoff, receiver_may_use_another_key)
{
	struct shmstore *a = scratch_store("a"), *b = scratch_store("b");
	struct shmstore_ticket t;
	struct shmstore_view *v;
	char first[1000], second[2000];
	size_t size;
	const struct {
		const char *from, *to;
		size_t from_size, to_size;
	} cases[] = {
		{"k", "other", 1, 5},
		{"k", second, 1, 2000},
		{first, "k", 1000, 1},
		{first, second, 1000, 2000},
		{first, first, 1000, 1000},
		{"", "x/y", 0, 3},
		{"k", "", 1, 0},
	};

	memset(first, '1', sizeof(first));
	memset(second, '/', sizeof(second));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct iovec iov = {malloc(5000), 5000};

		pattern_fill(iov.iov_base, 5000, i);
		cr_assert_eq(
			shmstore_put(a, cases[i].from, cases[i].from_size, NULL, 0, &iov, 1, 0), 0);
		free(iov.iov_base);
		cr_assert_eq(shmstore_handoff(a, cases[i].from, cases[i].from_size, 60000, &t), 0);
		cr_assert_eq(shmstore_adopt(b, cases[i].to, cases[i].to_size, &t, 0), 0);
		cr_assert_eq(shmstore_delete(a, cases[i].from, cases[i].from_size), 0);
		cr_assert_eq(shmstore_get(b, cases[i].to, cases[i].to_size, 0, &v), 0);
		cr_assert_eq(memcmp(shmstore_view_key(v, &size), cases[i].to, cases[i].to_size), 0);
		cr_assert_eq(size, cases[i].to_size, "the key is the one it was adopted under");
		cr_assert_eq(pattern_check(shmstore_view_buffer(v, 0, NULL), 5000, i), 5000);
		shmstore_view_unref(v);
		/* And handed on under yet another one. */
		cr_assert_eq(shmstore_handoff(b, cases[i].to, cases[i].to_size, 60000, &t), 0);
		cr_assert_eq(shmstore_adopt(a, KEY("back"), &t, 0), 0);
		cr_assert_eq(count_objects(a), 1);
		cr_assert_eq(count_objects(b), 1);
		cr_assert_eq(shmstore_delete(a, KEY("back")), 0);
		cr_assert_eq(shmstore_delete(b, cases[i].to, cases[i].to_size), 0);
		cr_assert_eq(count_in_store("b", "objects"), 0, "case %zu leaves no sidecar", i);
	}
	cr_assert_eq(shmstore_close(a), 0);
	cr_assert_eq(shmstore_close(b), 0);
	ensure_nothing_left();
}

Test(handoff, held_key_is_eexist_unless_it_is_this_very_object)
{
	struct shmstore *a = scratch_store("a"), *b = scratch_store("b");
	struct shmstore_ticket t, u;
	struct shmstore_view *v;

	cr_assert_eq(put_pattern(a, "k", 100000, 1, 0), 0);
	cr_assert_eq(put_pattern(b, "k", 100000, 2, 0), 0);
	v = get_view(b, "k", 0);
	cr_assert_eq(shmstore_handoff(a, KEY("k"), 60000, &t), 0);
	cr_assert_eq(shmstore_adopt(b, KEY("k"), &t, 0), -EEXIST);
	cr_assert_eq(get_pattern(b, "k", 100000, 2), 0);
	cr_assert_eq(count_in_store("a", "handoff"), 1, "the lease is not consumed");
	cr_assert_eq(shmstore_adopt(b, KEY("k"), &t, SHMSTORE_REPLACE), 0);
	cr_assert_eq(get_pattern(b, "k", 100000, 1), 0);
	cr_assert_eq(view_pattern(v, 100000, 2), 0, "the old view is the old object");
	cr_assert_eq(shmstore_handoff(a, KEY("k"), 60000, &u), 0);
	cr_assert_eq(shmstore_adopt(b, KEY("k"), &u, 0), 0, "held already: success");
	cr_assert_eq(count_in_store("a", "handoff"), 0, "and the lease is consumed");
	cr_assert_eq(links_of("b", "k"), 2);
	cr_assert_eq(shmstore_handoff(a, KEY("k"), 60000, &u), 0);
	cr_assert_eq(shmstore_adopt(a, KEY("k"), &u, 0), 0, "into the donor itself");
	cr_assert_eq(links_of("a", "k"), 2);
	for (uint64_t i = 0; i < 5; i++)
		cr_assert_eq(put_pattern(b, "x", 100000, 20 + i, SHMSTORE_REPLACE), 0);
	cr_assert_eq(view_pattern(v, 100000, 2), 0);
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_close(a), 0);
	cr_assert_eq(shmstore_close(b), 0);
	ensure_nothing_left();
}

Test(handoff, verify_finds_damage_and_links_nothing)
{
	struct shmstore *a = scratch_store("a"), *b = scratch_store("b");
	struct shmstore_ticket t;
	FILE *f;

	cr_assert_eq(put_pattern(a, "k", 100000, 1, SHMSTORE_CHECKSUM), 0);
	cr_assert_eq(shmstore_handoff(a, KEY("k"), 60000, &t), 0);
	cr_assert_eq(chmod(t.path, 0600), 0);
	f = fopen(t.path, "r+e");
	cr_assert_not_null(f);
	cr_assert_eq(fseek(f, 50000, SEEK_SET), 0);
	cr_assert_eq(fputc('x', f), 'x');
	fclose(f);
	cr_assert_eq(shmstore_adopt(b, KEY("k"), &t, SHMSTORE_VERIFY), -EBADMSG);
	cr_assert_eq(shmstore_contains(b, KEY("k")), 0);
	cr_assert_eq(shmstore_adopt(b, KEY("k"), &t, 0), 0);
	cr_assert_eq(shmstore_close(a), 0);
	cr_assert_eq(shmstore_close(b), 0);
	ensure_nothing_left();
}

Test(handoff, goes_around_between_processes, .timeout = 60)
{
	struct other o[4];
	struct shmstore_ticket t;
	char name[24];

	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "s%d", i);
		o[i] = other_start(name);
	}
	for (uint64_t i = 0; i < 100; i++) {
		struct other *from = &o[i % 4], *to = &o[(i + 1) % 4];
		uint64_t size = 1000 + i * 5000;

		if (i == 0)
			cr_assert_eq(other_put(from, "k", size, 1), 0);
		cr_assert_eq(other_handoff(from, "k", 60000, &t), 0);
		cr_assert_eq(other_delete(from, "k"), 0);
		cr_assert_eq(other_adopt(to, "k", &t), 0);
		cr_assert_eq(other_get(to, "k", 1000, 1), 0);
		cr_assert_eq(other_put(from, "own", size, i), 0);
		cr_assert_eq(other_get(from, "own", size, i), 0);
		cr_assert_eq(other_delete(from, "own"), 0);
	}
	for (int i = 0; i < 4; i++)
		cr_assert_eq(other_close(&o[i]), 0);
	ensure_nothing_left();
}
