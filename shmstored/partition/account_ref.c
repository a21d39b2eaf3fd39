/* SPDX-License-Identifier: Apache-2.0 */
/* account_ref.c: the memory of a partition's account stays as long as an operation is in flight. */
#include <stdlib.h>
#include <unistd.h>

#include "account.h"
#include "history.h"

void account_ref(struct account *a)
{
	a->n_refs++;
}

void account_unref(struct account *a)
{
	if (--a->n_refs)
		return;
	history_free(a->history);
	if (a->fd >= 0)
		close(a->fd);
	shmstore_partition_unref(a->partition);
	free(a);
}
