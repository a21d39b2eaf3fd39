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

static int add(const struct shmstore_store_info *info, void *arg)
{
	struct storelist *l = arg;
	struct storelist_entry *grown = realloc(l->stores, (l->n_stores + 1) * sizeof(*grown));

	if (!grown)
		message_no_memory();
	l->stores = grown;
	struct storelist_entry *e = &grown[l->n_stores++];
	*e = (struct storelist_entry){strdup(info->name), strdup(info->path), strdup(info->label),
				      info->pid,          info->uid,          info->alive,
				      info->keep,         info->readable};
	if (!e->name || !e->path || !e->label)
		message_no_memory();
	return 0;
}

int storelist_read(struct shmstore_partition *p, struct storelist *ret)
{
	*ret = (struct storelist){0, NULL};
	return shmstore_partition_stores(p, add, ret);
}

void storelist_deinit(struct storelist *l)
{
	for (size_t i = 0; i < l->n_stores; i++) {
		free(l->stores[i].name);
		free(l->stores[i].path);
		free(l->stores[i].label);
	}
	free(l->stores);
	*l = (struct storelist){0, NULL};
}

const struct storelist_entry *storelist_find(const struct storelist *l, const char *name)
{
	const struct storelist_entry *found = NULL;

	for (size_t i = 0; i < l->n_stores; i++) {
		const struct storelist_entry *e = &l->stores[i];
		if (strcmp(name[0] == '/' ? e->path : e->name, name) != 0)
			continue;
		if (!found || e->alive == SHMSTORE_ALIVE)
			found = e;
	}
	return found;
}

int storelist_open(struct shmstore_partition *p, const struct storelist_entry *entry,
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

static bool takes_part(const struct storelist_entry *entry)
{
	char clean[PATH_MAX + 8];

	snprintf(clean, sizeof(clean), "%s/clean", entry->path); /* docs/format.md */
	return access(clean, F_OK) == 0;
}

void storelist_join_tier(struct shmstore_partition *p)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	struct storelist list;
	struct shmstore *s;
	char tier[PATH_MAX];

	if (!tierstate_directory(p, tier))
		return;
	if (storelist_read(p, &list) < 0)
		list.n_stores = 0; /* what comes next says why */
	for (size_t i = 0; i < list.n_stores; i++) {
		const struct storelist_entry *e = &list.stores[i];
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
	storelist_deinit(&list);
}
