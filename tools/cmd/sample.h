/* SPDX-License-Identifier: Apache-2.0 */
/* sample.h: a partition and its stores at one moment, as the daemon's documents have them: by our
 * own scan, or asked of the daemon. */
#ifndef SAMPLE_H
#define SAMPLE_H

#include <shmstore/inspect.h>
#include <stdbool.h>
#include <stdint.h>

struct json_object;
struct shmstore_client;

struct sample {
	int64_t taken_ns;           /* 0: there is none yet */
	bool asked;                 /* the daemon's, not our own scan */
	char huge[16];              /* "": not known */
	struct json_object *space;  /* a partition of STATUS */
	struct json_object *stores; /* one of WORKERS */
};

/* Samples now. 0, or as shmstore_partition_stores(); sample_deinit() is owed in both cases. */
int sample_take(struct shmstore_partition *p, struct sample *ret);
/*
 * The same as the daemon c tells it of the partition at path: as of its last second, and those
 * stores only that we may see. 0, or as asking_ask(). sample_deinit() is owed in both cases.
 */
int sample_ask(struct shmstore_client *c, const char *path, struct sample *ret);
void sample_deinit(struct sample *s);

/* May rates be told of now: are both of one clock, and apart? */
bool sample_has_rates(const struct sample *now, const struct sample *before);
/* The document of now. For people it says each store's state, and a dead store maps nothing and has
 * no pool. */
struct json_object *sample_document(const struct sample *now, const struct sample *before,
				    bool people);

#endif
