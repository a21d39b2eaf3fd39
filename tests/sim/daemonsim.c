/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemonsim.c: the whole daemon in virtual time, seed after seed. Each run has a process, a
 * partition and clocks of its own, and repeats exactly: its number is all that it takes. A run that
 * breaks an invariant, crashes or hangs is named by its seed, with its last steps.
 *
 * For root: it mounts a tmpfs in a mount namespace, and has clients of several users.
 */
#include <argp.h>
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "simtrace.h"
#include "simworld.h"

#define SKIPPED     77
#define RUN_SECONDS 120 /* a run that takes longer hangs */
#define JOBS_MAX    64u
#define RUNS_MANY   20u
#define BASE        "/mnt" /* in the run's own mount namespace */

struct options {
	uint32_t from, to;
	unsigned jobs, twice; /* twice: each so-many-th seed runs twice; 0: none */
	bool verbose;
};

static const struct argp_option options[] = {
	{"seeds", 's', "FROM[-TO]", 0, "these (1-200)", 0},
	{"jobs", 'j', "N", 0, "so many runs at a time (1)", 0},
	{"twice", 't', "N", 0, "play each N-th seed twice, and compare the traces; 0: none (10)",
	 0},
	{"verbose", 'v', NULL, 0, "print every step", 0},
	{0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	char *end;

	switch (key) {
	case 's':
		o->from = o->to = (uint32_t)strtoul(arg, &end, 0);
		if (*end == '-')
			o->to = (uint32_t)strtoul(end + 1, &end, 0);
		if (*end || end == arg || o->to < o->from)
			argp_error(state, "no range of seeds: %s", arg);
		return 0;
	case 'j':
		o->jobs = (unsigned)strtoul(arg, NULL, 0);
		if (!o->jobs || o->jobs > JOBS_MAX)
			argp_error(state, "1 to %u jobs", JOBS_MAX);
		return 0;
	case 't':
		o->twice = (unsigned)strtoul(arg, NULL, 0);
		return 0;
	case 'v':
		o->verbose = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- one run --------------------------------------------------------------------------------- */

/* A place of its own, or not at all. */
static bool isolate(void)
{
	return unshare(CLONE_NEWNS) == 0 &&
	       mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("tmpfs", BASE, "tmpfs", 0, "size=64m") == 0;
}

static pid_t start(uint32_t seed, struct simtrace *t, bool whole)
{
	pid_t pid;

	memset(t, 0, sizeof(*t));
	t->whole = whole;
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		err(1, "fork");
	if (pid)
		return pid;
	alarm(RUN_SECONDS);
	simtrace_to(t);
	log_init(0);
	if (!isolate())
		simtrace_fail("no mount namespace: %m");
	simworld_run(seed, BASE);
	fflush(stdout);
	exit(0); /* by way of the leak checker */
}

struct run {
	pid_t pid; /* 0: none */
	uint32_t seed;
	bool second;
	uint64_t first_hash;
	struct simtrace *trace;
};

struct sums {
	uint64_t n_runs, n_failed, n_compared, n_lines, n_answers, n_waits, n_grants, n_deaths,
		n_faults, virtual_ns;
};

static void report(const struct options *o, const char *program, struct run *r, int status,
		   const char *why)
{
	printf("FAILED - seed %" PRIu32 ": %s", r->seed, why);
	if (WIFSIGNALED(status))
		printf(" (signal %d)", WTERMSIG(status));
	else
		printf(" (exit status %d)", WEXITSTATUS(status));
	printf("\n");
	if (!o->verbose)
		simtrace_print_last(r->trace);
	printf("again: %s -v -t 0 -s %" PRIu32 "\n", program, r->seed);
}

static void count(struct sums *s, const struct simtrace *t)
{
	s->n_runs++;
	s->n_lines += t->n_lines;
	s->n_answers += t->n_answers;
	s->n_waits += t->n_waits;
	s->n_grants += t->n_grants;
	s->n_deaths += t->n_deaths;
	s->n_faults += t->n_faults;
	s->virtual_ns += t->time_ns;
}

/* True: it is to be played once more. */
static bool judge(const struct options *o, const char *program, struct run *r, int status,
		  struct sums *s)
{
	bool again = !r->second && o->twice && r->seed % o->twice == 0;

	if (status || r->trace->failed) {
		s->n_failed++;
		report(o, program, r, status,
		       r->trace->failed ? r->trace->failure : "the daemon's process ended");
		again = false;
	} else if (r->second && r->trace->hash != r->first_hash) {
		s->n_failed++;
		report(o, program, r, status, "played twice, it took two ways");
	}
	s->n_compared += r->second;
	if (!r->second)
		count(s, r->trace);
	r->first_hash = r->trace->hash;
	return again;
}

static struct run *find(struct run *runs, unsigned n, pid_t pid)
{
	for (unsigned i = 0; i < n; i++) {
		if (runs[i].pid == pid)
			return &runs[i];
	}
	return NULL;
}

static void play(const struct options *o, const char *program, struct sums *s)
{
	struct run runs[JOBS_MAX] = {0}, *r;
	uint64_t next = o->from;
	unsigned n_running = 0;
	int status;

	for (unsigned i = 0; i < o->jobs; i++) {
		runs[i].trace = mmap(NULL, sizeof(struct simtrace), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (runs[i].trace == MAP_FAILED)
			err(1, "memory");
	}
	while (n_running || next <= o->to) {
		while (next <= o->to && (r = find(runs, o->jobs, 0)) != NULL) {
			r->seed = (uint32_t)next++;
			r->second = false;
			r->pid = start(r->seed, r->trace, o->verbose);
			n_running++;
		}
		r = find(runs, o->jobs, wait(&status));
		if (!r)
			err(1, "wait");
		if (judge(o, program, r, status, s)) {
			r->second = true;
			r->pid = start(r->seed, r->trace, false);
		} else {
			r->pid = 0;
			n_running--;
		}
	}
}

int __real_clock_gettime(clockid_t clock, struct timespec *ret);

static double seconds(void)
{
	struct timespec t;

	__real_clock_gettime(CLOCK_MONOTONIC, &t); /* the other one is the simulation's */
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		options, parse_option, NULL, "The whole daemon in virtual time, seed after seed",
		NULL,    NULL,         NULL};
	struct options o = {.from = 1, .to = 200, .jobs = 1, .twice = 10};
	struct sums s = {0};
	double began = seconds(), took;

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	if (geteuid() != 0) {
		printf("skipped: a mount namespace and clients of several users take root\n");
		return SKIPPED;
	}
	signal(SIGPIPE, SIG_IGN);
	setenv("SHMSTORE_SOCKET", "/nonexistent/shmstored", 1);
	play(&o, argv[0], &s);
	took = seconds() - began;
	printf("%" PRIu64 " seeds in %.1f s, %.0f an hour; %.0f s of virtual time, %" PRIu64
	       " steps, %" PRIu64 " answers, %" PRIu64 " waits, %" PRIu64 " grants, %" PRIu64
	       " deaths, %" PRIu64 " refused calls; %" PRIu64 " played twice\n",
	       s.n_runs, took, (double)s.n_runs / took * 3600, (double)s.virtual_ns / 1e9,
	       s.n_lines, s.n_answers, s.n_waits, s.n_grants, s.n_deaths, s.n_faults, s.n_compared);
	/* One run may have none; of many it would be a fault of the simulation's. */
	if (s.n_runs >= RUNS_MANY && (!s.n_grants || !s.n_deaths || !s.n_waits))
		errx(1, "nothing came of it");
	printf("%" PRIu64 " passed, %" PRIu64 " failed\n", s.n_runs - s.n_failed, s.n_failed);
	return s.n_failed > 0;
}
