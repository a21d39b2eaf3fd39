/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_segment.c: a segment of arbitrary bytes, as a hostile process of the same user may make one:
 * header, records, hints, slots, descriptions, tables.
 *
 * The first byte says how far the input is helped past the checks that random bytes never pass:
 * FIX_HEADER makes the header one of a few slots; the rest of the input are then the words
 * behind it. Then everything is done with it: what holders do and what its owner does, a few
 * times over, and the memory is exactly as large as the segment, so that one byte read or
 * written outside of it is found.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "scratch.h"
#include "segalloc.h"
#include "segment.h"
#include "segments.h"

enum {
	FIX_HEADER = 1,
	FIX_SLOTS = 2
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned long n_accepted, n_objects, n_adopted, n_put;

static void report(void)
{
	fprintf(stderr, "accepted: %lu, objects: %lu, adopted: %lu, put: %lu\n", n_accepted,
		n_objects, n_adopted, n_put);
}

static void read_all(const uint8_t *bytes, uint64_t size)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < size; i++)
		sum += bytes[i];
	__asm__ volatile("" : : "r"(sum)); /* reading must not be left out by the compiler */
}

static void use_object(const struct shms_segment *g, const struct shms_segpacked *o)
{
	uint64_t *sizes = malloc(o->n_buffers * sizeof(*sizes) + 1);

	ENSURE(sizes);
	ENSURE(o->extent_off >= g->shape.data_off &&
	       o->extent_size <= g->shape.size - o->extent_off);
	ENSURE(o->used <= o->extent_size);
	read_all(g->bytes + o->extent_off, o->used);
	if (shms_segpacked_sizes(g, o, sizes) == 0) {
		uint64_t sum = 0;

		for (uint32_t i = 0; i < o->n_buffers; i++)
			sum += sizes[i];
		ENSURE(sum <= o->buffer_size);
	}
	n_objects++;
	free(sizes);
}

static void use_slot(const struct shms_segment *g, uint32_t index, unsigned holder)
{
	struct shms_segslot slot = shms_segslot_at(g, index);
	uint64_t word = shms_segword_load(slot.state);
	struct shms_segticket t = {index, shms_segstate_generation(word), 0, 10000};
	struct shms_segpacked o;

	if (shms_segpacked_read(g, &slot, &o) == 0)
		use_object(g, &o);
	for (t.lease = 0; t.lease < SHMS_SEG_LEASES; t.lease++) {
		if (segment_adopt(g, holder, index & 1, &t, &o) == 0) {
			n_adopted++;
			use_object(g, &o);
			shms_segslot_drop(&slot, holder,
					  index & 2 ? SHMS_SEGVIEWS_LIVE : SHMS_SEGVIEWS_NONE);
		}
	}
	shms_segslot_handoff(&slot, t.generation, index, 0, t.end_ms, &t.lease);
	if (shms_segslot_pin(&slot, holder, index % shms_segment_holders(g), t.generation) == 0)
		shms_segslot_unview(&slot, holder);
}

/* An owner that goes on with it: what it writes is where it may write. */
static void put_one(const struct shms_segment *g, struct shms_segalloc *a, uint8_t class)
{
	struct shms_segpacked o;
	struct shms_segslot slot;
	uint32_t index, generation;
	uint64_t size = shms_segclass_size(class);

	if (shms_segpacked_plan(&size, 1, 0, "k", 1, 0, &o) < 0 ||
	    shms_segalloc_take(a, o.class, 7, &index) < 0)
		return;
	ENSURE(index < g->shape.n_slots);
	slot = shms_segslot_at(g, index);
	if (shms_segslot_begin(&slot, &generation) < 0)
		return;
	o.extent_off = shms_segalloc_begin(a, index);
	ENSURE(o.extent_off >= g->shape.data_off && o.extent_size <= g->shape.size - o.extent_off);
	memset(g->books + o.extent_off, 'x', o.buffer_size);
	shms_segpacked_write(&slot, &o);
	shms_segslot_publish(&slot, generation);
	n_put++;
}

static void use(const struct shms_segment *g)
{
	unsigned holder = shms_segment_holders(g) - 1;
	struct shms_segalloc a;

	for (uint32_t i = 0; i < shms_segment_born(g); i++)
		use_slot(g, i, holder);
	for (unsigned h = 0; h < shms_segment_holders(g); h += 5)
		shms_segment_recover(g, h, h & 1);
	ENSURE(shms_segalloc_init(&a, g) == 0);
	ENSURE(shms_segalloc_rebuild(&a) == 0);
	for (unsigned i = 0; i < 8; i++) {
		put_one(g, &a, (uint8_t)(i * 9));
		shms_segalloc_hints(&a, 3);
	}
	shms_segalloc_scan(&a, 1000);
	ENSURE(a.n_free <= a.n_born && a.n_born <= g->shape.n_slots);
	shms_segalloc_deinit(&a);
	n_accepted++;
}

/* Extents that lie in the data for the most part, and states that are someone's. */
static void fix_slots(const struct shms_segment *g)
{
	shms_segment_control(g)->n_born %= g->shape.n_slots + 2;
	for (uint32_t i = 0; i < g->shape.n_slots; i++) {
		struct shms_segslot slot = shms_segslot_at(g, i);
		struct shms_segpacked_words w;

		memcpy(&w, slot.packed, sizeof(w));
		w.extent = (uint32_t)(g->shape.data_off / 64) + w.extent % 128;
		w.class %= 64;
		w.flags &= 7;
		w.buffer_size %= 5000;
		w.metadata_size %= 5000;
		memcpy(slot.packed, &w, sizeof(w));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct shms_segment_header header;
	struct shms_segment_shape shape;
	struct shms_segment g = {0};
	uint64_t file_size;
	uint8_t *file, mode;
	static bool once;

	if (!once)
		atexit(report);
	once = true;
	if (size < 32)
		return 0;
	mode = data[0];
	file_size = (size - 1 + 4095) / 4096 * 4096;
	if (mode & FIX_HEADER)
		file_size += UINT64_C(5) * 4096;
	file = aligned_alloc(4096, file_size);
	ENSURE(file);
	memset(file, 0, file_size);
	memcpy(file, data + 1, size - 1);
	if (mode & FIX_HEADER &&
	    shms_segment_shape(1 + data[1] % 40, 32u << data[2] % 2, file_size, &shape) == 0) {
		shms_segment_header(&shape, data, data, &header);
		memmove(file + 4096, data + 3,
			size - 3 < file_size - 4096 ? size - 3 : file_size - 4096);
		memcpy(file, &header, sizeof(header));
	}
	memcpy(&header, file, sizeof(header));
	if (shms_segment_check(&header, file_size, &g) == 0) {
		g.books = file;
		g.bytes = file;
		if (mode & FIX_SLOTS)
			fix_slots(&g);
		use(&g);
	}
	free(file);
	return 0;
}
