/* SPDX-License-Identifier: Apache-2.0 */
/* create, seal, abort. */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api.h"

Test(writer, sealed_object_is_what_was_written)
{
	struct shmstore *s = scratch_store("a");
	const uint64_t sizes[] = {100, 0, 70000, 1};
	struct shmstore_writer *w;
	struct shmstore_view *v;
	uint64_t size;
	size_t header_size;

	for (int round = 0; round < 3; round++) {
		cr_assert_eq(
			shmstore_create(s, "k", 1, 50, sizes, 4, round ? SHMSTORE_CHECKSUM : 0, &w),
			0);
		cr_assert_eq(shmstore_contains(s, "k", 1), 0, "not there before it is sealed");
		pattern_fill(shmstore_writer_header(w, &header_size), 50, 1);
		cr_assert_eq(header_size, 50);
		for (size_t i = 0; i < 4; i++) {
			unsigned char *b = shmstore_writer_buffer(w, i, &size);

			cr_assert_eq(size, sizes[i]);
			cr_assert_eq((uintptr_t)b % 64, 0);
			for (uint64_t k = 0; k < size; k++)
				cr_assert_eq(b[k], 0, "new memory reads as zero");
			pattern_fill(b, size, 2 + i);
		}
		cr_assert_null(shmstore_writer_buffer(w, 4, &size));
		cr_assert_eq(shmstore_seal(w), 0);
		cr_assert_eq(shmstore_get(s, "k", 1, SHMSTORE_VERIFY, &v), 0);
		cr_assert_eq(pattern_check(shmstore_view_header(v, NULL), 50, 1), 50);
		for (size_t i = 0; i < 4; i++)
			cr_assert_eq(
				pattern_check(shmstore_view_buffer(v, i, NULL), sizes[i], 2 + i),
				sizes[i]);
		shmstore_view_unref(v);
		cr_assert_eq(shmstore_delete(s, "k", 1), 0);
	}
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(writer, objects_of_nothing_are_sealed)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_writer *w;
	struct shmstore_view *v;
	size_t size;

	cr_assert_eq(shmstore_create(s, "", 0, 0, NULL, 0, 0, &w), 0);
	cr_assert_eq(shmstore_seal(w), 0);
	cr_assert_eq(shmstore_get(s, "", 0, 0, &v), 0);
	cr_assert_eq(shmstore_view_n_buffers(v), 0);
	shmstore_view_key(v, &size);
	cr_assert_eq(size, 0);
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(writer, aborted_object_leaves_nothing)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_writer *w;
	uint64_t size = 5 << 20;
	struct shmstore_usage before = ensure_books_close(), during;

	cr_assert_eq(shmstore_create(s, "k", 1, 0, &size, 1, 0, &w), 0);
	memset(shmstore_writer_buffer(w, 0, NULL), 'x', size);
	during = ensure_books_close();
	if (scratch_is_mount())
		cr_assert_geq(during.inflight, size, "a writer is in the books as such");
	shmstore_abort(w);
	cr_assert_eq(ensure_books_close().used, before.used);
	cr_assert_eq(count_objects(s), 0);
	shmstore_abort(NULL);
	cr_assert_eq(shmstore_seal(NULL), -EINVAL);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(writer, limits_are_einval)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_writer *w = NULL;
	uint64_t size = UINT64_MAX, sizes[2] = {INT64_MAX / 2, INT64_MAX / 2};

	cr_assert_eq(shmstore_create(s, "k", 1, 0, &size, 1, 0, &w), -EINVAL);
	cr_assert_eq(shmstore_create(s, "k", 1, SHMSTORE_HEADER_MAX + 1, NULL, 0, 0, &w), -EINVAL);
	cr_assert_eq(shmstore_create(s, "k", 1, 0, NULL, 1, 0, &w), -EINVAL);
	cr_assert_eq(shmstore_create(s, "k", 1, 0, sizes, 2, 0, &w), -EINVAL);
	cr_assert_eq(shmstore_create(s, "k", 1, 0, NULL, 0, 0, NULL), -EINVAL);
	cr_assert_eq(shmstore_create(s, "k", 1, 0, NULL, 0, 1u << 9, &w), -EINVAL);
	cr_assert_null(w);
	size = INT64_MAX / 4;
	cr_assert_eq(shmstore_create(s, "k", 1, 0, &size, 1, 0, &w), -ENOSPC, "more than there is");
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(writer, writer_outlives_its_store_only_to_be_aborted)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_writer *w, *x;
	uint64_t size = 100000;

	cr_assert_eq(shmstore_create(s, "k", 1, 0, &size, 1, 0, &w), 0);
	cr_assert_eq(shmstore_create(s, "l", 1, 0, &size, 1, 0, &x), 0);
	cr_assert_eq(shmstore_close(s), 0);
	memset(shmstore_writer_buffer(w, 0, NULL), 'x', size);
	cr_assert_eq(shmstore_seal(w), -EPERM);
	shmstore_abort(x);
	ensure_nothing_left();
}

static int touch(void *arg)
{
	signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would report what is meant to happen */
	*(volatile char *)arg = 1;
	return 0;
}

Test(writer, sealed_memory_is_gone_from_the_producer)
{
	struct shmstore *s = scratch_store("a");
	struct shmstore_writer *w;
	uint64_t size = 8 << 20;
	char *b;

	cr_assert_eq(shmstore_create(s, "k", 1, 0, &size, 1, 0, &w), 0);
	b = shmstore_writer_buffer(w, 0, NULL);
	*b = 1;
	cr_assert_eq(in_child(touch, b), 1000 + SIGSEGV, "a child does not inherit it");
	cr_assert_eq(shmstore_seal(w), 0);
	cr_assert_eq(msync(b - (uintptr_t)b % 4096, 4096, MS_ASYNC), -1);
	cr_assert_eq(errno, ENOMEM, "no mapping is left there");
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

static int die_with_writer(void *arg)
{
	struct shmstore *s = scratch_store("w");
	struct shmstore_writer *w;
	uint64_t size = 10 << 20;

	(void)arg;
	if (shmstore_create(s, "k", 1, 0, &size, 1, 0, &w) != 0)
		return 1;
	memset(shmstore_writer_buffer(w, 0, NULL), 'x', size);
	raise(SIGKILL);
	return 0;
}

Test(writer, killed_producer_leaves_nothing)
{
	shmstore_partition_unref(scratch_partition());
	cr_assert_eq(in_child(die_with_writer, NULL), 1000 + SIGKILL);
	ensure_nothing_left();
}

static bool huge_within_size_works(void)
{
	scratch_dir("size=256m,huge=within_size");
	return scratch_is_mount();
}

Test(writer, huge_pages_change_nothing_but_speed)
{
	struct shmstore *s;

	if (!huge_within_size_works())
		cr_skip_test("cannot mount with huge=within_size here");
	s = scratch_store("a");
	for (uint64_t size = 1; size < 40 << 20; size = size * 5 + 3) {
		cr_assert_eq(seal_pattern(s, "k", size, size, SHMSTORE_CHECKSUM), 0);
		cr_assert_eq(get_pattern(s, "k", size, size), 0);
		cr_assert_eq(put_pattern(s, "l", size, size + 1, 0), 0);
		cr_assert_eq(get_pattern(s, "l", size, size + 1), 0);
		ensure_books_close();
		cr_assert_eq(shmstore_delete(s, "k", 1), 0);
		cr_assert_eq(shmstore_delete(s, "l", 1), 0);
	}
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
