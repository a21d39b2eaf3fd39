/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evictuser.c: opens and locks the parts of the tier that an eviction works on. In the order of
 * uids, so that two that wait for each other's cannot be. A user whose part cannot be opened (no
 * directory may be made, say) is left out where others are left.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "cleanup.h"
#include "evict.h"
#include "walk.h"

static int on_store(const struct shms_walk_store *s, void *arg)
{
	struct shms_evict_users *u = arg;
	struct shms_evict_user *v;

	for (size_t i = 0; i < u->n; i++) {
		if (u->v[i].uid == s->st.st_uid)
			return 0;
	}
	v = reallocarray(u->v, u->n + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	v[u->n++] = (struct shms_evict_user){.uid = s->st.st_uid, .lock_fd = -1};
	u->v = v;
	return 0;
}

static int by_uid(const void *a, const void *b)
{
	const struct shms_evict_user *x = a, *y = b;

	return (x->uid > y->uid) - (x->uid < y->uid);
}

int shms_evict_users_open(struct shmstore_partition *p, uid_t uid, struct shms_evict_users *ret)
{
	struct shms_evict_users all = {0};
	int error = 0, r;

	r = uid == SHMSTORE_EVICT_ALL ? shms_walk_stores(p, on_store, &all)
				      : on_store(&(struct shms_walk_store){.st.st_uid = uid}, &all);
	if (r == 0 && all.n)
		qsort(all.v, all.n, sizeof(*all.v), by_uid);
	/* Those that can be opened move to the front. */
	*ret = (struct shms_evict_users){.v = all.v};
	for (size_t i = 0; r == 0 && i < all.n; i++) {
		struct shms_evict_user one = all.v[i];
		int failed = shms_tier_of(p, one.uid, &one.t);

		if (failed == 0)
			ret->v[ret->n++] = one;
		else
			error = failed;
		if (failed == -ENOMEM || failed == -EMFILE)
			r = failed;
	}
	if (r == 0 && !ret->n)
		r = error;
	if (r < 0)
		shms_evict_users_close(ret);
	return r;
}

static void close_one(struct shms_evict_user *one)
{
	shms_residents_deinit(&one->residents);
	one->lock_fd = shms_tier_unlock(one->t, one->lock_fd);
	shms_tier_done(one->t);
}

void shms_evict_users_close(struct shms_evict_users *u)
{
	for (size_t i = 0; i < u->n; i++)
		close_one(&u->v[i]);
	free(u->v);
	*u = (struct shms_evict_users){0};
}

int shms_evict_users_lock(struct shms_evict_users *u, bool wait, int (*tick)(void *arg), void *arg)
{
	size_t n = 0;
	int r = 0;

	for (size_t i = 0; i < u->n; i++) {
		struct shms_evict_user one = u->v[i];
		int error =
			r < 0 ? r
			      : shms_tier_lock(one.t, wait ? UINT_MAX : 0, tick, arg, &one.lock_fd);

		if (error < 0)
			close_one(&one);
		else
			u->v[n++] = one;
		r = r < 0 || error == -EBUSY ? r : error;
	}
	u->n = n;
	return r;
}

int shms_evict_users_look(struct shms_evict_users *u)
{
	int r = 0;

	for (size_t i = 0; i < u->n && r == 0; i++)
		r = shms_residents_list(u->v[i].t, &u->v[i].residents);
	return r;
}
