/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_scale.c: does the millionth object cost what the first thousand did?
 *
 * Objects of 1 KiB are put round-robin into 1, 16 or 256 stores of one process until there are
 * 1,000,000; nothing is deleted. The cost of a put is the median of each window of 1,000; at 1,000,
 * 10,000, ... objects the last 1,000 are got, all are got in the order of their puts, and 7,000 at
 * random. At the end: the books of all stores (du) and the df equation with all holders
 * (reconcile). Objects are files, and then packed. Beside it the bare system calls at the same
 * counts, in as many directories: what the kernel itself does.
 */
#include <argp.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <shmstore/inspect.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bare.h"
#include "measure.h"
#include "place.h"
#include "report.h"

#define WINDOW     1000u
#define STORES_MAX 256u
#define SIZE       1024u

enum kind {
	FILES,
	PACKED,
	BARE
};

static const struct {
	const char *name;
	uint64_t pack_max;
	/* bytes that an object takes: a page, and what the kernel keeps of its inode and
	 * name; or its part of a segment */
	uint64_t memory;
	bool random; /* is a cost promised at random, too? */
	double reconcile_s;
} kinds[] = {
	[FILES] = {"shmstore", 0, 7168, false, 5},
	[PACKED] = {"packed", 1u << 20, 2560, true, 1},
	[BARE] = {"bare calls", 0, 7168, false, 0},
};

struct scale {
	struct place place;
	struct place_reserve reserve;
	enum kind kind;
	struct shmstore_partition *partition; /* NULL: bare */
	struct shmstore *stores[STORES_MAX];
	struct bare dirs[STORES_MAX];
	unsigned n_stores;
	unsigned n; /* objects */
	uint64_t random;
	struct measure_series puts, gets; /* all puts so far; a get of each object. One round */
	/* Two dependent reads at random, in as much memory as the indexes have and as the slots
	 * have, where there were 1,000 objects and in the end. */
	double floor_first_ns, floor_ns;
	/* Medians of 1,000: the first ones put, got, got at random; got at random at the end. */
	double put_first_ns, get_first_ns, random_first_ns, random_ns;
	char data[SIZE];
};

static int key_of(unsigned i, char ret_key[24])
{
	return snprintf(ret_key, 24, "object-%07u", i);
}

static int put_one(struct scale *s, unsigned i)
{
	struct iovec buffer = {s->data, SIZE};
	char key[24];
	int n = key_of(i, key);

	if (!s->partition)
		return bare_put(&s->dirs[i % s->n_stores], key, s->data, SIZE);
	return shmstore_put(s->stores[i % s->n_stores], key, (size_t)n, NULL, 0, &buffer, 1, 0);
}

static int get_one(struct scale *s, unsigned i)
{
	struct shmstore_view *v;
	char key[24];
	int r, n = key_of(i, key);

	if (!s->partition)
		return bare_get(&s->dirs[i % s->n_stores], key, SIZE);
	r = shmstore_get(s->stores[i % s->n_stores], key, (size_t)n, 0, &v);
	if (r < 0)
		return r;
	shmstore_view_unref(v);
	return 0;
}

/* Puts n more. The series takes them as one round. */
static void put_more(struct scale *s, unsigned n, struct measure_series *series)
{
	for (unsigned i = 0; i < n; i++) {
		uint64_t t0, ns;
		int r;

		if (s->n % 1024 == 0)
			place_reserve_give(&s->reserve, 1024 * kinds[s->kind].memory);
		t0 = measure_now_ns();
		r = put_one(s, s->n);
		ns = measure_now_ns() - t0;
		if (r < 0)
			errx(1, "put of object %u: %s", s->n, shmstore_strerror(r));
		s->n++;
		measure_add(&s->puts, ns);
		if (series)
			measure_add(series, ns);
	}
	if (series)
		measure_end_round(series);
}

/* Gets n objects from first on in order, or n at random out of all. The
 * series takes them as one round. */
static void get_some(struct scale *s, unsigned first, unsigned n, bool random,
		     struct measure_series *series)
{
	for (unsigned i = 0; i < n; i++) {
		unsigned which = first + i;
		uint64_t t0;
		int r;

		if (random) {
			s->random = s->random * 6364136223846793005u + 1442695040888963407u;
			which = (unsigned)((s->random >> 33) % s->n);
		}
		t0 = measure_now_ns();
		r = get_one(s, which);
		measure_add(series, measure_now_ns() - t0);
		if (r < 0)
			errx(1, "get of object %u: %s", which, shmstore_strerror(r));
	}
	measure_end_round(series);
}

static uint64_t read_line(const char *memory, size_t size, uint64_t random)
{
	const volatile char *at = memory + (random >> 32) * 64 % (size / 64 * 64);

	return (uint64_t)*at;
}

/*
 * The time of the memory itself: a line at random in as many bytes as all indexes have, and then
 * one that depends on it, in as many as all slots have, of the same kinds of memory. A get reads
 * these two, one after the other.
 */
static double floor_ns(struct scale *s)
{
	const size_t index_size = s->n * 6ul + 4096, slots_size = s->n * 48ul + 4096;
	struct measure_series series = {0};
	char path[128], *index, *slots;
	double ns;
	int fd;

	if (place_path(&s->place, "floor", path, sizeof(path)) < 0)
		errx(1, "%s: path too long", s->place.path);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || unlink(path) < 0 || ftruncate(fd, (off_t)slots_size) < 0)
		err(1, "%s", path);
	index = mmap(NULL, index_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	slots = mmap(NULL, slots_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (index == MAP_FAILED || slots == MAP_FAILED)
		err(1, "memory for the floor");
	memset(index, 1, index_size);
	memset(slots, 1, slots_size);
	for (unsigned i = 0; i < 7 * WINDOW; i++) {
		uint64_t t0 = measure_now_ns();

		s->random = s->random * 6364136223846793005u + 1442695040888963407u;
		s->random += read_line(index, index_size, s->random);
		s->random += read_line(slots, slots_size, s->random);
		measure_add(&series, measure_now_ns() - t0);
	}
	measure_end_round(&series);
	ns = measure_stat(&series).median;
	measure_deinit(&series);
	munmap(index, index_size);
	munmap(slots, slots_size);
	return ns;
}

/* ---- places ---------------------------------------------------------------------------------- */

static void open_stores(struct scale *s)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	char path[128], name[32];
	int r = place_path(&s->place, "partition", path, sizeof(path));

	options.pack_max = kinds[s->kind].pack_max;
	if (r == 0)
		r = shmstore_partition_open(path, SHMSTORE_CREATE, &s->partition);
	for (unsigned i = 0; r == 0 && i < s->n_stores; i++) {
		snprintf(name, sizeof(name), "store-%03u", i);
		r = shmstore_open(s->partition, name, &options, &s->stores[i]);
	}
	if (r < 0)
		errx(1, "%s: %s", path, shmstore_strerror(r));
}

static void open_bare(struct scale *s)
{
	char path[128], name[32];

	for (unsigned i = 0; i < s->n_stores; i++) {
		snprintf(name, sizeof(name), "%03u", i);
		if (place_path(&s->place, name, path, sizeof(path)) < 0 || mkdir(path, 0700) < 0)
			err(1, "%s", path);
		s->dirs[i] = (struct bare){.objects = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC),
					   .handoff = -1,
					   .other = -1};
		if (s->dirs[i].objects < 0)
			err(1, "%s", path);
	}
}

static void close_all(struct report *r, struct scale *s, const char *where)
{
	uint64_t t0 = measure_now_ns();

	for (unsigned i = 0; i < s->n_stores; i++) {
		if (s->partition)
			shmstore_close(s->stores[i]);
		else
			bare_close(&s->dirs[i]);
	}
	if (s->partition)
		report_seconds(r, where, "close, all removed", kinds[s->kind].name, s->n,
			       (double)(measure_now_ns() - t0) / 1e9);
	place_reserve_deinit(&s->reserve);
	shmstore_partition_unref(s->partition);
	place_close(&s->place);
}

static int no_holder(const struct shmstore_holder *holder, void *arg)
{
	(void)holder;
	++*(uint64_t *)arg;
	return 0;
}

static int add_store(const struct shmstore_store_books *books, void *arg)
{
	*(uint64_t *)arg += books->n_objects;
	return 0;
}

/* ---- one number of stores -------------------------------------------------------------------- */

static void bench_books(struct report *r, struct scale *s, const char *where)
{
	double du[5], reconcile[5];
	struct shmstore_usage usage;
	uint64_t n_objects = 0, n_holders;
	char what[96];

	for (size_t i = 0; i < 5; i++) {
		uint64_t t0 = measure_now_ns();
		int e;

		n_objects = 0;
		e = shmstore_partition_books(s->partition, add_store, &n_objects, NULL);
		if (e < 0 || n_objects != s->n)
			errx(1, "du: %s; %llu of %u objects", shmstore_strerror(e),
			     (unsigned long long)n_objects, s->n);
		du[i] = (double)(measure_now_ns() - t0) / 1e9;
		t0 = measure_now_ns();
		n_holders = 0;
		e = shmstore_partition_reconcile(s->partition, no_holder, &n_holders, &usage);
		reconcile[i] = (double)(measure_now_ns() - t0) / 1e9;
		if (e < 0 || usage.residual != 0)
			errx(1, "reconcile: %s; residual %lld", shmstore_strerror(e),
			     (long long)usage.residual);
	}
	report_seconds(r, where, "du", kinds[s->kind].name, s->n, measure_median(du, 5));
	report_seconds(r, where, "reconcile", kinds[s->kind].name, s->n,
		       measure_median(reconcile, 5));
	snprintf(what, sizeof(what), "%s: du of %u objects, %s", kinds[s->kind].name, s->n, where);
	report_target(r, &(struct report_target){"8b", what, "s", REPORT_AT_MOST, 5,
						 measure_median(du, 5), du[0], du[4]});
	snprintf(what, sizeof(what), "%s: reconcile of %u objects, %s", kinds[s->kind].name, s->n,
		 where);
	report_target(r, &(struct report_target){
				 "8c", what, "s", REPORT_AT_MOST, kinds[s->kind].reconcile_s,
				 measure_median(reconcile, 5), reconcile[0], reconcile[4]});
}

static void target(struct report *r, const struct scale *s, const char *where, const char *what,
		   bool promised, double ratio)
{
	char text[128];

	snprintf(text, sizeof(text), "%s: %s at %u to that at 1,000, %s", kinds[s->kind].name, what,
		 s->n, where);
	if (promised)
		report_target(r, &(struct report_target){"8a", text, "x", REPORT_AT_MOST, 1.3,
							 ratio, 0, 0});
	else
		report_note(r, "%s: %.2f", text, ratio);
}

/*
 * Medians; the means, which the machine's other work moves, stand in the rows. At random no
 * promise is checked of files: the thousand are in the CPU's caches, the million are not, and the
 * bare calls show as much of that.
 */
static void targets(struct report *r, const struct scale *s, const char *where)
{
	bool ours = s->kind != BARE;

	target(r, s, where, "put of any object", ours,
	       measure_stat(&s->puts).median / s->put_first_ns);
	target(r, s, where, "get of all in order", ours,
	       measure_stat(&s->gets).median / s->get_first_ns);
	target(r, s, where, "get at random", kinds[s->kind].random,
	       s->random_ns / s->random_first_ns);
	if (s->kind == PACKED)
		report_note(r,
			    "%s: two dependent reads at random take %.0f ns in the memory of %u "
			    "objects' indexes and "
			    "slots, %.0f in that of 1,000; a get "
			    "takes %.0f and %.0f",
			    where, s->floor_ns, s->n, s->floor_first_ns, s->random_ns,
			    s->random_first_ns);
}

static void report_one(struct report *r, const char *where, const char *operation,
		       const struct scale *s, const struct measure_series *series)
{
	char variant[48];

	snprintf(variant, sizeof(variant), "%s at %u", kinds[s->kind].name, s->n);
	report_row(r, where, operation, variant, SIZE, series);
}

/* Grows to goal objects and measures there. */
static void grow_to(struct report *r, struct scale *s, unsigned goal, const char *where)
{
	struct measure_series puts = {0}, last = {0}, random = {0};

	put_more(s, goal - s->n - WINDOW, NULL);
	put_more(s, WINDOW, &puts);
	report_one(r, where, "put, last 1,000", s, &puts);
	get_some(s, s->n - WINDOW, WINDOW, false, &last);
	report_one(r, where, "get, last 1,000", s, &last);
	measure_deinit(&s->gets);
	get_some(s, 0, s->n, false, &s->gets);
	report_one(r, where, "get, all in order", s, &s->gets);
	for (int i = 0; i < 7; i++)
		get_some(s, 0, WINDOW, true, &random);
	report_one(r, where, "get, 7,000 at random", s, &random);
	s->random_ns = measure_stat(&random).median;
	if (s->kind == PACKED)
		s->floor_ns = floor_ns(s);
	if (goal == WINDOW) {
		s->floor_first_ns = s->floor_ns;
		s->put_first_ns = measure_stat(&puts).median;
		s->get_first_ns = measure_stat(&last).median;
		s->random_first_ns = s->random_ns;
	}
	measure_deinit(&puts);
	measure_deinit(&last);
	measure_deinit(&random);
}

static void bench_stores(struct report *r, const struct report_options *options, unsigned n_stores,
			 enum kind kind)
{
	static struct scale s;
	unsigned limit = options->limit   ? (unsigned)options->limit
			 : options->quick ? 100000
					  : 1000000;
	char where[48];
	int e;

	s = (struct scale){.kind = kind, .n_stores = n_stores, .random = 1};
	memset(s.data, 0x5a, sizeof(s.data));
	snprintf(where, sizeof(where), "%u %s", n_stores, n_stores == 1 ? "store" : "stores");
	e = place_open_mount(&s.place, limit * kinds[kind].memory + (512u << 20),
			     (uint64_t)limit + 100000);
	if (e < 0)
		errx(1, "a tmpfs for %u objects: %s", limit,
		     e == -EPERM ? "needs root" : strerror(-e));
	e = place_reserve_init(&s.reserve, &s.place, limit * kinds[kind].memory);
	if (e < 0)
		errx(1, "taking the memory: %s", strerror(-e));
	if (kind == BARE)
		open_bare(&s);
	else
		open_stores(&s);
	for (unsigned goal = WINDOW; goal <= limit; goal *= 10)
		grow_to(r, &s, goal, where);
	measure_end_round(&s.puts);
	report_one(r, where, "put, all", &s, &s.puts);
	targets(r, &s, where);
	if (kind != BARE)
		bench_books(r, &s, where);
	close_all(r, &s, where);
	measure_deinit(&s.puts);
	measure_deinit(&s.gets);
}

/* ---- the program ----------------------------------------------------------------------------- */

struct asked {
	unsigned n_stores; /* 0: each of the three numbers */
	const char *kind;  /* NULL: all kinds */
};

enum option_key {
	OPTION_STORES = 0x100,
	OPTION_KIND
};

static const struct argp_option own_options[] = {
	{"stores", OPTION_STORES, "N", 0, "into so many stores only", 0},
	{"kind", OPTION_KIND, "NAME", 0, "only shmstore (files), packed or \"bare calls\"", 0},
	{0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct asked *a = state->input;

	if (key == OPTION_STORES) {
		a->n_stores = (unsigned)strtoul(arg, NULL, 10);
		if (!a->n_stores || a->n_stores > STORES_MAX)
			argp_error(state, "--stores: 1 to %u", STORES_MAX);
		return 0;
	}
	if (key == OPTION_KIND) {
		a->kind = arg;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static void bench_kinds(struct report *r, const struct report_options *options,
			const struct asked *a, unsigned n_stores)
{
	for (enum kind kind = FILES; kind <= BARE; kind++) {
		if (!a->kind || strcmp(a->kind, kinds[kind].name) == 0)
			bench_stores(r, options, n_stores, kind);
	}
}

int main(int argc, char **argv)
{
	static const unsigned counts[] = {1, 16, 256};
	static const struct argp own = {own_options, parse_option, NULL, NULL, NULL, NULL, NULL};
	struct asked a = {0};
	const struct report_program program = {
		"bench_scale", "the millionth object beside the first thousand", &own, &a};
	struct report_options options;
	struct report *r = report_new_own(argc, argv, &program, &options);
	struct rlimit files;
	int e;

	if (!r)
		err(1, "out of memory");
	if (geteuid() != 0)
		errx(1, "needs root: it mounts a tmpfs with room and inodes enough");
	e = measure_pin(options.cpu);
	if (e < 0)
		errx(1, "--cpu %d: %s", options.cpu, strerror(-e));
	report_note(r, "one process on CPU %d; objects of %u bytes, round-robin over the stores", e,
		    SIZE);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
		report_note(r, "open files: at most %llu", (unsigned long long)files.rlim_cur);
	}
	if (a.n_stores)
		bench_kinds(r, &options, &a, a.n_stores);
	for (size_t i = 0; !a.n_stores && i < sizeof(counts) / sizeof(counts[0]); i++)
		bench_kinds(r, &options, &a, counts[i]);
	e = report_print(r);
	report_free(r);
	return e;
}
