/* SPDX-License-Identifier: Apache-2.0 */
/*
 * users.c: books by user. A store's files have one owner and come in one run, so the user of the
 * last question is nearly always the one of the next: it is tried first, then all. Rejected: a hash
 * table, for the handful of users that share a host's partition.
 */
#include "users.h"

#include "alloc.h"

struct shmstore_user_books *shms_users_get(struct shms_users *u, uid_t uid)
{
	if (u->last < u->n && u->list[u->last].uid == uid)
		return &u->list[u->last];
	for (size_t i = 0; i < u->n; i++) {
		if (u->list[i].uid == uid) {
			u->last = i;
			return &u->list[i];
		}
	}
	if (SHMS_GROW(u->list, u->size, u->n, 1) < 0)
		return NULL;
	u->last = u->n++;
	u->list[u->last] = (struct shmstore_user_books){.size = sizeof(*u->list), .uid = uid};
	return &u->list[u->last];
}

void shms_users_clear(struct shms_users *u)
{
	free(u->list);
	*u = (struct shms_users){0};
}
