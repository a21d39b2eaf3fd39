/* SPDX-License-Identifier: Apache-2.0 */
/* The owner's allocator: extents are in the data, apart, and found again when
 * whoever had them has left. */
#include <criterion/criterion.h>
#include <errno.h>

#include "segments.h"

static bool drop_and_free(struct shms_segalloc *a, uint32_t index)
{
	struct shms_segslot slot = shms_segslot_at(a->segment, index);

	if (!shms_segslot_drop(&slot, SHMS_SEG_OWNER, SHMS_SEGVIEWS_NONE) ||
	    !shms_segslot_free(&slot, 0))
		return false;
	shms_segalloc_give(a, index);
	return true;
}

Test(segalloc, extents_of_all_classes_are_apart_and_in_the_data)
{
	struct shms_segment g = segment_in_memory(2000, 32, 64 << 20);
	struct shms_segalloc a;
	uint8_t *taken = calloc((64 << 20) / 64, 1);
	uint32_t index;
	int r = 0;

	cr_assert_eq(shms_segalloc_init(&a, &g), 0);
	for (unsigned i = 0; r == 0; i++) {
		uint8_t class = (uint8_t)(i * 37 % 200);
		uint64_t size = shms_segclass_size(class), off;

		r = shms_segalloc_take(&a, class, 0, &index);
		if (r < 0)
			break;
		off = shms_segalloc_begin(&a, index);
		cr_assert(index == i && a.n_born == i + 1 &&
			  shms_segpacked_extent(&g, (uint32_t)(off / 64), class));
		for (uint64_t k = off / 64; k < (off + size) / 64; k++)
			cr_assert_eq(taken[k]++, 0);
	}
	cr_assert_eq(r, -ENOSPC);
	cr_assert_eq(shms_segment_born(&g), a.n_born);
	free(taken);
	shms_segalloc_deinit(&a);
	free(g.books);
}

Test(segalloc, slots_end_before_the_data_does)
{
	struct shms_segment g = segment_in_memory(3, 32, 1 << 20);
	struct shms_segalloc a;
	uint32_t index;

	cr_assert_eq(shms_segalloc_init(&a, &g), 0);
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(shms_segalloc_take(&a, 0, 0, &index), 0);
	cr_assert_eq(shms_segalloc_take(&a, 0, 0, &index), -ENOSPC);
	shms_segalloc_give(&a, 1);
	shms_segalloc_give(&a, 1); /* again in vain: it is not given out twice */
	cr_assert_eq(shms_segalloc_take(&a, 1, 0, &index), -ENOSPC); /* another class */
	cr_assert_eq(shms_segalloc_take(&a, 0, 0, &index), 0);
	cr_assert(index == 1 && a.n_born == 3);
	cr_assert_eq(shms_segalloc_take(&a, 0, 0, &index), -ENOSPC);
	shms_segalloc_deinit(&a);
	free(g.books);
}

Test(segalloc, last_freed_is_first_used)
{
	struct shms_segment g = segment_in_memory(100, 32, 1 << 20);
	struct shms_segalloc a;
	uint32_t index[3], generation;

	cr_assert_eq(shms_segalloc_init(&a, &g), 0);
	for (size_t i = 0; i < 3; i++)
		index[i] = segment_put(&a, 1000, 'a', &generation);
	for (size_t i = 0; i < 3; i++)
		cr_assert(drop_and_free(&a, index[i]));
	for (size_t i = 3; i-- > 0;) {
		cr_assert_eq(segment_put(&a, 1000, 'b', &generation), index[i]);
		cr_assert_eq(generation, 2);
	}
	shms_segalloc_deinit(&a);
	free(g.books);
}

Test(segalloc, what_others_leave_is_found_by_its_hint_and_without_it_by_a_scan)
{
	struct shms_segment g = segment_in_memory(200, 32, 1 << 20);
	struct shms_segalloc a;
	uint32_t index[100], generation;
	struct shms_segpacked o;

	cr_assert_eq(shms_segalloc_init(&a, &g), 0);
	for (uint32_t i = 0; i < 100; i++) {
		struct shms_segticket t = {.end_ms = 1000};
		struct shms_segslot slot;

		index[i] = segment_put(&a, 64, 'a', &generation);
		slot = shms_segslot_at(&g, index[i]);
		t.slot = index[i];
		t.generation = generation;
		cr_assert_eq(shms_segslot_handoff(&slot, generation, 0, 0, t.end_ms, &t.lease), 0);
		cr_assert_eq(segment_adopt(&g, 3, false, &t, &o), 0);
		cr_assert_not(drop_and_free(&a, index[i]));
	}
	cr_assert_eq(shms_segalloc_scan(&a, 0), 0);
	for (uint32_t i = 0; i < 100; i++) {
		struct shms_segslot slot = shms_segslot_at(&g, index[i]);

		cr_assert(shms_segslot_drop(&slot, 3, SHMS_SEGVIEWS_NONE));
		if (i % 2)
			shms_segment_hint(&g, index[i]);
	}
	/* A hint for a slot that is not left, or that was never cut, does no harm. */
	shms_segment_hint(&g, 199);
	cr_assert_eq(shms_segalloc_hints(&a, 0), 50);
	cr_assert_eq(shms_segalloc_hints(&a, 0), 0);
	cr_assert_eq(shms_segalloc_scan(&a, 0), 50);
	cr_assert_eq(a.n_free, 100);
	shms_segalloc_deinit(&a);
	free(g.books);
}

/* Those whose extent cannot be where they say. */
static uint32_t bad_slots(const struct shms_segalloc *a)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < a->n_born; i++)
		n += !a->slots[i].extent;
	return n;
}

Test(segalloc, who_takes_a_segment_over_finds_its_extents_and_trusts_no_overlap)
{
	struct shms_segment g = segment_in_memory(200, 32, 1 << 20);
	struct shms_segalloc a, b;
	uint32_t index[50], generation, next;
	uint64_t end_off;

	cr_assert_eq(shms_segalloc_init(&a, &g), 0);
	for (uint32_t i = 0; i < 50; i++)
		index[i] = segment_put(&a, 64 + i * 100, 'a', &generation);
	for (uint32_t i = 0; i < 50; i += 5)
		cr_assert(drop_and_free(&a, index[i]));
	end_off = a.end_off;
	cr_assert_eq(shms_segalloc_init(&b, &g), 0);
	cr_assert_eq(shms_segalloc_rebuild(&b), 0);
	cr_assert(bad_slots(&b) == 0 && b.n_free == 10 && b.n_born == 50 && b.end_off == end_off);
	for (uint32_t i = 0; i < 50; i++)
		cr_assert_eq(shms_segalloc_begin(&b, index[i]), shms_segalloc_begin(&a, index[i]));
	shms_segalloc_deinit(&b);
	/* Slot 5, which is free, says that it has slot 7's bytes; slot 20 has none;
	 * more slots than there are. */
	shms_segslot_at(&g, 5).packed[0].value = shms_segslot_at(&g, 4).packed[0].value;
	shms_segslot_at(&g, 20).packed[0].value = 0;
	shms_segment_control(&g)->n_born = UINT32_MAX;
	cr_assert_eq(shms_segalloc_init(&b, &g), 0);
	cr_assert_eq(shms_segalloc_rebuild(&b), 0);
	cr_assert_eq(b.n_born, 200);
	cr_assert_eq(bad_slots(&b), 2 + 150);
	cr_assert_eq(b.n_free, 8);
	cr_assert_eq(shms_segalloc_take(&b, b.slots[10].class, 0, &next), 0);
	cr_assert(next == 10 && b.n_born == 200);
	shms_segalloc_deinit(&b);
	shms_segalloc_deinit(&a);
	free(g.books);
}
