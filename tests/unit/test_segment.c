/* SPDX-License-Identifier: Apache-2.0 */
/* A segment's shape and header, its classes, and what a description may say: what is written is
 * read, and nothing that is wrong is believed. */
#include <criterion/criterion.h>
#include <errno.h>

#include "segments.h"

Test(segment, shape_leaves_room_for_all_parts_in_order)
{
	for (uint32_t holders = 32; holders <= 256; holders *= 2) {
		for (uint32_t slots = 1; slots < 100000; slots = slots * 3 + 1) {
			struct shms_segment_shape s;
			uint64_t slot_size = 40 + 8ul * (holders / 32);

			cr_assert_eq(shms_segment_shape(slots, holders, 64 << 20, &s), 0);
			cr_assert_eq(shms_segslot_size(s.n_words), slot_size);
			cr_assert_geq(s.hints_off, 4096 + 64 + 64ul * holders);
			cr_assert_geq(s.slots_off, s.hints_off + (slots + 7) / 8);
			cr_assert_geq(s.data_off, s.slots_off + slots * slot_size);
			cr_assert(s.hints_off % 64 == 0 && s.slots_off % 64 == 0 &&
				  s.data_off % 4096 == 0);
			cr_assert_lt(s.data_off, s.size);
		}
	}
}

Test(segment, shape_of_wrong_numbers_is_refused)
{
	struct shms_segment_shape s;
	static const uint32_t holders[] = {0, 1, 31, 33, 96, 160, 224, 288, 512, UINT32_MAX};

	for (size_t i = 0; i < sizeof(holders) / sizeof(*holders); i++)
		cr_assert_eq(shms_segment_shape(10, holders[i], 1 << 20, &s), -EINVAL, "%u",
			     holders[i]);
	cr_assert_eq(shms_segment_shape(0, 32, 1 << 20, &s), -EINVAL);
	cr_assert_eq(shms_segment_shape(UINT32_C(1) << 24, 32, SHMS_SEGMENT_SIZE_MAX, &s), -EINVAL);
	cr_assert_eq(shms_segment_shape(10, 32, (1 << 20) + 1, &s), -EINVAL);
	cr_assert_eq(shms_segment_shape(10, 32, SHMS_SEGMENT_SIZE_MAX + 4096, &s), -EINVAL);
	cr_assert_eq(shms_segment_shape(100000, 32, 1 << 20, &s), -EINVAL); /* the slots fill it */
	cr_assert_eq(shms_segment_shape(1, 32, 8192, &s), -EINVAL);
	cr_assert_eq(shms_segment_shape(1, 32, 12288, &s), 0);
}

Test(segment, header_with_any_bit_changed_is_refused)
{
	struct shms_segment g = segment_in_memory(100, 64, 1 << 20), back;
	struct shms_segment_header h, bad;

	memcpy(&h, g.books, sizeof(h));
	cr_assert_eq(shms_segment_check(&h, 1 << 20, &back), 0);
	cr_assert_eq(back.shape.n_words, 2);
	cr_assert_eq(memcmp(back.uuid, "a segment's uuid", 16), 0);
	cr_assert_eq(shms_segment_check(&h, (1 << 20) - 4096, &back), -EBADMSG); /* cut */
	for (size_t i = 0; i < sizeof(h) * 8; i++) {
		int r;

		bad = h;
		((uint8_t *)&bad)[i / 8] ^= (uint8_t)(1u << i % 8);
		r = shms_segment_check(&bad, 1 << 20, &back);
		cr_assert_eq(r, i / 32 == 2 ? -ENOTSUP : -EBADMSG, "bit %zu: %d", i, r);
	}
	free(g.books);
}

Test(segment, classes_lose_a_sixteenth_at_most)
{
	uint64_t before = 0;

	for (unsigned c = 0; c < SHMS_SEGCLASSES; c++) {
		uint64_t size = shms_segclass_size((uint8_t)c);

		cr_assert_gt(size, before);
		cr_assert_eq(size % SHMS_SEGCLASS_ALIGN, 0);
		cr_assert(size < SHMS_SEGCLASS_BIG || size % 4096 == 0);
		cr_assert_eq(shms_segclass_for(size), (int)c);
		cr_assert_eq(shms_segclass_for(before + 1), (int)c);
		if (before >= 2048)
			cr_assert_leq((size - before) * 16, before);
		before = size;
	}
	cr_assert_eq(before, SHMS_SEGCLASS_MAX);
	cr_assert_eq(shms_segclass_for(0), -1);
	cr_assert_eq(shms_segclass_for(SHMS_SEGCLASS_MAX + 1), -1);
	cr_assert_eq(shms_segclass_for(UINT64_MAX), -1);
}

Test(segment, a_description_is_read_as_it_was_written)
{
	static const uint64_t sizes[][3] = {
		{1000, 0, 0}, {0, 0, 0}, {100, 63, 5000}, {70000, 64, 1}};
	static const char key[] = "a key that is longer than sixteen bytes";
	struct shms_segment g = segment_in_memory(4, 32, 1 << 20);
	struct shms_segslot slot = shms_segslot_at(&g, 3);
	uint64_t back[3];

	for (unsigned n = 0; n <= 3; n++) {
		for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
			for (size_t key_size = 1; key_size < sizeof(key); key_size += 15) {
				struct shms_segpacked o, r;

				cr_assert_eq(shms_segpacked_plan(sizes[i], n, 77, key, key_size,
								 SHMS_SEGPACKED_CHECKSUM, &o),
					     0);
				cr_assert(o.used <= o.extent_size && o.metadata_off + 77 <= o.used);
				cr_assert(o.checksum_off % 8 == 0 && o.metadata_off % 8 == 0);
				o.extent_off = (g.shape.data_off + 65535) & ~UINT64_C(65535);
				shms_segpacked_table(&o, sizes[i], g.books + o.extent_off);
				shms_segpacked_write(&slot, &o);
				cr_assert_eq(shms_segpacked_read(&g, &slot, &r), 0);
				cr_assert_eq(memcmp(&o, &r,
						    offsetof(struct shms_segpacked, key) +
							    sizeof(o.key)),
					     0);
				cr_assert_eq(memcmp(&o.table_off, &r.table_off, 5 * sizeof(o.used)),
					     0);
				cr_assert_eq(shms_segpacked_sizes(&g, &r, back), 0);
				cr_assert_eq(memcmp(back, sizes[i], n * sizeof(*back)), 0);
			}
		}
	}
	free(g.books);
}

Test(segment, an_object_that_fits_into_no_extent_is_refused)
{
	uint64_t sizes[] = {SHMS_SEGCLASS_MAX, SHMS_SEGCLASS_MAX, UINT64_MAX};
	struct shms_segpacked o;

	cr_assert_eq(shms_segpacked_plan(sizes, 1, 0, "k", 1, 0, &o), 0);
	cr_assert_eq(shms_segpacked_plan(sizes, 1, 1, "k", 1, 0, &o), -EFBIG);
	cr_assert_eq(shms_segpacked_plan(sizes, 2, 0, "k", 1, 0, &o), -EFBIG);
	cr_assert_eq(shms_segpacked_plan(sizes + 2, 1, 0, "k", 1, 0, &o), -EFBIG);
	cr_assert_eq(shms_segpacked_plan(sizes, 1, 0, "", 0, 0, &o), -EINVAL);
	cr_assert_eq(shms_segpacked_plan(sizes, 1, 0, "", 65536, 0, &o), -EINVAL);
}

static int read_with(struct shms_segment *g, struct shms_segpacked_words w)
{
	struct shms_segslot slot = shms_segslot_at(g, 0);
	struct shms_segpacked o;

	for (size_t i = 0; i < SHMS_SEGSLOT_PACKED_WORDS; i++)
		memcpy(&slot.packed[i], (uint8_t *)&w + 8 * i, 8);
	return shms_segpacked_read(g, &slot, &o);
}

Test(segment, a_description_that_points_out_of_its_extent_or_segment_is_refused)
{
	struct shms_segment g = segment_in_memory(4, 32, 1 << 20);
	uint32_t first = (uint32_t)(g.shape.data_off / 64),
		 big = (uint32_t)shms_segclass_for(65536);
	struct shms_segpacked_words good = {.extent = first, .buffer_size = 64, .key_size = 1}, w;
	uint64_t n = 2;

	cr_assert_eq(read_with(&g, good), 0);
#define REFUSED(...)                                                    \
	do {                                                            \
		w = good;                                               \
		__VA_ARGS__;                                            \
		cr_assert_eq(read_with(&g, w), -EBADMSG, #__VA_ARGS__); \
	} while (0)
	REFUSED(w.extent = first - 1); /* the books */
	REFUSED(w.extent = 0);
	REFUSED(w.extent = UINT32_MAX);
	REFUSED(w.extent = (1 << 20) / 64); /* behind the end */
	REFUSED(w.extent = (1 << 20) / 64 - 1, w.class = 1);
	REFUSED(w.buffer_size = 65);
	REFUSED(w.buffer_size = UINT32_MAX);
	REFUSED(w.metadata_size = 1);
	REFUSED(w.metadata_size = UINT32_MAX, w.buffer_size = UINT32_MAX);
	REFUSED(w.key_size = 17);
	REFUSED(w.key_size = 0);
	REFUSED(w.flags = 32);
	REFUSED(w.flags = SHMS_SEGPACKED_CHECKSUM);
	REFUSED(w.flags = SHMS_SEGPACKED_TABLE);               /* no room for it */
	REFUSED(w.class = (uint8_t)big, w.extent = first + 1); /* not at a page */
	REFUSED(w.class = 255);
	/* Tables: the number of one buffer; more than fit; sizes that are not those of the
	 * whole. */
	good = (struct shms_segpacked_words){.extent = first,
					     .buffer_size = 128,
					     .key_size = 1,
					     .class = 3,
					     .flags = SHMS_SEGPACKED_TABLE};
	REFUSED(n = 1, memcpy(g.books + g.shape.data_off + 128, &n, 8));
	REFUSED(n = 16, memcpy(g.books + g.shape.data_off + 128, &n, 8));
	REFUSED(n = UINT64_MAX, memcpy(g.books + g.shape.data_off + 128, &n, 8));
	free(g.books);
}

Test(segment, a_table_whose_sizes_do_not_make_the_whole_is_refused)
{
	static const uint64_t wrong[][2] = {{64, 63},         {64, 65},         {129, 0}, {65, 64},
					    {UINT64_MAX, 64}, {64, UINT64_MAX}, {0, 0}};
	uint64_t sizes[] = {64, 64}, back[2];
	struct shms_segment g = segment_in_memory(4, 32, 1 << 20);
	struct shms_segpacked o;

	cr_assert_eq(shms_segpacked_plan(sizes, 2, 0, "k", 1, 0, &o), 0);
	o.extent_off = g.shape.data_off;
	shms_segpacked_table(&o, sizes, g.books + o.extent_off);
	cr_assert_eq(shms_segpacked_sizes(&g, &o, back), 0);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		shms_segpacked_table(&o, wrong[i], g.books + o.extent_off);
		cr_assert_eq(shms_segpacked_sizes(&g, &o, back), -EBADMSG, "%zu", i);
	}
	free(g.books);
}
