/* SPDX-License-Identifier: Apache-2.0 */
/* packkeys.c: see packkeys.h. */
#include "packkeys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"

#define TRIES 8

void shms_packkeys_deinit(struct shms_packkeys *k)
{
	for (size_t i = 0; i < k->n; i++)
		free((void *)(uintptr_t)k->keys[i].key);
	free(k->keys);
	*k = (struct shms_packkeys){0};
}

static int reserve(struct shms_packkeys *k)
{
	size_t size = k->size ? 2 * k->size : 16;
	struct shms_packkey *keys;

	if (k->n < k->size)
		return 0;
	keys = realloc(k->keys, size * sizeof(*keys));
	if (!keys)
		return -ENOMEM;
	k->keys = keys;
	k->size = size;
	return 0;
}

static bool is_alias(const struct shms_segslot *slot, uint64_t state)
{
	return shms_segstate_published(state) && (shms_segpacked_flags_of(slot) & SHMS_SEGPACKED_ALIAS) &&
	       shms_segword_part(shms_segslot_word(slot, SHMS_SEG_OWNER), shms_segholder_name(SHMS_SEG_OWNER));
}

/* Copies key and object. 1; 0: the slot is another one's by now, or damaged; -ENOMEM. */
static int copy(const struct shms_seglook *file, uint32_t number, struct shms_packkey *ret)
{
	struct shms_segslot slot = shms_segslot_at(&file->segment, number);
	uint64_t state = shms_segword_load(slot.state), now;
	struct shms_packkey key;
	struct shms_segpacked o;

	if (!is_alias(&slot, state) || shms_segpacked_read(&file->segment, &slot, &o) < 0 ||
	    o.buffer_size != sizeof(key.object))
		return 0;
	_free_ uint8_t *bytes = malloc(o.key_size);
	if (!bytes)
		return -ENOMEM;
	if (shms_seglook_key(file, &o, bytes) < 0 ||
	    shms_seglook_read(file, o.extent_off, &key.object, sizeof(key.object)) < 0 ||
	    shms_seglook_again(file, number) < 0)
		return 0;
	now = shms_segword_load(slot.state);
	if (!is_alias(&slot, now) || shms_segstate_generation(now) != shms_segstate_generation(state))
		return 0;
	/* As it is now: an object's own key may have gone meanwhile. */
	key.instead = (shms_segpacked_flags_of(&slot) & SHMS_SEGPACKED_INSTEAD) != 0;
	key.key_size = o.key_size;
	key.key = bytes;
	bytes = NULL;
	*ret = key;
	return 1;
}

int shms_packkeys_read(struct shms_packkeys *k, const struct shms_seglook *file)
{
	uint32_t n = shms_segment_born(&file->segment);

	for (uint32_t i = 0; i < n; i++) {
		struct shms_segslot slot = shms_segslot_at(&file->segment, i);
		int r = 0;

		if (!is_alias(&slot, shms_segword_load(slot.state)))
			continue;
		if (reserve(k) < 0)
			return -ENOMEM;
		for (int tries = 0; tries < TRIES && r == 0; tries++)
			r = copy(file, i, &k->keys[k->n]);
		if (r < 0)
			return r;
		k->n += r == 1;
	}
	return 0;
}

static int compare(const void *a, const void *b)
{
	const struct shms_packkey *x = a, *y = b;

	return memcmp(&x->object, &y->object, sizeof(x->object));
}

void shms_packkeys_sort(struct shms_packkeys *k)
{
	if (k->n)
		qsort(k->keys, k->n, sizeof(*k->keys), compare);
}

const struct shms_packkey *shms_packkeys_of(const struct shms_packkeys *k, const struct shms_packalias_bytes *object,
					    size_t *ret_n)
{
	struct shms_packkey wanted = {.object = *object};
	const struct shms_packkey *first = k->n ? bsearch(&wanted, k->keys, k->n, sizeof(*k->keys), compare) : NULL;

	*ret_n = 0;
	if (!first)
		return NULL;
	while (first > k->keys && compare(first - 1, &wanted) == 0)
		first--;
	while (first + *ret_n < k->keys + k->n && compare(first + *ret_n, &wanted) == 0)
		++*ret_n;
	return first;
}
