/* SPDX-License-Identifier: Apache-2.0 */
/* tierdrop.h: shms_tier_release() for callers that report the bytes freed. */
#ifndef SHMS_TIERDROP_H
#define SHMS_TIERDROP_H

#include <stdint.h>
#include <sys/stat.h>

struct shms_tier;

/* Bytes unless n_. Added to. */
struct shms_tierdrop {
	uint64_t memory;  /* of residents whose last name went */
	uint64_t disk;    /* of tier files */
	uint64_t n_files; /* tier files */
};

/* Instead of removing a name that is in memory: notes what that would free. 0, -errno. */
struct shms_tierdrop_dry {
	int (*note)(void *arg, const struct stat *st, struct shms_tierdrop *io);
	void *arg;
};

/*
 * Removes the tier file, the resident and the anchor of an id that nobody names. dry NULL: in
 * truth. 0, or -errno of the tier file, with the anchor left.
 */
int shms_tierdrop_forget(struct shms_tier *t, uint64_t id, const struct shms_tierdrop_dry *dry,
			 struct shms_tierdrop *io);
/*
 * Removes the stub called name, and what nobody names then, as far as the disk lets it; t NULL:
 * nothing of it. gc finds the rest. 0, -ENOENT, -errno of the name.
 */
int shms_tierdrop_name(struct shms_tier *t, int dirfd, const char *name, struct shms_tierdrop *io);

#endif
