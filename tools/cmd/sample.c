/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sample.c: one statfs and one page per store, whatever the number of objects. Where shmstored
 * watches the partition it looks at the stores once a second anyway, and sees those that a user may
 * not look into; its sample's time is that of its last look, so that rates are right whenever it is
 * asked. Counters that run backwards and gauges below zero count as none.
 */
#include "sample.h"

#include <errno.h>
#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "asking.h"
#include "counters.def"
#include "fields.h"
#include "frames.h"
#include "jsonin.h"
#include "jsonmake.h"

/* ---- samples ---- */

static int add_store(const struct shmstore_store_info *info, void *arg)
{
	struct json_object *o = jsonmake_append(arg, jsonmake_new());

	fields_of(o, info, PROSE(name), PROSE(path), PROSE(label), SAME(pid), PLACE("alive"),
		  SAME(keep), SAME(created_ns));
	if (info->alive != SHMSTORE_ALIVE_UNKNOWN)
		jsonmake_flag(o, "alive", info->alive == SHMSTORE_ALIVE);
	fields_add(jsonmake_child(o, "ledger", jsonmake_new()), of_counters, &info->counters);
	return 0;
}

int sample_take(struct shmstore_partition *p, struct sample *ret)
{
	struct shmstore_partition_info info = {.size = sizeof(info)};
	int r = shmstore_partition_info(p, &info);

	*ret = (struct sample){.space = jsonmake_new(), .stores = jsonmake_new()};
	if (r < 0)
		return r;
	fields_of(ret->space, &info, FIELD_AS(FIELD_PROSE, path, "partition"),
		  FIELD(bytes_size, "size"), FIELD(bytes_used, "used"),
		  FIELD(bytes_available, "available"), SAME(inodes_size), SAME(inodes_used));
	snprintf(ret->huge, sizeof(ret->huge), "%s", info.huge);
	r = shmstore_partition_stores(p, add_store,
				      jsonmake_child(ret->stores, "workers", jsonmake_new_list()));
	if (r == 0)
		ret->taken_ns = frames_now();
	return r;
}

/* The object of the partition at path. */
static int ask(struct shmstore_client *c, enum shmstore_query what, const char *path,
	       struct json_object **ret)
{
	_json_ struct json_object *document = NULL;
	int r = asking_ask(c, what, path, &document);

	if (r == 0 && jsonin_count(document, "partitions") == 1)
		*ret = json_object_get(jsonin_at(document, "partitions", 0));
	return r == 0 && !*ret ? -EBADMSG : r;
}

int sample_ask(struct shmstore_client *c, const char *path, struct sample *ret)
{
	int r;

	*ret = (struct sample){.asked = true};
	r = ask(c, SHMSTORE_QUERY_STATUS, path, &ret->space);
	if (r == 0)
		r = ask(c, SHMSTORE_QUERY_WORKERS, path, &ret->stores);
	if (r == 0)
		ret->taken_ns = llround(jsonin_real(ret->stores, "ledgers_time") * 1e9);
	return r;
}

void sample_deinit(struct sample *s)
{
	jsonin_free(s->space);
	jsonin_free(s->stores);
	*s = (struct sample){.taken_ns = 0};
}

/* ---- the document ---- */

static const struct {
	const char *name, *counter;
} rates[] = {
	{"put_per_s", "put_n"},         {"put_bytes_per_s", "put_bytes"},
	{"get_per_s", "get_n"},         {"get_bytes_per_s", "get_bytes"},
	{"handoff_per_s", "handoff_n"}, {"adopt_per_s", "adopt_n"},
	{"delete_per_s", "delete_n"},   {"enospc_per_s", "enospc_n"},
	{"evicted_per_s", "evicted_n"},
};
#define N_RATES (sizeof(rates) / sizeof(rates[0]))
/* Of a dead store the latter two are nobody's. */
static const char *const gauges[] = {"objects", "linked", "mapped", "pool"};
#define N_GAUGES (sizeof(gauges) / sizeof(gauges[0]))

struct sums {
	uint64_t n_alive, gauges[N_GAUGES];
	double rates[N_RATES];
};

bool sample_has_rates(const struct sample *now, const struct sample *before)
{
	return before->taken_ns && before->asked == now->asked && now->taken_ns > before->taken_ns;
}

/* A counter's difference per second. A counter that fell belongs to another life of the store. */
static double rate(uint64_t now, uint64_t before, double seconds)
{
	return now > before ? (double)(now - before) / seconds : 0;
}

static void add_rates(struct json_object *o, const struct json_object *now,
		      const struct json_object *was, double seconds, struct sums *sums)
{
	const bool same = jsonin_i64(was, "pid") == jsonin_i64(now, "pid") &&
			  jsonin_i64(was, "created_ns") == jsonin_i64(now, "created_ns");

	for (size_t i = 0; i < N_RATES; i++) {
		double value =
			rate(jsonin_u64(jsonin_object(now, "ledger"), rates[i].counter),
			     same ? jsonin_u64(jsonin_object(was, "ledger"), rates[i].counter) : 0,
			     seconds);

		jsonmake_real(o, rates[i].name, value);
		sums->rates[i] += value;
	}
}

static void add_gauges(struct json_object *o, const struct json_object *store, bool people,
		       struct sums *sums)
{
	const bool alive = jsonin_flag(store, "alive"), dead = jsonin_has(store, "alive") && !alive;

	for (size_t i = 0; i < N_GAUGES; i++) {
		uint64_t value = jsonin_u64(jsonin_object(store, "ledger"), gauges[i]);
		bool nobodys = dead && i >= 2;

		value = value > INT64_MAX ? 0 : value;
		sums->gauges[i] += nobodys ? 0 : value;
		jsonmake_u64(o, gauges[i], people && nobodys ? 0 : value);
	}
	sums->n_alive += !dead;
	jsonmake_u64(o, "enospc", jsonin_u64(jsonin_object(store, "ledger"), "enospc_n"));
	if (people)
		jsonmake_text(o, "state",
			      alive                        ? "alive"
			      : !dead                      ? "?"
			      : jsonin_flag(store, "keep") ? "kept"
							   : "dead");
}

/* The stores by their paths. */
static struct json_object *index_of(const struct sample *s)
{
	struct json_object *index = jsonmake_new();

	for (size_t i = 0; i < jsonin_count(s->stores, "workers"); i++) {
		struct json_object *store = jsonin_at(s->stores, "workers", i);

		jsonmake_child(index, jsonin_text(store, "path"), json_object_get(store));
	}
	return index;
}

static void add_stores(struct json_object *list, const struct sample *now,
		       const struct sample *before, bool people, struct sums *sums)
{
	static const char *const order[] = {"path", NULL}, *const own[] = {"pid", "alive", "keep",
									   NULL};
	const double seconds = (double)(now->taken_ns - before->taken_ns) / 1e9;
	struct json_object *index = index_of(before);
	size_t n;
	const struct json_object **stores = jsonin_sorted(now->stores, "workers", order, &n);

	for (size_t i = 0; i < n; i++) {
		struct json_object *o = jsonmake_append(list, jsonmake_new());

		jsonmake_child(o, "name", json_object_get(jsonin_at_path(stores[i], "name|path")));
		jsonin_copy(o, stores[i], own);
		jsonmake_flag(o, "alive", jsonin_flag(stores[i], "alive"));
		jsonmake_prose(o, "label", jsonin_text(stores[i], "label"));
		add_gauges(o, stores[i], people, sums);
		if (sample_has_rates(now, before))
			add_rates(o, stores[i],
				  jsonin_object(index, jsonin_text(stores[i], "path")), seconds,
				  sums);
	}
	free(stores);
	jsonin_free(index);
}

struct json_object *sample_document(const struct sample *now, const struct sample *before,
				    bool people)
{
	static const char *const space[] = {"size",        "used",        "available",
					    "inodes_size", "inodes_used", NULL},
				 *const tier[] = {"tier", NULL};
	struct json_object *o = jsonmake_new(), *list = jsonmake_new_list();
	struct sums sums = {0};
	struct timespec t;

	add_stores(list, now, before, people, &sums);
	clock_gettime(CLOCK_REALTIME, &t);
	jsonmake_real(o, "time", (double)t.tv_sec + (double)t.tv_nsec / 1e9);
	jsonmake_prose(o, "partition", jsonin_text(now->space, "partition"));
	jsonmake_prose(o, "source", now->asked ? "daemon" : "scan");
	jsonin_copy(o, now->space, space);
	jsonmake_u64(o, "alive", sums.n_alive);
	for (size_t i = 0; i < N_GAUGES; i++)
		jsonmake_u64(o, gauges[i], sums.gauges[i]);
	for (size_t i = 0; sample_has_rates(now, before) && i < N_RATES; i++)
		jsonmake_real(o, rates[i].name, sums.rates[i]);
	jsonin_copy(o, now->space, tier);
	jsonmake_child(o, "stores", list);
	return o;
}
