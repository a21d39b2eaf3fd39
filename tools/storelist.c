/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storelist.c: reads the list first and opens stores later, so that no command works inside the library's walk. Stores come
 * and go meanwhile: whoever opens one must be ready for -ENOENT.
 */
#include "storelist.h"

#include <stdlib.h>
#include <string.h>

#include "message.h"

static int add(const struct shmstore_store_info *info, void *arg)
{
	struct storelist *l = arg;
	struct storelist_entry *grown = realloc(l->stores, (l->n_stores + 1) * sizeof(*grown));

	if (!grown)
		message_no_memory();
	l->stores = grown;
	struct storelist_entry *e = &grown[l->n_stores++];
	*e = (struct storelist_entry){strdup(info->name), strdup(info->path), info->pid,     info->uid,
				      info->alive,        info->keep,         info->readable};
	if (!e->name || !e->path)
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

int storelist_open(struct shmstore_partition *p, const struct storelist_entry *entry, struct shmstore **ret)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;

	options.directory = entry->path;
	options.flags = SHMSTORE_OPEN_READONLY;
	return shmstore_open(p, entry->name, &options, ret);
}
