/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turnops.c: 10,000 objects stand. One more is put, the oldest is deleted, so that each put meets
 * other memory; and the objects are got in the order of their puts, each with a look at its bytes.
 */
#include "turnops.h"

#include <err.h>
#include <stdio.h>
#include <string.h>

#include "measure.h"

#define STANDING 10000u
#define N_OPS    200u
#define N_WARM   20u

struct turn {
	struct shmstore *s;
	const void *data;
	size_t size;
	unsigned n_put; /* keys so far: those that stand are the last of them */
	unsigned n_got;
};

static size_t key_of(unsigned i, char ret_key[16])
{
	return (size_t)snprintf(ret_key, 16, "o%u", i);
}

static int put_one_more(struct turn *t)
{
	struct iovec buffer = {(void *)(uintptr_t)t->data, t->size};
	char key[16];

	return shmstore_put(t->s, key, key_of(t->n_put++, key), NULL, 0, &buffer, 1, 0);
}

static int delete_at(struct turn *t, unsigned i)
{
	char key[16];

	return shmstore_delete(t->s, key, key_of(i, key));
}

static int run_turn(void *arg)
{
	struct turn *t = arg;
	int r = put_one_more(t);

	return r < 0 ? r : delete_at(t, t->n_put - 1 - STANDING);
}

static int run_get(void *arg)
{
	struct turn *t = arg;
	struct shmstore_view *v;
	char key[16];
	uint64_t size;
	const void *bytes;
	int r = shmstore_get(t->s, key, key_of(t->n_put - STANDING + t->n_got++ % STANDING, key), 0,
			     &v);

	if (r < 0)
		return r;
	bytes = shmstore_view_buffer(v, 0, &size);
	measure_touch(bytes, size);
	shmstore_view_unref(v);
	return 0;
}

static int fill(struct turn *t)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < STANDING; i++)
		r = put_one_more(t);
	return r;
}

static int empty(struct turn *t)
{
	int r = 0;

	for (unsigned i = 1; r == 0 && i <= STANDING; i++)
		r = delete_at(t, t->n_put - i);
	return r;
}

enum {
	FILES,
	DEFAULT,
	N_STORES
};

static const char *const variants[N_STORES] = {[FILES] = "files", [DEFAULT] = "default"};

static void bench_size(struct report *report, const struct report_options *options,
		       const struct place *place, struct turn turns[N_STORES], size_t size)
{
	struct contender c[2 * N_STORES] = {0};
	int r = place_warm(place, 2 * N_STORES * STANDING * (size + 4096));

	for (int i = 0; i < N_STORES; i++) {
		struct turn *t = &turns[i];

		t->size = size;
		if (r == 0)
			r = fill(t);
		c[i] = (struct contender){.operation = "put+delete, 10,000 stand",
					  .variant = variants[i],
					  .run = run_turn,
					  .arg = t};
		c[N_STORES + i] = (struct contender){.operation = "get and look, 10,000 stand",
						     .variant = variants[i],
						     .run = run_get,
						     .arg = t};
	}
	if (r == 0)
		r = measure_contenders(c, 2 * N_STORES, options->rounds, N_OPS, N_WARM, NULL);
	for (int i = 0; i < N_STORES && r == 0; i++)
		r = empty(&turns[i]);
	if (r < 0)
		errx(1, "%s, %u objects of %zu bytes: %s", place->label, STANDING, size,
		     shmstore_strerror(r));
	for (int i = 0; i < 2 * N_STORES; i++) {
		report_row(report, place->label, c[i].operation, c[i].variant, size, &c[i].series);
		measure_deinit(&c[i].series);
	}
}

void turnops_run(struct report *r, const struct report_options *options, const struct place *place,
		 struct shmstore_partition *partition, const void *data)
{
	static const size_t sizes[] = {1024, 4096, TURNOPS_SIZE_MAX};
	struct turn turns[N_STORES] = {0};
	int e = 0;

	for (int i = 0; e == 0 && i < N_STORES; i++) {
		struct shmstore_options o = SHMSTORE_OPTIONS_INIT;

		if (i == FILES)
			o.pack_max = 0;
		turns[i].data = data;
		e = shmstore_open(partition, i == FILES ? "files-in-turn" : "in-turn", &o,
				  &turns[i].s);
	}
	if (e < 0)
		errx(1, "%s: %s", place->path, shmstore_strerror(e));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (!options->limit || sizes[i] <= options->limit)
			bench_size(r, options, place, turns, sizes[i]);
	}
	for (int i = 0; i < N_STORES; i++)
		shmstore_close(turns[i].s);
}
