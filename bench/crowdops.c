/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crowdops.c: many threads that do one thing to a store without a pause, and one more that does
 * another: its longest call, and how much the many got done beside it. Each handoff's lease is
 * removed at once, as an adoption would: a tmpfs counts names.
 */
#include "crowdops.h"

#include <err.h>
#include <pthread.h>
#include <shmstore/shmstore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MANY     32u
#define SECONDS  10u
#define WORST_MS 250
#define KEPT     "kept"

struct crowd {
	struct shmstore *s;
	atomic_bool stop;
	_Atomic uint64_t n_many;
	_Atomic int error;
	char data[65536];
};

struct member {
	struct crowd *c;
	unsigned number;
	pthread_t thread;
};

static int put(struct crowd *c, const char *key)
{
	struct iovec buffer = {c->data, sizeof(c->data)};
	int r = shmstore_put(c->s, key, strlen(key), NULL, 0, &buffer, 1, 0);

	return r < 0 ? r : shmstore_delete(c->s, key, strlen(key));
}

static int get(struct crowd *c)
{
	struct shmstore_view *v;
	int r = shmstore_get(c->s, KEPT, strlen(KEPT), 0, &v);

	if (r == 0)
		shmstore_view_unref(v);
	return r;
}

static int hand_off(struct crowd *c)
{
	struct shmstore_ticket t;
	int r = shmstore_handoff(c->s, KEPT, strlen(KEPT), 60000, &t);

	if (r == 0)
		unlink(t.path);
	return r;
}

static void note(struct crowd *c, int error)
{
	if (error < 0)
		atomic_store(&c->error, error);
}

static void *hands_off(void *arg)
{
	struct crowd *c = ((struct member *)arg)->c;

	while (!atomic_load(&c->stop)) {
		note(c, hand_off(c));
		atomic_fetch_add_explicit(&c->n_many, 1, memory_order_relaxed);
	}
	return NULL;
}

static void *puts_own(void *arg)
{
	const struct member *m = arg;
	char key[16];

	snprintf(key, sizeof(key), "own-%u", m->number);
	while (!atomic_load(&m->c->stop)) {
		note(m->c, put(m->c, key));
		atomic_fetch_add_explicit(&m->c->n_many, 1, memory_order_relaxed);
	}
	return NULL;
}

static int put_one(struct crowd *c)
{
	return put(c, "one");
}

static const struct shape {
	const char *many, *one;
	void *(*run_many)(void *);
	int (*run_one)(struct crowd *);
} shapes[] = {
	{"32 hand off", "put+delete", hands_off, put_one},
	{"32 put+delete", "get", puts_own, get},
	{"32 put+delete", "handoff", puts_own, hand_off},
};

struct one {
	struct crowd *c;
	const struct shape *shape;
	struct measure_series calls;
	uint64_t worst_ns;
	pthread_t thread;
};

static void *does_one(void *arg)
{
	struct one *o = arg;
	uint64_t ns;

	while (!atomic_load(&o->c->stop)) {
		ns = measure_now_ns();
		note(o->c, o->shape->run_one(o->c));
		ns = measure_now_ns() - ns;
		measure_add(&o->calls, ns);
		o->worst_ns = ns > o->worst_ns ? ns : o->worst_ns;
	}
	return NULL;
}

/* The many stop by the clock, not when the one has come to its end: without
 * its turn that may be never. */
static void run_shape(struct report *r, struct crowd *c, const struct shape *shape,
		      const char *where, unsigned seconds)
{
	struct member many[MANY];
	struct one one = {.c = c, .shape = shape};
	uint64_t ns = measure_now_ns();
	char what[96];

	atomic_store(&c->stop, false);
	atomic_store(&c->n_many, 0);
	for (unsigned i = 0; i < MANY; i++) {
		many[i] = (struct member){.c = c, .number = i};
		if (pthread_create(&many[i].thread, NULL, shape->run_many, &many[i]) != 0)
			errx(1, "no thread");
	}
	if (pthread_create(&one.thread, NULL, does_one, &one) != 0)
		errx(1, "no thread");
	nanosleep(&(struct timespec){.tv_sec = seconds}, NULL);
	atomic_store(&c->stop, true);
	for (unsigned i = 0; i < MANY; i++)
		pthread_join(many[i].thread, NULL);
	ns = measure_now_ns() - ns;
	pthread_join(one.thread, NULL);
	if (c->error)
		errx(1, "%s, %s: %s", shape->many, shape->one, shmstore_strerror(c->error));
	measure_end_round(&one.calls);
	report_row(r, where, shape->one, shape->many, sizeof(c->data), &one.calls);
	report_seconds(r, where, shape->many, shape->one, c->n_many, (double)ns / 1e9);
	snprintf(what, sizeof(what), "longest %s beside %s, %s", shape->one, shape->many, where);
	report_target(r, &(struct report_target){.id = "2d",
						 .what = what,
						 .unit = "ms",
						 .relation = REPORT_AT_MOST,
						 .target = WORST_MS,
						 .value = (double)one.worst_ns / 1e6});
	measure_deinit(&one.calls);
}

void crowdops_run(struct report *r, const struct report_options *options, const struct place *place)
{
	static struct crowd c;
	struct iovec buffer = {c.data, sizeof(c.data)};
	struct shmstore_partition *p;
	char path[128];
	int e;

	memset(c.data, 1, sizeof(c.data));
	if (place_path(place, "crowd", path, sizeof(path)) < 0)
		errx(1, "path too long");
	measure_unpin();
	e = shmstore_partition_open(path, SHMSTORE_CREATE, &p);
	if (e == 0)
		e = shmstore_open(p, "crowd", NULL, &c.s);
	if (e == 0)
		e = shmstore_put(c.s, KEPT, strlen(KEPT), NULL, 0, &buffer, 1, 0);
	if (e < 0)
		errx(1, "%s: %s", path, shmstore_strerror(e));
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		run_shape(r, &c, &shapes[i], place->label, options->quick ? 2 : SECONDS);
	shmstore_close(c.s);
	shmstore_partition_unref(p);
	if (measure_pin(options->cpu) < 0)
		errx(1, "cannot go back to one CPU");
}
