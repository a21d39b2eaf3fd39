/* SPDX-License-Identifier: Apache-2.0 */
/* stubs.h: stubs, and the clean copies of objects, as names in a store's directories. The names
 * lock is held in all of these. */
#ifndef SHMS_STUBS_H
#define SHMS_STUBS_H

#include <stdbool.h>

struct shmstore;

/* Is that name a stub? */
bool shms_stub_is(int dirfd, const char *name);
/* Removes a stub, and its tier file with its last name. 0, -errno. */
int shms_stub_drop(struct shmstore *s, int dirfd, const char *name);
/* The object called name is no more: nor is its clean copy needed. */
void shms_clean_drop(struct shmstore *s, const char *name);
/* Renames over name in objects/, where a stub may be. 0, -errno. */
int shms_rename_over(struct shmstore *s, int dirfd, const char *from, const char *name);
/* Says that an object was used just now: its inode's time is the clock of eviction. */
void shms_tier_touch(struct shmstore *s, int fd);

#endif
