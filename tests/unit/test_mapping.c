/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <string.h>

#include "holders.h"

#define DEVICE "00:1f "

static bool parse(const char *line, struct shms_mapping *m)
{
	return shms_mapping_parse(line, strlen(line), DEVICE, m);
}

Test(mapping, deleted_file_is_read_whole)
{
	struct shms_mapping m;

	cr_assert(parse("7f00-9f00 r--s 00001000 00:1f 4711                       "
			"/mnt/x/stores/a/objects/k (deleted)",
			&m));
	cr_assert_eq(m.start, 0x7f00);
	cr_assert_eq(m.end, 0x9f00);
	cr_assert_eq(m.offset, 0x1000);
	cr_assert_eq(m.ino, 4711);
	cr_assert_eq(m.path_length, strlen("/mnt/x/stores/a/objects/k"));
	cr_assert_not(m.recycled);
	cr_assert_not(m.writer);
}

Test(mapping, recycled_file_is_told_by_its_directory)
{
	struct shms_mapping m;

	cr_assert(parse("1000-2000 rw-s 00000000 00:1f 5 /p/stores/a/recycle/3", &m));
	cr_assert(m.recycled);
	cr_assert(m.writer);
	cr_assert(parse("1000-2000 rw-p 00000000 00:1f 5 /p/stores/a/recycle/3", &m));
	cr_assert_not(m.writer);
	cr_assert_not(parse("1000-2000 rw-p 00000000 00:1f 5 /p/recycle/a/3", &m));
	cr_assert_not(parse("1000-2000 rw-p 00000000 00:1f 5 /p/xrecycle/3", &m));
}

Test(mapping, segment_is_told_by_its_name_and_directory)
{
	struct shms_mapping m;

	cr_assert(parse("1000-2000 r--s 00000000 00:1f 5 "
			"/p/stores/a/segments/0123456789abcdef0123456789abcdef",
			&m));
	cr_assert(m.segment && !m.deleted && !m.recycled);
	cr_assert(parse("1000-2000 r--s 00000000 00:1f 5 "
			"/p/stores/a/segments/0123456789abcdef0123456789abcdef (deleted)",
			&m));
	cr_assert(m.segment && m.deleted);
	cr_assert(
		parse("1000-2000 rw-s 00000000 00:1f 5 /p/stores/a/segments/#4711 (deleted)", &m));
	cr_assert(!m.segment && m.deleted);
	cr_assert_not(parse(
		"1000-2000 r--s 00000000 00:1f 5 /p/segments/0123456789abcdef0123456789abcdeg",
		&m));
	cr_assert_not(parse(
		"1000-2000 r--s 00000000 00:1f 5 /p/objects/0123456789abcdef0123456789abcdef", &m));
	cr_assert_not(parse("1000-2000 r--s 00000000 00:1f 5 /p/segments/0123456789abcdef", &m));
}

Test(mapping, what_is_not_ours_is_left_alone)
{
	struct shms_mapping m;

	cr_assert_not(parse("1000-2000 r--s 00000000 00:1f 5 /p/stores/a/objects/k", &m));
	cr_assert_not(parse("1000-2000 r--s 00000000 00:20 5 /p/k (deleted)", &m));
	cr_assert_not(parse("1000-2000 r--s 00000000 00:1f 5", &m));
	cr_assert_not(parse("1000-2000 r--s 00000000 00:1f 0 [heap] (deleted)", &m));
	cr_assert_not(parse("2000-2000 r--s 00000000 00:1f 5 /k (deleted)", &m));
	cr_assert_not(parse("2000 r--s 00000000 00:1f 5 /k (deleted)", &m));
	cr_assert_not(parse("1000-2000 00000000 00:1f 5 /k (deleted)", &m));
	cr_assert_not(parse("", &m));
}

Test(mapping, every_cut_line_is_refused_or_in_bounds)
{
	static const char line[] = "7f00-9f00 r--s 00001000 00:1f 4711    /a/objects/k (deleted)";
	struct shms_mapping m;

	for (size_t n = 0; n < sizeof(line) - 1; n++) {
		char *cut = strndup(line, n);

		if (shms_mapping_parse(cut, n, DEVICE, &m))
			cr_assert_leq(m.path + m.path_length, cut + n);
		free(cut);
	}
}

Test(mapping, a_name_that_is_only_the_mark_is_a_name)
{
	size_t n = strlen(" (deleted)");

	cr_assert_not(shms_mapping_deleted(" (deleted)", &n));
	cr_assert_eq(n, strlen(" (deleted)"));
}
