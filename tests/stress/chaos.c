/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chaos.c: storms of every kind, one after the other, each on a partition of its own.
 *
 *   chaos [-d SHMSTORED] [-t seconds] [-r seconds] [-s seed] [-n]
 *
 * Which kind comes next (a tier or none, a daemon or none, one user or three, a roomy or a narrow
 * partition, limits) follows from the seed; each kind comes before any comes twice, in two turns
 * each with and without stores that pack, and in four turns each of these with and without
 * namespaces (half of the workers are then as in containers, each in one of its own). Workers are
 * killed, stopped, have children, write with two threads and read with a third. The rules of a
 * storm must hold in each (storm.c). With -s N -r 20 -t 20 that one round is repeated. The last
 * lines are a summary: wrong: rounds that found a byte, a key or an error that should not be;
 * drift: of a ledger at rest, in bytes; the longest call of a worker that was not stopped
 * meanwhile, though others were, perhaps with a lock.
 */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sandbox.h"
#include "storm.h"

#define N_KINDS 12u

struct chaos {
	unsigned seconds, round;
	uint64_t seed;
	const char *daemon;
	bool no_ledgers;
};

struct sum {
	struct storm_result all;
	unsigned n_rounds, n_failed;
};

static const struct kind {
	bool disk, daemon;
	unsigned n_users, megabytes, limit;
} kinds[N_KINDS] = {
	{true, true, 3, 96, 48},   {false, false, 1, 60, 0},  {true, false, 3, 128, 0},
	{false, true, 3, 256, 40}, {true, true, 1, 60, 0},    {false, false, 3, 96, 0},
	{true, false, 1, 60, 0},   {false, true, 1, 96, 64},  {true, true, 3, 256, 100},
	{true, true, 1, 128, 90},  {false, false, 1, 256, 0}, {false, true, 3, 60, 0},
};

static void add(struct sum *s, const struct storm_result *r)
{
	s->n_rounds++;
	s->n_failed += r->failed;
	s->all.n_ops += r->n_ops;
	s->all.n_kills += r->n_kills;
	s->all.n_stops += r->n_stops;
	s->all.n_forks += r->n_forks;
	s->all.n_stands += r->n_stands;
	s->all.n_rests += r->n_rests;
	s->all.n_late += r->n_late;
	s->all.n_enospc += r->n_enospc;
	s->all.n_edquot += r->n_edquot;
	s->all.n_timedout += r->n_timedout;
	if (r->longest_ms > s->all.longest_ms)
		s->all.longest_ms = r->longest_ms;
	if (imaxabs(r->drift) > imaxabs(s->all.drift))
		s->all.drift = r->drift;
}

static int one_round(const struct chaos *c, const char *disk, uint64_t seed, unsigned seconds,
		     struct sum *s)
{
	const struct kind *k = &kinds[seed % N_KINDS];
	/* Each kind both ways in two turns of all kinds, and every other round of a turn. */
	bool packs = (seed + seed / N_KINDS) % 2, apart = (seed / 2 + seed / (2 * N_KINDS)) % 2;
	struct storm_options o = {.seconds = seconds,
				  .seed = seed,
				  .megabytes = k->megabytes,
				  .disk = k->disk ? disk : NULL,
				  .daemon = k->daemon ? c->daemon : NULL,
				  .n_users = k->n_users,
				  .pack_max = packs ? STORM_PACK_MAX : 0,
				  .stops = true,
				  .forks = true,
				  .apart = apart,
				  .writers = true,
				  .ledgers = !c->no_ledgers,
				  .quiet = true};
	struct storm_result r;
	char own[320];
	int status;

	/* Each partition has a tier of its own: what a round that failed leaves is
	 * not in the next one's books. */
	snprintf(own, sizeof(own), "%s/%" PRIu64, disk ? disk : "", seed);
	if (o.disk && (mkdir(own, 0755) < 0 || chmod(own, 0755) < 0))
		o.disk = NULL;
	o.disk = o.disk ? own : NULL;
	o.limit = o.daemon ? k->limit : 0;
	status = storm_run(&o, &r);
	if (o.disk) {
		sandbox_wipe(own);
		rmdir(own);
	}
	if (status == 77)
		return 77;
	printf("%s seed %" PRIu64 ": %s, %s, %u user%s, %u MiB%s%s%s: %" PRIu64
	       " operations, %" PRIu64 " kills, %" PRIu64 " stops, %" PRIu64 " forks, %" PRIu64
	       " + %" PRIu64 " stands, %" PRIu64 " full, %" PRIu64 " over a limit, %" PRIu64
	       " timed out, longest call %" PRIu64 " ms (%s)\n",
	       status ? "FAIL" : "ok  ", seed, o.disk ? "tier" : "no tier",
	       o.daemon ? "daemon" : "no daemon", o.n_users, o.n_users > 1 ? "s" : "", o.megabytes,
	       o.limit ? ", limits" : "", packs ? ", packed" : "", apart ? ", namespaces" : "",
	       r.n_ops, r.n_kills, r.n_stops, r.n_forks, r.n_stands, r.n_rests, r.n_enospc,
	       r.n_edquot, r.n_timedout, r.longest_ms, storm_op_name[r.longest_op]);
	fflush(stdout);
	r.failed = status != 0;
	add(s, &r);
	return status;
}

static error_t on_option(int key, char *arg, struct argp_state *state)
{
	struct chaos *c = state->input;

	switch (key) {
	case 'd':
		c->daemon = arg;
		return 0;
	case 't':
		c->seconds = (unsigned)strtoul(arg, NULL, 10);
		return 0;
	case 'r':
		c->round = (unsigned)strtoul(arg, NULL, 10);
		return 0;
	case 's':
		c->seed = strtoull(arg, NULL, 10);
		return 0;
	case 'n':
		c->no_ledgers = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static time_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

int main(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"daemon", 'd', "PATH", 0, "The shmstored to test; without it there is none", 0},
		{"time", 't', "SECONDS", 0, "How long in all (24)", 0},
		{"round", 'r', "SECONDS", 0, "How long one storm blows (a twelfth of all, 2 to 20)",
		 0},
		{"seed", 's', "N", 0, "Of the first round; each next one has the next (the time)",
		 0},
		{"no-ledgers", 'n', NULL, 0, "Do not compare ledgers with a walk", 0},
		{0},
	};
	static const struct argp argp = {known, on_option, NULL, "Storms of every kind.",
					 NULL,  NULL,      NULL};
	struct chaos c = {.seconds = 24, .seed = (uint64_t)time(NULL) * 1000};
	struct sum s = {0};
	const char *disk;
	time_t end;
	int status = 0;

	argp_parse(&argp, argc, argv, 0, NULL, &c);
	if (!c.round)
		c.round = c.seconds < 2 * N_KINDS    ? 2
			  : c.seconds > 20 * N_KINDS ? 20
						     : c.seconds / N_KINDS;
	disk = sandbox_disk();
	if (!disk || chmod(disk, 0755) < 0) /* each user has a directory in it */
		printf("without a tier: no directory on a disk: %s\n", strerror(errno));
	end = now() + (time_t)c.seconds;
	for (uint64_t seed = c.seed; status != 77 && (seed == c.seed || now() < end); seed++)
		status = one_round(&c, disk, seed, c.round, &s);
	if (status == 77)
		return 77;
	printf("chaos: seeds %" PRIu64 " to %" PRIu64 ": %u rounds, %" PRIu64
	       " operations, %" PRIu64 " kills, %" PRIu64 " stops, %" PRIu64 " forks, %" PRIu64
	       " stands (%" PRIu64 " late), %" PRIu64 " rests; wrong or leaked %u, drift %" PRId64
	       ", longest call %" PRIu64 " ms\n",
	       c.seed, c.seed + s.n_rounds - 1, s.n_rounds, s.all.n_ops, s.all.n_kills,
	       s.all.n_stops, s.all.n_forks, s.all.n_stands, s.all.n_late, s.all.n_rests,
	       s.n_failed, s.all.drift, s.all.longest_ms);
	printf("chaos: %u passed, %u failed\n", s.n_rounds - s.n_failed, s.n_failed);
	return s.n_failed ? 1 : 0;
}
