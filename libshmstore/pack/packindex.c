/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packindex.c: lines of 15 cells. A key's cell is in the line that its hash says, or, where that was
 * full, in the next that had room; each line that was passed over counts it. A search ends in the
 * first line that none was passed over. So a search reads one line as a rule, and a cell that goes
 * leaves nothing behind.
 *
 * Lines are at most 13/15 full, and their number grows by a quarter, so that an object takes 5 to 6
 * bytes. It is no power of two: a hash's line is that part of all lines that it is of 2^32. Growth
 * reads the keys of all objects again, which is to a put what the search for its key is.
 * Rejected: cells of 8 bytes with 32 bits of the hash (growth reads no key; each object costs each
 * holder 4 bytes more).
 */
#include "packindex.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define XXH_INLINE_ALL
#include <xxhash.h>

#define CELLS        15u
#define CELLS_MOST   13u       /* of each line, on average */
#define LINES_MIN    64u       /* a page */
#define LINES_DOUBLE 256u      /* up to here the index grows by doubling */
#define PASSED_MOST  UINT8_MAX /* this many, or more: it stays */
#define EMPTY        0u
#define BATCH        64u /* keys that growth reads together, so that their cache lines come together */

struct shms_packline {
	uint8_t tags[CELLS]; /* EMPTY, or a part of the hash */
	uint8_t passed;      /* cells that would be here if there had been room */
	uint8_t places[CELLS][3];
	uint8_t unused[3];
};
_Static_assert(sizeof(struct shms_packline) == 64, "a cache line");

/* Parts that overlap say the same. */
void shms_packhash_pad(const void *bytes, size_t size, uint64_t ret[2])
{
	const unsigned char *key = bytes;
	uint32_t first, last;

	ret[0] = ret[1] = 0;
	if (size >= 8) {
		memcpy(&ret[0], key, 8);
		memcpy(&ret[1], key + size - 8, 8);
		ret[1] = size > 8 ? ret[1] >> 8 * (16 - size) : 0;
	} else if (size >= 4) {
		memcpy(&first, key, 4);
		memcpy(&last, key + size - 4, 4);
		ret[0] = first | (uint64_t)last << 8 * (size - 4);
	} else if (size) {
		ret[0] = (uint64_t)key[0] | (uint64_t)key[size / 2] << 8 * (size / 2) |
			 (uint64_t)key[size - 1] << 8 * (size - 1);
	}
}

uint64_t shms_packhash_words(const uint64_t words[2], size_t size)
{
	return XXH3_64bits_withSeed(words, 2 * sizeof(*words), size);
}

struct shms_packhashed shms_packhash(const void *key, size_t size)
{
	struct shms_packhashed k = {.key = key, .size = size};

	if (size > sizeof(k.words)) {
		k.hash = XXH3_64bits(key, size);
	} else {
		shms_packhash_pad(key, size, k.words);
		k.hash = shms_packhash_words(k.words, size);
	}
	return k;
}

static uint8_t tag_of(uint64_t hash)
{
	uint8_t tag = (uint8_t)(hash >> 56);

	return tag == EMPTY ? 1 : tag;
}

/* Where a search for that hash begins. */
static uint32_t home_of(uint64_t hash, uint32_t n_lines)
{
	return (uint32_t)((hash & UINT32_MAX) * n_lines >> 32);
}

static uint32_t after(uint32_t line, uint32_t n_lines)
{
	return line + 1 == n_lines ? 0 : line + 1;
}

/* A bit for each cell of the line that has the tag. */
static uint32_t match(const struct shms_packline *line, uint8_t tag)
{
	uint32_t found = 0;

#ifdef __SSE2__
	__m128i tags = _mm_load_si128((const __m128i *)(const void *)line);

	found = (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(tags, _mm_set1_epi8((char)tag)));
	found &= (1u << CELLS) - 1; /* passed is no tag */
#else
	for (uint32_t i = 0; i < CELLS; i++)
		found |= (uint32_t)(line->tags[i] == tag) << i;
#endif
	return found;
}

/* The first of the cells. */
static uint32_t first(uint32_t found)
{
	return (uint32_t)__builtin_ctz(found);
}

static struct shms_packplace place_of(const struct shms_packline *line, uint32_t i)
{
	const uint8_t *p = line->places[i];

	return (struct shms_packplace){p[2], (uint32_t)p[0] | (uint32_t)p[1] << 8};
}

static void insert(struct shms_packline *lines, uint32_t n_lines, uint64_t hash, struct shms_packplace place)
{
	uint32_t at = home_of(hash, n_lines), empty, i;

	while (!(empty = match(&lines[at], EMPTY))) {
		if (lines[at].passed < PASSED_MOST)
			lines[at].passed++;
		at = after(at, n_lines);
	}
	i = first(empty);
	lines[at].tags[i] = tag_of(hash);
	lines[at].places[i][0] = (uint8_t)place.slot;
	lines[at].places[i][1] = (uint8_t)(place.slot >> 8);
	lines[at].places[i][2] = (uint8_t)place.segment;
}

/*
 * Of the kernel's own memory: an index that grew leaves a hole in the heap as large as it was, in each holder, and that stays.
 */
static struct shms_packline *new_lines(uint32_t n)
{
	void *lines = mmap(NULL, n * sizeof(struct shms_packline), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);

	return lines == MAP_FAILED ? NULL : lines;
}

static void free_lines(struct shms_packindex *x)
{
	if (x->lines)
		munmap(x->lines, x->n_lines * sizeof(*x->lines));
}

void shms_packindex_deinit(struct shms_packindex *x)
{
	free_lines(x);
	*x = (struct shms_packindex){0};
}

/* Puts all cells of an index into other lines. */
static void insert_all(const struct shms_packindex *x, struct shms_packline *lines, uint32_t n_lines,
		       shms_packindex_hashes *hashes_of, void *arg)
{
	struct shms_packplace places[BATCH];
	uint64_t hashes[BATCH];
	uint32_t at = 0, n;

	do {
		for (n = 0; n < BATCH && shms_packindex_next(x, &at, &places[n]); n++)
			;
		hashes_of(places, n, hashes, arg);
		for (uint32_t i = 0; i < n; i++)
			insert(lines, n_lines, hashes[i], places[i]);
	} while (n == BATCH);
}

int shms_packindex_reserve(struct shms_packindex *x, shms_packindex_hashes *hashes_of, void *arg)
{
	uint32_t n_lines = !x->n_lines ? LINES_MIN : x->n_lines < LINES_DOUBLE ? x->n_lines * 2 : x->n_lines / 4 * 5;
	struct shms_packline *lines;

	if (x->n < x->n_lines * CELLS_MOST)
		return 0;
	lines = new_lines(n_lines);
	if (!lines)
		return -ENOMEM;
	insert_all(x, lines, n_lines, hashes_of, arg);
	free_lines(x);
	x->lines = lines;
	x->n_lines = n_lines;
	return 0;
}

void shms_packindex_add(struct shms_packindex *x, uint64_t hash, struct shms_packplace place)
{
	insert(x->lines, x->n_lines, hash, place);
	x->n++;
}

bool shms_packindex_find(const struct shms_packindex *x, const struct shms_packhashed *key, shms_packindex_is *is,
			 void *arg, struct shms_packplace *ret)
{
	uint32_t at = home_of(key->hash, x->n_lines);
	uint8_t tag = tag_of(key->hash);

	for (uint32_t n = 0; n < x->n_lines; n++, at = after(at, x->n_lines)) {
		for (uint32_t found = match(&x->lines[at], tag); found; found &= found - 1) {
			*ret = place_of(&x->lines[at], first(found));
			if (is(ret, key, arg))
				return true;
		}
		if (!x->lines[at].passed)
			return false;
	}
	return false;
}

/* Finds the line and the cell. */
static bool find_cell(const struct shms_packindex *x, uint64_t hash, struct shms_packplace place, uint32_t *ret_line,
		      uint32_t *ret_cell)
{
	uint32_t at = home_of(hash, x->n_lines);

	for (uint32_t n = 0; n < x->n_lines; n++, at = after(at, x->n_lines)) {
		for (uint32_t found = match(&x->lines[at], tag_of(hash)); found; found &= found - 1) {
			struct shms_packplace is = place_of(&x->lines[at], first(found));

			if (is.segment != place.segment || is.slot != place.slot)
				continue;
			*ret_line = at;
			*ret_cell = first(found);
			return true;
		}
		if (!x->lines[at].passed)
			return false;
	}
	return false;
}

bool shms_packindex_drop(struct shms_packindex *x, uint64_t hash, struct shms_packplace place)
{
	uint32_t line, cell;

	if (!find_cell(x, hash, place, &line, &cell))
		return false;
	x->lines[line].tags[cell] = EMPTY;
	x->n--;
	for (uint32_t at = home_of(hash, x->n_lines); at != line; at = after(at, x->n_lines)) {
		if (x->lines[at].passed < PASSED_MOST)
			x->lines[at].passed--;
	}
	return true;
}

bool shms_packindex_next(const struct shms_packindex *x, uint32_t *io_at, struct shms_packplace *ret)
{
	while (*io_at < x->n_lines * CELLS) {
		const struct shms_packline *line = &x->lines[*io_at / CELLS];
		uint32_t i = (*io_at)++ % CELLS;

		if (line->tags[i] != EMPTY) {
			*ret = place_of(line, i);
			return true;
		}
	}
	return false;
}
