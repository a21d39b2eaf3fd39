/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of an object: layout and parser. Damage is tried twice: as an accident (the hash tells)
 * and as a lie (the hash is recomputed, so that the range checks behind it have to tell).
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <shmstore/shmstore.h>
#include <string.h>
#include <xxhash.h>

#include "forge.h"
#include "format.h"
#include "scratch.h"

static int parse(const struct forged *f, struct shms_object *o)
{
	const char *reason = NULL;
	int r = shms_format_parse(f->file, f->size, f->size, o, &reason);

	cr_assert((r == 0) == (reason == NULL), "a reason exactly where there is an error");
	return r;
}

static struct forged usual(void)
{
	static const uint64_t sizes[] = {100, 0, 64, 4096, 1};

	return forge_object("a key", 5, 333, sizes, 5);
}

/* ---- layout ---------------------------------------------------------------------------------- */

static void check_layout(size_t key_size, size_t metadata_size, const uint64_t *sizes, size_t n,
			 uint64_t capacity)
{
	struct shms_layout l;
	uint64_t off, total = 0;

	cr_assert(shms_layout_init(&l, key_size, metadata_size, sizes, n, capacity));
	cr_assert_eq(l.key_size, key_size);
	cr_assert_eq(l.n_buffers, n);
	cr_assert_eq(l.metadata_size, metadata_size);
	cr_assert_eq(l.table_off % 8, 0);
	cr_assert_geq(l.table_off, 128 + key_size);
	cr_assert_lt(l.table_off, 128 + key_size + 8);
	cr_assert_eq(l.metadata_off, l.table_off + n * sizeof(struct shms_entry));
	cr_assert_geq(l.header_size, l.metadata_off + metadata_size);
	cr_assert_eq(l.header_size % (l.buffer_size >= SHMS_FORMAT_BIG ? 4096 : 64), 0);
	off = l.header_size;
	for (size_t i = 0; i < n; i++) {
		cr_assert_eq(off % 64, 0);
		total = off + sizes[i];
		off = shms_layout_next(off, sizes[i]);
	}
	if (n)
		cr_assert_eq(l.header_size + l.buffer_size, total, "the last buffer ends the file");
	else
		cr_assert_eq(l.buffer_size, 0);
	if (!capacity)
		cr_assert_lt(l.header_size - (l.metadata_off + metadata_size), 4096,
			     "no more room than the alignment asks for");
	else
		cr_assert_leq(l.header_size + l.buffer_size, capacity);
}

Test(format, layouts_are_aligned_and_tight)
{
	static const uint64_t sizes[][4] = {
		{0, 0, 0, 0},     {1, 1, 1, 1},     {63, 64, 65, 1},    {65535, 0, 0, 0},
		{65536, 7, 0, 9}, {65472, 1, 1, 1}, {1 << 30, 1, 2, 3},
	};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (size_t n = 0; n <= 4; n++) {
			for (size_t key = 0; key < 20; key++)
				check_layout(key, 17 * key, sizes[i], n, 0);
			check_layout(SHMSTORE_KEY_MAX, 100000, sizes[i], n, 0);
		}
	}
}

Test(format, layout_over_a_limit_is_refused_and_at_the_limit_taken)
{
	uint64_t *sizes = calloc(SHMSTORE_BUFFERS_MAX + 1, sizeof(*sizes));
	uint64_t half = INT64_MAX / 2 + 1, two[2] = {INT64_MAX / 2, INT64_MAX / 2};
	struct shms_layout l;

	cr_assert_not_null(sizes);
	check_layout(SHMSTORE_KEY_MAX, 0, sizes, 0, 0);
	cr_assert_not(shms_layout_init(&l, SHMSTORE_KEY_MAX + 1, 0, NULL, 0, 0));
	check_layout(0, SHMSTORE_HEADER_MAX, sizes, 0, 0);
	cr_assert_not(shms_layout_init(&l, 0, SHMSTORE_HEADER_MAX + 1, NULL, 0, 0));
	cr_assert_not(shms_layout_init(&l, 0, SIZE_MAX, NULL, 0, 0));
	check_layout(0, 0, sizes, SHMSTORE_BUFFERS_MAX, 0);
	cr_assert_not(shms_layout_init(&l, 0, 0, sizes, SHMSTORE_BUFFERS_MAX + 1, 0));
	cr_assert_not(shms_layout_init(&l, 0, 0, &half, 1, 0));
	if (shms_layout_init(&l, 0, 0, two, 2, 0))
		cr_assert_leq(l.header_size + l.buffer_size, (uint64_t)INT64_MAX,
			      "a file's size is an off_t");
	free(sizes);
}

Test(format, layout_in_a_recycled_file_uses_its_last_page)
{
	uint64_t size = 70000;
	struct shms_layout plain, l;

	cr_assert(shms_layout_init(&plain, 5, 100, &size, 1, 0));
	for (uint64_t capacity = 4096; capacity < 40 * 4096; capacity += 4096) {
		bool fits = plain.header_size + plain.buffer_size <= capacity;

		cr_assert_eq(shms_layout_init(&l, 5, 100, &size, 1, capacity), fits,
			     "capacity %llu", (unsigned long long)capacity);
		if (!fits)
			continue;
		check_layout(5, 100, &size, 1, capacity);
		cr_assert_gt(l.header_size + l.buffer_size, capacity - 4096,
			     "ends in the last page");
	}
}

/* ---- parsing what is right ------------------------------------------------------------------- */

Test(format, forged_object_is_described_as_written)
{
	static const uint64_t sizes[] = {100, 0, 64, 4096, 1};
	struct forged f = usual();
	struct shms_object o;

	cr_assert_eq(parse(&f, &o), 0);
	cr_assert_eq(o.layout.key_size, 5);
	cr_assert_eq(memcmp(o.key, "a key", 5), 0);
	cr_assert_eq(o.layout.n_buffers, 5);
	cr_assert_eq(o.layout.metadata_size, 333);
	cr_assert_eq(pattern_check(o.metadata, 333, 7), 333);
	cr_assert_eq(o.generation, 0x1122334455667788u);
	cr_assert_not(o.checksum);
	cr_assert_eq(o.layout.header_size + o.layout.buffer_size, f.size);
	for (size_t i = 0; i < 5; i++) {
		cr_assert_eq(o.table[i].size, sizes[i]);
		cr_assert_eq(o.table[i].offset % 64, 0);
		cr_assert_eq(pattern_check(f.file + o.table[i].offset, sizes[i], 100 + i),
			     sizes[i]);
	}
	cr_assert_eq(o.table[0].offset, o.layout.header_size);
	forge_free(&f);
}

Test(format, object_without_anything_is_valid)
{
	struct forged f = forge_object("", 0, 0, NULL, 0);
	struct shms_object o;

	cr_assert_eq(f.size, 128);
	cr_assert_eq(parse(&f, &o), 0);
	cr_assert_eq(o.layout.key_size, 0);
	cr_assert_eq(o.layout.n_buffers, 0);
	cr_assert_eq(o.layout.metadata_size, 0);
	forge_free(&f);
}

Test(format, many_buffers_and_largest_key_are_valid)
{
	static uint64_t sizes[5000];
	static char key[SHMSTORE_KEY_MAX];
	struct forged f;
	struct shms_object o;

	for (size_t i = 0; i < 5000; i++)
		sizes[i] = i % 7 ? i : 0;
	pattern_fill(key, sizeof(key), 3);
	f = forge_object(key, sizeof(key), 77777, sizes, 5000);
	cr_assert_eq(parse(&f, &o), 0);
	cr_assert_eq(o.layout.n_buffers, 5000);
	cr_assert_eq(memcmp(o.key, key, sizeof(key)), 0);
	forge_free(&f);
}

Test(format, fields_stand_where_the_document_says)
{
	struct forged f = usual();
	uint64_t u64, header_size;
	uint32_t u32;

	cr_assert_eq(memcmp(f.file, "\x89SHMOBJ\n", 8), 0);
#define AT(type, off) (memcpy(&type, f.file + (off), sizeof(type)), type)
	cr_assert_eq(AT(u32, 8), 1);
	cr_assert_eq(AT(u32, 12), 128);
	header_size = AT(u64, 16);
	cr_assert_eq(header_size + AT(u64, 24), f.size);
	cr_assert_eq(AT(u64, 32), 333);
	cr_assert_eq(AT(u32, 40), 5);
	cr_assert_eq(AT(u32, 44), 5);
	cr_assert_eq(AT(u32, 48), 0);
	cr_assert_eq(AT(u32, 52), 0);
	cr_assert_eq(AT(u64, 56), 0x1122334455667788u);
	cr_assert_eq(memcmp(f.file + 128, "a key", 5), 0);
	cr_assert_eq(AT(u64, 136), header_size,
		     "the table follows the key, its first offset is the header size");
	cr_assert_eq(AT(u64, 144), 100);
#undef AT
	forge_free(&f);
}

Test(format, compat_flags_are_ignored_and_checksum_is_told)
{
	struct forged f = usual();
	struct shms_object o;
	XXH128_hash_t h = XXH3_128bits(f.file + f.layout.header_size, f.layout.buffer_size);

	forged_sb(&f)->compat_flags = SHMS_FORMAT_CHECKSUM | 0x80000000u;
	forged_sb(&f)->buffer_hash[0] = h.low64;
	forged_sb(&f)->buffer_hash[1] = h.high64;
	forge_rehash(&f);
	cr_assert_eq(parse(&f, &o), 0);
	cr_assert(o.checksum);
	cr_assert(shms_format_verify_buffers(&o, f.file + f.layout.header_size));
	for (size_t i = f.layout.header_size; i < f.size; i += 13) {
		f.file[i] ^= 1;
		cr_assert_not(shms_format_verify_buffers(&o, f.file + f.layout.header_size),
			      "byte %zu", i);
		f.file[i] ^= 1;
	}
	cr_assert(shms_format_verify_buffers(&o, f.file + f.layout.header_size));
	forge_free(&f);
}

Test(format, need_covers_what_parse_needs)
{
	struct forged f = usual();
	struct shms_object o;
	uint64_t need = 0;

	cr_assert_eq(shms_format_need(f.file, 128, f.size, &need), 0);
	cr_assert_eq(need, f.layout.metadata_off + 333);
	cr_assert_eq(shms_format_parse(f.file, need, f.size, &o, NULL), 0);
	for (size_t n = 0; n < need; n++)
		cr_assert_eq(shms_format_parse(f.file, n, f.size, &o, NULL), -EBADMSG,
			     "only %zu bytes of the header", n);
	for (size_t n = 0; n < 128; n++)
		cr_assert_eq(shms_format_need(f.file, n, f.size, &need), -EBADMSG);
	forge_free(&f);
}

/* ---- accidents ------------------------------------------------------------------------------- */

Test(format, every_flipped_bit_of_a_header_is_detected)
{
	struct forged f = usual();
	struct shms_object o;

	for (size_t bit = 0; bit < (f.layout.metadata_off + 333) * 8; bit++) {
		int r;

		f.file[bit / 8] ^= (unsigned char)(1u << bit % 8);
		r = parse(&f, &o);
		cr_assert(r == -EBADMSG || (r == -ENOTSUP && bit / 8 >= 8 && bit / 8 < 56),
			  "bit %zu: %d", bit, r);
		f.file[bit / 8] ^= (unsigned char)(1u << bit % 8);
	}
	cr_assert_eq(parse(&f, &o), 0);
	forge_free(&f);
}

Test(format, every_other_file_size_is_detected)
{
	struct forged f = usual();
	struct shms_object o;

	for (uint64_t n = 0; n < f.size; n++)
		cr_assert_eq(shms_format_parse(f.file, n, n, &o, NULL), -EBADMSG,
			     "truncated to %llu", (unsigned long long)n);
	for (uint64_t n = 1; n < 10000; n += 7)
		cr_assert_eq(shms_format_parse(f.file, f.size, f.size + n, &o, NULL), -EBADMSG);
	cr_assert_eq(shms_format_parse(f.file, f.size, UINT64_MAX, &o, NULL), -EBADMSG);
	forge_free(&f);
}

Test(format, nothing_is_written_on_failure)
{
	struct forged f = usual();
	struct shms_object o;

	memset(&o, 0xaa, sizeof(o));
	forged_table(&f)[3].size++;
	forge_rehash(&f);
	cr_assert_eq(shms_format_parse(f.file, f.size, f.size, &o, NULL), -EBADMSG);
	for (size_t i = 0; i < sizeof(o); i++)
		cr_assert_eq(((unsigned char *)&o)[i], 0xaa);
	forge_free(&f);
}

/* ---- lies: the hash is right ----------------------------------------------------------------- */

static void expect_lie(struct forged *f, int error, const char *what)
{
	struct shms_object o;
	int r;

	forge_rehash(f);
	r = parse(f, &o);
	cr_assert_eq(r, error, "%s: %d", what, r);
}

#define LIE(statement, error)                               \
	do {                                                \
		struct forged f = usual();                  \
		struct shms_superblock *sb = forged_sb(&f); \
		struct shms_entry *t = forged_table(&f);    \
		(void)sb;                                   \
		(void)t;                                    \
		statement;                                  \
		expect_lie(&f, error, #statement);          \
		forge_free(&f);                             \
	} while (0)

Test(format, lying_superblocks_are_detected)
{
	LIE(sb->magic[0] = 0, -EBADMSG);
	LIE(memcpy(sb->magic, "SHMSTORE", 8), -EBADMSG);
	LIE(sb->version = 0, -ENOTSUP);
	LIE(sb->version = 2, -ENOTSUP);
	LIE(sb->incompat_flags = 1, -ENOTSUP);
	LIE(sb->incompat_flags = 0x80000000u, -ENOTSUP);
	LIE(sb->superblock_size = 0, -EBADMSG);
	LIE(sb->superblock_size = 136, -EBADMSG);
	LIE(sb->header_size -= 64, -EBADMSG);
	LIE(sb->header_size += 64, -EBADMSG);
	LIE(sb->header_size = 0, -EBADMSG);
	LIE(sb->header_size = UINT64_MAX - 63, -EBADMSG);
	LIE(sb->buffer_size = 0, -EBADMSG);
	LIE(sb->buffer_size++, -EBADMSG);
	LIE(sb->buffer_size--, -EBADMSG);
	LIE(sb->buffer_size = UINT64_MAX, -EBADMSG);
	LIE((sb->header_size = 0, sb->buffer_size = f.size), -EBADMSG);
	LIE((sb->header_size += 1, sb->buffer_size -= 1), -EBADMSG);
	LIE((sb->header_size += 8, sb->buffer_size -= 8), -EBADMSG);
	LIE((sb->header_size += 64, sb->buffer_size -= 64), -EBADMSG);
	LIE((sb->header_size -= 64, sb->buffer_size += 64), -EBADMSG);
	LIE((sb->header_size = f.size & ~63ull, sb->buffer_size = f.size & 63), -EBADMSG);
	/* Sums that wrap to the file's size. */
	LIE((sb->header_size = UINT64_MAX - 4095, sb->buffer_size = f.size + 4096), -EBADMSG);
	LIE(sb->metadata_size = sb->header_size, -EBADMSG);
	LIE(sb->metadata_size = UINT64_MAX, -EBADMSG);
	LIE(sb->metadata_size = UINT64_MAX - f.layout.metadata_off + 1, -EBADMSG);
	LIE(sb->metadata_size = SHMSTORE_HEADER_MAX, -EBADMSG);
	LIE(sb->key_size = SHMSTORE_KEY_MAX, -EBADMSG);
	LIE(sb->key_size = SHMSTORE_KEY_MAX + 1, -EBADMSG);
	LIE(sb->key_size = UINT32_MAX, -EBADMSG);
	LIE(sb->n_buffers = 0, -EBADMSG);
	LIE(sb->n_buffers = 6, -EBADMSG);
	LIE(sb->n_buffers = SHMSTORE_BUFFERS_MAX, -EBADMSG);
	LIE(sb->n_buffers = SHMSTORE_BUFFERS_MAX + 1, -EBADMSG);
	LIE(sb->n_buffers = UINT32_MAX, -EBADMSG);
}

Test(format, lying_tables_are_detected)
{
	LIE(t[0].offset += 64, -EBADMSG);
	LIE(t[0].offset -= 64, -EBADMSG);
	LIE(t[0].offset = 0, -EBADMSG);
	LIE(t[0].offset = 128, -EBADMSG); /* into the key */
	LIE(t[2].offset += 1, -EBADMSG);
	LIE(t[2].offset += 8, -EBADMSG);
	LIE(t[2].offset = t[0].offset, -EBADMSG);
	LIE(t[3].offset = t[2].offset, -EBADMSG);
	LIE(t[4].offset += 64, -EBADMSG);
	LIE(t[4].offset = UINT64_MAX - 63, -EBADMSG);
	LIE(t[4].offset = (uint64_t)INT64_MAX + 1, -EBADMSG);
	LIE(t[1].offset = UINT64_MAX - 63, -EBADMSG); /* of a buffer of no bytes */
	LIE(t[4].size = 2, -EBADMSG);
	LIE(t[4].size = UINT64_MAX, -EBADMSG);
	LIE(t[4].size = UINT64_MAX - t[4].offset + 1, -EBADMSG); /* the sum wraps to 0 */
	LIE(t[4].size = UINT64_MAX - t[4].offset + 2, -EBADMSG);
	LIE(t[0].size = UINT64_MAX, -EBADMSG);
	LIE(t[0].size = 129, -EBADMSG); /* into the next */
	LIE(t[3].size = 4097, -EBADMSG);
	LIE(t[0].flags = 1, -EBADMSG);
	LIE(t[0].reserved = 1, -EBADMSG);
	/* out of order */
	LIE((t[2].offset = t[3].offset, t[3].offset = t[2].offset - 64), -EBADMSG);
}

Test(format, bytes_of_no_buffer_are_detected)
{
	uint64_t size = 640;
	struct forged f = forge_object("k", 1, 0, &size, 1);

	forged_sb(&f)->n_buffers = 0;
	expect_lie(&f, -EBADMSG, "buffers without a table");
	forge_free(&f);
}

Test(format, big_object_off_its_page_is_detected)
{
	uint64_t size = 1 << 17;
	struct forged f = forge_object("k", 1, 0, &size, 1), g;
	struct shms_object o;

	cr_assert_eq(f.layout.header_size, 4096);
	g = f;
	g.file = calloc(1, f.size);
	cr_assert_not_null(g.file);
	g.size = f.size - 64;
	memcpy(g.file, f.file, 4096);
	forged_sb(&g)->header_size = 4096 - 64;
	forged_table(&g)[0].offset = 4096 - 64;
	expect_lie(&g, -EBADMSG, "first buffer of a big object not on a page");
	free(g.file);
	cr_assert_eq(parse(&f, &o), 0);
	forge_free(&f);
}

/* Random lies: whatever is accepted must be safe to use. */
Test(format, accepted_lies_are_harmless, .timeout = 60)
{
	uint64_t r = 99;
	unsigned n_accepted = 0;

	for (int i = 0; i < 300000; i++) {
		struct forged f;
		struct shms_object o;
		uint64_t off = 0;

		if (i % 1000 == 0)
			pattern_fill(&r, sizeof(r), r);
		f = usual();
		for (unsigned k = 0; k <= r % 3; k++) {
			static const uint64_t odd[] = {0,         1,          63,
						       64,        4096,       UINT32_MAX,
						       INT64_MAX, UINT64_MAX, UINT64_MAX - 63};
			size_t at = 8 + (r >> 3) % 250;

			pattern_fill(&r, sizeof(r), r);
			if (r & 1)
				f.file[at] ^= (unsigned char)(1u << (r >> 1) % 8);
			else
				memcpy(f.file + (at & ~7ull), &odd[(r >> 1) % 9], 8);
		}
		forge_rehash(&f);
		if (parse(&f, &o) == 0) {
			n_accepted++;
			cr_assert_leq(o.layout.metadata_off + o.layout.metadata_size,
				      o.layout.header_size);
			cr_assert_eq(o.layout.header_size + o.layout.buffer_size, f.size);
			off = o.layout.header_size;
			for (uint32_t b = 0; b < o.layout.n_buffers; b++) {
				cr_assert_eq(o.table[b].offset % 64, 0);
				cr_assert_geq(o.table[b].offset, off);
				cr_assert(o.table[b].size == 0 ||
					  o.table[b].size <= f.size - o.table[b].offset);
				off = o.table[b].offset + o.table[b].size;
			}
		}
		forge_free(&f);
	}
	cr_assert_gt(n_accepted, 100);
}
