/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment.c: from a size to its class; a segment's shape and header, and its hints.
 *
 * A file of unknown origin says its shape in the header only. That is read once, into private
 * memory; from then on every bound is our own. Rejected: free offsets in the header, which each
 * reader would have to check against each other.
 */
#include "segment.h"

#include <string.h>

#include "format.h"
#include "xxh3.h"

int shms_segclass_for(uint64_t size)
{
	const uint64_t linear = UINT64_C(1) * SHMS_SEGCLASS_LINEAR * SHMS_SEGCLASS_ALIGN;
	unsigned doublings;
	uint64_t unit;

	if (size == 0 || size > SHMS_SEGCLASS_MAX)
		return -1;
	if (size <= linear)
		return (int)((size - 1) / SHMS_SEGCLASS_ALIGN);
	/* size - 1 lies in [2048 * 2^d, 2048 * 2^(d + 1)). */
	doublings = 63u - 11u - (unsigned)__builtin_clzll(size - 1);
	unit = linear / SHMS_SEGCLASS_STEPS << doublings;
	return (int)(SHMS_SEGCLASS_LINEAR + doublings * SHMS_SEGCLASS_STEPS +
		     (unsigned)((size - 1) / unit - SHMS_SEGCLASS_STEPS));
}

static uint64_t round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

static bool holders_valid(uint32_t n)
{
	uint32_t words = n / SHMS_SEG_HOLDERS_A_WORD;

	return n % SHMS_SEG_HOLDERS_A_WORD == 0 && words >= 1 && words <= SHMS_SEGMENT_WORDS_MAX &&
	       (words & (words - 1)) == 0;
}

int shms_segment_shape(uint32_t n_slots, uint32_t n_holders, uint64_t size,
		       struct shms_segment_shape *ret)
{
	struct shms_segment_shape s = {
		.n_slots = n_slots, .n_words = n_holders / SHMS_SEG_HOLDERS_A_WORD, .size = size};

	if (!holders_valid(n_holders) || n_slots == 0 || n_slots > SHMS_SEGMENT_SLOTS_MAX ||
	    size > SHMS_SEGMENT_SIZE_MAX || size % SHMS_SEGMENT_PAGE != 0)
		return -EINVAL;
	s.hints_off = SHMS_SEGMENT_CONTROL_OFF + sizeof(struct shms_segment_control) +
		      (uint64_t)n_holders * sizeof(struct shms_segrecord);
	s.slots_off = round_up(s.hints_off + round_up(n_slots, 64) / 8, 64);
	s.data_off =
		round_up(s.slots_off + n_slots * shms_segslot_size(s.n_words), SHMS_SEGMENT_PAGE);
	if (s.data_off >= size)
		return -EINVAL;
	*ret = s;
	return 0;
}

static uint64_t header_hash(const struct shms_segment_header *h)
{
	return XXH3_64bits(h, offsetof(struct shms_segment_header, hash));
}

void shms_segment_header(const struct shms_segment_shape *shape, const uint8_t uuid[16],
			 const uint8_t owner_uuid[16], struct shms_segment_header *ret)
{
	struct shms_segment_header h = {
		.version = SHMS_SEGMENT_VERSION,
		.n_slots = shape->n_slots,
		.n_holders = shape->n_words * SHMS_SEG_HOLDERS_A_WORD,
		.size = shape->size,
		.hints_off = shape->hints_off,
		.slots_off = shape->slots_off,
		.data_off = shape->data_off,
	};

	memcpy(h.magic, SHMS_SEGMENT_MAGIC, sizeof(h.magic));
	memcpy(h.uuid, uuid, sizeof(h.uuid));
	memcpy(h.owner_uuid, owner_uuid, sizeof(h.owner_uuid));
	h.hash = header_hash(&h);
	*ret = h;
}

int shms_segment_check(const struct shms_segment_header *h, uint64_t file_size,
		       struct shms_segment *ret)
{
	struct shms_segment_shape shape;

	if (memcmp(h->magic, SHMS_SEGMENT_MAGIC, sizeof(h->magic)) != 0)
		return -EBADMSG;
	if (h->version != SHMS_SEGMENT_VERSION)
		return -ENOTSUP;
	if (h->hash != header_hash(h) || h->zero != 0 || h->size != file_size ||
	    shms_segment_shape(h->n_slots, h->n_holders, h->size, &shape) < 0 ||
	    h->hints_off != shape.hints_off || h->slots_off != shape.slots_off ||
	    h->data_off != shape.data_off)
		return -EBADMSG;
	ret->shape = shape;
	memcpy(ret->uuid, h->uuid, sizeof(ret->uuid));
	memcpy(ret->owner_uuid, h->owner_uuid, sizeof(ret->owner_uuid));
	return 0;
}

static _Atomic uint64_t *hints(const struct shms_segment *g, uint32_t word)
{
	return (_Atomic uint64_t *)(void *)(g->books + g->shape.hints_off) + word;
}

void shms_segment_hint(const struct shms_segment *g, uint32_t slot)
{
	/* release, here and of the count: an owner that sees the count sees the hint, and the
	 * words as we left them. */
	atomic_fetch_or_explicit(hints(g, slot / 64), UINT64_C(1) << slot % 64,
				 memory_order_release);
	atomic_fetch_add_explicit(&shms_segment_control(g)->n_hints, 1, memory_order_release);
}

uint64_t shms_segment_hinted(const struct shms_segment *g, uint32_t word)
{
	_Atomic uint64_t *w = hints(g, word);

	/* Most words are empty, and a read takes no cache line away from their writers. */
	if (!atomic_load_explicit(w, memory_order_relaxed))
		return 0;
	return atomic_exchange_explicit(w, 0, memory_order_acquire);
}

/* ---- objects in slots ------------------------------------------------------------------------ */

/*
 * A description may be read while another process writes it: a process with a stale ticket reads
 * the next object's, half-written. So it is copied word by word, relaxed, and checked against
 * private bounds alone. It is used only after the caller's cas has shown that the slot did not
 * change. A description has sizes and no offsets: both sides compute offsets from them in place().
 */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the formats are little-endian");
_Static_assert(offsetof(struct shms_segpacked_words, extent) == 0, "the first word");
_Static_assert(offsetof(struct shms_segpacked_words, buffer_size) == 4, "the first word");
_Static_assert(offsetof(struct shms_segpacked_words, metadata_size) == 8, "the second word");
_Static_assert(offsetof(struct shms_segpacked_words, class) == 14, "the second word");
_Static_assert(offsetof(struct shms_segpacked_words, flags) == 15, "the second word");

static uint64_t align8(uint64_t n)
{
	return (n + 7) & ~UINT64_C(7);
}

/*
 * Computes all that follows from sizes, flags and n_buffers. No sum here can overflow: each part
 * has 32 bits at most.
 */
static void place(struct shms_segpacked *o)
{
	uint64_t at = align8(o->buffer_size);

	o->table_off = at;
	if (o->flags & SHMS_SEGPACKED_TABLE)
		at += 8 + 8 * (uint64_t)o->n_buffers;
	o->checksum_off = at;
	if (o->flags & SHMS_SEGPACKED_CHECKSUM)
		at += 16;
	o->metadata_off = at;
	at += o->metadata_size;
	o->key_off = at;
	if (o->key_size > SHMS_SEGPACKED_KEY)
		at += o->key_size;
	o->used = at;
}

int shms_segpacked_plan(const uint64_t *sizes, uint32_t n_buffers, uint32_t metadata_size,
			const void *key, size_t key_size, uint8_t flags, struct shms_segpacked *ret)
{
	uint64_t end = 0;
	int class;

	if (key_size == 0 || key_size > UINT16_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < n_buffers; i++) {
		if (sizes[i] > SHMS_SEGCLASS_MAX || end > SHMS_SEGCLASS_MAX)
			return -EFBIG;
		end = shms_layout_next(end, 0) + sizes[i];
	}
	ret->buffer_size = end;
	ret->metadata_size = metadata_size;
	ret->n_buffers = n_buffers;
	ret->key_size = (uint16_t)key_size;
	ret->flags = n_buffers == 1 ? flags : flags | SHMS_SEGPACKED_TABLE;
	memset(ret->key, 0, sizeof(ret->key));
	if (key_size <= SHMS_SEGPACKED_KEY)
		memcpy(ret->key, key, key_size);
	place(ret);
	/* An object without bytes has an extent, too: a slot is never without one. */
	class = shms_segclass_for(ret->used ? ret->used : 1);
	if (class < 0)
		return -EFBIG;
	ret->class = (uint8_t) class;
	ret->extent_off = 0;
	ret->extent_size = shms_segclass_size(ret->class);
	return 0;
}

void shms_segpacked_table(const struct shms_segpacked *o, const uint64_t *sizes, uint8_t *extent)
{
	uint64_t n = o->n_buffers;

	if (!(o->flags & SHMS_SEGPACKED_TABLE))
		return;
	memcpy(extent + o->table_off, &n, sizeof(n));
	memcpy(extent + o->table_off + sizeof(n), sizes, n * sizeof(*sizes));
}

void shms_segpacked_write(const struct shms_segslot *slot, const struct shms_segpacked *o)
{
	struct shms_segpacked_words w = {
		.extent = (uint32_t)(o->extent_off / SHMS_SEGCLASS_ALIGN),
		.buffer_size = (uint32_t)o->buffer_size,
		.metadata_size = o->metadata_size,
		.key_size = o->key_size,
		.class = o->class,
		.flags = o->flags,
	};
	uint64_t words[SHMS_SEGSLOT_PACKED_WORDS];

	memcpy(w.key, o->key, sizeof(w.key));
	memcpy(words, &w, sizeof(words));
	for (size_t i = 0; i < SHMS_SEGSLOT_PACKED_WORDS; i++)
		shms_segword_plain_store(&slot->packed[i], words[i]);
}

bool shms_segpacked_extent(const struct shms_segment *g, uint32_t extent, uint8_t class)
{
	uint64_t off = (uint64_t)extent * SHMS_SEGCLASS_ALIGN, size = shms_segclass_size(class);

	return off >= g->shape.data_off && off < g->shape.size && size <= g->shape.size - off &&
	       (size < SHMS_SEGCLASS_BIG || off % SHMS_SEGMENT_PAGE == 0);
}

/* Reads an aligned number of the table, which another process may change now. */
static uint64_t table_number(const struct shms_segment *g, const struct shms_segpacked *o,
			     uint64_t i)
{
	uint64_t off = o->extent_off + o->table_off + 8 * i, number;
	const uint8_t *at;

	if (!g->bytes) /* an unreadable table has no buffers and no size */
		return g->fetch && g->fetch(g, off, &number, sizeof(number)) == 0 ? number
										  : UINT64_MAX;
	at = g->bytes + off;
	return __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_RELAXED);
}

int shms_segpacked_read(const struct shms_segment *g, const struct shms_segslot *slot,
			struct shms_segpacked *ret)
{
	/* Takes the fields out of words: a part of a word that was just stored is slow to load. */
	uint64_t sizes = shms_segword_plain_load(&slot->packed[0]),
		 rest = shms_segword_plain_load(&slot->packed[1]);
	uint64_t key[2] = {shms_segword_plain_load(&slot->packed[2]),
			   shms_segword_plain_load(&slot->packed[3])},
		 n;
	uint32_t extent = (uint32_t)sizes;

	ret->buffer_size = sizes >> 32;
	ret->metadata_size = (uint32_t)rest;
	ret->key_size = (uint16_t)(rest >> 32);
	ret->class = (uint8_t)(rest >> 48);
	ret->flags = (uint8_t)(rest >> 56);
	ret->n_buffers = 1;
	memcpy(ret->key, key, sizeof(ret->key));
	if ((ret->flags & ~SHMS_SEGPACKED_FLAGS) || !ret->key_size ||
	    !shms_segpacked_extent(g, extent, ret->class))
		return -EBADMSG;
	ret->extent_off = (uint64_t)extent * SHMS_SEGCLASS_ALIGN;
	ret->extent_size = shms_segclass_size(ret->class);
	if (ret->flags & SHMS_SEGPACKED_TABLE) {
		if (align8(ret->buffer_size) + 8 > ret->extent_size)
			return -EBADMSG;
		ret->table_off = align8(ret->buffer_size);
		n = table_number(g, ret, 0);
		if (n == 1 || n > ret->extent_size / 8)
			return -EBADMSG;
		ret->n_buffers = (uint32_t)n;
	}
	place(ret);
	return ret->used > ret->extent_size ? -EBADMSG : 0;
}

int shms_segpacked_sizes(const struct shms_segment *g, const struct shms_segpacked *o,
			 uint64_t *ret_sizes)
{
	uint64_t end = 0;

	if (!(o->flags & SHMS_SEGPACKED_TABLE)) {
		ret_sizes[0] = o->buffer_size;
		return 0;
	}
	for (uint32_t i = 0; i < o->n_buffers; i++) {
		uint64_t size = table_number(g, o, i + 1ul);

		end = shms_layout_next(end, 0);
		if (end > o->buffer_size || size > o->buffer_size - end)
			return -EBADMSG;
		ret_sizes[i] = size;
		end += size;
	}
	return end == o->buffer_size ? 0 : -EBADMSG;
}

bool shms_segpacked_checksum(const struct shms_segpacked *o, const uint8_t *extent,
			     uint64_t ret_hash[2])
{
	if (!(o->flags & SHMS_SEGPACKED_CHECKSUM))
		return false;
	memcpy(ret_hash, extent + o->checksum_off, 2 * sizeof(*ret_hash));
	return true;
}
