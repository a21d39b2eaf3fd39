/* SPDX-License-Identifier: Apache-2.0 */
/* spillbatch.c: one pass over the objects in their order. What does not fit ends the batch: a later one that fits would go before its turn. */
#include "spillbatch.h"

bool spillbatch_is_due(const struct spillbatch_config *c, struct amount used, struct amount capacity)
{
	if (!used.known || !capacity.known || capacity.bytes <= 0)
		return false;
	return used.bytes >= ratio_ceil(c->threshold, capacity.bytes);
}

enum spillbatch_outcome spillbatch_choose(const struct spillbatch_config *c, struct spillbatch_object *objects,
					  size_t n, bool writing, size_t *ret, size_t *ret_n)
{
	int64_t bytes = 0;
	size_t n_batch = 0, i;

	for (i = 0; i < n && n_batch < c->max_fused; i++) {
		const struct spillbatch_object *o = &objects[i];

		if (!o->spillable || o->taken)
			continue;
		if (c->max_file > 0 && n_batch && amount_sum(bytes, o->size) > c->max_file)
			break;
		bytes = amount_sum(bytes, o->size);
		ret[n_batch++] = i;
	}
	*ret_n = n_batch;
	if (!n_batch)
		return SPILLBATCH_NONE;
	/* Only a batch that took all there is can grow by waiting. */
	if (i == n && bytes < c->min_bytes && writing)
		return SPILLBATCH_DEFER;
	for (i = 0; i < n_batch; i++)
		objects[ret[i]].taken = true;
	return SPILLBATCH_GO;
}

void spillbatch_done(struct spillbatch_object *objects, const size_t *batch, size_t n, size_t n_written)
{
	for (size_t i = 0; i < n; i++) {
		objects[batch[i]].taken = i < n_written;
		objects[batch[i]].spillable &= i >= n_written;
	}
}
