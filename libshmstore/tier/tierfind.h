/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierfind.h: the users' parts of a partition's disk tier for who looks at all of it: found as they
 * are, and nothing is made that is not there, unlike shms_tier_open().
 */
#ifndef SHMS_TIERFIND_H
#define SHMS_TIERFIND_H

#include <stdbool.h>
#include <sys/types.h>

#include "tier.h"

struct shms_tierfind {
	struct shmstore_partition *p;
	struct shms_tier_config *config; /* NULL: there is no tier */
	int files_root;        /* the directory of its files; -1: not there; SHMS_TIERFIND_CLOSED */
	struct shms_tier tier; /* of the user at hand: uid and descriptors only */
	bool found;            /* and it is open */
};
#define SHMS_TIERFIND_CLOSED (-2) /* it may not be looked into */
#define SHMS_TIERFIND_INIT(partition)                                                       \
	{                                                                                   \
		.p = (partition), .files_root = -1, .tier = {.dir_fd = -1, .files_fd = -1}, \
	}

/* shms_tierfind_close() is owed in any case. 0, also without a tier; -EPERM, -EBADMSG, -ENOTSUP (a
 * configuration that cannot be believed), -ENOMEM, -EMFILE. */
int shms_tierfind_open(struct shms_tierfind *f);
/* The same by a configuration that the caller knows of. 0, -ENOMEM, -EMFILE. */
int shms_tierfind_use(struct shms_tierfind *f, const struct shms_tier_config *config);
void shms_tierfind_close(struct shms_tierfind *f);
/* The user's part; valid until another's is asked for. Its files_fd is -1 where there is none.
 * NULL: none that we may work in. */
struct shms_tier *shms_tierfind_user(struct shms_tierfind *f, uid_t uid);
/* Has the stub its anchor and its tier file? 0; -EBADMSG (no), -EPERM (may not be looked into),
 * -EIO (its disk is away), with a reason: static text. */
int shms_tierfind_stub(struct shms_tierfind *f, const struct shms_stub *stub,
		       const char **ret_reason);

#endif
