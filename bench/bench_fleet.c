/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_fleet.c: do client processes under a daemon fare as the arbiter's core does in virtual
 * time, and what is left of those that are killed?
 *
 * The sets of arbsets.h, a part of their situations, by client processes that reserve and release
 * through the library and the daemon; beside them the same situations in virtual time, with the
 * capacity that the daemon gave the pool. Then clients that put and delete objects (bytes / 64) and
 * are killed in 1 % of their operations; afterwards the pool's books must be what the kernel says.
 * Each run has a tmpfs and a daemon of its own.
 */
#include <argp.h>
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <shmstore/arbiter.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "arbsets.h"
#include "arbsim.h"
#include "fleet.h"
#include "hostdaemon.h"
#include "place.h"
#include "report.h"

#define SITUATIONS     100u
#define QUICK          20u
#define KILL           0.01
#define PACE           0.25
#define HEADROOM       (UINT64_C(4) << 20)
#define SHRINK         6u
#define BOOKS_WITHIN_S 20u /* surveys and ticks have had their turn by then */
#define BOOKS_LOOK_NS  100000000

struct options {
	const char *set; /* NULL = those of the table below */
	uint32_t n_situations;
	double pace;
	bool no_plain, no_kills;
};

enum {
	OPTION_SET = 2000,
	OPTION_SITUATIONS,
	OPTION_PACE,
	OPTION_NO_PLAIN,
	OPTION_NO_KILLS
};

static const struct argp_option own_options[] = {
	{"set", OPTION_SET, "NAME", 0, "this one only: \"D x4\"", 0},
	{"situations", OPTION_SITUATIONS, "N", 0, "of each set (100)", 0},
	{"pace", OPTION_PACE, "X", 0, "seconds that a second of work takes (0.25)", 0},
	{"no-plain", OPTION_NO_PLAIN, NULL, 0, "only the clients that are killed", 0},
	{"no-kills", OPTION_NO_KILLS, NULL, 0, "only the clients that are not", 0},
	{0},
};

static const char *const usual_sets[] = {"D x4", "D x8", "Cf x4", "H x4", "T x4"};
static const char *const killed_sets[] = {"D x4", "D x8", "T x4"};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case OPTION_SET:
		o->set = arg;
		return 0;
	case OPTION_SITUATIONS:
		o->n_situations = (uint32_t)strtoul(arg, NULL, 0);
		return 0;
	case OPTION_PACE:
		o->pace = strtod(arg, NULL);
		return 0;
	case OPTION_NO_PLAIN:
		o->no_plain = true;
		return 0;
	case OPTION_NO_KILLS:
		o->no_kills = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- the scene ------------------------------------------------------------------------------- */

static struct {
	struct place own, partition;
	struct hostdaemon daemon;
} scene;

static void clear_scene(void)
{
	hostdaemon_stop(&scene.daemon);
	place_close(&scene.partition);
	place_close(&scene.own);
}

/*
 * A file system of that size and headroom, which the arbiter leaves to what is not arbitrated:
 * stores' own files. A daemon without leases: each reservation is asked for.
 */
static bool set_scene(struct report *r, uint64_t bytes, uint64_t headroom)
{
	struct hostdaemon_options o = {.directory = scene.own.path, .program = BENCH_SHMSTORED};
	char partition[HOSTDAEMON_PATH], more[128];
	int e = place_open_devshm(&scene.own);

	if (e == 0)
		e = place_open_mount(&scene.partition, bytes + headroom, 0);
	if (e < 0) {
		report_skip(r, "client processes",
			    e == -EPERM ? "needs root, for a tmpfs of its own" : strerror(-e));
		clear_scene();
		return false;
	}
	snprintf(partition, sizeof(partition), "%s/partition", scene.partition.path);
	snprintf(more, sizeof(more), "arbiter {\n\theadroom = \"%" PRIu64 "\"\n\tlease = none\n}\n",
		 headroom);
	o.partition = partition;
	o.more = more;
	hostdaemon_start(&scene.daemon, &o);
	return true;
}

static const struct arbset *find_set(const char *name)
{
	for (size_t i = 0; i < n_arbsets; i++) {
		if (strcmp(arbsets[i].name, name) == 0)
			return &arbsets[i];
	}
	errx(2, "no such set: %s", name);
}

static void promise(struct report *r, const char *id, double target, double value, const char *what,
		    const char *unit)
{
	report_target(r, &(struct report_target){.id = id,
						 .what = what,
						 .unit = unit,
						 .relation = REPORT_AT_MOST,
						 .target = target,
						 .value = value});
}

static void say(struct report *r, const char *name, const char *variant,
		const struct fleet_result *got)
{
	report_note(r,
		    "%s, %s: pool %.1f MiB, %" PRIu64 " tasks, splits %" PRIu64 " + %" PRIu64
		    " too big, retries %" PRIu64 ", makespan %.1f s, lost %.1f s; failed %" PRIu64
		    " tasks, %" PRIu64 " situations; hangs %" PRIu64 ", killed %" PRIu64
		    ", ended by themselves %" PRIu64 ", refused %" PRIu64 "%s%s%s",
		    name, variant, (double)got->capacity / (1 << 20), got->n_tasks,
		    got->work.n_splits, got->work.n_toobig, got->work.n_retries, got->makespan_s,
		    (double)got->work.lost_ns / 1e9, got->n_failed_tasks, got->n_failed_situations,
		    got->n_hangs, got->n_kills, got->n_broken, got->n_refused,
		    got->refused[0] ? " (" : "", got->refused, got->refused[0] ? ")" : "");
	report_seconds(r, name, "makespan at work's pace", variant, got->work.n_retries,
		       got->makespan_s);
}

/* ---- reservations only ----------------------------------------------------------------------- */

static void run_plain(struct report *r, const struct options *o, const struct arbset *set)
{
	struct fleet_options fleet = {.rules = set->rules,
				      .seed = ARBSETS_SEED,
				      .n_situations = o->n_situations,
				      .n_clients = set->n_runners,
				      .pace = o->pace};
	struct arbsim_options sim = {.rules = set->rules,
				     .seed = ARBSETS_SEED,
				     .n_situations = o->n_situations,
				     .n_runners = set->n_runners};
	struct arbsim_result virtual;
	struct fleet_result got;
	char what[128];
	double ratio;
	int e;

	if (!set_scene(r, (uint64_t)set->pool_mib << 20, 0))
		return;
	fleet.partition = scene.daemon.partition;
	e = fleet_run(&fleet, &got);
	clear_scene();
	say(r, set->name, "reserve", &got);
	sim.pool_bytes = got.capacity;
	if (e == 0)
		e = arbsim_run(&sim, &virtual);
	if (e < 0)
		errx(1, "%s: %s", set->name, strerror(-e));
	report_note(r,
		    "%s, the same in virtual time: splits %" PRIu64 " + %" PRIu64
		    " too big, retries %" PRIu64 ", makespan %.1f s, lost %.1f s",
		    set->name, virtual.work.n_splits, virtual.work.n_toobig, virtual.work.n_retries,
		    virtual.makespan_s, (double)virtual.work.lost_ns / 1e9);
	snprintf(what, sizeof(what),
		 "%s, client processes: situations failed or hanging, calls refused", set->name);
	promise(r, "11f", 0,
		(double)(got.n_failed_situations + got.n_hangs + got.n_refused + got.n_broken),
		what, "");
	ratio = virtual.work.n_retries ? (double)got.work.n_retries / (double)virtual.work.n_retries
				       : 1;
	snprintf(what, sizeof(what),
		 "%s: retries of client processes against virtual time's %" PRIu64 ", apart by",
		 set->name, virtual.work.n_retries);
	promise(r, "11g", 0.25, fabs(ratio - 1), what, "x");
}

/* ---- objects, and death ---------------------------------------------------------------------- */

struct books {
	uint64_t used, kernel; /* bytes; the latter what statvfs() says */
	int error;             /* outcome or -errno */
};

static uint64_t kernel_used(void)
{
	struct statvfs v;

	if (statvfs(scene.partition.path, &v) < 0)
		err(1, "%s", scene.partition.path);
	return (uint64_t)(v.f_blocks - v.f_bfree) * v.f_frsize;
}

/* A client of its own: whoever forks has no store. It looks until both agree,
 * or for as long as it may. */
static void look_at_books(struct books *ret)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_arb_pool_info info = {0};
	struct shmstore_partition *p;
	struct shmstore *s;
	int r = shmstore_partition_open(scene.daemon.partition, 0, &p);

	o.daemon = SHMSTORE_DAEMON_REQUIRED;
	if (r == 0)
		r = shmstore_open(p, "books", &o, &s);
	for (unsigned i = 0; r == 0 && i < BOOKS_WITHIN_S * (1000000000 / BOOKS_LOOK_NS); i++) {
		r = shmstore_arb_pool_info(s, SHMSTORE_ARB_PARTITION, &info);
		ret->used = info.used;
		ret->kernel = kernel_used();
		if (ret->used == ret->kernel)
			break;
		nanosleep(&(struct timespec){.tv_nsec = BOOKS_LOOK_NS}, NULL);
	}
	ret->error = r;
	_exit(0);
}

static struct books compare_books(void)
{
	struct books *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct books books;
	pid_t pid;

	if (shared == MAP_FAILED)
		err(1, "shared memory");
	shared->error = -ECHILD;
	pid = fork();
	if (pid == 0)
		look_at_books(shared);
	if (pid < 0 || waitpid(pid, NULL, 0) != pid)
		err(1, "a client that looks at the books");
	books = *shared;
	munmap(shared, sizeof(*shared));
	return books;
}

static void run_killed(struct report *r, const struct options *o, const struct arbset *set)
{
	struct fleet_options fleet = {.rules = set->rules,
				      .seed = ARBSETS_SEED,
				      .n_situations = o->n_situations,
				      .n_clients = set->n_runners,
				      .pace = o->pace,
				      .kill = KILL,
				      .shrink = SHRINK,
				      .objects = true};
	struct fleet_result got;
	struct books books;
	char what[128];
	int e;

	if (!set_scene(r, ((uint64_t)set->pool_mib << 20) >> SHRINK, HEADROOM))
		return;
	fleet.partition = scene.daemon.partition;
	e = fleet_run(&fleet, &got);
	say(r, set->name, "put, killed", &got);
	if (e < 0)
		errx(1, "%s: %s", set->name, strerror(-e));
	books = compare_books();
	clear_scene();
	if (books.error)
		errx(1, "the pool's books: %s",
		     books.error < 0 ? shmstore_strerror(books.error)
				     : shmstore_arb_outcome_name(books.error));
	report_note(r,
		    "%s, put, killed: afterwards %" PRIu64 " bytes are booked, %" PRIu64
		    " are in use for the kernel",
		    set->name, books.used, books.kernel);
	snprintf(what, sizeof(what), "%s, 1 %% killed: situations failed or hanging", set->name);
	promise(r, "11h", 0, (double)(got.n_failed_situations + got.n_hangs + got.n_broken), what,
		"");
	snprintf(what, sizeof(what),
		 "%s, 1 %% killed: bytes booked that the kernel does not know, or the other way",
		 set->name);
	promise(r, "11i", 0, fabs((double)books.used - (double)books.kernel), what, "");
}

int main(int argc, char **argv)
{
	static const struct argp own = {own_options, parse_option, NULL, NULL, NULL, NULL, NULL};
	struct options o = {.pace = PACE};
	const struct report_program program = {
		"bench_fleet", "the memory arbiter, with client processes and a daemon", &own, &o};
	struct report_options common;
	struct report *r = report_new_own(argc, argv, &program, &common);
	double load[1] = {0};
	int e;

	if (!r)
		err(1, "out of memory");
	if (o.n_situations == 0)
		o.n_situations = common.quick ? QUICK : SITUATIONS;
	atexit(clear_scene);
	getloadavg(load, 1);
	report_note(r,
		    "not pinned; %u situations of each set, work at %.2f of its time; the "
		    "machine's load before: %.1f",
		    o.n_situations, o.pace, load[0]);
	for (size_t i = 0;
	     !o.no_plain && i < (o.set ? 1 : sizeof(usual_sets) / sizeof(usual_sets[0])); i++)
		run_plain(r, &o, find_set(o.set ? o.set : usual_sets[i]));
	for (size_t i = 0;
	     !o.no_kills && i < (o.set ? 1 : sizeof(killed_sets) / sizeof(killed_sets[0])); i++)
		run_killed(r, &o, find_set(o.set ? o.set : killed_sets[i]));
	e = report_print(r);
	report_free(r);
	return e;
}
