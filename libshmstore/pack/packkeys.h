/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packkeys.h: the aliases of a store as they are in its segments, for a process that has only read them (packlook.h). Private copies:
 * nothing in them was checked against the objects that they speak of.
 */
#ifndef SHMS_PACKKEYS_H
#define SHMS_PACKKEYS_H

#include "packalias.h"
#include "seglook.h"

struct shms_packkey {
	struct shms_packalias_bytes object;
	bool instead; /* the store has the object by its own key no more */
	uint16_t key_size;
	const uint8_t *key;
};

/* All 0 at first. */
struct shms_packkeys {
	struct shms_packkey *keys; /* by object, once they are sorted */
	size_t n, size;
};

void shms_packkeys_deinit(struct shms_packkeys *k);
/* Adds the aliases that an own segment of the store has. 0, -ENOMEM. */
int shms_packkeys_read(struct shms_packkeys *k, const struct shms_seglook *file);
void shms_packkeys_sort(struct shms_packkeys *k);
/* The first of the object's aliases; they follow each other. NULL: it has none. */
const struct shms_packkey *shms_packkeys_of(const struct shms_packkeys *k, const struct shms_packalias_bytes *object,
					    size_t *ret_n);

#endif
