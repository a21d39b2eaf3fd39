/* SPDX-License-Identifier: Apache-2.0 */
/* reconcile.c: the df equation with its witnesses. */
#include <shmstore/inspect.h>

#include "detail.h"
#include "holders.h"
#include "usage.h"

int shmstore_partition_reconcile(struct shmstore_partition *p,
				 int (*fn)(const struct shmstore_holder *holder, void *arg), void *arg,
				 struct shmstore_usage *ret)
{
	struct shms_holders *holders = NULL;
	struct shmstore_usage usage;
	int r;

	if (!p)
		return shms_detail_null("p");
	r = shms_usage_take(p, &(struct shms_usage_ask){.holders = true, .keys = fn != NULL}, &usage, &holders);
	if (r < 0)
		return r;
	if (fn)
		r = shms_holders_each(holders, fn, arg);
	shms_holders_free(holders);
	if (r == 0 && ret)
		*ret = usage;
	return r;
}
