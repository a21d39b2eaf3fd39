/* SPDX-License-Identifier: Apache-2.0 */
/* Views: references, what they outlive, copy-on-write. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "api.h"

Test(view, outlives_key_store_and_partition)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s = scratch_store("a");
	struct shmstore_view *small, *big, *cow;
	size_t size;

	cr_assert_eq(put_pattern(s, "small", 10, 1, 0), 0);
	cr_assert_eq(put_pattern(s, "big", 1 << 20, 2, 0), 0);
	small = get_view(s, "small", 0);
	big = get_view(s, "big", 0);
	cow = get_view(s, "big", SHMSTORE_COW);
	cr_assert_eq(shmstore_delete(s, "small", 5), 0);
	cr_assert_eq(shmstore_delete(s, "big", 3), 0);
	cr_assert_eq(view_pattern(small, 10, 1), 0);
	cr_assert_eq(view_pattern(big, 1 << 20, 2), 0);
	if (scratch_is_mount())
		cr_assert_geq(ensure_books_close().ghosts + ensure_books_close().pool, 1u << 20);
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
	cr_assert_eq(view_pattern(small, 10, 1), 0);
	cr_assert_eq(view_pattern(big, 1 << 20, 2), 0);
	cr_assert_eq(view_pattern(cow, 1 << 20, 2), 0);
	cr_assert_eq(memcmp(shmstore_view_key(big, &size), "big", 3), 0);
	cr_assert_eq(size, 3);
	if (scratch_is_mount())
		cr_assert_geq(ensure_books_close().ghosts, 1u << 20,
			      "what only a view holds is a ghost");
	cr_assert_null(shmstore_view_unref(small));
	cr_assert_null(shmstore_view_unref(big));
	cr_assert_null(shmstore_view_unref(cow));
	ensure_nothing_left();
}

Test(view, last_reference_unmaps)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_store_usage u;
	struct shmstore_view *v;

	cr_assert_eq(put_pattern(s, "k", 1 << 20, 1, 0), 0);
	v = get_view(s, "k", 0);
	for (int i = 0; i < 100; i++)
		cr_assert_eq(shmstore_view_ref(v), v);
	cr_assert_eq(shmstore_usage(s, &u), 0);
	cr_assert_eq(u.n_views, 1);
	cr_assert_geq(u.mapped, 1u << 20);
	for (int i = 0; i < 100; i++)
		shmstore_view_unref(v);
	cr_assert_eq(view_pattern(v, 1 << 20, 1), 0);
	shmstore_view_unref(v);
	cr_assert_null(shmstore_view_unref(NULL));
	cr_assert_null(shmstore_view_ref(NULL));
	cr_assert_eq(shmstore_usage(s, &u), 0);
	cr_assert_eq(u.n_views, 0);
	cr_assert_eq(u.mapped, 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

static int open_fds(void)
{
	return count_dir("/proc/self/fd");
}

Test(view, views_keep_no_descriptor)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_view *views[200];
	struct shmstore *s;
	char key[16];
	int before;

	options.recycle_max = 0; /* recycling keeps a bounded number of its own */
	cr_assert_eq(shmstore_open(p, "a", &options, &s), 0);
	before = open_fds();
	for (int i = 0; i < 200; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		cr_assert_eq(put_pattern(s, key, i % 2 ? 10 : 70000, (uint64_t)i, 0), 0);
		views[i] = get_view(s, key, i % 3 ? 0 : SHMSTORE_COW);
	}
	cr_assert_eq(open_fds(), before);
	for (int i = 0; i < 200; i++) {
		cr_assert_eq(view_pattern(views[i], i % 2 ? 10 : 70000, (uint64_t)i), 0);
		shmstore_view_unref(views[i]);
	}
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
	ensure_nothing_left();
}

Test(view, store_with_a_pool_keeps_few_descriptors)
{
	struct shmstore *s = scratch_store("a");
	int before = open_fds();
	char key[16];

	for (int i = 0; i < 200; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		cr_assert_eq(put_pattern(s, key, 70000, 1, 0), 0);
	}
	cr_assert_leq(open_fds(), before + 16);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

static int write_first_byte(void *arg)
{
	signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would report what is meant to happen */
	*(volatile char *)arg = 1;
	return 0;
}

Test(view, writing_to_a_plain_view_faults)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_view *v, *c;

	cr_assert_eq(put_pattern(s, "k", 100000, 1, 0), 0);
	v = get_view(s, "k", 0);
	c = get_view(s, "k", SHMSTORE_COW);
	cr_assert_eq(in_child(write_first_byte, shmstore_view_buffer(v, 0, NULL)), 1000 + SIGSEGV);
	cr_assert_eq(in_child(write_first_byte, shmstore_view_buffer(c, 0, NULL)), 0,
		     "and to a copy-on-write one not");
	cr_assert_eq(view_pattern(c, 100000, 1), 0, "a child's writes are its own");
	shmstore_view_unref(v);
	shmstore_view_unref(c);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(view, writes_to_a_copy_on_write_view_are_private)
{
	struct shmstore *s = scratch_store("a");
	struct other o = other_start("b");
	struct shmstore_view *v, *c, *d;
	struct shmstore_ticket t;

	cr_assert_eq(put_pattern(s, "k", 100000, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s, "k", 1, 60000, &t), 0);
	cr_assert_eq(other_adopt(&o, "k", &t), 0);
	cr_assert_eq(other_view(&o, "k", 0), 0);
	v = get_view(s, "k", 0);
	c = get_view(s, "k", SHMSTORE_COW);
	d = get_view(s, "k", SHMSTORE_COW);
	memset(shmstore_view_buffer(c, 0, NULL), 'x', 100000);
	cr_assert_eq(view_pattern(v, 100000, 1), 0);
	cr_assert_eq(view_pattern(d, 100000, 1), 0);
	cr_assert_eq(other_check_view(&o, 100000, 1), 0);
	cr_assert_eq(get_pattern(s, "k", 100000, 1), 0);
	cr_assert_eq(*(char *)shmstore_view_buffer(c, 0, NULL), 'x');
	shmstore_view_unref(v);
	shmstore_view_unref(c);
	shmstore_view_unref(d);
	cr_assert_eq(other_unview(&o), 0);
	cr_assert_eq(other_close(&o), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(view, alias_of_a_view_is_a_second_link)
{
	struct shmstore *s = scratch_store("a");
	unsigned flags[] = {0, SHMSTORE_COW};

	cr_assert_eq(put_pattern(s, "k", 1 << 20, 1, 0), 0);
	for (int i = 0; i < 2; i++) {
		struct shmstore_view *v = get_view(s, "k", flags[i]);
		size_t header_size;
		const void *header = shmstore_view_header(v, &header_size);
		struct iovec iov = {shmstore_view_buffer(v, 0, NULL), 1 << 20};

		cr_assert_eq(pattern_check(iov.iov_base, iov.iov_len, 1), iov.iov_len,
			     "reading it all makes no difference");
		cr_assert_eq(shmstore_put(s, "alias", 5, header, header_size, &iov, 1, 0), 0);
		cr_assert_eq(inode_of("a", "alias"), inode_of("a", "k"));
		cr_assert_eq(links_of("a", "k"), 2);
		cr_assert_eq(get_pattern(s, "alias", 1 << 20, 1), 0);
		cr_assert_eq(shmstore_put(s, "alias", 5, header, header_size, &iov, 1, 0), -EEXIST);
		cr_assert_eq(
			shmstore_put(s, "k", 1, header, header_size, &iov, 1, SHMSTORE_REPLACE), 0,
			"its own key");
		cr_assert_eq(ensure_books_close().n_objects, 2);
		cr_assert_eq(shmstore_delete(s, "alias", 5), 0);
		cr_assert_eq(get_pattern(s, "k", 1 << 20, 1), 0);
		shmstore_view_unref(v);
	}
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(view, alias_keeps_the_bytes_when_the_first_key_goes)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_view *v;
	size_t header_size;
	struct iovec iov;

	for (int round = 0; round < 5; round++) {
		cr_assert_eq(put_pattern(s, "k", 1 << 20, 1, 0), 0);
		v = get_view(s, "k", 0);
		iov = (struct iovec){shmstore_view_buffer(v, 0, NULL), 1 << 20};
		cr_assert_eq(shmstore_put(s, "alias", 5, shmstore_view_header(v, &header_size), 24,
					  &iov, 1, 0),
			     0);
		shmstore_view_unref(v);
		cr_assert_eq(shmstore_delete(s, "k", 1), 0);
		/* nothing of this may land in the alias's pages */
		for (uint64_t i = 0; i < 5; i++) {
			cr_assert_eq(put_pattern(s, "new", 1 << 20, 50 + i, SHMSTORE_REPLACE), 0);
			cr_assert_eq(get_pattern(s, "alias", 1 << 20, 1), 0);
			cr_assert_eq(get_pattern(s, "new", 1 << 20, 50 + i), 0);
		}
		cr_assert_eq(shmstore_delete(s, "alias", 5), 0);
		cr_assert_eq(shmstore_delete(s, "new", 3), 0);
	}
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(view, written_or_changed_input_is_copied)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_view *v;
	unsigned char header[24];
	struct iovec iov;
	char *b;

	cr_assert_eq(put_pattern(s, "k", 1 << 20, 1, 0), 0);
	v = get_view(s, "k", SHMSTORE_COW);
	b = shmstore_view_buffer(v, 0, NULL);
	pattern_fill(header, sizeof(header), 2);
	/* Another header: not the same object. */
	iov = (struct iovec){b, 1 << 20};
	cr_assert_eq(shmstore_put(s, "header", 6, "other", 5, &iov, 1, 0), 0);
	cr_assert_neq(inode_of("a", "header"), inode_of("a", "k"));
	/* A part of the buffer. */
	iov = (struct iovec){b + 64, (1 << 20) - 64};
	cr_assert_eq(shmstore_put(s, "part", 4, header, 24, &iov, 1, 0), 0);
	cr_assert_neq(inode_of("a", "part"), inode_of("a", "k"));
	iov = (struct iovec){b, (1 << 20) - 1};
	cr_assert_eq(shmstore_put(s, "short", 5, header, 24, &iov, 1, 0), 0);
	cr_assert_neq(inode_of("a", "short"), inode_of("a", "k"));
	/* One byte of one page written: also where it is the byte that stood there. */
	b[500000] = (char)(b[500000] ^ 1);
	iov = (struct iovec){b, 1 << 20};
	cr_assert_eq(shmstore_put(s, "written", 7, header, 24, &iov, 1, 0), 0);
	cr_assert_neq(inode_of("a", "written"), inode_of("a", "k"));
	cr_assert_eq(get_pattern(s, "written", 1 << 20, 1), 1, "it holds what was written");
	cr_assert_eq(get_pattern(s, "k", 1 << 20, 1), 0);
	shmstore_view_unref(v);
	/* Another object under the first key meanwhile. */
	v = get_view(s, "k", 0);
	cr_assert_eq(put_pattern(s, "k", 1 << 20, 9, SHMSTORE_REPLACE), 0);
	iov = (struct iovec){shmstore_view_buffer(v, 0, NULL), 1 << 20};
	cr_assert_eq(shmstore_put(s, "after", 5, header, 24, &iov, 1, 0), 0);
	cr_assert_eq(get_pattern(s, "after", 1 << 20, 1), 0);
	cr_assert_eq(get_pattern(s, "k", 1 << 20, 9), 0);
	cr_assert_neq(inode_of("a", "after"), inode_of("a", "k"));
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(view, alias_under_a_long_key_is_told_by_the_directory)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_view *v, *w;
	char key[1000];
	struct iovec iov;
	size_t size;

	memset(key, 'K', sizeof(key));
	cr_assert_eq(put_pattern(s, "k", 1 << 20, 1, 0), 0);
	v = get_view(s, "k", 0);
	iov = (struct iovec){shmstore_view_buffer(v, 0, NULL), 1 << 20};
	cr_assert_eq(
		shmstore_put(s, key, sizeof(key), shmstore_view_header(v, NULL), 24, &iov, 1, 0),
		0);
	cr_assert_eq(links_of("a", "k"), 2);
	cr_assert_eq(shmstore_get(s, key, sizeof(key), 0, &w), 0);
	cr_assert_eq(memcmp(shmstore_view_key(w, &size), key, sizeof(key)), 0);
	cr_assert_eq(size, sizeof(key));
	cr_assert_eq(count_objects(s), 2);
	key[999] = 'X';
	cr_assert_eq(shmstore_contains(s, key, sizeof(key)), 0);
	key[999] = 'K';
	cr_assert_eq(shmstore_delete(s, key, sizeof(key)), 0);
	cr_assert_eq(count_in_store("a", "objects"), 1, "no sidecar is left");
	shmstore_view_unref(v);
	shmstore_view_unref(w);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
