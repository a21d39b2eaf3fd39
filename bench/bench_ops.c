/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_ops.c: what does one operation cost, beside the least that the kernel asks for it?
 *
 * For each place (a tmpfs of our own with huge=within_size; /dev/shm as it is) and each size, the
 * library's calls and the bare system calls take turns (measure.h). Stores are of three kinds:
 * "fresh" (each object a new file; put and delete in turn, or "growing": objects pile up, then all
 * go), "recycled" (each object a file, of the pool where it has one) and "default" (as it comes:
 * objects up to 1 MiB are packed, larger ones as recycled). One process, one CPU; bench_steady has
 * two processes. Then 10,000 objects that stand (turnops.h), and many threads at once (crowdops.h);
 * --limit 1 leaves the rest out.
 */
#include <err.h>
#include <errno.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bare.h"
#include "crowdops.h"
#include "measure.h"
#include "place.h"
#include "report.h"
#include "turnops.h"

#define KIB            1024ull
#define MIB            (1024 * KIB)
#define GIB            (1024 * MIB)
#define KEPT           "kept" /* the object that get and handoff use */
#define ARRAY_N(array) (sizeof(array) / sizeof((array)[0]))

enum {
	FRESH,
	RECYCLED,
	DEFAULT,
	N_STORES
};

/* One place and size at a time. */
struct ops {
	const struct place *place;
	struct shmstore_partition *partition;
	struct shmstore *stores[N_STORES], *receiver; /* of who adopts */
	struct bare bare;
	char paths[3][128]; /* KEPT in the directories of bare */
	const void *data;   /* private, warm */
	void *copy;         /* private, warm */
	size_t size;
	/* objects that have piled up, bare and ours; how many there may be */
	unsigned n_bare, n_grown, grow;
	struct shmstore_ticket ticket;
};

/* One contender's. */
struct op {
	struct ops *o;
	struct shmstore *s;
	unsigned flags;
};

static const char name_fixed[] = "k";

/* ---- puts ------------------------------------------------------------------------------------ */

static int run_memcpy(void *arg)
{
	struct ops *o = ((struct op *)arg)->o;

	memcpy(o->copy, o->data, o->size);
	__asm__ volatile("" : : "r"(o->copy) : "memory");
	return 0;
}

static int put_into(const struct ops *o, struct shmstore *s, const char *key)
{
	struct iovec buffer = {(void *)(uintptr_t)o->data, o->size};

	return shmstore_put(s, key, strlen(key), NULL, 0, &buffer, 1, 0);
}

static int run_bare_put(void *arg)
{
	struct ops *o = ((struct op *)arg)->o;

	return bare_put(&o->bare, name_fixed, o->data, o->size);
}

static int run_bare_mapped(void *arg)
{
	struct ops *o = ((struct op *)arg)->o;

	return bare_put_mapped(&o->bare, name_fixed, o->data, o->size);
}

static int after_bare(void *arg)
{
	struct ops *o = ((struct op *)arg)->o;

	return bare_delete(o->bare.objects, name_fixed);
}

static int run_put(void *arg)
{
	const struct op *op = arg;

	return put_into(op->o, op->s, name_fixed);
}

static int after_put(void *arg)
{
	const struct op *op = arg;

	return shmstore_delete(op->s, name_fixed, 1);
}

static int run_create_seal(void *arg)
{
	const struct op *op = arg;
	struct shmstore_writer *w;
	uint64_t size = op->o->size;
	int r = shmstore_create(op->s, name_fixed, 1, 0, &size, 1, op->flags, &w);

	if (r < 0)
		return r;
	memcpy(shmstore_writer_buffer(w, 0, NULL), op->o->data, size);
	return shmstore_seal(w);
}

static void grown_name(unsigned i, char ret_name[16])
{
	snprintf(ret_name, 16, "g%u", i);
}

static int run_grow_bare(void *arg)
{
	struct ops *o = ((struct op *)arg)->o;
	char name[16];

	grown_name(o->n_bare, name);
	return bare_put(&o->bare, name, o->data, o->size);
}

static int run_grow_fresh(void *arg)
{
	struct ops *o = ((struct op *)arg)->o;
	char name[16];

	grown_name(o->n_grown, name);
	return put_into(o, o->stores[FRESH], name);
}

static int drop_bare(struct ops *o)
{
	char name[16];
	int r = 0;

	while (o->n_bare > 0 && r == 0) {
		grown_name(--o->n_bare, name);
		r = bare_delete(o->bare.objects, name);
	}
	return r;
}

static int drop_grown(struct ops *o)
{
	char name[16];
	int r = 0;

	while (o->n_grown > 0 && r == 0) {
		grown_name(--o->n_grown, name);
		r = shmstore_delete(o->stores[FRESH], name, strlen(name));
	}
	return r;
}

/* Let the objects pile up to the limit, then remove them all. */
static int after_grow_bare(void *arg)
{
	struct ops *o = ((struct op *)arg)->o;

	return ++o->n_bare < o->grow ? 0 : drop_bare(o);
}

static int after_grow_fresh(void *arg)
{
	struct ops *o = ((struct op *)arg)->o;

	return ++o->n_grown < o->grow ? 0 : drop_grown(o);
}

/* ---- gets ------------------------------------------------------------------------------------ */

static int run_bare_get(void *arg)
{
	struct ops *o = ((struct op *)arg)->o;

	return bare_get(&o->bare, KEPT, o->size);
}

static int run_get(void *arg)
{
	const struct op *op = arg;
	struct shmstore_view *v;
	int r = shmstore_get(op->s, KEPT, strlen(KEPT), 0, &v);

	if (r < 0)
		return r;
	shmstore_view_unref(v);
	return 0;
}

/* ---- handoff and adopt ----------------------------------------------------------------------- */

static int run_bare_hand_over(void *arg)
{
	struct ops *o = ((struct op *)arg)->o;

	return bare_hand_over(&o->bare, KEPT);
}

static int run_bare_by_path(void *arg)
{
	struct ops *o = ((struct op *)arg)->o;

	return bare_hand_over_by_path(o->paths[0], o->paths[1], o->paths[2]);
}

static int after_bare_hand_over(void *arg)
{
	struct ops *o = ((struct op *)arg)->o;

	return bare_delete(o->bare.other, KEPT);
}

static int run_handoff(void *arg)
{
	const struct op *op = arg;

	return shmstore_handoff(op->s, KEPT, strlen(KEPT), 60000, &op->o->ticket);
}

static int run_adopt(void *arg)
{
	struct ops *o = ((struct op *)arg)->o;

	return shmstore_adopt(o->receiver, KEPT, strlen(KEPT), &o->ticket, 0);
}

static int after_adopt(void *arg)
{
	struct ops *o = ((struct op *)arg)->o;

	return shmstore_delete(o->receiver, KEPT, strlen(KEPT));
}

static int run_hand_over(void *arg)
{
	int r = run_handoff(arg);

	return r < 0 ? r : run_adopt(arg);
}

static int after_handoff(void *arg)
{
	int r = run_adopt(arg);

	return r < 0 ? r : after_adopt(arg);
}

/* ---- a size ---------------------------------------------------------------------------------- */

enum {
	MEMCPY,
	BARE_PUT,
	BARE_MAPPED,
	PUT_FRESH,
	PUT_RECYCLED,
	PUT_DEFAULT,
	CREATE_FRESH,
	CREATE_RECYCLED,
	CREATE_UNCLEARED,
	CREATE_DEFAULT,
	GROW_BARE,
	GROW_FRESH,
	DELETE_BARE,
	DELETE_FRESH,
	DELETE_RECYCLED,
	DELETE_DEFAULT,
	BARE_GET,
	GET,
	GET_DEFAULT,
	BARE_HAND_OVER,
	BARE_BY_PATH,
	HAND_OVER,
	HAND_OVER_DEFAULT,
	HANDOFF,
	HANDOFF_DEFAULT,
	ADOPT,
	ADOPT_DEFAULT,
	N_CONTENDERS
};

/* before and after are not timed. */
static const struct {
	const char *operation, *variant;
	int (*before)(void *);
	int (*run)(void *);
	int (*after)(void *);
	int store;
	unsigned flags;
} shapes[N_CONTENDERS] = {
	[MEMCPY] = {"copy", "memcpy", NULL, run_memcpy, NULL, FRESH, 0},
	[BARE_PUT] = {"put", "bare write", NULL, run_bare_put, after_bare, FRESH, 0},
	[BARE_MAPPED] = {"put", "bare mmap", NULL, run_bare_mapped, after_bare, FRESH, 0},
	[PUT_FRESH] = {"put", "fresh", NULL, run_put, after_put, FRESH, 0},
	[PUT_RECYCLED] = {"put", "recycled", NULL, run_put, after_put, RECYCLED, 0},
	[PUT_DEFAULT] = {"put", "default", NULL, run_put, after_put, DEFAULT, 0},
	[CREATE_FRESH] = {"create+seal", "fresh", NULL, run_create_seal, after_put, FRESH, 0},
	[CREATE_RECYCLED] = {"create+seal", "recycled", NULL, run_create_seal, after_put, RECYCLED,
			     0},
	[CREATE_UNCLEARED] = {"create+seal", "recycled, not cleared", NULL, run_create_seal,
			      after_put, RECYCLED, SHMSTORE_UNCLEARED},
	[CREATE_DEFAULT] = {"create+seal", "default", NULL, run_create_seal, after_put, DEFAULT, 0},
	[GROW_BARE] = {"put", "bare growing", NULL, run_grow_bare, after_grow_bare, FRESH, 0},
	[GROW_FRESH] = {"put", "growing", NULL, run_grow_fresh, after_grow_fresh, FRESH, 0},
	[DELETE_BARE] = {"delete", "bare", run_bare_put, after_bare, NULL, FRESH, 0},
	[DELETE_FRESH] = {"delete", "fresh", run_put, after_put, NULL, FRESH, 0},
	[DELETE_RECYCLED] = {"delete", "recycled", run_put, after_put, NULL, RECYCLED, 0},
	[DELETE_DEFAULT] = {"delete", "default", run_put, after_put, NULL, DEFAULT, 0},
	[BARE_GET] = {"get", "bare", NULL, run_bare_get, NULL, FRESH, 0},
	[GET] = {"get", "file", NULL, run_get, NULL, FRESH, 0},
	[GET_DEFAULT] = {"get", "default", NULL, run_get, NULL, DEFAULT, 0},
	[BARE_HAND_OVER] = {"handoff+adopt", "bare", NULL, run_bare_hand_over, after_bare_hand_over,
			    FRESH, 0},
	[BARE_BY_PATH] = {"handoff+adopt", "bare, by path", NULL, run_bare_by_path,
			  after_bare_hand_over, FRESH, 0},
	[HAND_OVER] = {"handoff+adopt", "file", NULL, run_hand_over, after_adopt, FRESH, 0},
	[HAND_OVER_DEFAULT] = {"handoff+adopt", "default", NULL, run_hand_over, after_adopt,
			       DEFAULT, 0},
	[HANDOFF] = {"handoff", "file", NULL, run_handoff, after_handoff, FRESH, 0},
	[HANDOFF_DEFAULT] = {"handoff", "default", NULL, run_handoff, after_handoff, DEFAULT, 0},
	[ADOPT] = {"adopt", "file", run_handoff, run_adopt, after_adopt, FRESH, 0},
	[ADOPT_DEFAULT] = {"adopt", "default", run_handoff, run_adopt, after_adopt, DEFAULT, 0},
};

static void list_contenders(struct ops *o, struct op args[N_CONTENDERS],
			    struct contender c[N_CONTENDERS])
{
	for (size_t i = 0; i < N_CONTENDERS; i++) {
		args[i] = (struct op){o, o->stores[shapes[i].store], shapes[i].flags};
		c[i] = (struct contender){.operation = shapes[i].operation,
					  .variant = shapes[i].variant,
					  .before = shapes[i].before,
					  .run = shapes[i].run,
					  .after = shapes[i].after,
					  .arg = &args[i]};
	}
}

static size_t n_ops_for(size_t size, bool quick)
{
	size_t n = size <= 64 * KIB   ? 200
		   : size <= MIB      ? 60
		   : size <= 16 * MIB ? 10
		   : size <= 64 * MIB ? 4
				      : 2;

	return quick && n > 40 ? 40 : n;
}

static void targets(struct report *r, const struct ops *o, struct contender c[N_CONTENDERS])
{
	bool huge = strcmp(o->place->label, "within_size") == 0;
	char size[16], what[96];

	report_size(o->size, size, sizeof(size));
	if (huge && o->size == 64 * MIB) {
		report_ratio(r, "1a", "put 64 MiB, within_size, put+delete, recycling off",
			     "x memcpy", REPORT_AT_LEAST, 0.70, &c[MEMCPY].series,
			     &c[PUT_FRESH].series);
		report_ratio(r, "1a", "put 64 MiB, within_size, growing store", "x memcpy",
			     REPORT_AT_LEAST, 0.70, &c[MEMCPY].series, &c[GROW_FRESH].series);
		report_ratio(r, "1a", "put 64 MiB, within_size, recycled", "x memcpy",
			     REPORT_AT_LEAST, 0.70, &c[MEMCPY].series, &c[PUT_RECYCLED].series);
	}
	if (huge && o->size == MIB) {
		report_ratio(r, "1b", "put 1 MiB, within_size, recycling off",
			     "x ftruncate+mmap+memcpy", REPORT_AT_LEAST, 8, &c[BARE_MAPPED].series,
			     &c[PUT_FRESH].series);
		report_ratio(r, "1b", "put 1 MiB, within_size, recycled", "x ftruncate+mmap+memcpy",
			     REPORT_AT_LEAST, 8, &c[BARE_MAPPED].series, &c[PUT_RECYCLED].series);
	}
	if (!huge && o->size >= MIB && o->size <= 64 * MIB) {
		snprintf(what, sizeof(what), "put %s, /dev/shm, put+delete, recycling off", size);
		report_ratio(r, "1c", what, "x bare write", REPORT_AT_LEAST, 0.95,
			     &c[BARE_PUT].series, &c[PUT_FRESH].series);
		snprintf(what, sizeof(what), "put %s, /dev/shm, growing store", size);
		report_ratio(r, "1c", what, "x bare write", REPORT_AT_LEAST, 0.95,
			     &c[GROW_BARE].series, &c[GROW_FRESH].series);
	}
	if (o->size == KIB) {
		snprintf(what, sizeof(what), "put 1 KiB, %s, recycling off", o->place->label);
		report_ratio(r, "2a", what, "x bare put", REPORT_AT_MOST, 1.25,
			     &c[PUT_FRESH].series, &c[BARE_PUT].series);
		snprintf(what, sizeof(what), "put 1 KiB, %s, growing store", o->place->label);
		report_ratio(r, "2a", what, "x bare put", REPORT_AT_MOST, 1.25,
			     &c[GROW_FRESH].series, &c[GROW_BARE].series);
		snprintf(what, sizeof(what), "put 1 KiB, %s, recycled", o->place->label);
		report_ratio(r, "2a", what, "x bare put", REPORT_AT_MOST, 1.25,
			     &c[PUT_RECYCLED].series, &c[BARE_PUT].series);
	}
	snprintf(what, sizeof(what), "get %s, %s, untouched", size, o->place->label);
	report_ratio(r, "2b", what, "x bare get", REPORT_AT_MOST, 1.4, &c[GET].series,
		     &c[BARE_GET].series);
	if (o->size == KIB || o->size == MIB) {
		snprintf(what, sizeof(what), "handoff+adopt %s, %s", size, o->place->label);
		report_ratio(r, "2c", what, "x link+link+unlink", REPORT_AT_MOST, 1.5,
			     &c[HAND_OVER].series, &c[BARE_BY_PATH].series);
		report_ratio(r, "2c", what, "x linkat+linkat+unlinkat", REPORT_AT_MOST, 1.5,
			     &c[HAND_OVER].series, &c[BARE_HAND_OVER].series);
	}
}

static void bench_size(struct report *r, const struct report_options *options, struct ops *o,
		       size_t size)
{
	struct contender c[N_CONTENDERS];
	struct op args[N_CONTENDERS];
	const struct contender *failed = NULL;
	size_t n_ops = n_ops_for(size, options->quick);
	bool get_only = size > 256 * MIB;
	size_t first = get_only ? BARE_GET : 0;
	int e;

	o->size = size;
	o->grow = (unsigned)(size >= 64 * MIB ? 4 : n_ops);
	list_contenders(o, args, c);
	/* A contender takes the memory that the last one freed; the first one needs some, too. */
	e = place_warm(o->place, 2 * size + (size <= 64 * MIB ? o->grow * size : 0));
	if (e == 0)
		e = bare_put(&o->bare, KEPT, o->data, size);
	if (e == 0)
		e = put_into(o, o->stores[FRESH], KEPT);
	if (e == 0)
		e = put_into(o, o->stores[DEFAULT], KEPT);
	if (e == 0)
		e = measure_contenders(c + first, get_only ? 2 : N_CONTENDERS, options->rounds,
				       get_only ? 100 : n_ops, n_ops > 20 ? 10 : 1, &failed);
	if (e < 0)
		errx(1, "%s, %zu bytes, %s %s: %s", o->place->label, size,
		     failed ? failed->operation : "put", failed ? failed->variant : KEPT,
		     shmstore_strerror(e));
	drop_bare(o); /* the last round may have ended in the middle of a pile */
	drop_grown(o);
	bare_delete(o->bare.objects, KEPT);
	shmstore_delete(o->stores[FRESH], KEPT, strlen(KEPT));
	shmstore_delete(o->stores[DEFAULT], KEPT, strlen(KEPT));
	for (size_t i = 0; i < N_CONTENDERS; i++)
		report_row(r, o->place->label, c[i].operation, c[i].variant, size, &c[i].series);
	targets(r, o, c);
	for (size_t i = 0; i < N_CONTENDERS; i++)
		measure_deinit(&c[i].series);
}

static void open_stores(struct ops *o)
{
	static const char *const names[N_STORES] = {"fresh", "recycled", "default"};
	char path[128];
	int e;

	if (place_path(o->place, "partition", path, sizeof(path)) < 0)
		errx(1, "path too long");
	e = shmstore_partition_open(path, SHMSTORE_CREATE, &o->partition);
	for (int i = 0; e == 0 && i < N_STORES; i++) {
		struct shmstore_options options = SHMSTORE_OPTIONS_INIT;

		if (i == FRESH)
			options.recycle_max = 0;
		if (i != DEFAULT)
			options.pack_max = 0;
		e = shmstore_open(o->partition, names[i], &options, &o->stores[i]);
	}
	if (e == 0)
		e = shmstore_open(o->partition, "receiver", NULL, &o->receiver);
	if (e < 0)
		errx(1, "%s: %s", path, shmstore_strerror(e));
	if (place_path(o->place, "bare-objects/" KEPT, o->paths[0], sizeof(o->paths[0])) < 0 ||
	    place_path(o->place, "bare-handoff/" KEPT, o->paths[1], sizeof(o->paths[1])) < 0 ||
	    place_path(o->place, "bare-other/" KEPT, o->paths[2], sizeof(o->paths[2])) < 0 ||
	    bare_open(&o->bare, o->place) < 0)
		errx(1, "%s: no room for the bare files", o->place->path);
}

static void bench_place(struct report *r, const struct report_options *options, struct ops *o,
			const struct place *place)
{
	static const size_t sizes[] = {KIB,     4 * KIB,  64 * KIB, 256 * KIB, MIB,
				       4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, GIB};
	uint64_t limit = options->limit ? options->limit : options->quick ? 64 * MIB : GIB;

	o->place = place;
	open_stores(o);
	report_note(r, "%s: %s, huge=%s", place->label, place->path, place->huge);
	for (size_t i = 0; i < ARRAY_N(sizes); i++)
		if (sizes[i] <= limit)
			bench_size(r, options, o, sizes[i]);
	turnops_run(r, options, place, o->partition, o->data);
	bare_close(&o->bare);
	for (int i = 0; i < N_STORES; i++)
		shmstore_close(o->stores[i]);
	shmstore_close(o->receiver);
	shmstore_partition_unref(o->partition);
}

int main(int argc, char **argv)
{
	struct report_options options;
	struct report *r = report_new(
		argc, argv, "bench_ops",
		"put, get, handoff, adopt and delete beside the system calls they are made of",
		&options);
	struct ops o = {0};
	struct place place;
	size_t largest;
	int e;

	if (!r)
		err(1, "out of memory");
	largest = options.limit && options.limit < GIB ? options.limit
		  : options.quick                      ? 64 * MIB
						       : GIB;
	e = measure_pin(options.cpu);
	if (e < 0)
		errx(1, "--cpu %d: %s", options.cpu, strerror(-e));
	report_note(
		r,
		"one process on CPU %d; source and target of memcpy private and warm, 4 KiB pages",
		e);
	o.data = measure_memory(largest);
	o.copy = measure_memory(largest > 256 * MIB ? 256 * MIB : largest);
	if (!o.data || !o.copy)
		err(1, "memory for %zu bytes", largest);
	e = place_open_mount(&place, 4 * GIB, 0);
	if (e == 0) {
		bench_place(r, &options, &o, &place);
		place_close(&place);
	} else
		report_skip(r, "a tmpfs of our own with huge=within_size",
			    e == -EPERM ? "needs root" : strerror(-e));
	e = place_open_devshm(&place);
	if (e == 0) {
		bench_place(r, &options, &o, &place);
		place_close(&place);
	} else
		report_skip(r, "/dev/shm", strerror(-e));
	e = place_open_mount(&place, GIB, 0);
	if (e == 0) {
		crowdops_run(r, &options, &place);
		place_close(&place);
	} else
		report_skip(r, "many threads on a tmpfs of our own",
			    e == -EPERM ? "needs root" : strerror(-e));
	e = report_print(r);
	report_free(r);
	return e;
}
