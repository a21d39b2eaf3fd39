/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierclean.c: for who takes a tier away. A stub in clean/ stands for an object that is in memory, so that nothing is lost with it; it is
 * taken under its store's names lock, as who demotes holds it while it is anything else for a moment.
 */
#include "tierclean.h"

#include <errno.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "page.h"
#include "sys.h"
#include "tier.h"
#include "walk.h"

static int empty(struct shms_tier *t, int clean_fd)
{
	_dir_ DIR *dir = NULL;
	struct dirent *e;
	int r = shms_list_dir(clean_fd, ".", &dir);

	if (r < 0)
		return -EMFILE;
	while (r == 0 && (e = shms_readdir(dir, &r)) != NULL) {
		if (e->d_type == DT_LNK)
			shms_tier_release(t, clean_fd, e->d_name);
	}
	return r;
}

static int on_store(const struct shms_walk_store *store, void *arg)
{
	struct shmstore_partition *p = arg;
	_fd_ int clean_fd = store->fd < 0 ? -1 : shms_open_dir(store->fd, SHMS_DIR_CLEAN);
	_locked_ int objects_fd = clean_fd < 0 ? -1 : shms_open_dir(store->fd, SHMS_DIR_OBJECTS);
	struct shms_tier *t = NULL;
	int r;

	if (clean_fd == -EMFILE || objects_fd == -EMFILE)
		return -EMFILE;
	if (objects_fd < 0)
		return 0;
	r = shms_tier_open(p, store->st.st_uid, &t);
	if (r < 0)
		return r == -ENOMEM || r == -EMFILE ? r : 0; /* another user's */
	r = shms_tier_lock_names(objects_fd);
	if (r == 0)
		r = empty(t, clean_fd);
	shms_tier_close(t);
	return r;
}

int shms_tierclean_drop(struct shmstore_partition *p)
{
	struct shms_walk w = {.store = on_store, .arg = p};

	return shms_walk_run(&w, p);
}
