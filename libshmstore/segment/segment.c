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
