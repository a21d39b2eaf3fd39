/* SPDX-License-Identifier: Apache-2.0 */
/* gctable.h: what gc and reap did, for people: a row for each step. */
#ifndef GCTABLE_H
#define GCTABLE_H

#include "table.h"

/* The steps of a document of gc or reap; tier: with a column of what is freed on the disk tier. */
void gctable_print(const struct admin *a, const struct json_object *document, bool tier);
/* "freed 1.50 MiB: 1 store, 0 leases, 3 files"; and of the disk tier, where there was something. */
void gctable_total(const struct admin *a, const struct json_object *document);

#endif
