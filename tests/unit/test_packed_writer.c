/* SPDX-License-Identifier: Apache-2.0 */
/* create and seal of objects that are packed: what is written is put at the seal, and takes
 * nothing of the partition before. */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "api.h"

#define PRIVATE (64u << 10)

static struct shmstore *open_store(void)
{
	return packing_store("a", 1u << 20, false);
}

static struct shmstore_writer *begin(struct shmstore *s, const char *key, uint64_t size,
				     unsigned flags)
{
	struct shmstore_writer *w = NULL;
	size_t header;

	cr_assert_eq(shmstore_create(s, KEY(key), PATTERN_HEADER, &size, 1, flags, &w), 0);
	pattern_fill(shmstore_writer_buffer(w, 0, NULL), size, 1);
	pattern_fill(shmstore_writer_header(w, &header), PATTERN_HEADER, 2);
	cr_assert_eq(header, PATTERN_HEADER);
	return w;
}

static uint64_t used(void)
{
	struct statvfs fs;

	cr_assert_eq(statvfs(scratch_dir(NULL), &fs), 0);
	return (fs.f_blocks - fs.f_bfree) * fs.f_frsize;
}

static int look(const struct shmstore_object_info *info, void *arg)
{
	*(struct shmstore_object_info *)arg = *info;
	return 1;
}

static struct shmstore_object_info only(struct shmstore *s)
{
	struct shmstore_object_info info = {0};

	cr_assert_eq(shmstore_foreach(s, look, &info), 1);
	return info;
}

Test(packed_writer, small_objects_are_packed_and_larger_ones_files)
{
	struct shmstore *s = open_store();

	cr_assert_eq(seal_pattern(s, "small", 1000, 1, 0), 0);
	cr_assert_eq(seal_pattern(s, "edge", PRIVATE - PATTERN_HEADER, 2, 0), 0);
	cr_assert_eq(count_in_store("a", "objects"), 0);
	cr_assert_eq(seal_pattern(s, "large", PRIVATE - PATTERN_HEADER + 1, 3, 0), 0);
	cr_assert_eq(seal_pattern(s, "", 1000, 4, 0), 0);
	cr_assert_eq(count_in_store("a", "objects"), 2);
	cr_assert(get_pattern(s, "small", 1000, 1) == 0 &&
		  get_pattern(s, "edge", PRIVATE - PATTERN_HEADER, 2) == 0 &&
		  get_pattern(s, "large", PRIVATE - PATTERN_HEADER + 1, 3) == 0 &&
		  get_pattern(s, "", 1000, 4) == 0);
	ensure_books_close();
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}

Test(packed_writer, flags_are_those_of_the_create)
{
	struct shmstore *s = open_store();
	struct shmstore_object_info info;
	struct shmstore_view *v;

	cr_assert_eq(shmstore_seal(begin(s, "k", 1000, SHMSTORE_CHECKSUM | SHMSTORE_PIN)), 0);
	info = only(s);
	cr_assert(info.packed && info.checksum && info.pinned);
	cr_assert_eq(shmstore_get(s, KEY("k"), SHMSTORE_VERIFY, &v), 0);
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_seal(begin(s, "k", 2000, 0)), -EEXIST);
	cr_assert_eq(get_pattern(s, "k", 1000, 1), 0);
	cr_assert_eq(shmstore_seal(begin(s, "k", 2000, SHMSTORE_REPLACE)), 0);
	cr_assert_eq(get_pattern(s, "k", 2000, 1), 0);
	info = only(s);
	cr_assert(info.packed && !info.checksum && !info.pinned);
	cr_assert_eq(shmstore_close(s), 0);
}

Test(packed_writer, what_is_not_sealed_was_never_there)
{
	struct shmstore *s = open_store();
	struct shmstore_writer *w;
	uint64_t before = used();

	w = begin(s, "k", 50000, 0);
	cr_assert_eq(used(), before);
	ensure_books_close();
	cr_assert_eq(shmstore_contains(s, KEY("k")), 0);
	shmstore_abort(w);
	cr_assert_eq(used(), before);
	w = begin(s, "k", 50000, 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(shmstore_seal(w), -EPERM);
	ensure_nothing_left();
}

static int seal_of_parent(void *arg)
{
	return shmstore_seal(arg) == -EPERM ? 0 : 1;
}

Test(packed_writer, child_of_a_fork_seals_nothing)
{
	struct shmstore *s = open_store();
	struct shmstore_writer *w = begin(s, "k", 1000, 0);

	cr_assert_eq(in_child(seal_of_parent, w), 0);
	cr_assert_eq(shmstore_contains(s, KEY("k")), 0);
	cr_assert_eq(shmstore_seal(w), 0);
	cr_assert_eq(get_pattern(s, "k", 1000, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
}

static int write_there(void *arg)
{
	signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would report what is meant to happen */
	*(volatile char *)arg = 1;
	return 0;
}

static bool all_zero(const char *bytes, size_t size)
{
	return bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0;
}

/* May this process write there? Asked of the kernel, which would have to. */
static bool writable(char *address)
{
	int pipes[2];
	bool can;

	ENSURE(pipe(pipes) == 0 && write(pipes[1], "x", 1) == 1);
	can = read(pipes[0], address, 1) == 1;
	close(pipes[0]);
	close(pipes[1]);
	return can;
}

Test(packed_writer, memory_is_used_again_but_nothing_of_it_is_left_to_its_last_user)
{
	struct shmstore *s = open_store();
	struct shmstore_writer *w = begin(s, "a", 50000, 0), *x;
	uint64_t size = 60000;
	char *first = shmstore_writer_buffer(w, 0, NULL), *second;

	cr_assert_eq(in_child(write_there, first), 1000 + SIGSEGV, "no child has it");
	cr_assert(writable(first + 10));
	pattern_fill(first, 50000, 1);
	cr_assert_eq(shmstore_seal(w), 0);
	cr_assert(!writable(first + 10), "its object is sealed");
	cr_assert_eq(shmstore_create(s, KEY("b"), 10, &size, 1, 0, &w), 0);
	second = shmstore_writer_buffer(w, 0, NULL);
	cr_assert_eq((uintptr_t)second / 4096, (uintptr_t)first / 4096, "the same memory");
	cr_assert(all_zero(second, size));
	cr_assert(all_zero(shmstore_writer_header(w, NULL), 10));
	x = begin(s, "c", 3000, 0);
	memset(second, 0xee, size);
	cr_assert_eq(shmstore_seal(x), 0);
	cr_assert_eq(get_pattern(s, "c", 3000, 1), 0, "two at once have memory of their own");
	cr_assert_eq(get_pattern(s, "a", 50000, 1), 0);
	cr_assert_eq(shmstore_close(s), 0);
	memset(second, 0xdd, size); /* the writer's still */
	shmstore_abort(w);
	cr_assert(!writable(second));
	ensure_nothing_left();
}

Test(packed_writer, seal_finds_out_that_the_partition_is_full)
{
	struct shmstore_writer *w;
	struct shmstore *s;
	char key[16];
	unsigned n = 0;
	int r = 0;

	scratch_dir("size=16m");
	if (!scratch_is_mount())
		cr_skip_test("needs a file system of its own (root)");
	s = open_store();
	for (uint64_t size = 1u << 20; size >= 4096; size /= 2) {
		for (r = 0; r == 0; n += r == 0) {
			snprintf(key, sizeof(key), "f%u", n);
			r = put_pattern(s, key, size, n, 0);
		}
		cr_assert_eq(r, -ENOSPC);
	}
	w = begin(s, "k", PRIVATE - PATTERN_HEADER, 0);
	cr_assert_eq(shmstore_seal(w), -ENOSPC);
	cr_assert_eq(shmstore_contains(s, KEY("k")), 0);
	cr_assert_eq(count_objects(s), (int)n);
	ensure_books_close();
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
}
