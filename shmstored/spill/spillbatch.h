/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spillbatch.h: when objects are written to disk, and which of them go into one file. Pure.
 *
 * Small objects are fused into one file, as a file for each would cost more than its bytes. A batch that is small is deferred while
 * another one is being written: more may have gathered by then.
 */
#ifndef SPILLBATCH_H
#define SPILLBATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "amount.h"
#include "ratio.h"

struct spillbatch_config {
	struct ratio threshold; /* of a store's capacity: from there on it is spilled */
	int64_t min_bytes;      /* a smaller batch may be deferred */
	int64_t max_file;       /* bytes of a file; <= 0: any. The first object goes in any case */
	size_t max_fused;       /* objects of a file */
};

#define SPILLBATCH_DEFAULTS          \
	((struct spillbatch_config){ \
		.threshold = RATIO(8, 10), .min_bytes = INT64_C(100) << 20, .max_file = -1, .max_fused = 2000})

struct spillbatch_object {
	int64_t size;
	bool spillable; /* nobody but its owner refers to it */
	bool taken;     /* it is in a batch already */
};

enum spillbatch_outcome {
	SPILLBATCH_NONE,
	SPILLBATCH_GO,
	SPILLBATCH_DEFER
};

/* Whether a store that holds so many bytes begins to spill; false if one of both is unknown. Where a creation failed, it does anyway. */
bool spillbatch_is_due(const struct spillbatch_config *c, struct amount used, struct amount capacity);
/*
 * The next batch, of objects in their order: *ret_n of their indexes in ret, which has room for n. GO: they are marked as taken.
 * DEFER: ret has what would go, and nothing is marked.
 */
enum spillbatch_outcome spillbatch_choose(const struct spillbatch_config *c, struct spillbatch_object *objects,
					  size_t n, bool writing, size_t *ret, size_t *ret_n);
/* The first n_written of a batch are on disk, the others could not be written and may be chosen again. */
void spillbatch_done(struct spillbatch_object *objects, const size_t *batch, size_t n, size_t n_written);

#endif
