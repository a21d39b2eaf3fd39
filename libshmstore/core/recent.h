/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recent.h: the sizes of the objects this store named lately, so that handing one off need not open
 * it. A direct-mapped table of fixed size: a miss costs a look into the file, nothing else. Changed
 * together with the names, under store.names.
 */
#ifndef SHMS_RECENT_H
#define SHMS_RECENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SHMS_RECENT_SIZE 4096

struct shms_recent {
	uint64_t seed; /* random: nobody can choose names that collide */
	/* SHMS_RECENT_SIZE, taking memory as they are used; NULL = no memory, nothing is found */
	struct shms_recent_entry {
		_Atomic uint64_t hash; /* of the name; 0 = empty */
		uint64_t header_size, buffer_size;
		/* it takes the pages of its size, as it was booked:
		 * nothing was punched out of it */
		atomic_bool whole;
		atomic_bool handed; /* links.h knows that it was handed off */
	} * entries;
};

void shms_recent_init(struct shms_recent *r);
void shms_recent_deinit(struct shms_recent *r);
/* The caller holds store.names exclusively. */
void shms_recent_set(struct shms_recent *r, const char *name, uint64_t header_size,
		     uint64_t buffer_size, bool whole);
void shms_recent_drop(struct shms_recent *r, const char *name);
/* Its file takes less than the pages of its size from now on. Needs no lock. */
void shms_recent_punched(struct shms_recent *r, const char *name);
/* The caller holds store.names, shared at least, as long as it uses the entry. NULL: not known. */
struct shms_recent_entry *shms_recent_find(const struct shms_recent *r, const char *name);

#endif
