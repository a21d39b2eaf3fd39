/* SPDX-License-Identifier: Apache-2.0 */
/* namesof.c: for one object that is to be demoted. Eviction, which wants to know it of all objects, makes one walk for them (candidates.c). */
#include "namesof.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "sys.h"
#include "walk.h"

struct search {
	uint64_t inode;
	struct shms_namesof *found;
};

static int found(struct shms_namesof *to, const struct shms_walk_entry *e)
{
	struct shms_demote_name n = {.objects_fd = -1, .clean_fd = -1}, *grown;
	_fd_ int clean = shms_open_dir(e->store->fd, SHMS_DIR_CLEAN);
	_fd_ int objects = -1;

	if (clean == -EMFILE)
		return clean;
	if (clean < 0)
		return 0; /* takes no part: the link count will tell */
	objects = openat(e->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (objects < 0)
		return shms_error(errno);
	grown = reallocarray(to->names, to->n + 1, sizeof(n));
	n.name = strdup(e->name);
	if (grown)
		to->names = grown;
	if (!grown || !n.name) {
		free((void *)(uintptr_t)n.name);
		return -ENOMEM;
	}
	n.objects_fd = shms_take_fd(&objects);
	n.clean_fd = shms_take_fd(&clean);
	to->names[to->n++] = n;
	return 0;
}

static int entry(const struct shms_walk_entry *e, void *arg)
{
	struct search *s = arg;

	if (e->place != SHMS_PLACE_OBJECT || !e->store || e->st->st_ino != s->inode)
		return 0;
	return found(s->found, e);
}

int shms_namesof_find(struct shmstore_partition *p, uint64_t inode, struct shms_namesof *ret)
{
	struct search s = {inode, ret};
	struct shms_walk w = {.flags = SHMS_WALK_ENTRIES, .entry = entry, .arg = &s};

	*ret = (struct shms_namesof){0};
	return shms_walk_run(&w, p);
}

void shms_namesof_deinit(struct shms_namesof *n)
{
	for (size_t i = 0; i < n->n; i++) {
		shms_close_fd(n->names[i].objects_fd);
		shms_close_fd(n->names[i].clean_fd);
		free((void *)(uintptr_t)n->names[i].name);
	}
	free(n->names);
	*n = (struct shms_namesof){0};
}
