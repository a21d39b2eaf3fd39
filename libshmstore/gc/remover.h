/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remover.h: one name of a store goes, with what nobody names then. gc and teardown walk once for a run and a dry run: a dry run
 * gives a remover that counts, so that it says what a run would do.
 */
#ifndef SHMS_REMOVER_H
#define SHMS_REMOVER_H

#include <sys/stat.h>

#include "tierdrop.h"

struct shms_tier;

struct shms_remover {
	/* Says what it would free if name of dirfd went; nothing goes. NULL: names go. 0, -ENOENT, -errno. */
	int (*count)(void *arg, int dirfd, const char *name, struct shms_tierdrop *io);
	void *arg;
};

/* Unlinks name of dirfd, whose state is st. t: where the tier file of a stub is; NULL: nothing of it. Adds what that frees. 0, -ENOENT, -errno. */
int shms_remove_name(struct shms_tier *t, int dirfd, const char *name, const struct stat *st, struct shms_tierdrop *io);

#endif
