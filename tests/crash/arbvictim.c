/* SPDX-License-Identifier: Apache-2.0 */
/* arbvictim.c: see arbvictim.h. The scenes are in arbscenes.c. */
#include "arbvictim.h"

#include <errno.h>
#include <stdlib.h>

#include "content.h"
#include "ownbooks.h"
#include "plausible.h"

#define SETTLE_MS 10000u
#define ASK_MS    10000u
#define ALL_MS    5000u

bool arbvictim_did(struct arbvictim *v, const char *what, int r)
{
	if (r == SHMSTORE_ARB_OK)
		return true;
	/* DOWN: who was bound; -ENOTSUP: who was not yet, or not again. */
	if (v->deserted && (r == SHMSTORE_ARB_DOWN || r == -ENOTSUP))
		return false;
	if (!v->disturbed)
		return arbstage_fail(v->st, "%s: %d (%s) %s %s", what, r,
				     r < 0 ? shmstore_strerror(r) : shmstore_arb_outcome_name(r),
				     shmstore_error_detail(), shmstore_arb_why());
	if (r > SHMSTORE_ARB_DOWN || !plausible_return(r))
		arbstage_fail(v->st, "%s: %d is no answer of the library's", what, r);
	return false;
}

bool arbvictim_open(struct arbvictim *v)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;

	o.daemon = SHMSTORE_DAEMON_REQUIRED;
	o.flags |= SHMSTORE_OPEN_ARBITRATE;
	return arbvictim_did(v, "open", shmstore_open(v->p, ARBVICTIM, &o, &v->s));
}

bool arbvictim_begin(struct arbvictim *v, uint32_t *ret_task)
{
	return arbvictim_did(v, "task begin", shmstore_arb_task_begin(v->s, NULL, ret_task));
}

bool arbvictim_prepare(struct arbvictim *v)
{
	bool disturbed = v->disturbed;

	v->disturbed = false;
	content_reserve(4u << 20);
	if (arbvictim_did(v, "partition", shmstore_partition_open(v->st->path, 0, &v->p)) &&
	    !v->scene->unopened) {
		if (arbvictim_open(v) && arbvictim_begin(v, &v->task))
			arbvictim_did(v, "bind", shmstore_arb_bind(v->s, NULL, v->task));
		if (!v->st->shared->message[0] && v->scene->prepare)
			v->scene->prepare(v);
	}
	v->disturbed = disturbed;
	return v->st->shared->message[0] == '\0';
}

void arbvictim_run(struct arbvictim *v)
{
	v->scene->run(v);
}

/*
 * Bytes that are charged to a lease and never given back show in no book: they look like room for
 * later reservations. So all that there is is asked for, for which the daemon takes leases back.
 * Nothing is to be told of a connection that has ended, and with it all of this.
 */
static void take_all(struct arbvictim *v, uint64_t kernel)
{
	const struct shmstore_arb_how how = {.timeout_ms = ALL_MS};
	struct shmstore_arb_pool_info info;
	struct shmstore_arb_reservation all = {0};
	uint32_t task;

	if (shmstore_arb_task_begin(v->s, NULL, &task) != 0)
		return;
	v->disturbed = false;
	if (arbvictim_did(v, "bind", shmstore_arb_bind(v->s, NULL, task)) &&
	    arbvictim_did(v, "pool info",
			  shmstore_arb_pool_info(v->s, SHMSTORE_ARB_PARTITION, &info)) &&
	    arbvictim_did(v, "all that is free",
			  shmstore_arb_reserve(v->s, SHMSTORE_ARB_PARTITION, info.capacity - kernel,
					       &how, &all)))
		shmstore_arb_release(v->s, &all);
	shmstore_arb_task_end(v->s, task);
}

bool arbvictim_leave(struct arbvictim *v)
{
	struct shmstore_client *client = NULL;
	struct own_books books;
	const char *wrong = NULL;

	if (!v->s)
		return true;
	/* Of an earlier connection they are nothing any more: what these answer does not
	 * matter, what is left does. */
	shmstore_arb_task_end(v->s, v->task);
	shmstore_arb_task_end(v->s, v->second_task);
	if (v->pool)
		shmstore_arb_pool_remove(v->s, v->pool);
	if (shmstore_client_new(v->st->socket, ASK_MS, &client) < 0 ||
	    shmstore_client_connect(client) < 0)
		wrong = "the daemon does not answer";
	if (!wrong)
		wrong = own_books_settle(client, v->st->path, true, SETTLE_MS, &books);
	shmstore_client_free(client);
	if (!wrong)
		take_all(v, books.kernel);
	return wrong ? arbstage_fail(v->st, "while it lives: %s", wrong) : true;
}

void arbvictim_release(struct arbvictim *v)
{
	shmstore_arb_context_free(v->s ? v->second : NULL);
	shmstore_close(v->s);
	v->s = NULL;
	v->p = shmstore_partition_unref(v->p);
}
