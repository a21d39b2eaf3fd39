/* SPDX-License-Identifier: Apache-2.0 */
/* storefds.c: opened when first needed; where many are open, those that nobody uses
 * at the moment are closed. */
#include "storefds.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "page.h"
#include "partition.h"
#include "sys.h"

#define OPEN_MAX 64u /* stores */

int shms_storefds_init(struct shms_storefds *f, struct shmstore_partition *p,
		       const struct shms_candidates *c)
{
	*f = (struct shms_storefds){.p = p, .c = c, .v = calloc(c->n_stores + 1, sizeof(*f->v))};
	if (!f->v)
		return -ENOMEM;
	for (size_t i = 0; i < c->n_stores; i++)
		f->v[i].objects_fd = f->v[i].clean_fd = -1;
	return 0;
}

static void close_one(struct shms_storefds *f, struct shms_storefds_one *one)
{
	if (one->objects_fd < 0)
		return;
	one->objects_fd = shms_close_fd(one->objects_fd);
	one->clean_fd = shms_close_fd(one->clean_fd);
	f->n_open--;
}

static void close_idle(struct shms_storefds *f)
{
	for (size_t i = 0; i < f->c->n_stores; i++) {
		if (!f->v[i].n_use)
			close_one(f, &f->v[i]);
	}
}

void shms_storefds_deinit(struct shms_storefds *f)
{
	if (f->v)
		close_idle(f);
	free(f->v);
	*f = (struct shms_storefds){0};
}

/* The directory that the walk met, and no other that stands in its place now. */
static int open_one(struct shms_storefds *f, uint32_t store, struct shms_storefds_one *one)
{
	const struct shms_candidate_store *s = &f->c->stores[store];
	_fd_ int dir = shms_open_beneath(f->p->fd, shms_candidates_text(f->c, s->below),
					 O_RDONLY | O_DIRECTORY);
	_fd_ int objects = -1, clean = -1;
	struct stat st;

	if (dir < 0)
		return dir;
	if (fstat(dir, &st) < 0 || st.st_ino != s->inode)
		return -ENOENT;
	objects = shms_open_dir(dir, SHMS_DIR_OBJECTS);
	if (objects < 0)
		return objects;
	clean = shms_open_dir(dir, SHMS_DIR_CLEAN);
	if (clean < 0)
		return clean;
	one->objects_fd = shms_take_fd(&objects);
	one->clean_fd = shms_take_fd(&clean);
	f->n_open++;
	return 0;
}

int shms_storefds_take(struct shms_storefds *f, uint32_t store,
		       const struct shms_storefds_one **ret)
{
	struct shms_storefds_one *one = &f->v[store];
	int r = 0;

	if (one->objects_fd < 0) {
		if (f->n_open >= OPEN_MAX)
			close_idle(f);
		r = open_one(f, store, one);
	}
	if (r < 0)
		return r;
	one->n_use++;
	*ret = one;
	return 0;
}

void shms_storefds_back(struct shms_storefds *f, uint32_t store)
{
	f->v[store].n_use--;
}
