/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Demoted objects of a partition that is full, and stays so because all that is in memory is
 * pinned: what lies raw on the disk is mapped from there and used like any other; what is
 * compressed is an error. Room that comes back is used.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api.h"
#include "tiered.h"

enum {
	SIZE = 6 << 20,
	PINNED = 2 << 20
};

static unsigned n_pinned;

static void name_pinned(char name[16], unsigned i)
{
	snprintf(name, 16, "pinned%u", i);
}

/* "raw" and "packed" are demoted, everything else is pinned and takes all there is. */
static struct shmstore *full_store(void)
{
	struct shmstore *s = scratch_store("s");
	static unsigned char zeros[SIZE];
	struct iovec buffer = {zeros, sizeof(zeros)};
	char name[16];
	int r;

	cr_assert_eq(put_pattern(s, "raw", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_put(s, KEY("packed"), NULL, 0, &buffer, 1, 0), 0);
	cr_assert_eq(shmstore_demote(s, KEY("raw"), 0), 0);
	cr_assert_eq(shmstore_demote(s, KEY("packed"), 0), 0);
	for (;; n_pinned++) {
		name_pinned(name, n_pinned);
		r = put_pattern(s, name, PINNED, 100 + n_pinned, SHMSTORE_PIN);
		if (r < 0)
			break;
	}
	cr_assert_eq(r, -ENOSPC);
	cr_assert_gt(n_pinned, 10);
	return s;
}

/* Deletes enough for what is demoted, and looks at the rest. */
static void finish(struct shmstore *s)
{
	char name[16];

	for (unsigned i = 0; i < n_pinned; i++) {
		name_pinned(name, i);
		cr_assert_eq(get_pattern(s, name, PINNED, 100 + i), 0);
		cr_assert_eq(shmstore_locate(s, KEY(name)), SHMSTORE_IN_MEMORY);
		if (i < 8)
			cr_assert_eq(shmstore_delete(s, KEY(name)), 0);
	}
	if (shmstore_contains(s, KEY("raw"))) {
		cr_assert_eq(get_pattern(s, "raw", SIZE, 1), 0);
		cr_assert_eq(shmstore_locate(s, KEY("raw")), SHMSTORE_IN_MEMORY,
			     "there is room again");
	}
	shmstore_view_unref(get_view(s, "packed", 0));
	cr_assert_eq(shmstore_close(s), 0);
	ensure_nothing_left();
	ensure_tier_empty();
}

#define FULL_OR_SKIP(s)                                             \
	do {                                                        \
		scratch_dir("size=64m");                            \
		if (!scratch_is_mount())                            \
			cr_skip_test("needs a mount of its own\n"); \
		TIERED_OR_SKIP();                                   \
		(s) = full_store();                                 \
	} while (0)

Test(tier_full, raw_object_is_mapped_from_the_disk)
{
	struct shmstore_view *v, *w;
	struct shmstore *s;

	FULL_OR_SKIP(s);
	v = get_view(s, "raw", 0);
	cr_assert_eq(view_pattern(v, SIZE, 1), 0);
	cr_assert_eq(shmstore_locate(s, KEY("raw")), SHMSTORE_IN_TIER);
	w = get_view(s, "raw", SHMSTORE_COW | SHMSTORE_VERIFY);
	memset(shmstore_view_buffer(w, 0, NULL), 0x55, SIZE);
	cr_assert_eq(view_pattern(v, SIZE, 1), 0);
	shmstore_view_unref(w);
	ensure_books_close();
	cr_assert_eq(shmstore_delete(s, KEY("raw")), 0);
	cr_assert_eq(tiered_count_files(), 1, "packed's");
	cr_assert_eq(view_pattern(v, SIZE, 1), 0, "like any view it outlives its name");
	shmstore_view_unref(v);
	finish(s);
}

Test(tier_full, compressed_object_needs_room)
{
	struct shmstore_view *v;
	struct shmstore *s;

	FULL_OR_SKIP(s);
	cr_assert_eq(shmstore_get(s, KEY("packed"), 0, &v), -ENOSPC);
	cr_assert_eq(shmstore_promote(s, KEY("packed"), 0), -ENOSPC);
	cr_assert_eq(shmstore_promote(s, KEY("raw"), SHMSTORE_NO_EVICT), -ENOSPC);
	cr_assert_eq(shmstore_locate(s, KEY("packed")), SHMSTORE_IN_TIER);
	finish(s);
}

Test(tier_full, damage_of_a_raw_object_is_found_before_it_is_mapped)
{
	struct shmstore_view *v;
	struct shmstore *s;

	FULL_OR_SKIP(s);
	tiered_damage("s", "raw", SIZE - 1000);
	cr_assert_eq(shmstore_get(s, KEY("raw"), 0, &v), -EBADMSG);
	cr_assert_str_eq(shmstore_error_path(), tiered_file("s", "raw"));
	cr_assert_eq(shmstore_delete(s, KEY("raw")), 0);
	finish(s);
}

Test(tier_full, put_of_a_view_on_the_disk_is_an_object_like_any_other)
{
	struct shmstore_view *v;
	struct shmstore *s;
	struct iovec buffer;
	const void *header;
	size_t header_size;
	char name[16];

	FULL_OR_SKIP(s);
	v = get_view(s, "raw", 0);
	header = shmstore_view_header(v, &header_size);
	buffer = (struct iovec){shmstore_view_buffer(v, 0, NULL), SIZE};
	cr_assert_eq(
		shmstore_put(s, KEY("again"), header, header_size, &buffer, 1, SHMSTORE_NO_EVICT),
		-ENOSPC);
	for (unsigned i = 0; i < 4; i++) {
		name_pinned(name, i);
		cr_assert_eq(shmstore_delete(s, KEY(name)), 0);
		cr_assert_eq(put_pattern(s, name, 100, 100 + i, 0), 0);
	}
	cr_assert_eq(shmstore_put(s, KEY("again"), header, header_size, &buffer, 1, 0), 0);
	shmstore_view_unref(v);
	cr_assert_eq(get_pattern(s, "again", SIZE, 1), 0);
	cr_assert_eq(shmstore_delete(s, KEY("raw")), 0);
	cr_assert_eq(get_pattern(s, "again", SIZE, 1), 0);
	for (unsigned i = 0; i < 4; i++) {
		name_pinned(name, i);
		cr_assert_eq(get_pattern(s, name, 100, 100 + i), 0);
		cr_assert_eq(shmstore_delete(s, KEY(name)), 0);
		cr_assert_eq(shmstore_delete(s, KEY("again")), i ? -ENOENT : 0);
		cr_assert_eq(put_pattern(s, name, PINNED, 100 + i, SHMSTORE_PIN), 0);
	}
	finish(s);
}

Test(tier_full, handoff_of_a_demoted_object_hands_over_what_it_is)
{
	struct shmstore_ticket t;
	struct shmstore *s;
	struct other o;

	FULL_OR_SKIP(s);
	o = other_start("o");
	cr_assert_eq(shmstore_handoff(s, KEY("packed"), 60000, &t), 0, "%s",
		     shmstore_error_detail());
	cr_assert_eq(shmstore_locate(s, KEY("packed")), SHMSTORE_IN_TIER);
	cr_assert_eq(other_adopt(&o, "k", &t), 0);
	cr_assert_eq(other_locate(&o, "k"), SHMSTORE_IN_TIER);
	cr_assert_eq(shmstore_handoff(s, KEY("raw"), 60000, &t), 0);
	cr_assert_eq(shmstore_delete(s, KEY("raw")), 0);
	cr_assert_eq(other_adopt(&o, "l", &t), 0);
	cr_assert_eq(other_get(&o, "l", SIZE, 1), 0);
	cr_assert_eq(other_close(&o), 0);
	finish(s);
}
