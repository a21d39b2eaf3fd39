/* SPDX-License-Identifier: Apache-2.0 */
/* ownbooks.c: see ownbooks.h. The daemon is asked as any tool asks it. */
#include "ownbooks.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "clock.h"
#include "sandbox.h"

#define POLL_NS 2000000L

static char wrong[512];

static uint64_t number(struct json_object *o, const char *name)
{
	struct json_object *value;

	return json_object_object_get_ex(o, name, &value) ? (uint64_t)json_object_get_int64(value)
							  : UINT64_MAX;
}

static const char *say_failed(struct shmstore_client *client, int e)
{
	snprintf(wrong, sizeof(wrong), "the daemon: %s: %s", shmstore_strerror(e),
		 shmstore_client_reason(client));
	return wrong;
}

static const char *read_answer(struct json_object *o, struct own_books *ret)
{
	struct json_object *list = NULL, *of = NULL, *pools = NULL, *totals = NULL, *pool = NULL;

	if (o && json_object_object_get_ex(o, "partitions", &list))
		of = json_object_array_get_idx(list, 0);
	if (of && json_object_object_get_ex(of, "pools", &pools) &&
	    json_object_object_get_ex(of, "totals", &totals))
		pool = json_object_array_get_idx(pools, 0);
	if (!pool)
		return "the daemon's answer has no pool";
	ret->used = number(pool, "used");
	ret->leased = number(pool, "leased");
	ret->left =
		number(totals, "tasks") + number(totals, "contexts") + number(totals, "pools") - 1;
	return NULL;
}

const char *own_books_read(struct shmstore_client *client, const char *path, struct own_books *ret)
{
	struct json_object *o;
	const char *bad;
	char *json;
	int e = shmstore_client_query(client, SHMSTORE_QUERY_ARBITER, path, &json, NULL);

	if (e < 0)
		return say_failed(client, e);
	o = json_tokener_parse(json);
	bad = read_answer(o, ret);
	json_object_put(o);
	free(json);
	ret->kernel = sandbox_used(path).bytes;
	return bad;
}

static const char *survey(struct shmstore_client *client, const char *path)
{
	char *json = NULL;
	int e = shmstore_client_query(client, SHMSTORE_QUERY_RECONCILE, path, &json, NULL);

	free(json);
	return e < 0 ? say_failed(client, e) : NULL;
}

static bool settled(const struct own_books *b, bool alive)
{
	return b->left == 0 && b->used - b->leased == b->kernel && (alive || b->leased == 0);
}

const char *own_books_settle(struct shmstore_client *client, const char *path, bool alive,
			     unsigned within_ms, struct own_books *ret)
{
	uint64_t end_ms = clock_ms() + within_ms;

	for (;;) {
		const char *bad = own_books_read(client, path, ret);

		if (bad || settled(ret, alive))
			return bad;
		if (clock_ms() >= end_ms)
			break;
		/* Changes that the daemon was not told of (by a process that died before it was
		 * registered) are found by its survey. */
		bad = survey(client, path);
		if (bad)
			return bad;
		nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
	}
	snprintf(wrong, sizeof(wrong),
		 "%llu bytes are booked (%llu of them leased), %llu are used; %llu tasks, contexts "
		 "and pools are left",
		 (unsigned long long)ret->used, (unsigned long long)ret->leased,
		 (unsigned long long)ret->kernel, (unsigned long long)ret->left);
	return wrong;
}
