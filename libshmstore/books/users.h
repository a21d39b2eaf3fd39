/* SPDX-License-Identifier: Apache-2.0 */
/* users.h: books by user: a small table, for walks that meet one user's files in runs. */
#ifndef SHMS_USERS_H
#define SHMS_USERS_H

#include <shmstore/inspect.h>
#include <stddef.h>

struct shms_users {
	struct shmstore_user_books *list;
	size_t n, size, last;
};

/* The entry of uid, zeroed but for size and uid where it is new; valid until the next
 * call. NULL: out of memory. */
struct shmstore_user_books *shms_users_get(struct shms_users *u, uid_t uid);
void shms_users_clear(struct shms_users *u);

#endif
