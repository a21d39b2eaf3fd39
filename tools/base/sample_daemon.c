/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sample_daemon.c: a sample out of the daemon's documents. It looks at the stores once a second anyway, and it sees those that a user may not
 * look into. Its time is that of its last look, so that rates are right whenever it is asked.
 */
#include <errno.h>
#include <math.h>
#include <shmstore/daemon.h>
#include <stdlib.h>
#include <string.h>

#include "asking.h"
#include "counters.def"
#include "fields.h"
#include "jsonin.h"
#include "sample.h"

/* The object of the partition at path. *ret_document is to be freed. */
static int ask(struct shmstore_client *c, enum shmstore_query what, const char *path, struct json_object **ret_document,
	       const struct json_object **ret)
{
	struct json_object *document;
	int r = asking_ask(c, what, path, &document);

	if (r < 0)
		return r;
	if (jsonin_count(document, "partitions") != 1) {
		jsonin_free(document);
		return -EBADMSG;
	}
	*ret_document = document;
	*ret = jsonin_at(document, "partitions", 0);
	return 0;
}

static void add_worker(struct sample *s, const struct json_object *o)
{
	const struct json_object *ledger = jsonin_object(o, "ledger");
	struct shmstore_store_info info = {
		.size = sizeof(info),
		.name = jsonin_text(o, "name"),
		.path = jsonin_text(o, "path"),
		.label = jsonin_text(o, "label"),
		.address = jsonin_text(o, "address"),
		.pid = (pid_t)jsonin_i64(o, "pid"),
		.uid = (uid_t)jsonin_u64(o, "uid"),
		.alive = jsonin_flag(o, "alive")  ? SHMSTORE_ALIVE
			 : jsonin_has(o, "alive") ? SHMSTORE_DEAD
						  : SHMSTORE_ALIVE_UNKNOWN,
		.keep = jsonin_flag(o, "keep"),
		.readable = true,
	};

	fields_read(ledger, of_counters, sizeof(of_counters) / sizeof(of_counters[0]), &info.counters);
	sample_add(s, &info);
}

int sample_ask(struct shmstore_client *c, const char *path, struct sample *ret, const struct sample *before)
{
	struct json_object *status, *workers;
	const struct json_object *p;
	int r;

	*ret = (struct sample){.asked = true};
	r = ask(c, SHMSTORE_QUERY_STATUS, path, &status, &p);
	if (r < 0)
		return r;
	ret->info.bytes_size = jsonin_u64(p, "size");
	ret->info.bytes_used = jsonin_u64(p, "used");
	ret->info.bytes_available = jsonin_u64(p, "available");
	ret->info.inodes_size = jsonin_u64(p, "inodes_size");
	ret->info.inodes_used = jsonin_u64(p, "inodes_used");
	ret->path = strdup(jsonin_text(p, "partition"));
	ret->info.path = ret->path;
	ret->tier = jsonin_keep_object(p, "tier");
	jsonin_free(status);
	if (!ret->path)
		return -ENOMEM;
	r = ask(c, SHMSTORE_QUERY_WORKERS, path, &workers, &p);
	if (r < 0)
		return r;
	ret->taken_ns = llround(jsonin_real(p, "ledgers_time") * 1e9);
	for (size_t i = 0; i < jsonin_count(p, "workers"); i++)
		add_worker(ret, jsonin_at(p, "workers", i));
	jsonin_free(workers);
	sample_finish(ret, before);
	return 0;
}
