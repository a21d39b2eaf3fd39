/* SPDX-License-Identifier: Apache-2.0 */
/*
 * residents.h: the links tier/<uid>/<id>.object: promoted objects whose stub has names in other
 * stores still (tier.h), and demoted ones that somebody mapped when they were demoted. One whose
 * object nobody names any more costs memory for a promote that may never come.
 */
#ifndef SHMS_RESIDENTS_H
#define SHMS_RESIDENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tier.h"

struct shms_resident {
	uint64_t inode;
	uint64_t id;
	uint64_t bytes;
	uint64_t n_links;
};

struct shms_residents {
	struct shms_resident *v; /* by inode */
	size_t n;
};

/* All there are now. 0, -ENOMEM, -EMFILE, -errno. */
int shms_residents_list(struct shms_tier *t, struct shms_residents *ret);
void shms_residents_deinit(struct shms_residents *r);
/* How many are links of this inode: one, or more where a tier file was damaged and written anew. */
size_t shms_residents_count(const struct shms_residents *r, uint64_t inode);
/* Removes one of the n residents of an object that has no other name and that nobody has open or
 * maps. Bytes freed; 0: it stays, or another one is left. *ret_held: for its users only. */
uint64_t shms_residents_drop(struct shms_tier *t, const struct shms_resident *r, size_t n,
			     bool *ret_held);

#endif
