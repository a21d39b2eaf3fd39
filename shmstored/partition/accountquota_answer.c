/* SPDX-License-Identifier: Apache-2.0 */
/* accountquota_answer.c: what a client is told of its request, and of the limit that refused it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "account.h"
#include "accountquota.h"
#include "conn.h"
#include "host.h"
#include "member.h"
#include "sizetext.h"

static void say_whose(const struct account *a, const struct quota_answer *why, char *ret,
		      size_t size)
{
	switch (why->limit) {
	case WIRE_LIMIT_USER:
		snprintf(ret, size, "user %s on %s", why->id, a->path);
		break;
	case WIRE_LIMIT_LABEL:
		snprintf(ret, size, "stores with label \"%s\" on %s", why->id, a->path);
		break;
	case WIRE_LIMIT_PARTITION:
	case WIRE_LIMIT_STORE:
	case WIRE_LIMIT_NONE:
		snprintf(ret, size, "partition %s", a->path);
	}
}

int accountquota_refuse(struct account *a, struct conn *c, uint64_t serial, int error,
			const struct quota_answer *why)
{
	char whose[QUOTA_ID_MAX + WIRE_PATH_MAX + 64];
	const char *how = error == -ETIMEDOUT ? "no room came in time: " : "";

	switch (error) {
	case -ECANCELED:
		return conn_refuse(c, serial, error, "the request was cancelled");
	case -EMFILE:
		return conn_refuse(
			c, serial, error,
			"too many requests of this store wait already; wait for one of them first");
	case -EPERM:
		return conn_refuse(c, serial, error,
				   "this store's page cannot be relied on; close the store and "
				   "open a new one");
	default:
		break;
	}
	say_whose(a, why, whose, sizeof(whose));
	a->host->counters.n_refusals++;
	return conn_refuse_limit(c, serial, error, why->limit, why->hard, why->used,
				 "%s%s: %s of %s are used or granted (%" PRIu64 " of %" PRIu64
				 " bytes); delete objects, or "
				 "ask whoever runs shmstored here for a higher limit",
				 how, whose, sizetext(why->used).text, sizetext(why->hard).text,
				 why->used, why->hard);
}

void accountquota_answer(struct member *m, uint64_t serial, int error, const struct quota_answer *a)
{
	struct wire_granted granted = {.granted = a->granted, .bytes = a->bytes};

	if (m->conn && error)
		accountquota_refuse(m->account, m->conn, serial, error, a);
	else if (m->conn)
		conn_send(m->conn, WIRE_GRANTED, serial, &granted, NULL, 0);
}
