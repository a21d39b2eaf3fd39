/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packindex.c: lines of 15 cells. A key's cell is in the line that its hash says, or, where that
 * was full, in the next that had room; each line that was passed over counts it. A search ends
 * in the first line that none was passed over. So a search reads one line as a rule, and a cell
 * that goes leaves nothing behind.
 *
 * Lines are at most 13/15 full, and their number grows by a quarter, so that an object takes 5 to 6
 * bytes. It is no power of two: a hash's line is that part of all lines that it is of 2^32. Growth
 * reads the keys of all objects again, which is to a put what the search for its key is.
 *
 * Other processes search while the owner changes lines (packindex.h says what they may conclude). A
 * cell is one access. It goes, or gets another place, before the line's version is raised, and that
 * is raised before the slot that the cell meant loses its name. So who finds another object in the
 * slot than the cell promised finds another version as well, and looks again. A cell never moves: a
 * key that is there all the time is in one line, which no search passes by.
 * Rejected: cells of 8 bytes with 32 bits of the hash (growth reads no key; each object costs each
 * holder 4 bytes more); one version for the whole index (a search for an absent key would wait
 * while other keys come fast).
 */
#include "packindex.h"

#include <errno.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define XXH_INLINE_ALL
#include <xxhash.h>

#define CELLS        SHMS_PACKINDEX_CELLS
#define CELLS_MOST   13u       /* of each line, on average */
#define LINES_MIN    64u       /* a page */
#define LINES_DOUBLE 256u      /* up to here the index grows by doubling */
#define PASSED_MOST  UINT8_MAX /* this many, or more: it stays */
/* of the last word: below it are the cells that would be here if there had been room */
#define VERSION      (1u << 8)
#define EMPTY        0u
/* keys that growth reads together, so that their cache lines come together */
#define BATCH        64u

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

static uint32_t cell_load(const struct shms_packline *line, uint32_t i)
{
	return atomic_load_explicit(&line->cells[i], memory_order_acquire);
}

/* A bit for each cell of the line that has the tag. Each cell is read in one access,
 * and all of them in no order. */
static uint32_t match(const struct shms_packline *line, uint8_t tag)
{
	uint32_t found = 0;

#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)
	const __m128i *cells = (const __m128i *)(const void *)line;
	__m128i a = _mm_packs_epi32(_mm_srli_epi32(_mm_load_si128(cells), 24),
				    _mm_srli_epi32(_mm_load_si128(cells + 1), 24));
	__m128i b = _mm_packs_epi32(_mm_srli_epi32(_mm_load_si128(cells + 2), 24),
				    _mm_srli_epi32(_mm_load_si128(cells + 3), 24));

	found = (uint32_t)_mm_movemask_epi8(
		_mm_cmpeq_epi8(_mm_packus_epi16(a, b), _mm_set1_epi8((char)tag)));
	found &= (1u << CELLS) - 1; /* the version is no tag */
#else
	for (uint32_t i = 0; i < CELLS; i++)
		found |= (uint32_t)(cell_load(line, i) >> 24 == tag) << i;
#endif
	return found;
}

/* The first of the cells. */
static uint32_t first(uint32_t found)
{
	return (uint32_t)__builtin_ctz(found);
}

static struct shms_packplace place_of(uint32_t cell)
{
	return (struct shms_packplace){cell >> 16 & 0xff, cell & 0xffff};
}

static uint32_t cell_of(uint64_t hash, struct shms_packplace place)
{
	return (uint32_t)tag_of(hash) << 24 | place.segment << 16 | place.slot;
}

/* release: who finds the place finds the object in it, and the segment in the table. */
static void cell_store(struct shms_packline *line, uint32_t i, uint32_t cell)
{
	atomic_store_explicit(&line->cells[i], cell, memory_order_release);
}

/* Of the line's last word, which the owner alone writes. */
static uint32_t passed(const struct shms_packline *line)
{
	return atomic_load_explicit(&line->last, memory_order_relaxed) % VERSION;
}

static void add_last(struct shms_packline *line, uint32_t add)
{
	uint32_t last = atomic_load_explicit(&line->last, memory_order_relaxed);

	/* release: a cell that went, or changed, before a version that is found. */
	atomic_store_explicit(&line->last, last + add, memory_order_release);
}

static void insert(struct shms_packline *lines, uint32_t n_lines, uint64_t hash,
		   struct shms_packplace place)
{
	uint32_t at = home_of(hash, n_lines), empty;

	for (uint32_t n = 0; !(empty = match(&lines[at], EMPTY)) && n < n_lines; n++) {
		if (passed(&lines[at]) < PASSED_MOST)
			add_last(&lines[at], 1);
		at = after(at, n_lines);
	}
	/* Another process has filled all lines: one of the cells that it wrote makes room. */
	cell_store(&lines[at], empty ? first(empty) : 0, cell_of(hash, place));
}

/* Puts all cells of an index into other lines. */
static void insert_all(const struct shms_packindex *x, struct shms_packline *lines,
		       uint32_t n_lines, shms_packindex_hashes *hashes_of, void *arg)
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

uint32_t shms_packindex_wants(const struct shms_packindex *x)
{
	if (x->n < x->n_lines * CELLS_MOST)
		return 0;
	return !x->n_lines                 ? LINES_MIN
	       : x->n_lines < LINES_DOUBLE ? x->n_lines * 2
					   : x->n_lines / 4 * 5;
}

void shms_packindex_move(struct shms_packindex *x, struct shms_packline *lines, uint32_t n_lines,
			 shms_packindex_hashes *hashes_of, void *arg)
{
	insert_all(x, lines, n_lines, hashes_of, arg);
	x->lines = lines;
	x->n_lines = n_lines;
}

void shms_packindex_add(struct shms_packindex *x, uint64_t hash, struct shms_packplace place)
{
	insert(x->lines, x->n_lines, hash, place);
	x->n++;
}

bool shms_packindex_find(const struct shms_packindex *x, const struct shms_packhashed *key,
			 shms_packindex_is *is, void *arg, struct shms_packplace *ret)
{
	uint32_t at = home_of(key->hash, x->n_lines);
	uint8_t tag = tag_of(key->hash);

	for (uint32_t n = 0; n < x->n_lines; n++, at = after(at, x->n_lines)) {
		for (uint32_t found = match(&x->lines[at], tag); found; found &= found - 1) {
			*ret = place_of(cell_load(&x->lines[at], first(found)));
			if (is(ret, key, arg))
				return true;
		}
		if (!passed(&x->lines[at]))
			return false;
	}
	return false;
}

/* Finds the line and the cell. */
static bool find_cell(const struct shms_packindex *x, uint64_t hash, struct shms_packplace place,
		      uint32_t *ret_line, uint32_t *ret_cell)
{
	uint32_t at = home_of(hash, x->n_lines);

	for (uint32_t n = 0; n < x->n_lines; n++, at = after(at, x->n_lines)) {
		for (uint32_t found = match(&x->lines[at], tag_of(hash)); found;
		     found &= found - 1) {
			if (cell_load(&x->lines[at], first(found)) != cell_of(hash, place))
				continue;
			*ret_line = at;
			*ret_cell = first(found);
			return true;
		}
		if (!passed(&x->lines[at]))
			return false;
	}
	return false;
}

bool shms_packindex_has(const struct shms_packindex *x, uint64_t hash, struct shms_packplace place)
{
	uint32_t line, cell;

	return find_cell(x, hash, place, &line, &cell);
}

bool shms_packindex_drop(struct shms_packindex *x, uint64_t hash, struct shms_packplace place)
{
	uint32_t line, cell;

	if (!find_cell(x, hash, place, &line, &cell))
		return false;
	cell_store(&x->lines[line], cell, EMPTY);
	add_last(&x->lines[line], VERSION);
	x->n--;
	for (uint32_t at = home_of(hash, x->n_lines); at != line; at = after(at, x->n_lines)) {
		if (passed(&x->lines[at]) < PASSED_MOST)
			add_last(&x->lines[at], UINT32_MAX);
	}
	return true;
}

void shms_packindex_replace(struct shms_packindex *x, uint64_t hash, struct shms_packplace old,
			    struct shms_packplace place)
{
	uint32_t line, cell;

	if (!find_cell(x, hash, old, &line, &cell))
		return;
	cell_store(&x->lines[line], cell, cell_of(hash, place));
	add_last(&x->lines[line], VERSION);
}

bool shms_packindex_ends(const struct shms_packline *line)
{
	return !passed(line);
}

uint32_t shms_packindex_version(const struct shms_packline *line)
{
	/* acquire: the cells are read after it. */
	return atomic_load_explicit(&line->last, memory_order_acquire) / VERSION;
}

bool shms_packindex_changed(const struct shms_packline *line, uint32_t version)
{
	/* Of the owner's release of the version, or of what it did to a slot
	 * after that, which we saw. */
/* which knows no fences: each access that counts here is one by itself */
#ifndef __SANITIZE_THREAD__
	atomic_thread_fence(memory_order_acquire);
#endif
	return atomic_load_explicit(&line->last, memory_order_acquire) / VERSION != version;
}

int shms_packindex_look(const struct shms_packindex *x, const struct shms_packhashed *key,
			shms_packindex_try *try, void *arg)
{
	uint32_t at = home_of(key->hash, x->n_lines);
	uint8_t tag = tag_of(key->hash);

	for (uint32_t n = 0; n < x->n_lines; n++, at = after(at, x->n_lines)) {
		const struct shms_packline *line = &x->lines[at];
		uint32_t version = shms_packindex_version(line);
		bool end = !passed(line);

		for (uint32_t found = match(line, tag); found; found &= found - 1) {
			uint32_t cell = cell_load(line, first(found));
			int r = cell >> 24 == tag ? try(place_of(cell), key, arg) : 0;

			if (r != 0)
				return r;
		}
		if (shms_packindex_changed(line, version))
			return -EAGAIN;
		if (end)
			return 0;
	}
	return 0;
}

bool shms_packindex_next(const struct shms_packindex *x, uint32_t *io_at,
			 struct shms_packplace *ret)
{
	while (*io_at < x->n_lines * CELLS) {
		uint32_t cell = cell_load(&x->lines[*io_at / CELLS], *io_at % CELLS);

		++*io_at;
		if (cell != EMPTY) {
			*ret = place_of(cell);
			return true;
		}
	}
	return false;
}
