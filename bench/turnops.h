/* SPDX-License-Identifier: Apache-2.0 */
/* turnops.h: what do a put, a get and a delete cost while 10,000 other objects stand? */
#ifndef BENCH_TURNOPS_H
#define BENCH_TURNOPS_H

#include <shmstore/shmstore.h>

#include "place.h"
#include "report.h"

#define TURNOPS_SIZE_MAX 65536u /* bytes of an object */

/* In stores of its own: one as it comes, which packs, one with a file for each object.
 * data: TURNOPS_SIZE_MAX bytes. */
void turnops_run(struct report *r, const struct report_options *options, const struct place *place,
		 struct shmstore_partition *partition, const void *data);

#endif
