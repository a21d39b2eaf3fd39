/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segcheck.c: see segcheck.h. The bytes are read without a reference. If they do not match, the
 * slot is looked at again: if it still has the same object, the owner did not write to the extent
 * meanwhile (segslot.h), and the object is damaged.
 */
#include "segcheck.h"

#include <errno.h>
#include <stdlib.h>

#include "cleanup.h"
#include "segpacked.h"
#include "xxh3.h"

/* The checksum of the object's bytes as they are. 0, -ENOMEM; -errno: they cannot be read,
 * which is as bad as wrong ones. */
static int hash(const struct shms_seglook *l, const struct shms_segpacked *o,
		struct shms_segcheck *c, uint64_t ret[2])
{
	XXH3_state_t *state = XXH3_createState();
	uint64_t done = 0;
	XXH128_hash_t h;
	int r = 0;

	if (!state)
		return -ENOMEM;
	XXH3_128bits_reset(state);
	while (r == 0 && done < o->buffer_size) {
		uint64_t left = o->buffer_size - done,
			 n = left < c->chunk_size ? left : c->chunk_size;

		r = shms_seglook_read(l, o->extent_off + done, c->chunk, n);
		if (r == 0)
			XXH3_128bits_update(state, c->chunk, n);
		done += n;
	}
	h = XXH3_128bits_digest(state);
	XXH3_freeState(state);
	c->bytes += done;
	ret[0] = h.low64;
	ret[1] = h.high64;
	return r;
}

static int tell(const struct shms_seglook *l, const struct shms_segpacked *o,
		const struct shms_segcheck *c)
{
	_free_ void *key = malloc(o->key_size + 1ul);

	if (!key)
		return -ENOMEM;
	if (shms_seglook_key(l, o, key) < 0)
		return 0; /* the next look finds that the file was cut */
	return c->damaged(key, o->key_size, c->arg);
}

static int check(const struct shms_seglook *l, uint32_t index, struct shms_segcheck *c)
{
	struct shms_segslot slot = shms_segslot_at(&l->segment, index);
	uint64_t state = shms_segword_load(slot.state), right[2], is[2];
	struct shms_segpacked o;
	int r;

	if (!shms_segstate_published(state) || shms_segpacked_read(&l->segment, &slot, &o) < 0 ||
	    !(o.flags & SHMS_SEGPACKED_CHECKSUM))
		return 0;
	/* A hostile owner may have many slots say one extent, for us to read it as often. */
	c->overlaps = o.buffer_size > l->segment.shape.size - c->bytes;
	if (c->overlaps)
		return 0;
	r = shms_seglook_read(l, o.extent_off + o.checksum_off, right, sizeof(right));
	if (r == 0)
		r = hash(l, &o, c, is);
	if (r == 0 && is[0] == right[0] && is[1] == right[1])
		return 0;
	if (r == -ENOMEM)
		return r;
	return shms_seglook_has(l, index, shms_segstate_generation(state)) ? tell(l, &o, c) : 0;
}

int shms_segcheck(const struct shms_seglook *l, struct shms_segcheck *c)
{
	uint32_t n = shms_segment_born(&l->segment);
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < n && !c->overlaps; i++)
		r = check(l, i, c);
	return r;
}
