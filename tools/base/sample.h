/* SPDX-License-Identifier: Apache-2.0 */
/* sample.h: a partition and its stores at one moment, and how fast they change since another one: by our own scan, or asked of the daemon. */
#ifndef SAMPLE_H
#define SAMPLE_H

#include <shmstore/inspect.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_object;

/* Counters that are shown by the second, as documents call them. */
#define SAMPLE_RATES 9
extern const char *const sample_rates[SAMPLE_RATES];

struct sample_store {
	char *name, *path, *label;
	pid_t pid;
	int64_t created_ns;
	enum shmstore_alive alive;
	bool keep;
	struct shmstore_counters counters;
	double rates[SAMPLE_RATES];
};

struct sample {
	int64_t taken_ns;
	struct shmstore_partition_info info;
	size_t n_stores;
	struct sample_store *stores; /* sorted by path */
	double rates[SAMPLE_RATES];  /* of all */
	uint64_t n_alive, n_objects, linked, mapped, pool;
	bool has_rates;
	bool asked;               /* the daemon's, not our own scan */
	char *path;               /* info.path, where it is ours */
	struct json_object *tier; /* what the daemon says of the disk tier; NULL: nothing */
};

/* Samples now. before (may be all zero) gives the rates: how much the counters grew since.
 * 0, or as shmstore_partition_stores(); sample_deinit() is owed in both cases. */
int sample_take(struct shmstore_partition *p, struct sample *ret, const struct sample *before);
/*
 * The same as the daemon c tells it of the partition at path: as of its last second, and those stores only that we may see.
 * 0, or as shmstore_client_query(); -EBADMSG: its answer makes no sense. sample_deinit() is owed in both cases.
 */
struct shmstore_client;
int sample_ask(struct shmstore_client *c, const char *path, struct sample *ret, const struct sample *before);

/* For those who make samples: adds a copy of a store; sorts and adds up, once taken_ns is set and all are added. */
void sample_add(struct sample *sample, const struct shmstore_store_info *info);
void sample_finish(struct sample *ret, const struct sample *before);
void sample_deinit(struct sample *s);

#endif
