/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object comes back from the disk tier as it went in, whatever its size and content; one that
 * does not is an error that names the file, and costs nobody else anything.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "tiered.h"
#include "tierformat.h"

#define SIZE ((uint64_t)300000)

/* ---- content --------------------------------------------------------------------------------- */

enum content {
	NOISE,
	NUMBERS, /* rising: shrinks */
	ZEROS,
	HALVES, /* noise, then zeros: some frames shrink */
	N_CONTENTS
};

static void fill(unsigned char *bytes, size_t size, enum content content)
{
	memset(bytes, 0, size);
	if (content == NOISE)
		pattern_fill(bytes, size, 5);
	if (content == HALVES)
		pattern_fill(bytes, size / 2, 6);
	for (size_t i = 0; content == NUMBERS && i + 8 <= size; i += 8)
		memcpy(bytes + i, &(uint64_t){1000000 + i / 5}, 8);
}

static void there_and_back(struct shmstore *s, size_t size, enum content content)
{
	unsigned char *bytes = malloc(size + 1);
	struct iovec buffers[3] = {
		{bytes, size / 3}, {bytes + size / 3, size - size / 3}, {bytes, 0}};
	struct shmstore_view *v;
	const void *got;
	size_t header_size;
	uint64_t n;

	fill(bytes, size, content);
	cr_assert_eq(shmstore_put(s, KEY("k"), "header", 6, buffers, 3, SHMSTORE_CHECKSUM), 0);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0, "%zu bytes: %s", size,
		     shmstore_error_detail());
	cr_assert_eq(shmstore_locate(s, KEY("k")), SHMSTORE_IN_TIER);
	v = get_view(s, "k", SHMSTORE_VERIFY);
	got = shmstore_view_header(v, &header_size);
	cr_assert(header_size == 6 && memcmp(got, "header", 6) == 0);
	cr_assert_eq(shmstore_view_n_buffers(v), 3);
	for (size_t i = 0; i < 3; i++) {
		got = shmstore_view_buffer(v, i, &n);
		cr_assert_eq(n, buffers[i].iov_len);
		cr_assert(n == 0 || memcmp(got, buffers[i].iov_base, n) == 0,
			  "buffer %zu of %zu bytes", i, size);
	}
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	cr_assert_eq(tiered_count_files(), 0);
	free(bytes);
}

static void all_contents(int level)
{
	static const size_t sizes[] = {
		0,
		1,
		63,
		4096,
		65535,
		65536,
		1000000,
		SHMS_TIER_FRAME - 8192,
		SHMS_TIER_FRAME,
		SHMS_TIER_FRAME + 1,
		9 << 20,
	};
	struct shmstore_tier_config config = SHMSTORE_TIER_CONFIG_INIT;
	struct shmstore *s;

	config.level = level;
	if (!tiered_begin(&config))
		cr_skip_test("no file system on disk: set SHMSTORE_TEST_DISK\n");
	s = scratch_store("s");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (enum content content = 0; content < N_CONTENTS; content++)
			there_and_back(s, sizes[i], content);
	}
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

Test(tier_bytes, come_back_uncompressed)
{
	all_contents(0);
}

Test(tier_bytes, come_back_compressed)
{
	all_contents(1);
}

Test(tier_bytes, come_back_well_compressed, .timeout = 120)
{
	all_contents(9);
}

Test(tier_bytes, noise_is_kept_raw_and_numbers_are_not)
{
	unsigned char *bytes = malloc(9 << 20);
	struct iovec buffer = {bytes, 9 << 20};
	struct shmstore *s;
	struct stat st;

	TIERED_OR_SKIP();
	s = scratch_store("s");
	for (enum content content = NOISE; content <= NUMBERS; content++) {
		fill(bytes, buffer.iov_len, content);
		cr_assert_eq(shmstore_put(s, KEY("k"), NULL, 0, &buffer, 1, SHMSTORE_REPLACE), 0);
		cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0);
		cr_assert_eq(stat(tiered_file("s", "k"), &st), 0);
		if (content == NOISE)
			cr_assert(st.st_size > 9 << 20 && st.st_size < (9 << 20) + 32768);
		else
			cr_assert_lt(st.st_size, 3 << 20);
	}
	free(bytes);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

/* ---- damage ---------------------------------------------------------------------------------- */

/* Everything that would have to read the tier file of "k" says that it is bad, and
 * which one; the name stays. */
static void ensure_bad(struct shmstore *s, struct other *o)
{
	char path[TIERED_PATH + 256];
	struct iovec key = {(char[]){"k"}, 1};
	struct shmstore_ticket t;
	struct shmstore_view *v;
	int result = 0;

	snprintf(path, sizeof(path), "%s", tiered_file("s", "k"));
	cr_assert_eq(shmstore_get(s, KEY("k"), 0, &v), -EBADMSG);
	cr_assert_str_eq(shmstore_error_path(), path);
	cr_assert(*shmstore_error_detail());
	cr_assert_eq(shmstore_promote(s, KEY("k"), 0), -EBADMSG);
	cr_assert_str_eq(shmstore_error_path(), path);
	cr_assert_eq(shmstore_handoff(s, KEY("k"), 60000, &t), -EBADMSG);
	cr_assert_str_eq(shmstore_error_path(), path);
	cr_assert_eq(shmstore_pin(s, KEY("k"), true), -EBADMSG);
	cr_assert_eq(shmstore_prefetch(s, &key, 1, 0, 0, &result), 0);
	cr_assert_eq(result, -EBADMSG);
	cr_assert_eq(other_get(o, "k", SIZE, 1), -EBADMSG);
	cr_assert_eq(shmstore_contains(s, KEY("k")), 1);
	cr_assert_eq(shmstore_locate(s, KEY("k")), SHMSTORE_IN_TIER);
	ensure_books_close();
}

static void damaged(void (*damage)(const char *path))
{
	struct shmstore *s;
	struct other o;
	struct shmstore_ticket t;

	TIERED_OR_SKIP();
	s = scratch_store("s");
	o = other_start("o");
	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(put_pattern(s, "fine", SIZE, 2, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("k"), 60000, &t), 0);
	cr_assert_eq(other_adopt(&o, "k", &t), 0);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0);
	cr_assert_eq(shmstore_demote(s, KEY("fine"), 0), 0);
	damage(tiered_file("s", "k"));
	ensure_bad(s, &o);
	cr_assert_eq(get_pattern(s, "fine", SIZE, 2), 0);
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	cr_assert_eq(put_pattern(s, "k", SIZE, 3, 0), 0);
	cr_assert_eq(get_pattern(s, "k", SIZE, 3), 0);
	cr_assert_eq(other_delete(&o, "k"), 0);
	cr_assert_eq(other_close(&o), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

static void flip_header(const char *path)
{
	(void)path;
	tiered_damage("s", "k", 16);
}

static void flip_key(const char *path)
{
	(void)path;
	tiered_damage("s", "k", SHMS_TIER_SUPERBLOCK);
}

static void flip_first_frame(const char *path)
{
	(void)path;
	tiered_damage("s", "k", SHMS_TIER_ALIGN);
}

static void flip_padding(const char *path)
{
	struct stat st;

	cr_assert_eq(stat(path, &st), 0);
	tiered_damage("s", "k", (uint64_t)st.st_size - 1);
}

static void resize(const char *path, off_t size)
{
	cr_assert_eq(chmod(path, 0600), 0);
	cr_assert_eq(truncate(path, size), 0);
	cr_assert_eq(chmod(path, 0400), 0);
}

static void cut(const char *path)
{
	resize(path, 2 * (off_t)SHMS_TIER_ALIGN);
}

static void empty(const char *path)
{
	resize(path, 0);
}

static void grow(const char *path)
{
	struct stat st;

	cr_assert_eq(stat(path, &st), 0);
	resize(path, st.st_size + (off_t)SHMS_TIER_ALIGN);
}

static void remove_file(const char *path)
{
	cr_assert_eq(unlink(path), 0);
}

static void other_file(const char *path)
{
	/* Of another object: whole, but not what the stub means. */
	char from[TIERED_PATH + 256], to[TIERED_PATH + 256];

	snprintf(to, sizeof(to), "%s", path);
	snprintf(from, sizeof(from), "%s", tiered_file("s", "fine"));
	cr_assert_eq(unlink(to), 0);
	cr_assert_eq(link(from, to), 0);
}

static void symlink_to_file(const char *path)
{
	char from[TIERED_PATH + 256];

	snprintf(from, sizeof(from), "%s.moved", path);
	cr_assert_eq(rename(path, from), 0);
	cr_assert_eq(symlink(from, path), 0);
}

#define DAMAGE(how)                             \
	Test(tier_bytes, damage_is_found_##how) \
	{                                       \
		damaged(how);                   \
	}

DAMAGE(flip_header)
DAMAGE(flip_key)
DAMAGE(flip_first_frame)
DAMAGE(flip_padding)
DAMAGE(cut)
DAMAGE(empty)
DAMAGE(grow)
DAMAGE(remove_file)
DAMAGE(other_file)

Test(tier_bytes, a_link_in_the_place_of_the_file_is_not_followed)
{
	struct shmstore *s;
	struct shmstore_view *v;
	char moved[TIERED_PATH + 300];

	TIERED_OR_SKIP();
	s = scratch_store("s");
	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0);
	snprintf(moved, sizeof(moved), "%s.moved", tiered_file("s", "k"));
	symlink_to_file(tiered_file("s", "k"));
	cr_assert_eq(shmstore_get(s, KEY("k"), 0, &v), -EBADMSG);
	cr_assert_str_eq(shmstore_error_path(), tiered_file("s", "k"));
	cr_assert_eq(unlink(moved), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

/* ---- clean copies ---------------------------------------------------------------------------- */

/* A clean copy that is not there, or not whole, is not what an object is given up for. */
static void spoiled_copy(void (*spoil)(const char *path))
{
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = scratch_store("s");
	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0);
	cr_assert_eq(shmstore_promote(s, KEY("k"), 0), 0);
	spoil(tiered_file("s", "k"));
	cr_assert_eq(get_pattern(s, "k", SIZE, 1), 0);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0, "%s", shmstore_error_detail());
	cr_assert_eq(shmstore_locate(s, KEY("k")), SHMSTORE_IN_TIER);
	cr_assert_eq(get_pattern(s, "k", SIZE, 1), 0, "%s", shmstore_error_detail());
	cr_assert_eq(tiered_count_files(), 1);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

Test(tier_bytes, clean_copy_that_was_removed_is_written_again)
{
	spoiled_copy(remove_file);
}

Test(tier_bytes, clean_copy_that_was_cut_is_written_again)
{
	spoiled_copy(cut);
}

Test(tier_bytes, promoted_once_is_not_read_again)
{
	struct shmstore *s;
	struct other o;
	struct shmstore_ticket t;

	TIERED_OR_SKIP();
	s = scratch_store("s");
	o = other_start("o");
	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("k"), 60000, &t), 0);
	cr_assert_eq(other_adopt(&o, "k", &t), 0);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0);
	cr_assert_eq(shmstore_promote(s, KEY("k"), 0), 0);
	tiered_damage("s", "k", SHMS_TIER_ALIGN);
	cr_assert_eq(other_locate(&o, "k"), SHMSTORE_IN_TIER);
	cr_assert_eq(other_get(&o, "k", SIZE, 1), 0, "found where we left it");
	cr_assert_eq(inode_of("s", "k"), inode_of("o", "k"));
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	cr_assert_eq(other_delete(&o, "k"), 0);
	cr_assert_lt(ensure_books_close().linked, SIZE, "nothing of ours keeps it");
	cr_assert_eq(other_close(&o), 0);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

Test(tier_bytes, what_is_mapped_is_not_read_again)
{
	struct shmstore_view *v, *again;
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = scratch_store("s");
	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	v = get_view(s, "k", 0);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0);
	tiered_damage("s", "k", SHMS_TIER_ALIGN);
	again = get_view(s, "k", 0);
	cr_assert_eq(view_pattern(again, SIZE, 1), 0);
	shmstore_view_unref(again);
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

Test(tier_bytes, a_demoted_objects_memory_is_not_recycled_under_its_views)
{
	struct shmstore_view *v;
	struct shmstore *s;

	TIERED_OR_SKIP();
	s = scratch_store("s");
	cr_assert_eq(put_pattern(s, "k", SIZE, 1, 0), 0);
	v = get_view(s, "k", 0);
	cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0);
	cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	for (uint64_t i = 0; i < 20; i++) {
		cr_assert_eq(put_pattern(s, "k", SIZE, 100 + i, 0), 0);
		cr_assert_eq(view_pattern(v, SIZE, 1), 0);
		if (i % 2)
			cr_assert_eq(shmstore_demote(s, KEY("k"), 0), 0);
		cr_assert_eq(get_pattern(s, "k", SIZE, 100 + i), 0);
		cr_assert_eq(shmstore_delete(s, KEY("k")), 0);
	}
	cr_assert_eq(view_pattern(v, SIZE, 1), 0);
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}
