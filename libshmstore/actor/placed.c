/* SPDX-License-Identifier: Apache-2.0 */
/* placed.c: see acting.h. */
#include <shmstore/actor.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "acting.h"

const char *shms_placed_key(const char *name, uint64_t version, char ret[SHMS_PLACED_KEY])
{
	snprintf(ret, SHMS_PLACED_KEY, "ckpt/%s/%llu", name, (unsigned long long)version);
	return ret;
}

struct shms_placed *shms_placed_find(const struct shmstore_place *p, const char *name)
{
	struct shms_placed *e = p->entries;

	while (e && strcmp(e->name, name) != 0)
		e = e->next;
	return e;
}

struct shms_placed *shms_placed_add(struct shmstore_place *p, const char *name, const char *parent)
{
	struct shms_placed *e = shms_placed_find(p, name);

	if (e)
		return e;
	e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	snprintf(e->name, sizeof(e->name), "%s", name);
	snprintf(e->parent, sizeof(e->parent), "%s", parent);
	LL_PREPEND(p->entries, e);
	return e;
}

bool shms_placed_has_options(const struct shmstore_place *p)
{
	return atomic_load_explicit(&p->s->attach.features, memory_order_relaxed) &
	       WIRE_FEATURE_ACTOR_OPTIONS;
}

int shms_placed_tail(const struct shmstore_place *p, const struct shms_placed *e,
		     char tail[WIRE_TEXT_MAX])
{
	bool more = *e->more && shms_placed_has_options(p);

	return snprintf(tail, WIRE_TEXT_MAX, "%s%s%s%s%s", e->name, *e->parent || more ? "\n" : "",
			e->parent, more ? "\n" : "", more ? e->more : "");
}

void shms_placed_drop_object(struct shmstore_place *p, struct shms_placed *e)
{
	char key[SHMS_PLACED_KEY];

	if (e->object) {
		shms_placed_key(e->name, e->object, key);
		(void)shmstore_delete(p->s, key, strlen(key));
	}
	e->object = 0;
}

void shms_placed_del(struct shmstore_place *p, struct shms_placed *e)
{
	LL_DELETE(p->entries, e);
	shms_placed_drop_object(p, e);
	free(e);
}

int shms_placed_announce(struct shmstore_place *p)
{
	const struct wire_actor_place m = {.free = p->room};

	return shms_acting_tell(p->s, WIRE_ACTOR_PLACE, &m, p->name, strlen(p->name));
}
