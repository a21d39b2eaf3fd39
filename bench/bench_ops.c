/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_ops.c: what does one operation cost, beside the least that the kernel asks for it?
 *
 * For each place (a tmpfs of our own with huge=within_size; /dev/shm as it is) and each size, the library's calls and the bare
 * system calls take turns (measure.h). Puts are shown three times: "fresh" (recycling off; put and delete in turn), "growing"
 * (recycling off; objects pile up, then all go) and "default" (recycling on, as it comes; put and delete in turn). One process,
 * one CPU; bench_steady has two processes. In the end many threads at once (crowdops.h); --limit 1 leaves the rest out.
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

#define KIB            1024ull
#define MIB            (1024 * KIB)
#define GIB            (1024 * MIB)
#define KEPT           "kept" /* the object that get and handoff use */
#define ARRAY_N(array) (sizeof(array) / sizeof((array)[0]))

/* One place and size at a time. */
struct ops {
	const struct place *place;
	struct shmstore_partition *partition;
	struct shmstore *fresh, *recycling, *receiver; /* stores: recycling off, as it comes, of who adopts */
	struct bare bare;
	char paths[3][128]; /* KEPT in the directories of bare */
	const void *data;   /* private, warm */
	void *copy;         /* private, warm */
	size_t size;
	unsigned n_bare, n_grown, grow; /* objects that have piled up, bare and ours; how many there may be */
	struct shmstore_ticket ticket;
};

static const char name_fixed[] = "k";

/* ---- puts --------------------------------------------------------------------------------------------------------- */

static int run_memcpy(void *arg)
{
	struct ops *o = arg;

	memcpy(o->copy, o->data, o->size);
	__asm__ volatile("" : : "r"(o->copy) : "memory");
	return 0;
}

static int put_into(struct ops *o, struct shmstore *s, const char *key)
{
	struct iovec buffer = {(void *)(uintptr_t)o->data, o->size};

	return shmstore_put(s, key, strlen(key), NULL, 0, &buffer, 1, 0);
}

static int run_bare_put(void *arg)
{
	struct ops *o = arg;

	return bare_put(&o->bare, name_fixed, o->data, o->size);
}

static int run_bare_mapped(void *arg)
{
	struct ops *o = arg;

	return bare_put_mapped(&o->bare, name_fixed, o->data, o->size);
}

static int after_bare(void *arg)
{
	struct ops *o = arg;

	return bare_delete(o->bare.objects, name_fixed);
}

static int run_put_fresh(void *arg)
{
	struct ops *o = arg;

	return put_into(o, o->fresh, name_fixed);
}

static int after_put_fresh(void *arg)
{
	struct ops *o = arg;

	return shmstore_delete(o->fresh, name_fixed, 1);
}

static int run_put_default(void *arg)
{
	struct ops *o = arg;

	return put_into(o, o->recycling, name_fixed);
}

static int after_put_default(void *arg)
{
	struct ops *o = arg;

	return shmstore_delete(o->recycling, name_fixed, 1);
}

static int run_create_seal(void *arg)
{
	struct ops *o = arg;
	struct shmstore_writer *w;
	uint64_t size = o->size;
	int r = shmstore_create(o->recycling, name_fixed, 1, 0, &size, 1, 0, &w);

	if (r < 0)
		return r;
	memcpy(shmstore_writer_buffer(w, 0, NULL), o->data, o->size);
	return shmstore_seal(w);
}

static void grown_name(unsigned i, char ret_name[16])
{
	snprintf(ret_name, 16, "g%u", i);
}

static int run_grow_bare(void *arg)
{
	struct ops *o = arg;
	char name[16];

	grown_name(o->n_bare, name);
	return bare_put(&o->bare, name, o->data, o->size);
}

static int run_grow_fresh(void *arg)
{
	struct ops *o = arg;
	char name[16];

	grown_name(o->n_grown, name);
	return put_into(o, o->fresh, name);
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
		r = shmstore_delete(o->fresh, name, strlen(name));
	}
	return r;
}

/* Let the objects pile up to the limit, then remove them all. */
static int after_grow_bare(void *arg)
{
	struct ops *o = arg;

	return ++o->n_bare < o->grow ? 0 : drop_bare(o);
}

static int after_grow_fresh(void *arg)
{
	struct ops *o = arg;

	return ++o->n_grown < o->grow ? 0 : drop_grown(o);
}

/* ---- gets --------------------------------------------------------------------------------------------------------- */

static int run_bare_get(void *arg)
{
	struct ops *o = arg;

	return bare_get(&o->bare, KEPT, o->size);
}

static int run_get(void *arg)
{
	struct ops *o = arg;
	struct shmstore_view *v;
	int r = shmstore_get(o->fresh, KEPT, strlen(KEPT), 0, &v);

	if (r < 0)
		return r;
	shmstore_view_unref(v);
	return 0;
}

/* ---- handoff and adopt -------------------------------------------------------------------------------------------- */

static int run_bare_hand_over(void *arg)
{
	struct ops *o = arg;

	return bare_hand_over(&o->bare, KEPT);
}

static int run_bare_by_path(void *arg)
{
	struct ops *o = arg;

	return bare_hand_over_by_path(o->paths[0], o->paths[1], o->paths[2]);
}

static int after_bare_hand_over(void *arg)
{
	struct ops *o = arg;

	return bare_delete(o->bare.other, KEPT);
}

static int run_handoff(void *arg)
{
	struct ops *o = arg;

	return shmstore_handoff(o->fresh, KEPT, strlen(KEPT), 60000, &o->ticket);
}

static int run_adopt(void *arg)
{
	struct ops *o = arg;

	return shmstore_adopt(o->receiver, KEPT, strlen(KEPT), &o->ticket, 0);
}

static int after_adopt(void *arg)
{
	struct ops *o = arg;

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

/* ---- a size ------------------------------------------------------------------------------------------------------- */

enum {
	MEMCPY,
	BARE_PUT,
	BARE_MAPPED,
	PUT_FRESH,
	PUT_DEFAULT,
	CREATE_SEAL,
	GROW_BARE,
	GROW_FRESH,
	DELETE_BARE,
	DELETE_FRESH,
	DELETE_DEFAULT,
	BARE_GET,
	GET,
	BARE_HAND_OVER,
	BARE_BY_PATH,
	HAND_OVER,
	HANDOFF,
	ADOPT,
	N_CONTENDERS
};

/* before and after are not timed. */
static const struct {
	const char *operation, *variant;
	int (*before)(void *);
	int (*run)(void *);
	int (*after)(void *);
} shapes[N_CONTENDERS] = {
	[MEMCPY] = {"copy", "memcpy", NULL, run_memcpy, NULL},
	[BARE_PUT] = {"put", "bare write", NULL, run_bare_put, after_bare},
	[BARE_MAPPED] = {"put", "bare mmap", NULL, run_bare_mapped, after_bare},
	[PUT_FRESH] = {"put", "fresh", NULL, run_put_fresh, after_put_fresh},
	[PUT_DEFAULT] = {"put", "default", NULL, run_put_default, after_put_default},
	[CREATE_SEAL] = {"create+seal", "default", NULL, run_create_seal, after_put_default},
	[GROW_BARE] = {"put", "bare growing", NULL, run_grow_bare, after_grow_bare},
	[GROW_FRESH] = {"put", "growing", NULL, run_grow_fresh, after_grow_fresh},
	[DELETE_BARE] = {"delete", "bare", run_bare_put, after_bare, NULL},
	[DELETE_FRESH] = {"delete", "fresh", run_put_fresh, after_put_fresh, NULL},
	[DELETE_DEFAULT] = {"delete", "default", run_put_default, after_put_default, NULL},
	[BARE_GET] = {"get", "bare", NULL, run_bare_get, NULL},
	[GET] = {"get", "shmstore", NULL, run_get, NULL},
	[BARE_HAND_OVER] = {"handoff+adopt", "bare", NULL, run_bare_hand_over, after_bare_hand_over},
	[BARE_BY_PATH] = {"handoff+adopt", "bare, by path", NULL, run_bare_by_path, after_bare_hand_over},
	[HAND_OVER] = {"handoff+adopt", "shmstore", NULL, run_hand_over, after_adopt},
	[HANDOFF] = {"handoff", "shmstore", NULL, run_handoff, after_handoff},
	[ADOPT] = {"adopt", "shmstore", run_handoff, run_adopt, after_adopt},
};

static void list_contenders(struct ops *o, struct contender c[N_CONTENDERS])
{
	for (size_t i = 0; i < N_CONTENDERS; i++)
		c[i] = (struct contender){.operation = shapes[i].operation,
					  .variant = shapes[i].variant,
					  .before = shapes[i].before,
					  .run = shapes[i].run,
					  .after = shapes[i].after,
					  .arg = o};
}

static size_t n_ops_for(size_t size, bool quick)
{
	size_t n = size <= 64 * KIB ? 200 : size <= MIB ? 60 : size <= 16 * MIB ? 10 : size <= 64 * MIB ? 4 : 2;

	return quick && n > 40 ? 40 : n;
}

static void targets(struct report *r, const struct ops *o, struct contender c[N_CONTENDERS])
{
	bool huge = strcmp(o->place->label, "within_size") == 0;
	char size[16], what[96];

	report_size(o->size, size, sizeof(size));
	if (huge && o->size == 64 * MIB) {
		report_ratio(r, "1a", "put 64 MiB, within_size, put+delete, recycling off", "x memcpy", REPORT_AT_LEAST,
			     0.70, &c[MEMCPY].series, &c[PUT_FRESH].series);
		report_ratio(r, "1a", "put 64 MiB, within_size, growing store", "x memcpy", REPORT_AT_LEAST, 0.70,
			     &c[MEMCPY].series, &c[GROW_FRESH].series);
		report_ratio(r, "1a", "put 64 MiB, within_size, as it comes", "x memcpy", REPORT_AT_LEAST, 0.70,
			     &c[MEMCPY].series, &c[PUT_DEFAULT].series);
	}
	if (huge && o->size == MIB) {
		report_ratio(r, "1b", "put 1 MiB, within_size, recycling off", "x ftruncate+mmap+memcpy",
			     REPORT_AT_LEAST, 8, &c[BARE_MAPPED].series, &c[PUT_FRESH].series);
		report_ratio(r, "1b", "put 1 MiB, within_size, as it comes", "x ftruncate+mmap+memcpy", REPORT_AT_LEAST,
			     8, &c[BARE_MAPPED].series, &c[PUT_DEFAULT].series);
	}
	if (!huge && o->size >= MIB && o->size <= 64 * MIB) {
		snprintf(what, sizeof(what), "put %s, /dev/shm, put+delete, recycling off", size);
		report_ratio(r, "1c", what, "x bare write", REPORT_AT_LEAST, 0.95, &c[BARE_PUT].series,
			     &c[PUT_FRESH].series);
		snprintf(what, sizeof(what), "put %s, /dev/shm, growing store", size);
		report_ratio(r, "1c", what, "x bare write", REPORT_AT_LEAST, 0.95, &c[GROW_BARE].series,
			     &c[GROW_FRESH].series);
	}
	if (o->size == KIB) {
		snprintf(what, sizeof(what), "put 1 KiB, %s, recycling off", o->place->label);
		report_ratio(r, "2a", what, "x bare put", REPORT_AT_MOST, 1.25, &c[PUT_FRESH].series,
			     &c[BARE_PUT].series);
		snprintf(what, sizeof(what), "put 1 KiB, %s, growing store", o->place->label);
		report_ratio(r, "2a", what, "x bare put", REPORT_AT_MOST, 1.25, &c[GROW_FRESH].series,
			     &c[GROW_BARE].series);
		snprintf(what, sizeof(what), "put 1 KiB, %s, as it comes", o->place->label);
		report_ratio(r, "2a", what, "x bare put", REPORT_AT_MOST, 1.25, &c[PUT_DEFAULT].series,
			     &c[BARE_PUT].series);
	}
	snprintf(what, sizeof(what), "get %s, %s, untouched", size, o->place->label);
	report_ratio(r, "2b", what, "x bare get", REPORT_AT_MOST, 1.4, &c[GET].series, &c[BARE_GET].series);
	if (o->size == KIB || o->size == MIB) {
		snprintf(what, sizeof(what), "handoff+adopt %s, %s", size, o->place->label);
		report_ratio(r, "2c", what, "x link+link+unlink", REPORT_AT_MOST, 1.5, &c[HAND_OVER].series,
			     &c[BARE_BY_PATH].series);
		report_ratio(r, "2c", what, "x linkat+linkat+unlinkat", REPORT_AT_MOST, 1.5, &c[HAND_OVER].series,
			     &c[BARE_HAND_OVER].series);
	}
}

static void bench_size(struct report *r, const struct report_options *options, struct ops *o, size_t size)
{
	struct contender c[N_CONTENDERS];
	const struct contender *failed = NULL;
	size_t n_ops = n_ops_for(size, options->quick);
	bool get_only = size > 256 * MIB;
	size_t first = get_only ? BARE_GET : 0;
	int e;

	o->size = size;
	o->grow = (unsigned)(size >= 64 * MIB ? 4 : n_ops);
	list_contenders(o, c);
	/* What one contender frees the next one takes; this makes it so from the first one on. */
	e = place_warm(o->place, 2 * size + (size <= 64 * MIB ? o->grow * size : 0));
	if (e == 0)
		e = bare_put(&o->bare, KEPT, o->data, size);
	if (e == 0)
		e = put_into(o, o->fresh, KEPT);
	if (e == 0)
		e = measure_contenders(c + first, get_only ? 2 : N_CONTENDERS, options->rounds, get_only ? 100 : n_ops,
				       n_ops > 20 ? 10 : 1, &failed);
	if (e < 0)
		errx(1, "%s, %zu bytes, %s %s: %s", o->place->label, size, failed ? failed->operation : "put",
		     failed ? failed->variant : KEPT, shmstore_strerror(e));
	drop_bare(o); /* the last round may have ended in the middle of a pile */
	drop_grown(o);
	bare_delete(o->bare.objects, KEPT);
	shmstore_delete(o->fresh, KEPT, strlen(KEPT));
	for (size_t i = 0; i < N_CONTENDERS; i++)
		report_row(r, o->place->label, c[i].operation, c[i].variant, size, &c[i].series);
	targets(r, o, c);
	for (size_t i = 0; i < N_CONTENDERS; i++)
		measure_deinit(&c[i].series);
}

static void open_stores(struct ops *o)
{
	struct shmstore_options off = SHMSTORE_OPTIONS_INIT;
	char path[128];
	int e;

	off.recycle_max = 0;
	if (place_path(o->place, "partition", path, sizeof(path)) < 0)
		errx(1, "path too long");
	e = shmstore_partition_open(path, SHMSTORE_CREATE, &o->partition);
	if (e == 0)
		e = shmstore_open(o->partition, "fresh", &off, &o->fresh);
	if (e == 0)
		e = shmstore_open(o->partition, "recycling", NULL, &o->recycling);
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
	bare_close(&o->bare);
	shmstore_close(o->fresh);
	shmstore_close(o->recycling);
	shmstore_close(o->receiver);
	shmstore_partition_unref(o->partition);
}

int main(int argc, char **argv)
{
	struct report_options options;
	struct report *r =
		report_new(argc, argv, "bench_ops",
			   "put, get, handoff, adopt and delete beside the system calls they are made of", &options);
	struct ops o = {0};
	struct place place;
	size_t largest;
	int e;

	if (!r)
		err(1, "out of memory");
	largest = options.limit && options.limit < GIB ? options.limit : options.quick ? 64 * MIB : GIB;
	e = measure_pin(options.cpu);
	if (e < 0)
		errx(1, "--cpu %d: %s", options.cpu, strerror(-e));
	report_note(r, "one process on CPU %d; source and target of memcpy private and warm, 4 KiB pages", e);
	o.data = measure_memory(largest);
	o.copy = measure_memory(largest > 256 * MIB ? 256 * MIB : largest);
	if (!o.data || !o.copy)
		err(1, "memory for %zu bytes", largest);
	e = place_open_mount(&place, 4 * GIB, 0);
	if (e == 0) {
		bench_place(r, &options, &o, &place);
		place_close(&place);
	} else
		report_skip(r, "a tmpfs of our own with huge=within_size", e == -EPERM ? "needs root" : strerror(-e));
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
		report_skip(r, "many threads on a tmpfs of our own", e == -EPERM ? "needs root" : strerror(-e));
	e = report_print(r);
	report_free(r);
	return e;
}
