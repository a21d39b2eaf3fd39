/* SPDX-License-Identifier: Apache-2.0 */
#include "usagejson.h"

#include <shmstore/inspect.h>

#include "jsonmake.h"

void usagejson_add(struct json_object *o, const struct shmstore_usage *u)
{
	jsonmake_u64(o, "size", u->size);
	jsonmake_u64(o, "used", u->used);
	jsonmake_u64(o, "linked", u->linked);
	jsonmake_u64(o, "ghosts", u->ghosts);
	jsonmake_u64(o, "pool", u->pool);
	jsonmake_u64(o, "stranded", u->stranded);
	jsonmake_u64(o, "inflight", u->inflight);
	jsonmake_u64(o, "foreign", u->foreign);
	jsonmake_i64(o, "residual", u->residual);
	jsonmake_u64(o, "metadata", u->metadata);
	jsonmake_u64(o, "stores", u->n_stores);
	jsonmake_u64(o, "objects", u->n_objects);
	jsonmake_u64(o, "leases", u->n_leases);
	jsonmake_u64(o, "unreadable", u->n_unreadable);
	jsonmake_u64(o, "tier", u->tier);
	jsonmake_u64(o, "tier_demoted", u->tier_demoted);
	jsonmake_u64(o, "tier_clean", u->tier_clean);
	jsonmake_u64(o, "tier_orphans", u->tier_orphans);
	jsonmake_u64(o, "demoted", u->n_demoted);
}
