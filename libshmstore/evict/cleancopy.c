/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cleancopy.c: gives up clean copies.
 *
 * A clean copy's stub is in clean/ of every store that has the object in memory; with the
 * last of these names its tier file goes (tier.h). Each name is taken away under its store's
 * names lock, one store at a time. A store that took the stub for the object meanwhile keeps
 * the file: the kernel counts.
 */
#include "cleancopy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "nameslock.h"
#include "sys.h"

static int by_use(const void *a, const void *b, void *arg)
{
	const struct shms_candidates *c = arg;
	uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
	int64_t x = c->v[i].used_ns, y = c->v[j].used_ns;

	return x != y ? (x > y) - (x < y) : (i > j) - (i < j);
}

int shms_cleancopy_list(const struct shms_candidates *c, uint32_t user, uint32_t **ret,
			uint32_t *ret_n)
{
	uint32_t *list = calloc(c->n + 1, sizeof(*list)), n = 0;

	if (!list)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->n; i++) {
		if (c->v[i].user == user && c->v[i].n_clean)
			list[n++] = i;
	}
	/* The order is a plain one: no cost tells one copy on the disk from another. */
	qsort_r(list, n, sizeof(*list), by_use, (void *)(uintptr_t)c);
	*ret = list;
	*ret_n = n;
	return 0;
}

static int drop_name(const struct shms_cleancopy *k, struct shms_tier *t,
		     const struct shms_candidate_name *n)
{
	struct shmstore *own = k->s && k->c->stores[n->store].own ? k->s : NULL;
	const struct shms_storefds_one *fds;
	int r = shms_storefds_take(k->fds, n->store, &fds);

	if (r < 0)
		return r;
	r = own ? shms_names_lock(own) : shms_tier_lock_names(fds->objects_fd);
	if (r == 0) {
		r = shms_tier_release(t, fds->clean_fd, shms_candidates_text(k->c, n->name));
		if (own)
			shms_names_unlock(own);
		else
			shms_tier_unlock_names(fds->objects_fd);
	}
	shms_storefds_back(k->fds, n->store);
	return r;
}

/* The tier file of the stub that an object has in one of its stores. 0, -errno. */
static int file_of(const struct shms_cleancopy *k, const struct shms_candidate *o,
		   char ret_name[SHMS_TIER_NAME])
{
	const struct shms_storefds_one *fds;
	struct shms_stub stub;
	int r = -ENOENT;

	for (uint32_t at = o->first; at && r < 0; at = k->c->names[at - 1].next) {
		const struct shms_candidate_name *n = &k->c->names[at - 1];

		r = shms_storefds_take(k->fds, n->store, &fds);
		if (r < 0)
			continue;
		r = shms_stub_read(fds->clean_fd, shms_candidates_text(k->c, n->name), &stub, NULL);
		shms_storefds_back(k->fds, n->store);
	}
	if (r < 0)
		return r;
	/* The anchor is one, and stores that hold the stub for the object need the file. */
	if (stub.n_names > o->n_clean + 1u)
		return -EBUSY;
	shms_tier_file_name(stub.id, ret_name);
	return 0;
}

uint64_t shms_cleancopy_drop(const struct shms_cleancopy *k, uint32_t candidate)
{
	const struct shms_candidate *o = &k->c->v[candidate];
	struct shms_tier *t = k->users[o->user].t;
	char file[SHMS_TIER_NAME];
	struct stat before, after;

	if (file_of(k, o, file) < 0 || fstatat(t->files_fd, file, &before, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	for (uint32_t at = o->first; at; at = k->c->names[at - 1].next)
		drop_name(k, t, &k->c->names[at - 1]);
	return fstatat(t->files_fd, file, &after, AT_SYMLINK_NOFOLLOW) < 0 ? shms_blocks(&before)
									   : 0;
}
