/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storelist.c: reads the list first and opens stores later, so that no command works inside the
 * library's walk. Stores come and go meanwhile: whoever opens one must be ready for -ENOENT.
 */
#include "storelist.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "message.h"
#include "tierstate.h"

static const char *copy(const char *text)
{
	const char *made = strdup(text);

	if (!made)
		message_no_memory();
	return made;
}

static int add(const struct shmstore_store_info *info, void *arg)
{
	struct storelist *l = arg;
	struct shmstore_store_info *e;

	l->stores = reallocarray(l->stores, l->n_stores + 1, sizeof(*e));
	if (!l->stores)
		message_no_memory();
	e = &l->stores[l->n_stores++];
	*e = *info;
	e->name = copy(info->name);
	e->path = copy(info->path);
	e->label = copy(info->label);
	return 0;
}

int storelist_read(struct shmstore_partition *p, struct storelist *ret)
{
	*ret = STORELIST_NULL;
	int r = shmstore_partition_stores(p, add, ret);
	if (r < 0)
		storelist_deinit(ret);
	return r;
}

void storelist_deinit(struct storelist *l)
{
	for (size_t i = 0; i < l->n_stores; i++) {
		free((void *)(uintptr_t)l->stores[i].name);
		free((void *)(uintptr_t)l->stores[i].path);
		free((void *)(uintptr_t)l->stores[i].label);
	}
	free(l->stores);
	*l = STORELIST_NULL;
}

const struct shmstore_store_info *storelist_find(const struct storelist *l, const char *name)
{
	const struct shmstore_store_info *found = NULL;

	for (size_t i = 0; i < l->n_stores; i++) {
		const struct shmstore_store_info *e = &l->stores[i];
		if (strcmp(name[0] == '/' ? e->path : e->name, name) != 0)
			continue;
		if (!found || e->alive == SHMSTORE_ALIVE)
			found = e;
	}
	return found;
}

int storelist_open(struct shmstore_partition *p, const struct shmstore_store_info *entry,
		   struct shmstore **ret)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;

	options.directory = entry->path;
	options.flags = SHMSTORE_OPEN_READONLY;
	/* An operator names whose store is meant; what is shown of it is bytes. */
	if (geteuid() == 0)
		options.flags |= SHMSTORE_OPEN_ANY_USER;
	return shmstore_open(p, entry->name, &options, ret);
}

static bool takes_part(const struct shmstore_store_info *entry)
{
	char clean[PATH_MAX + 8];

	snprintf(clean, sizeof(clean), "%s/clean", entry->path); /* docs/format.md */
	return access(clean, F_OK) == 0;
}

void storelist_join_tier(struct shmstore_partition *p)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	_stores_ struct storelist list = STORELIST_NULL;
	struct shmstore *s;
	char tier[PATH_MAX];

	if (!tierstate_directory(p, tier))
		return;
	storelist_read(p, &list); /* where it fails, what comes next says why */
	for (size_t i = 0; i < list.n_stores; i++) {
		const struct shmstore_store_info *e = &list.stores[i];
		if (!e->readable || !e->keep || e->alive != SHMSTORE_DEAD || e->uid != geteuid() ||
		    takes_part(e))
			continue;
		options.keep = true;
		options.recycle_max = 0;
		options.label = e->label[0] ? e->label : NULL;
		options.directory = e->path;
		if (shmstore_open(p, e->name, &options, &s) == 0)
			shmstore_close(s);
	}
}
